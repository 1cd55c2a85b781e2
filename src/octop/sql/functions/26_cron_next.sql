-- When a cron expression fires next. Promise: always later than asked for, the same on every PostgreSQL, and found by jumping from field to
-- field. A wall time that the clocks skip fires once, right after the gap; one that they repeat fires once, the first time. Interval-like
-- expressions (a star for the minute or the hour) fire whenever the wall clock shows one of their times: they follow elapsed time.
--
-- Moments are kept as timestamps in UTC here: adding a day to a timestamptz would ask the session's time zone.

create or replace function _octop_cron_wall(rule bigint[], wall timestamp) returns timestamp
  language plpgsql immutable set search_path from current
as $$
-- The lowest bit b of a mask m is m & -m, its number ln(b) / ln(2): doubles are exact enough to be rounded up to bit 62.
declare
  y integer := date_part('year', wall);
  mo integer := date_part('month', wall);
  d integer := date_part('day', wall);
  h integer := date_part('hour', wall);
  mi integer := date_part('minute', wall);
  s integer := date_part('second', wall);
  m bigint;
  v_days bigint;
begin
  if y > 9999 then
    return null;
  elsif rule[8] >> mo & 1 = 1 then
    v_days := _octop_cron_days(rule, y, mo);
    if v_days >> d & 1 = 1 then
      -- later on the same day? each field in turn: the same value and a later one below it, or the next value
      if rule[4] >> h & 1 = 1 then
        if rule[3] >> mi & 1 = 1 then
          m := rule[2] & (-1::bigint << s);
          if m <> 0 then
            return make_timestamp(y, mo, d, h, mi, round(ln((m & -m)::double precision) / ln(2::double precision)));
          end if;
        end if;
        m := rule[3] & (-1::bigint << mi + 1);
        if m <> 0 then
          mi := round(ln((m & -m)::double precision) / ln(2::double precision));
          m := rule[2];
          return make_timestamp(y, mo, d, h, mi, round(ln((m & -m)::double precision) / ln(2::double precision)));
        end if;
      end if;
      m := rule[4] & (-1::bigint << h + 1);
      if m <> 0 then
        h := round(ln((m & -m)::double precision) / ln(2::double precision));
        m := rule[3];
        mi := round(ln((m & -m)::double precision) / ln(2::double precision));
        m := rule[2];
        return make_timestamp(y, mo, d, h, mi, round(ln((m & -m)::double precision) / ln(2::double precision)));
      end if;
    end if;
    v_days := v_days & (-1::bigint << d + 1);
  else
    v_days := 0;
  end if;
  while v_days = 0 loop
    m := rule[8] & (-1::bigint << mo + 1);
    if m = 0 then
      y := y + 1;
      m := rule[8];
    end if;
    if y > 9999 then
      return null;
    end if;
    mo := round(ln((m & -m)::double precision) / ln(2::double precision));
    v_days := _octop_cron_days(rule, y, mo);
  end loop;
  d := round(ln((v_days & -v_days)::double precision) / ln(2::double precision));
  m := rule[4];
  h := round(ln((m & -m)::double precision) / ln(2::double precision));
  m := rule[3];
  mi := round(ln((m & -m)::double precision) / ln(2::double precision));
  m := rule[2];
  return make_timestamp(y, mo, d, h, mi, round(ln((m & -m)::double precision) / ln(2::double precision)));
end $$;
comment on function _octop_cron_wall(bigint[], timestamp) is
  'The first wall time, from the given one on, that a parsed expression names; null = none until the end of the year 9999.';

create or replace function _octop_clock_change(timezone text, before timestamp, until timestamp) returns timestamp
  language plpgsql stable set search_path from current
as $$
declare
  v_before timestamp := before;
  v_until timestamp := until;
  v_offset interval := (before at time zone 'UTC' at time zone timezone) - before;
  t timestamp;
begin
  while v_until - v_before > interval '1 second' loop
    t := date_trunc('second', v_before + (v_until - v_before) / 2);
    if (t at time zone 'UTC' at time zone timezone) - t = v_offset then
      v_before := t;
    else
      v_until := t;
    end if;
  end loop;
  return v_until;
end $$;
comment on function _octop_clock_change(text, timestamp, timestamp) is
  'The second from which on a zone has another offset, between two moments in UTC of which the first has the old one and the second has not.';

