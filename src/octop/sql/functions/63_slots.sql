-- Slots: which of a schedule are due, which of those make a task, and what the task is told. Promise: after an outage of any length this takes some hundreds of
-- steps, not one for each minute that has passed.

create or replace function _octop_last_slot(s octop_schedules, p_first timestamptz, p_until timestamptz) returns timestamptz
  language plpgsql stable set search_path from current set timezone = 'UTC'
as $$
declare
  -- a slot lies in (v_from, p_until], and none is known to lie in (v_after, p_until]
  v_from  timestamptz := p_first - interval '1 microsecond';
  v_after timestamptz := p_until;
  v_last  timestamptz := p_first;
  v_next  timestamptz;
  v_mid   timestamptz;
begin
  while v_after - v_from > interval '1 microsecond' loop
    v_mid := v_from + (v_after - v_from) / 2;
    v_next := _octop_next_slot(s, v_mid);
    if v_next <= p_until then
      v_last := v_next;
      v_from := v_next;   -- the next look begins behind it
      v_next := _octop_next_slot(s, v_last);
      exit when v_next is null or v_next > p_until;
      v_last := v_next;
      v_from := v_next - interval '1 microsecond';
    else
      v_after := v_mid;
    end if;
  end loop;
  return v_last;
end $$;
comment on function _octop_last_slot(octop_schedules, timestamptz, timestamptz) is 'The last slot of a schedule up to a moment, where its first one is known: found by halving.';

create or replace function _octop_newest_slots(s octop_schedules, p_first timestamptz, p_until timestamptz, p_most integer) returns timestamptz[]
  language plpgsql stable set search_path from current set timezone = 'UTC'
as $$
declare
  v_last  timestamptz;
  v_near  interval := '0';                       -- so far back there are too few
  v_far   interval;                              -- and so far back enough, or all
  v_span  interval := interval '1 second';
  v_slots timestamptz[] := '{}';
  v_next  timestamptz := p_first;
begin
  -- mostly these are all
  while v_next <= p_until and cardinality(v_slots) <= p_most loop
    v_slots := v_slots || v_next;
    v_next := _octop_next_slot(s, v_next);
  end loop;
  if cardinality(v_slots) <= p_most then
    return v_slots;
  end if;
  v_last := _octop_last_slot(s, p_first, p_until);
  v_far := v_last - p_first;
  loop
    v_span := least(v_span, v_far);
    v_slots := '{}';
    v_next := case when v_span >= v_last - p_first then p_first else _octop_next_slot(s, v_last - v_span - interval '1 microsecond') end;
    while v_next <= v_last and cardinality(v_slots) <= 2 * p_most loop
      v_slots := v_slots || v_next;
      v_next := _octop_next_slot(s, v_next);
    end loop;
    if cardinality(v_slots) > 2 * p_most and v_far - v_near > interval '1 microsecond' then
      v_far := v_span;
      v_span := v_near + (v_far - v_near) / 2;
    elsif cardinality(v_slots) < p_most and v_span < v_last - p_first and v_far - v_near > interval '1 microsecond' then
      v_near := v_span;
      v_span := case when v_far = v_last - p_first then v_span * 4 else v_near + (v_far - v_near) / 2 end;
    else
      return v_slots[greatest(1, cardinality(v_slots) - p_most + 1):];
    end if;
  end loop;
end $$;
comment on function _octop_newest_slots(octop_schedules, timestamptz, timestamptz, integer) is 'The newest slots of a schedule up to a moment, at most so many, in order, where its first one is known.';

create or replace function _octop_due_slots(s octop_schedules, p_now timestamptz, p_most integer)
  returns table (slot timestamptz, through timestamptz, status text, reason text, next timestamptz)
  language plpgsql stable set search_path from current
as $$
#variable_conflict use_column
declare
  v_next  timestamptz := _octop_next_slot(s, s.next_slot);
  v_late  timestamptz := p_now - make_interval(secs => s.late_after_seconds);
  v_slots timestamptz[];
  v_fire  integer;
begin
  if v_next is null or v_next > p_now then
    -- as almost always: one
    return query select s.next_slot, null::timestamptz, case when s.catch_up = 'skip' and s.next_slot < v_late then 'skipped' else 'fired' end,
                        case when s.catch_up = 'skip' and s.next_slot < v_late then 'late' end, v_next;
    return;
  end if;
  v_slots := _octop_newest_slots(s, s.next_slot, p_now, case when s.catch_up = 'all' then s.catch_up_max else 100 end);
  if s.catch_up = 'all' then
    v_slots := v_slots[:p_most];   -- the others in the next tick
  end if;
  v_next := _octop_next_slot(s, v_slots[cardinality(v_slots)]);
  v_fire := case when s.catch_up = 'all' then cardinality(v_slots) when s.catch_up = 'last' or v_slots[cardinality(v_slots)] >= v_late then 1 else 0 end;
  return query
  select s.next_slot, _octop_last_slot(s, s.next_slot, v_slots[1] - interval '1 microsecond'), 'skipped', 'catch_up', null::timestamptz where v_slots[1] > s.next_slot
  union all
  select u.slot, null, case when u.n > cardinality(v_slots) - v_fire then 'fired' else 'skipped' end,
         case when u.n <= cardinality(v_slots) - v_fire then case when s.catch_up = 'skip' then 'late' else 'catch_up' end end, coalesce(v_slots[u.n + 1], v_next)
    from unnest(v_slots) with ordinality u (slot, n)
   order by 1;
