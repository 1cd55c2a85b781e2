-- Calendar rules of RFC 5545, the part that names days: every second Tuesday, the last working day. Promise: what is taken means what the
-- RFC says, by the wall clock of the schedule's zone; what is not taken is refused with its name and what to write instead.
--
-- The form goes on after that of a cron expression: 13 unit of the period (0 none, 1 day, 2 week from Monday, 3 month, 4 year), 14 every so many,
-- 15 number of the period of DTSTART, 16 DTSTART as wall time in seconds since 1970, 17 positions in the month (bit n = the nth day),
-- 18 positions from its end (bit n = the nth last).

create or replace function _octop_rrule_refuse(part text, value text, why text) returns void
  language plpgsql immutable set search_path from current
as $$
begin
  raise exception 'octop: the calendar rule says %=%: %', part, left(value, 100), why
    using errcode = 'OC128', hint = 'For example RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=17 or DTSTART:20300108T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=TU.';
end $$;
comment on function _octop_rrule_refuse(text, text, text) is 'Raises OC128 for a part of a calendar rule.';

create or replace function _octop_rrule_numbers(part text, list text, low integer, high integer, signed boolean) returns integer[]
  language plpgsql immutable set search_path from current
as $$
declare
  v_item text;
  v_found integer[];
begin
  foreach v_item in array string_to_array(list, ',') loop
    if v_item !~ '^[+-]?[0-9]{1,3}$' or abs(v_item::integer) not between low and high or (v_item ~ '^-' and not signed) then
      perform _octop_rrule_refuse(part, v_item, format('allowed is %s to %s', low, high) || case when signed then format(', and -%s to -%s from the end', low, high) else '' end);
    end if;
    v_found := v_found || v_item::integer;
  end loop;
  return v_found;
end $$;
comment on function _octop_rrule_numbers(text, text, integer, integer, boolean) is 'A list of numbers of a calendar rule; OC128 for one that is out of bounds.';

create or replace function _octop_rrule_parse(expression text) returns bigint[]
  language plpgsql immutable set search_path from current
as $$
declare
  v_text text := btrim(upper(expression collate "C"), E' \t\r\n');
  v_top text[] := regexp_match(v_text, '^(?:DTSTART:([0-9]{8})(?:T([0-9]{6}))?[[:space:]]+)?RRULE:([^[:space:]]+)$');
  v_known constant text[] := array['FREQ', 'INTERVAL', 'BYMONTH', 'BYMONTHDAY', 'BYDAY', 'BYSETPOS', 'BYHOUR', 'BYMINUTE', 'BYSECOND', 'WKST'];
  v_days constant text[] := array['SU', 'MO', 'TU', 'WE', 'TH', 'FR', 'SA'];
  v_rule bigint[] := array_fill(0::bigint, array[18]);
  p jsonb := '{}';
  v_start timestamp;
  v_unit integer;
  v_each integer;
  v_item text;
  n integer;