create or replace function _octop_cron_next(rule bigint[], timezone text, after timestamptz) returns timestamptz
  language plpgsql stable strict set search_path from current
as $$
declare
  -- a moment (no answer before it is left out) and what the wall clock shows then
  u timestamp;
  l timestamp;
  -- a wall time of the rule and the moment at which it is due
  w timestamp;
  t timestamp;
  v_until timestamp;
  v_offset interval;
  v_yesterday interval;
begin
  if after > '10000-01-02 00:00:00+00' then
    return null;
  end if;
  u := date_trunc('second', greatest(after, '0001-01-03 00:00:00+00') at time zone 'UTC');

  if rule[1] = 4 then
    return case when rule[2] > extract(epoch from u) then to_timestamp(rule[2]) end;
  end if;
  if rule[1] = 3 then
    t := timestamp '1970-01-01' + interval '1 second'
       * (rule[3] + greatest(floor((extract(epoch from u)::numeric - rule[3]) / rule[2]) + 1, 0) * rule[2])::double precision;
    return case when t < '10000-01-01' then t at time zone 'UTC' end;
  end if;

  if rule[1] = 1 then
    l := u at time zone 'UTC' at time zone timezone;
    v_offset := l - u;
    l := l + interval '1 second';
    t := u - interval '1 day';
    v_yesterday := (t at time zone 'UTC' at time zone timezone) - t;
    if v_yesterday > v_offset then
      -- in the second pass of a repeated hour each wall time before its end has had its turn
      t := u + v_offset - v_yesterday;
      if (t at time zone 'UTC' at time zone timezone) - t = v_yesterday then
        l := _octop_clock_change(timezone, t, u) + v_yesterday;
      end if;
    end if;
    -- a calendar rule may begin later; for a cron expression this is null
    w := _octop_cron_wall(rule, greatest(l, timestamp '1970-01-01' + rule[16] * interval '1 second'));
    t := w at time zone timezone at time zone 'UTC';
    if w is null or t >= '10000-01-01' then
      return null;
    end if;
    l := t at time zone 'UTC' at time zone timezone;
    if l <> w then
      -- a wall time that does not exist PostgreSQL reads with the offset before the gap: it lands as far behind its end as w is behind its beginning
      return _octop_clock_change(timezone, t - (l - w), t) at time zone 'UTC';
    end if;
    -- of one that exists twice PostgreSQL takes the second
    v_offset := l - t;
    u := t - interval '1 day';
    v_yesterday := (u at time zone 'UTC' at time zone timezone) - u;
    if v_yesterday > v_offset then
      u := w - v_yesterday;
      if u at time zone 'UTC' at time zone timezone = w then
        t := u;
      end if;
    end if;
    return t at time zone 'UTC';
  end if;

  u := u + interval '1 second';
  l := u at time zone 'UTC' at time zone timezone;
  loop
    v_offset := l - u;
    w := _octop_cron_wall(rule, l);
    t := w - v_offset;
    if w is null or t >= '10000-01-01' then
      return null;
    end if;
    if t <= u + interval '1 day' then
      if t at time zone 'UTC' at time zone timezone = w then
        return t at time zone 'UTC';
      end if;
      v_until := t;
    else
      v_until := u + interval '1 day';
      if (v_until at time zone 'UTC' at time zone timezone) - v_until = v_offset then
        -- no wall time that has passed comes back, and none of the rule comes before w: go on a day before it
        u := (w - interval '1 day') at time zone timezone at time zone 'UTC';
        l := u at time zone 'UTC' at time zone timezone;
        continue;
      end if;
    end if;
    -- the clocks change on the way: go on there, with what they show then
    u := _octop_clock_change(timezone, u, v_until);
    l := u at time zone 'UTC' at time zone timezone;
  end loop;
end $$;
comment on function _octop_cron_next(bigint[], text, timestamptz) is
  'The next time of a parsed expression after a moment, in a zone that was checked; null = none until the end of the year 9999. Tens of microseconds: what a schedule calls when it fires.';

create or replace function _octop_zone_check(timezone text) returns void
  language plpgsql stable set search_path from current
as $$
declare
  v_name text := lower(timezone collate "C");
