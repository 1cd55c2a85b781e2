-- Cron expressions in plain English. Promise: told from the parsed form, so that it says what fires and not what was meant; a step that
-- begins anew each hour is told as its minutes and not as "every 7 minutes".

create or replace function _octop_cron_values(mask bigint) returns integer[]
  language sql immutable set search_path from current
  return array(select i from generate_series(0, 62) i where mask >> i & 1 = 1 order by i);
comment on function _octop_cron_values(bigint) is 'The numbers of the bits of a field, in order.';

create or replace function _octop_words(items text[]) returns text
  language sql immutable set search_path from current
  return case when cardinality(items) < 2 then items[1]
              else array_to_string(items[: cardinality(items) - 1], ', ') || ' and ' || items[cardinality(items)] end;
comment on function _octop_words(text[]) is 'A list as people write it: a, b and c.';

create or replace function _octop_cron_runs(mask bigint, names text[] default null) returns text
  language plpgsql immutable set search_path from current
as $$
declare
  v_values integer[] := _octop_cron_values(mask);
  v_said text[];
  v_names text[];
  a integer := 1;
  b integer;
begin
  -- names[1] is that of bit 0; three and more in a row are told by their ends
  v_names := array(select coalesce(names[v + 1], v::text) from unnest(v_values) with ordinality x (v, n) order by n);
  while a <= cardinality(v_values) loop
    b := a;
    while v_values[b + 1] = v_values[b] + 1 loop
      b := b + 1;
    end loop;
    if b - a >= 2 then
      v_said := v_said || (v_names[a] || ' to ' || v_names[b]);
    else
      v_said := v_said || v_names[a : b];
    end if;
    a := b + 1;
  end loop;
  return _octop_words(v_said);
end $$;
comment on function _octop_cron_runs(bigint, text[]) is 'The values of a field in words: 1, 3 to 5 and 9.';

create or replace function _octop_cron_step(mask bigint, size integer) returns integer
  language sql immutable set search_path from current
  return (select s from unnest(array[1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30]) s
           where size % s = 0 and mask = (select sum(1::bigint << i) from generate_series(0, size - 1, s) i));
comment on function _octop_cron_step(bigint, integer) is 'The even step of a field, 1 for all of its values; null when it has none, as */7 of 60.';

create or replace function _octop_cron_time_words(rule bigint[]) returns text
  language plpgsql immutable set search_path from current
as $$
declare
  v_seconds integer[] := _octop_cron_values(rule[2]);
  v_minutes integer[] := _octop_cron_values(rule[3]);
  v_hours integer[] := _octop_cron_values(rule[4]);
  v_second_step integer := _octop_cron_step(rule[2], 60);
  v_minute_step integer := _octop_cron_step(rule[3], 60);
  v_second text := '';
  v_minute text := '';
  v_hour text := '';
begin
  if cardinality(v_seconds) * cardinality(v_minutes) * cardinality(v_hours) <= 6 then
    return 'at ' || _octop_words(array(
      select to_char(make_time(h, m, s), case when rule[2] = 1 then 'HH24:MI' else 'HH24:MI:SS' end)
        from unnest(v_hours) h, unnest(v_minutes) m, unnest(v_seconds) s order by h, m, s));
  end if;
  if v_second_step = 1 then
    v_second := 'every second';
  elsif v_second_step > 1 then
    v_second := 'every ' || v_second_step || ' seconds';
  elsif rule[2] <> 1 then
    v_second := case when cardinality(v_seconds) = 1 then 'at second ' else 'at seconds ' end || _octop_cron_runs(rule[2]);
  end if;
  if v_minute_step = 1 then
    v_minute := case when v_second = '' then 'every minute' when v_second like 'at%' then ' of every minute' else '' end;
  elsif v_minute_step > 1 and v_second = '' then
    v_minute := 'every ' || v_minute_step || ' minutes';
  else
    v_minute := case when v_second = '' then 'at' else ' in' end || case when cardinality(v_minutes) = 1 then ' minute ' else ' minutes ' end || _octop_cron_runs(rule[3]);
  end if;
  if cardinality(v_hours) < 24 then
    v_hour := case when cardinality(v_hours) = 1 then ' in the hour ' else ' in the hours ' end || _octop_cron_runs(rule[4]);
  elsif v_minute like '%minute%' and v_minute not like '%every%' then
    v_hour := ' of every hour';
  end if;
  return v_second || v_minute || v_hour;
end $$;
comment on function _octop_cron_time_words(bigint[]) is 'The times of day of a parsed expression in words.';

create or replace function _octop_cron_day_words(rule bigint[]) returns text
  language plpgsql immutable set search_path from current