begin
  if v_top is null then
    raise exception 'octop: "%" is no calendar rule', left(expression, 100)
      using errcode = 'OC128', hint = 'RRULE:FREQ=MONTHLY;BYDAY=TU;… with, before it, DTSTART:20300108T090000 where it counts from a day. DTSTART is a wall time of the schedule''s zone: without Z, without TZID.';
  end if;
  foreach v_item in array string_to_array(v_top[3], ';') loop
    if not split_part(v_item, '=', 1) = any (v_known) or v_item !~ '^[A-Z]+=.' or p ? split_part(v_item, '=', 1) then
      perform _octop_rrule_refuse(split_part(v_item, '=', 1), split_part(v_item, '=', 2), case
        when v_item ~ '^(COUNT|UNTIL)=' then 'the end belongs to the schedule and not to its rule'
        else 'known, each once, are ' || array_to_string(v_known, ', ') end);
    end if;
    p := p || jsonb_build_object(split_part(v_item, '=', 1), substr(v_item, strpos(v_item, '=') + 1));
  end loop;
  begin
    v_start := to_date(v_top[1], 'YYYYMMDD') + coalesce(v_top[2], '000000')::time;
  exception when data_exception then
    perform _octop_rrule_refuse('DTSTART', v_top[1] || coalesce('T' || v_top[2], ''), 'there is no such day or time');
  end;
  v_unit := array_position(array['DAILY', 'WEEKLY', 'MONTHLY', 'YEARLY'], p ->> 'FREQ');
  if v_unit is null then
    perform _octop_rrule_refuse('FREQ', coalesce(p ->> 'FREQ', ''), 'allowed is DAILY, WEEKLY, MONTHLY or YEARLY; for less write */15 * * * * or @every 15m');
  elsif coalesce(p ->> 'WKST', 'MO') <> 'MO' then
    perform _octop_rrule_refuse('WKST', p ->> 'WKST', 'weeks begin with Monday: allowed is MO');
  end if;
  v_each := (_octop_rrule_numbers('INTERVAL', coalesce(p ->> 'INTERVAL', '1'), 1, 999, false))[1];
  if coalesce(p ->> 'INTERVAL', '') like '%,%' then
    perform _octop_rrule_refuse('INTERVAL', p ->> 'INTERVAL', 'it is one number');
  elsif v_start is null and (v_each > 1 or v_unit > 1 and not p ?| array['BYDAY', 'BYMONTHDAY']) then
    perform _octop_rrule_refuse('FREQ', p ->> 'FREQ', 'this one counts from a day: write DTSTART:20300108T090000 before RRULE');
  end if;

  v_rule[1] := 1;
  foreach n in array _octop_rrule_numbers('BYSECOND', coalesce(p ->> 'BYSECOND', to_char(v_start, 'SS'), '0'), 0, 59, false) loop v_rule[2] := v_rule[2] | (1::bigint << n); end loop;
  foreach n in array _octop_rrule_numbers('BYMINUTE', coalesce(p ->> 'BYMINUTE', to_char(v_start, 'MI'), '0'), 0, 59, false) loop v_rule[3] := v_rule[3] | (1::bigint << n); end loop;
  foreach n in array _octop_rrule_numbers('BYHOUR', coalesce(p ->> 'BYHOUR', to_char(v_start, 'HH24'), '0'), 0, 23, false) loop v_rule[4] := v_rule[4] | (1::bigint << n); end loop;
  foreach n in array _octop_rrule_numbers('BYMONTH', coalesce(p ->> 'BYMONTH',
      case when v_unit = 4 and not p ?| array['BYDAY', 'BYMONTHDAY'] then to_char(v_start, 'MM') else '1,2,3,4,5,6,7,8,9,10,11,12' end), 1, 12, false) loop
    v_rule[8] := v_rule[8] | (1::bigint << n);
  end loop;

  if p ? 'BYMONTHDAY' or v_unit > 2 and not p ? 'BYDAY' then
    if v_unit = 2 then
      perform _octop_rrule_refuse('BYMONTHDAY', p ->> 'BYMONTHDAY', 'not with FREQ=WEEKLY');
    end if;
    foreach n in array _octop_rrule_numbers('BYMONTHDAY', coalesce(p ->> 'BYMONTHDAY', to_char(v_start, 'DD')), 1, 31, true) loop
      if n > 0 then
        v_rule[5] := v_rule[5] | (1::bigint << n);
      else
        v_rule[6] := v_rule[6] | (1::bigint << -n - 1);
      end if;
    end loop;
  else
    v_rule[5] := (1::bigint << 32) - 2;
  end if;
  if p ? 'BYDAY' or v_unit = 2 then
    foreach v_item in array string_to_array(coalesce(p ->> 'BYDAY', v_days[extract(dow from v_start)::integer + 1]), ',') loop
      n := array_position(v_days, right(v_item, 2)) - 1;
      if n is null or v_item !~ '^([+]?[1-5]|-1)?[A-Z]{2}$' then
        perform _octop_rrule_refuse('BYDAY', v_item, 'allowed is MO, TU, WE, TH, FR, SA, SU; 1MO to 5MO for the nth of the month, -1MO for the last');
      elsif v_item !~ '[0-9]' then
        v_rule[9] := v_rule[9] | (1::bigint << n);
      elsif v_unit < 3 or v_unit = 4 and not p ? 'BYMONTH' then
        perform _octop_rrule_refuse('BYDAY', v_item, 'a number goes with FREQ=MONTHLY, or with FREQ=YEARLY and BYMONTH');
      elsif v_item ~ '^-' then
        v_rule[11] := v_rule[11] | (1::bigint << n);
      else
        v_rule[10] := v_rule[10] | (1::bigint << 7 * (substring(v_item from '[1-5]')::integer - 1) + n);
      end if;
    end loop;
  else
    v_rule[9] := 127;
  end if;
  if p ? 'BYSETPOS' then
    if v_unit <> 3 or (v_rule[2] & (v_rule[2] - 1)) | (v_rule[3] & (v_rule[3] - 1)) | (v_rule[4] & (v_rule[4] - 1)) <> 0 then
      perform _octop_rrule_refuse('BYSETPOS', p ->> 'BYSETPOS', 'it goes with FREQ=MONTHLY and one time of the day');
    end if;
    foreach n in array _octop_rrule_numbers('BYSETPOS', p ->> 'BYSETPOS', 1, 31, true) loop
      v_rule[case when n > 0 then 17 else 18 end] := v_rule[case when n > 0 then 17 else 18 end] | (1::bigint << abs(n));
    end loop;
  end if;
  v_rule[13] := case when v_each > 1 then v_unit else 0 end;
  v_rule[14] := v_each;
  v_rule[15] := _octop_rrule_period(v_unit, coalesce(v_start, '1970-01-01')::date);
  v_rule[16] := extract(epoch from v_start)::bigint;

  n := extract(year from coalesce(v_start, '2000-01-01'));
  for y in n .. least(n + 400, 9999) loop
    for m in 1 .. 12 loop
      if v_rule[8] >> m & 1 = 1 and _octop_cron_days(v_rule, y, m) <> 0 then
        return v_rule;
      end if;
    end loop;
  end loop;
  raise exception 'octop: the calendar rule "%" names no day within 400 years', left(expression, 200)
    using errcode = 'OC129', hint = 'For the last day of a month write BYMONTHDAY=-1.';