begin
  -- PostgreSQL would take "Foo/Bar1" for a POSIX rule one hour west, and "IST" for one of three: a zone is a name of the IANA list
  if not coalesce(v_name ~ '^[a-z_+-]+(/[a-z_+-]+)+$' or v_name ~ '^etc/gmt([+-]?0|[+][1-9]|[+]1[0-2]|-[1-9]|-1[0-4])$'
     or v_name in ('utc', 'gmt', 'gmt0', 'gmt+0', 'gmt-0', 'uct', 'zulu', 'universal', 'greenwich', 'cst6cdt', 'est5edt', 'mst7mdt', 'pst8pdt', 'cuba', 'egypt', 'eire',
                   'gb', 'gb-eire', 'hongkong', 'iceland', 'iran', 'israel', 'jamaica', 'japan', 'kwajalein', 'libya', 'navajo', 'nz', 'nz-chat', 'poland', 'portugal',
                   'prc', 'roc', 'rok', 'singapore', 'turkey', 'w-su'), false) then
    raise exception 'octop: "%" is no time zone', left(timezone, 100)
      using errcode = 'OC130', hint = case when v_name ~ '^[a-z]{2,5}$' then 'An abbreviation means several things: name a place, as in Europe/Berlin, or UTC.'
                                      else 'Name a place as in Europe/Berlin, or UTC; select name from pg_timezone_names lists all.' end;
  end if;
  perform now() at time zone timezone;
exception when invalid_parameter_value then
  raise exception 'octop: this server knows no time zone "%"', left(timezone, 100)
    using errcode = 'OC130', hint = 'Name a place as in Europe/Berlin, or UTC; select name from pg_timezone_names lists all.';
end $$;
comment on function _octop_zone_check(text) is 'Raises OC130 for what is no name of a time zone: abbreviations, offsets, POSIX rules, names that this server does not know.';

create or replace function octop_cron_check(expression text, timezone text default 'UTC') returns void
  language plpgsql stable security definer set search_path from current
as $$
begin
  if expression is null then
    raise exception 'octop: a cron expression cannot be null' using errcode = 'OC128', hint = 'Five fields: minute, hour, day of month, month, day of week; six: second first.';
  end if;
  perform _octop_zone_check(timezone);
  perform _octop_cron_parse(expression);
end $$;
comment on function octop_cron_check(text, text) is
  'Refuses what could not be a schedule, and changes nothing. Errors: OC128 an expression that cannot be read, with the field, the value and what is allowed, OC129 one that could never fire, OC130 an unknown time zone. '
  'Example: select octop_cron_check(''0 9 * * MON-FRI'', ''Europe/Berlin'');';

create or replace function octop_cron_next(expression text, timezone text default 'UTC', after timestamptz default _octop_now()) returns timestamptz
  language plpgsql stable strict security definer set search_path from current
as $$
begin
  perform _octop_zone_check(timezone);
  return _octop_cron_next(_octop_cron_parse(expression), timezone, after);
end $$;
comment on function octop_cron_next(text, text, timestamptz) is
  'The next time after a moment at which a cron expression fires, by the wall clock of a time zone: always later than the moment, whole seconds. Null = none until the end of the year 9999, or an argument is null. '
  'A wall time that the clocks skip fires right after the gap, one that they repeat the first time only; a star for minute or hour follows elapsed time. Errors: OC128, OC129, OC130 as octop_cron_check. '
  'Example: select octop_cron_next(''0 9 * * MON-FRI'', ''Asia/Shanghai'', now());';

create or replace function octop_cron_next_n(expression text, timezone text default 'UTC', after timestamptz default _octop_now(), n integer default 5) returns setof timestamptz
  language plpgsql stable strict security definer set search_path from current
as $$
declare
  v_rule bigint[];
  v_at timestamptz := after;
begin
  if n not between 1 and 1000 then
    raise exception 'octop: 1 to 1,000 times of a schedule can be told at once, not %', n
      using errcode = 'OC131', hint = 'For more, ask again after the last one.';
  end if;
  perform _octop_zone_check(timezone);
  v_rule := _octop_cron_parse(expression);
  for i in 1 .. n loop
    v_at := _octop_cron_next(v_rule, timezone, v_at);
    exit when v_at is null;
    return next v_at;
  end loop;
end $$;
comment on function octop_cron_next_n(text, text, timestamptz, integer) is
  'The next n times, 1 to 1,000, in order: what octop_cron_next answers, asked again and again. Fewer when the year 9999 ends before. Errors: OC131 n out of bounds; OC128, OC129, OC130 as octop_cron_check. '
  'Example: select * from octop_cron_next_n(''0 0 L * *'', ''Europe/Berlin'', now(), 12);';