end $$;
comment on function _octop_due_slots(octop_schedules, timestamptz, integer) is
  'What becomes of the slots of a schedule that are due, by its catch_up: each fired (at most so many) or skipped, in order; older ones that are too many are one row (through). With the slot after each.';

create or replace function _octop_iso(p_at timestamptz) returns text
  language plpgsql stable set search_path from current
as $$
declare
  v_at timestamp := p_at at time zone 'UTC';
begin
  return to_char(v_at, 'YYYY-MM-DD"T"HH24:MI:SS') || case when date_trunc('second', v_at) <> v_at then to_char(v_at, '.US') else '' end || '+00:00';
end $$;
comment on function _octop_iso(timestamptz) is 'A moment as ISO 8601 text in UTC, whatever the settings of the session.';

create or replace function _octop_iso_local(p_at timestamptz, p_timezone text) returns text
  language plpgsql stable set search_path from current
as $$
declare
  v_wall    timestamp := p_at at time zone p_timezone;
  v_seconds integer := round(extract(epoch from v_wall - (p_at at time zone 'UTC')));
begin
  return to_char(v_wall, 'YYYY-MM-DD"T"HH24:MI:SS') || case when v_seconds < 0 then '-' else '+' end
         || to_char(abs(v_seconds) / 3600, 'FM00') || ':' || to_char(abs(v_seconds) / 60 % 60, 'FM00');
end $$;
comment on function _octop_iso_local(timestamptz, text) is 'A moment as ISO 8601 text by the wall clock of a zone, with its offset.';

create or replace function _octop_previous_slot(s octop_schedules, p_slot timestamptz) returns timestamptz
  language plpgsql stable set search_path from current set timezone = 'UTC'
as $$
declare
  v_next timestamptz;
begin
  s.starts_at := null;
  s.ends_at := null;
  if s.last_slot < p_slot and _octop_next_slot(s, s.last_slot) = p_slot and _octop_next_slot(s, s.last_slot - interval '1 microsecond') = s.last_slot then
    return s.last_slot;   -- as almost always: the rule is the same as then
  end if;
  -- twice as far back each time, at most 68 years: no rule rests for longer than 40
  for i in 0 .. 31 loop
    v_next := _octop_next_slot(s, p_slot - make_interval(secs => 2 ^ i));
    if v_next < p_slot then
      return _octop_last_slot(s, v_next, p_slot - interval '1 microsecond');
    end if;
  end loop;
  return null;
end $$;
comment on function _octop_previous_slot(octop_schedules, timestamptz) is 'The last slot of a schedule''s rule before a moment, whatever starts_at says; null = none in 68 years.';

create or replace function _octop_slot_payload(s octop_schedules, p_slot timestamptz) returns jsonb
  language plpgsql stable set search_path from current
as $$
declare
  v_text text := s.payload::text;
  v_wall timestamp;
begin
  if strpos(v_text, '{{') = 0 then
    return s.payload;
  end if;
  v_wall := p_slot at time zone s.timezone;
  v_text := replace(v_text, '{{slot}}', _octop_iso(p_slot));
  v_text := replace(v_text, '{{slot.local}}', _octop_iso_local(p_slot, s.timezone));
  v_text := replace(v_text, '{{slot.date}}', to_char(v_wall, 'YYYY-MM-DD'));
  v_text := replace(v_text, '{{slot.time}}', to_char(v_wall, 'HH24:MI:SS'));
  v_text := replace(v_text, '{{slot.epoch}}', trunc(extract(epoch from p_slot))::bigint::text);
  if strpos(v_text, '{{previous}}') > 0 then
    v_text := replace(v_text, '{{previous}}', coalesce(_octop_iso(_octop_previous_slot(s, p_slot)), ''));
  end if;
  if strpos(v_text, '{{next}}') > 0 then
    v_text := replace(v_text, '{{next}}', coalesce(_octop_iso(_octop_cron_next(s.parsed, s.timezone, p_slot)), ''));
  end if;
  -- the only one that may hold what JSON has to quote
  return replace(v_text, '{{schedule}}', (select substr(q, 2, length(q) - 2) from (select to_json(s.name)::text as q) x))::jsonb;
end $$;
comment on function _octop_slot_payload(octop_schedules, timestamptz) is 'The payload of the task of a slot: texts of the schedule''s payload with what stands in double braces filled in.';

create or replace function _octop_slot_jitter(s octop_schedules, p_slot timestamptz) returns interval
  language plpgsql stable set search_path from current
as $$
begin
  if s.jitter_seconds = 0 then
    return interval '0';
  end if;
  -- the same for one slot of one schedule, whoever asks and however often
  return make_interval(secs => s.jitter_seconds * (hashtextextended(s.id::text || extract(epoch from p_slot), 0) & 1048575) / 1048576.0);
end $$;
comment on function _octop_slot_jitter(octop_schedules, timestamptz) is 'How long after a slot its task starts: a part of jitter_seconds, by a hash of schedule and slot.';

create or replace function _octop_slot_meta(s octop_schedules, p_slot timestamptz) returns jsonb
  language plpgsql stable set search_path from current
as $$
begin
  return coalesce(s.meta, '{}') || jsonb_build_object('schedule', s.name, 'slot', _octop_iso(p_slot));
end $$;
comment on function _octop_slot_meta(octop_schedules, timestamptz) is 'The riders of the task of a slot: the schedule''s own, its name, and the slot.';