as $$
declare
  v_days constant text[] := array['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
  v_months constant text[] := array[null, 'January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December'];
  v_nth constant text[] := array['first', 'second', 'third', 'fourth', 'fifth'];
  v_dom text[] := '{}';
  v_dow text[] := '{}';
  v_on text;
  v_in text := '';
begin
  if rule[5] <> 0 then
    v_dom := v_dom || (case when rule[5] & (rule[5] - 1) = 0 then 'day ' else 'days ' end || _octop_cron_runs(rule[5]));
  end if;
  v_dom := v_dom
    || array(select case i when 0 then 'the last day' when 1 then 'the day before the last' else i || ' days before the last' end from unnest(_octop_cron_values(rule[6])) i order by i)
    || array(select case i when 0 then 'the last weekday' else 'the weekday nearest to day ' || i end from unnest(_octop_cron_values(rule[7])) i order by i);
  if rule[9] <> 0 then
    -- begin with Monday: a week that ends with Sunday is told in one go
    v_dow := v_dow || _octop_cron_runs(case when rule[9] & 1 = 1 then (rule[9] - 1) | 128 else rule[9] end, v_days || 'Sunday'::text);
  end if;
  v_dow := v_dow
    || array(select 'the ' || v_nth[i / 7 + 1] || ' ' || v_days[i % 7 + 1] from unnest(_octop_cron_values(rule[10])) i order by i)
    || array(select 'the last ' || v_days[i + 1] from unnest(_octop_cron_values(rule[11])) i order by i);
  v_on := case
    when rule[5] = 4294967294 and (rule[9] = 127 or rule[12] = 1) or rule[9] = 127 and rule[12] = 1 then ' every day'
    when rule[5] = 4294967294 then ' on ' || _octop_words(v_dow) || case when rule[10] | rule[11] <> 0 then ' of the month' else '' end
    when rule[9] = 127 then ' on ' || _octop_words(v_dom) || ' of the month'
    else ' on ' || _octop_words(v_dom) || ' of the month'
      || case when rule[12] = 1 then ', and on ' else ', if that is ' end || _octop_words(v_dow) || case when rule[10] | rule[11] <> 0 then ' of the month' else '' end end;
  if rule[8] <> (1 << 13) - 2 then
    v_in := case when v_on like '%,%' then ', in ' else ' in ' end || _octop_cron_runs(rule[8], v_months);
  end if;
  return v_on || v_in;
end $$;
comment on function _octop_cron_day_words(bigint[]) is 'The days and months of a parsed expression in words.';

create or replace function octop_cron_explain(expression text) returns text
  language plpgsql immutable strict security definer set search_path from current
as $$
declare
  v_rule bigint[] := _octop_cron_parse(expression);
  v_parts text[];
  v_said text;
begin
  if v_rule[1] = 4 then
    return 'Once, at ' || to_char(timestamp '1970-01-01' + v_rule[2] * interval '1 second', 'YYYY-MM-DD HH24:MI:SS') || ' UTC.';
  end if;
  if v_rule[1] = 3 then
    v_parts := array(select n || ' ' || unit || case when n > 1 then 's' else '' end
                       from (values (1, v_rule[2] / 86400, 'day'), (2, v_rule[2] / 3600 % 24, 'hour'), (3, v_rule[2] / 60 % 60, 'minute'), (4, v_rule[2] % 60, 'second')) x (i, n, unit)
                      where n > 0 order by i);
    return 'Every ' || _octop_words(v_parts) || ' of elapsed time, counted from '
      || to_char(timestamp '1970-01-01' + v_rule[3] * interval '1 second', 'YYYY-MM-DD HH24:MI:SS') || ' UTC; changes of the clocks do not matter.';
  end if;
  v_said := _octop_cron_time_words(v_rule);
  -- "every minute every day" says nothing more
  v_said := v_said || case when v_said like 'every%' then regexp_replace(_octop_cron_day_words(v_rule), '^ every day', '') else _octop_cron_day_words(v_rule) end;
  if v_rule[14] is not null then
    v_said := v_said || _octop_rrule_words(v_rule);
  end if;
  return upper(left(v_said, 1)) || substr(v_said, 2) || '. ' || case
    when v_rule[1] = 2 then 'Where the clocks change it follows elapsed time.'
    else 'A time that the clocks skip is due right after the gap, one that they repeat the first time only.' end;
end $$;
comment on function octop_cron_explain(text) is
  'What a cron expression means, in English. Errors: OC128 it cannot be read, OC129 it could never fire. Example: select octop_cron_explain(''*/15 9-17 * * MON-FRI'');';