end $$;
comment on function _octop_rrule_parse(text) is 'The parsed form of a calendar rule (RRULE). Errors: OC128 it cannot be read, OC129 it could never fire.';

create or replace function _octop_rrule_period(unit integer, day date) returns integer
  language plpgsql immutable set search_path from current
as $$
begin
  return case unit
    when 1 then day - date '0001-01-01'
    when 2 then (day - date '0001-01-01') / 7
    when 3 then date_part('year', day)::integer * 12 + date_part('month', day)::integer
    else date_part('year', day)::integer end;
end $$;
comment on function _octop_rrule_period(integer, date) is 'The number of the day, week from Monday, month or year in which a day lies.';

create or replace function _octop_rrule_days(rule bigint[], year integer, month integer, days bigint) returns bigint
  language plpgsql immutable set search_path from current
as $$
declare
  v_days bigint := days;
  v_kept bigint := 0;
  v_count integer;
  i integer := 0;
begin
  if rule[13] in (1, 2) then
    for d in 1 .. 31 loop
      if v_days >> d & 1 = 1 and (_octop_rrule_period(rule[13]::integer, make_date(year, month, d)) - rule[15]) % rule[14] <> 0 then
        v_days := v_days & ~(1::bigint << d);
      end if;
    end loop;
  elsif rule[13] > 2 and (_octop_rrule_period(rule[13]::integer, make_date(year, month, 1)) - rule[15]) % rule[14] <> 0 then
    return 0;
  end if;
  if rule[17] | rule[18] = 0 or v_days = 0 then
    return v_days;
  end if;
  v_count := length(replace(v_days::bit(64)::text, '0', ''));
  for d in 1 .. 31 loop
    continue when v_days >> d & 1 = 0;
    i := i + 1;
    if rule[17] >> i & 1 = 1 or rule[18] >> (v_count + 1 - i) & 1 = 1 then
      v_kept := v_kept | (1::bigint << d);
    end if;
  end loop;
  return v_kept;
end $$;
comment on function _octop_rrule_days(bigint[], integer, integer, bigint) is 'Of the days of one month, those that a calendar rule keeps: in each nth period, at its positions.';

create or replace function _octop_rrule_words(rule bigint[]) returns text
  language plpgsql immutable set search_path from current
as $$
declare
  v_which text[] := array(select 'number ' || i from unnest(_octop_cron_values(rule[17])) i order by i)
    || array(select case i when 1 then 'the last' else 'number ' || i || ' from the end' end from unnest(_octop_cron_values(rule[18])) i order by i);
  v_unit text := (array['day', 'week', 'month', 'year'])[rule[13]];
begin
  return case when v_which <> '{}' then ', of these days ' || _octop_words(v_which) || ' of each month' else '' end
    || case when v_unit is not null then format(', every %s %ss', rule[14], v_unit) else '' end
    || coalesce(', from ' || to_char(timestamp '1970-01-01' + rule[16] * interval '1 second', 'YYYY-MM-DD HH24:MI') || ' on', '');
end $$;
comment on function _octop_rrule_words(bigint[]) is 'What a calendar rule says more than days and times: positions, periods, the beginning.';
