-- Cron expressions are read here and nowhere else. Promise: what is refused is refused with the field, the value and what is allowed;
-- what is accepted has a time at which it fires. The form that is kept holds one bit per value, so that the next time is found by
-- jumping and not by trying minute after minute.
--
-- The form, bigint[]: 1 kind (1 wall times, 2 interval-like, 3 @every), 2 seconds, 3 minutes, 4 hours, 5 days of the month,
-- 6 days from the month's end (bit 0 = the last), 7 nearest weekday to a day (bit 0 = the last weekday), 8 months, 9 days of the week
-- (bit 0 = Sunday), 10 nth of the month (bit 7 * (n - 1) + day of the week), 11 last of the month, 12 = 1: one of the two day fields is enough.
-- Of @every: 2 period, 3 anchor, both in seconds. Of a calendar rule: more, see 26_cron_rrule.sql. A form is of this version: rows that keep one are parsed again when it changes.

create or replace function _octop_cron_refuse(field text, value text, why text) returns void
  language plpgsql immutable set search_path from current
as $$
begin
  raise exception 'octop: the % field says "%": %', field, left(value, 100), why
    using errcode = 'OC128', hint = 'Five fields: minute, hour, day of month, month, day of week; six: second first. select octop_cron_explain(''0 9 * * MON-FRI'') tells what one means.';
end $$;
comment on function _octop_cron_refuse(text, text, text) is 'Raises OC128 for a value of a field of a cron expression.';

create or replace function _octop_cron_allowed(field text) returns text
  language sql immutable set search_path from current
  return case field
    when 'hour' then '0 to 23'
    when 'day of month' then '1 to 31, L (the last), L-1 to L-30 (before the last), 1W to 31W (the weekday nearest to it) or LW (the last weekday)'
    when 'month' then '1 to 12 or JAN to DEC'
    when 'day of week' then '0 to 7 (0 and 7 are Sunday), SUN to SAT, FRI#1 to FRI#5 (the nth of the month) or FRIL (the last of the month)'
    else '0 to 59' end;
comment on function _octop_cron_allowed(text) is 'What a field of a cron expression may hold, in words, for messages.';

create or replace function _octop_cron_value(field text, item text, low integer, high integer, names text[]) returns integer
  language plpgsql immutable set search_path from current
as $$
begin
  if item ~ '^[0-9]{1,4}$' and item::integer between low and high then
    return item::integer;
  elsif item = any (names) then
    return low + array_position(names, item) - 1;
  end if;
  perform _octop_cron_refuse(field, item, 'allowed is ' || _octop_cron_allowed(field));
  return null;
end $$;
comment on function _octop_cron_value(text, text, integer, integer, text[]) is 'One number or name of a field; OC128 for anything else.';

-- last: where * and "N/step" end; high is greater for days of the week alone, where 7 is Sunday, too
create or replace function _octop_cron_list(field text, list text, low integer, high integer, last integer, names text[]) returns bigint
  language plpgsql immutable set search_path from current
as $$
declare
  v_mask bigint := 0;
  v_size integer := last - low + 1;
  v_item text;
  v_base text;
  v_step text;
  v_ends text[];
  a integer;
  b integer;
  s integer;
begin
  foreach v_item in array string_to_array(list, ',') loop
    v_base := split_part(v_item, '/', 1);
    v_step := substr(v_item, length(v_base) + 2);
    if v_item like '%/%' and v_step !~ '^0*[1-9][0-9]{0,3}$' then
      perform _octop_cron_refuse(field, v_item, 'behind / stands a step, a whole number from 1 on');
    end if;
    if v_item ~ '[/-]' and v_item ~ '#|^L|LW|[0-9][LW]|[A-Z]{3}L' then
      perform _octop_cron_refuse(field, v_item, 'L, W and # go with one day, without range and step; allowed is ' || _octop_cron_allowed(field));
    elsif v_base = '*' then
      a := low;
      b := last;
    elsif v_base like '%-%' then
      v_ends := string_to_array(v_base, '-');
      if array_length(v_ends, 1) <> 2 or '' = any (v_ends) then
        perform _octop_cron_refuse(field, v_item, 'a range has two ends; allowed is ' || _octop_cron_allowed(field));
      end if;
      a := _octop_cron_value(field, v_ends[1], low, high, names);
      b := _octop_cron_value(field, v_ends[2], low, high, names);
      if a > b then
        if v_base ~ '[0-9]' then
          perform _octop_cron_refuse(field, v_item, case
            when names is null then format('a range goes upwards; over the end it is %s-%s,%s-%s', a, last, low, b)
            else 'a range of numbers goes upwards; over the end it is written with names, as in ' || case field when 'month' then 'NOV-FEB' else 'FRI-MON' end end);
        end if;
        b := b + v_size;
      end if;
    else
      a := _octop_cron_value(field, v_base, low, high, names);
      b := a;
      if v_step <> '' then
        a := low + (a - low) % v_size;
        b := last;
      end if;
    end if;
    s := coalesce(nullif(v_step, ''), '1')::integer;
    if s > greatest(b - a, 1) then
      perform _octop_cron_refuse(field, v_item, format('a step of %s leaves one value of the range: write %s', s, a));
    end if;
    for x in a .. b by s loop
      v_mask := v_mask | (1::bigint << (low + (x - low) % v_size));
    end loop;
  end loop;
  return v_mask;
end $$;
comment on function _octop_cron_list(text, text, integer, integer, integer, text[]) is
  'The values of a field as bits: numbers, names, ranges, steps and lists of them. Steps begin anew at the start of each range. OC128 for anything else.';

create or replace function _octop_cron_days(rule bigint[], year integer, month integer) returns bigint
  language plpgsql immutable set search_path from current
as $$
declare
  v_first date := make_date(year, month, 1);
  v_last integer := make_date(year + month / 12, month % 12 + 1, 1) - v_first;
  -- 0001-01-01 was a Monday
  f integer := (v_first - date '0001-01-01' + 1) % 7;
  v_all bigint := (2::bigint << v_last) - 2;
  v_dom bigint := rule[5];
  v_dow bigint := rule[9];
  g bigint;
  d integer;
begin
  if rule[6] <> 0 then
    for k in 0 .. v_last - 1 loop
      v_dom := v_dom | ((rule[6] >> k & 1) << (v_last - k));
    end loop;
  end if;
  if rule[7] <> 0 then
    for n in 0 .. v_last loop
      continue when rule[7] >> n & 1 = 0;
      d := case n when 0 then v_last else n end;
      d := d + case (f + d - 1) % 7
        when 6 then case when d = 1 then 2 else -1 end
        when 0 then case when d = v_last then -2 else 1 end
        else 0 end;
      v_dom := v_dom | (1::bigint << d);
    end loop;
  end if;
  -- turned so that bit 0 is the first of the month, then once per week
  g := ((v_dow >> f) | (v_dow << 7 - f)) & 127;
  v_dow := (g | (g << 7) | (g << 14) | (g << 21) | (g << 28)) << 1;
  if rule[10] <> 0 then
    for n in 0 .. 4 loop
      g := rule[10] >> 7 * n & 127;
      v_dow := v_dow | ((((g >> f) | (g << 7 - f)) & 127) << 7 * n + 1);
    end loop;
  end if;
  if rule[11] <> 0 then
    g := ((rule[11] >> f) | (rule[11] << 7 - f)) & 127;
    v_dow := v_dow | (((g << 22) | (g << 29)) & (127::bigint << v_last - 6));
  end if;
  v_all := (case when rule[12] = 1 then v_dom | v_dow else v_dom & v_dow end) & v_all;
  return case when rule[14] is null then v_all else _octop_rrule_days(rule, year, month, v_all) end;
end $$;
comment on function _octop_cron_days(bigint[], integer, integer) is 'The days of one month on which a parsed expression fires, bit 1 = the first.';

create or replace function _octop_cron_parse(expression text) returns bigint[]
  language plpgsql immutable strict set search_path from current
as $$
declare
  v_fields text[];
  v_text text := btrim(upper(expression collate "C"), E' \t\r\n');
  v_dow_names constant text[] := array['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT'];
  v_rule bigint[] := array_fill(0::bigint, array[12]);
  v_plain text[];
  v_item text;
  n integer;
begin
  if length(expression) > 500 then
    raise exception 'octop: a cron expression has at most 500 characters, not %', length(expression)
      using errcode = 'OC128', hint = 'Use ranges and steps instead of long lists, or several schedules.';
  end if;
  if v_text ~ '^(DTSTART|RRULE)' then
    return _octop_rrule_parse(expression);
  elsif v_text like '@%' then
    v_text := case v_text when '@HOURLY' then '0 * * * *' when '@DAILY' then '0 0 * * *' when '@MIDNIGHT' then '0 0 * * *' when '@WEEKLY' then '0 0 * * 0'
      when '@MONTHLY' then '0 0 1 * *' when '@YEARLY' then '0 0 1 1 *' when '@ANNUALLY' then '0 0 1 1 *' end;
    if v_text is null then
      return case when expression ~* '^[[:space:]]*@at([[:space:]]|$)' then _octop_cron_at(expression) else _octop_cron_every(expression) end;
    end if;
  end if;
  v_fields := regexp_split_to_array(v_text, '[[:space:]]+');
  n := array_length(v_fields, 1);
  if n = 5 then
    v_fields := '0'::text || v_fields;
  elsif n <> 6 or v_text like '%=%' then
    raise exception 'octop: the cron expression "%" has % and not five or six', left(expression, 100),
        case when v_text = '' then 'no field' when n = 1 then 'one field' else n || ' fields' end
      using errcode = 'OC128', hint = case
        when v_text like '%=%' then 'The time zone is an argument of its own, not a part of the expression.'
        when n = 7 then 'Six fields: second, minute, hour, day of month, month, day of week. There is no field for years: end the schedule instead.'
        else 'Five fields: minute, hour, day of month, month, day of week; six: second first. Or @hourly, @daily, @weekly, @monthly, @yearly, @every 90s, RRULE:FREQ=….' end;
  end if;
  for i in 1 .. 6 loop
    v_item := (array['second', 'minute', 'hour', 'day of month', 'month', 'day of week'])[i];
    if v_fields[i] = '?' and i in (4, 6) then
      v_fields[i] := '*';
    elsif v_fields[i] like '%,%' and ',' || v_fields[i] ~ ',[*?]' then
      perform _octop_cron_refuse(v_item, v_fields[i], '* stands alone and not in a list; write 0/20,50 for */20,50');
    elsif '' = any (string_to_array(v_fields[i], ',')) then
      perform _octop_cron_refuse(v_item, v_fields[i], 'a list has a value between two commas');
    end if;
  end loop;
  -- the rule of Vixie's cron: who writes a star for the minute or the hour means "each so often", who writes none means a time of day
  v_rule[1] := case when v_fields[2] like '*%' or v_fields[3] like '*%' then 2 else 1 end;
  v_rule[2] := _octop_cron_list('second', v_fields[1], 0, 59, 59, null);
  v_rule[3] := _octop_cron_list('minute', v_fields[2], 0, 59, 59, null);
  v_rule[4] := _octop_cron_list('hour', v_fields[3], 0, 23, 23, null);
  v_rule[8] := _octop_cron_list('month', v_fields[5], 1, 12, 12, array['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC']);
  v_rule[12] := case when v_fields[4] like '*%' or v_fields[6] like '*%' then 0 else 1 end;
  foreach v_item in array string_to_array(v_fields[4], ',') loop
    if v_item = 'L' then
      v_rule[6] := v_rule[6] | 1;
    elsif v_item ~ '^L-([1-9]|[12][0-9]|30)$' then
      v_rule[6] := v_rule[6] | (1::bigint << substr(v_item, 3)::integer);
    elsif v_item = 'LW' then
      v_rule[7] := v_rule[7] | 1;
    elsif v_item ~ '^([1-9]|[12][0-9]|3[01])W$' then
      v_rule[7] := v_rule[7] | (1::bigint << left(v_item, -1)::integer);
    else
      v_plain := v_plain || v_item;
    end if;
  end loop;
  if v_plain is not null then
    v_rule[5] := _octop_cron_list('day of month', array_to_string(v_plain, ','), 1, 31, 31, null);
  end if;
  v_plain := null;
  foreach v_item in array string_to_array(v_fields[6], ',') loop
    if v_item ~ '^([0-7]|[A-Z]{3})#[1-5]$' then
      n := _octop_cron_value('day of week', left(v_item, -2), 0, 7, v_dow_names) % 7;
      v_rule[10] := v_rule[10] | (1::bigint << 7 * (right(v_item, 1)::integer - 1) + n);
    elsif v_item ~ '^([0-7]|[A-Z]{3})L$' then
      v_rule[11] := v_rule[11] | (1::bigint << _octop_cron_value('day of week', left(v_item, -1), 0, 7, v_dow_names) % 7);
    else
      v_plain := v_plain || v_item;
    end if;
  end loop;
  if v_plain is not null then
    v_rule[9] := _octop_cron_list('day of week', array_to_string(v_plain, ','), 0, 7, 6, v_dow_names);
  end if;
  perform _octop_cron_can_fire(v_rule, v_fields);
  return v_rule;
end $$;
comment on function _octop_cron_parse(text) is
  'The parsed form of a cron expression, for a row to keep and _octop_cron_next to read. Errors: OC128 it cannot be read, OC129 it could never fire.';

create or replace function _octop_cron_can_fire(rule bigint[], fields text[]) returns void
  language plpgsql immutable set search_path from current
as $$
begin
  if rule[5] & ((1::bigint << 29) - 2) <> 0 and rule[9] = 127 then
    return;
  end if;
  -- 28 years of the Gregorian calendar have each of its fourteen kinds of year
  for y in 2000 .. 2027 loop
    for m in 1 .. 12 loop
      if rule[8] >> m & 1 = 1 and _octop_cron_days(rule, y, m) <> 0 then
        return;
      end if;
    end loop;
  end loop;
  raise exception 'octop: day of month "%", month "%" and day of week "%" never meet', fields[4], fields[5], fields[6]
    using errcode = 'OC129', hint = 'For the last day of a month write L for the day of month.';
end $$;
comment on function _octop_cron_can_fire(bigint[], text[]) is 'Raises OC129 for an expression whose days no year has.';

create or replace function _octop_cron_every(expression text) returns bigint[]
  language plpgsql immutable set search_path from current
as $$
declare
  v_parts text[];
  v_seconds numeric;
  v_anchor bigint := 0;
begin
  v_parts := regexp_match(lower(expression collate "C"),
    '^[[:space:]]*@every[[:space:]]+(?=[0-9])(?:([0-9]{1,6})w)?(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,8})m)?(?:([0-9]{1,9})s)?(?:[[:space:]]+from[[:space:]]+([^[:space:]]+))?[[:space:]]*$');
  if v_parts is null then
    raise exception 'octop: "%" is no rule: after @ stands hourly, daily, midnight, weekly, monthly, yearly, annually, every or at', left(expression, 100)
      using errcode = 'OC128', hint = 'Intervals: @every 90s, @every 1h30m, @every 2w from 2030-01-07T09:00:00+01:00; w, d, h, m and s in this order. There is no @reboot: workers start at any time.';
  end if;
  v_seconds := coalesce(v_parts[1]::numeric, 0) * 604800 + coalesce(v_parts[2]::numeric, 0) * 86400 + coalesce(v_parts[3]::numeric, 0) * 3600
             + coalesce(v_parts[4]::numeric, 0) * 60 + coalesce(v_parts[5]::numeric, 0);
  if v_seconds not between 1 and 315360000 then
    raise exception 'octop: the interval of "%" is % seconds long: allowed is 1 second to 3,650 days', left(expression, 100), v_seconds
      using errcode = 'OC128', hint = '@every 90s, @every 1h30m, @every 2w.';
  end if;
  if v_parts[6] is not null then
    if v_parts[6] !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}t[0-9]{2}:[0-9]{2}(:[0-9]{2})?(z|[+-][0-9]{2}:[0-9]{2})$' then
      raise exception 'octop: "%" is no moment from which an interval counts', left(v_parts[6], 100)
        using errcode = 'OC128', hint = 'Write date, time and offset: 2030-01-07T09:00:00+01:00 or 2030-01-07T08:00Z.';
    end if;
    begin
      -- with an offset and in ISO 8601 no setting of a session has a say
      v_anchor := extract(epoch from v_parts[6]::timestamptz)::bigint;
    exception when data_exception then
      raise exception 'octop: "%" is no moment from which an interval counts: %', left(v_parts[6], 100), sqlerrm
        using errcode = 'OC128', hint = 'Write date, time and offset: 2030-01-07T09:00:00+01:00 or 2030-01-07T08:00Z.';
    end;
  end if;
  return array[3, v_seconds::bigint, v_anchor];
end $$;
comment on function _octop_cron_every(text) is 'The parsed form of @every; OC128 for anything else that begins with @.';

create or replace function _octop_cron_at(expression text) returns bigint[]
  language plpgsql immutable set search_path from current
as $$
declare
  v_text text := btrim(substr(btrim(lower(expression collate "C"), E' \t\r\n'), 4), E' \t\r\n');
begin
  if v_text !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}t[0-9]{2}:[0-9]{2}(:[0-9]{2})?(z|[+-][0-9]{2}:[0-9]{2})$' then
    raise exception 'octop: "%" is no moment for @at', left(v_text, 100)
      using errcode = 'OC128', hint = 'Write date, time and offset: @at 2030-01-07T09:00:00+01:00 or @at 2030-01-07T08:00Z.';
  end if;
  -- with an offset and in ISO 8601 no setting of a session has a say
  return array[4, extract(epoch from v_text::timestamptz)::bigint];
exception when data_exception then
  raise exception 'octop: "%" is no moment for @at: %', left(v_text, 100), sqlerrm
    using errcode = 'OC128', hint = 'Write date, time and offset: @at 2030-01-07T09:00:00+01:00 or @at 2030-01-07T08:00Z.';
end $$;
comment on function _octop_cron_at(text) is 'The parsed form of @at, which fires once; OC128 for what is no moment with an offset.';
