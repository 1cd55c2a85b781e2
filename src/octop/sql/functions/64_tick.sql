-- Firing. Promise: each slot makes exactly one task, however many fire and whenever they die: the schedule's row is locked, its task, the slot's row and the next
-- slot are written in one transaction, and the key of the slot's row lets nobody write it twice. One schedule whose task is refused stops no other.

create or replace function _octop_slot_tasks(p_schedules uuid[], p_slots timestamptz[]) returns uuid[]
  language plpgsql set search_path from current set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  r record;
begin
  select array_agg(s.task_type order by u.n) as types, array_agg(_octop_slot_payload(s, u.slot)::text order by u.n) as payloads, array_agg(octop_uuid7() order by u.n) as ids,
         array_agg(s.queue order by u.n) as queues, array_agg(s.lane order by u.n) as lanes, array_agg(s.tenant order by u.n) as tenants,
         array_agg(s.priority::integer order by u.n) as priorities, array_agg(u.slot + _octop_slot_jitter(s, u.slot) order by u.n) as due,
         array_agg(s.max_retries order by u.n) as retries, array_agg(s.timeout_seconds order by u.n) as timeouts, array_agg(s.tags::text order by u.n) as tags,
         array_agg(_octop_slot_meta(s, u.slot)::text order by u.n) as metas
    into r
    from unnest(p_schedules, p_slots) with ordinality u (schedule_id, slot, n) join octop_schedules s on s.id = u.schedule_id;
  perform octop_enqueue_many(r.types, r.payloads, ids => r.ids, queues => r.queues, lanes => r.lanes, tenants => r.tenants, priorities => r.priorities, scheduled_at => r.due,
                             max_retries => r.retries, timeout_seconds => r.timeouts, tags => r.tags, metas => r.metas, fresh => true);
  return r.ids;
end $$;
comment on function _octop_slot_tasks(uuid[], timestamptz[]) is 'Enqueue the tasks of these slots; answers their ids, in the same order.';

create or replace function _octop_slot_check_at(s octop_schedules, p_slot timestamptz) returns timestamptz
  language sql immutable
  return least(p_slot + make_interval(secs => (s).deadline_seconds), p_slot + make_interval(secs => (s).expected_seconds));
comment on function _octop_slot_check_at(octop_schedules, timestamptz) is 'When to look first whether the task of a slot has ended in time; null = never. Inlined.';

create or replace function _octop_is_unfinished(p_id uuid) returns boolean
  language plpgsql stable set search_path from current set enable_seqscan = off
as $$
begin
  return p_id is not null and exists (select from octop_tasks_live t where t.id = p_id);
end $$;
comment on function _octop_is_unfinished(uuid) is 'True while this task waits or runs.';

create or replace function _octop_fire(p_schedules uuid[], p_slots timestamptz[]) returns uuid[]
  language plpgsql set search_path from current
as $$
declare
  v_count integer := coalesce(cardinality(p_schedules), 0);
  v_half  integer := v_count / 2;
  v_error text;
begin
  if v_count = 0 then
    return '{}';
  end if;
  begin
    return _octop_slot_tasks(p_schedules, p_slots);
  exception when operator_intervention or transaction_rollback or lock_not_available or insufficient_resources or system_error then
    raise;   -- nobody's fault: the tick is taken back, and repeated
  when others then
    get stacked diagnostics v_error = message_text;
  end;
  if v_count > 1 then
    -- one of them is to blame: found by halves
    return _octop_fire(p_schedules[:v_half], p_slots[:v_half]) || _octop_fire(p_schedules[v_half + 1:], p_slots[v_half + 1:]);
  end if;
  update octop_schedules s set last_error = left(v_error, 1000) where s.id = p_schedules[1];
  perform _octop_alert('schedule_failed', _octop_schedule_called(s.name, s.tenant), 'error', format('The schedule "%s" made no task for its slot %s: %s', s.name, _octop_iso(p_slots[1]), v_error),
            jsonb_build_object('schedule', s.name, 'tenant', s.tenant, 'slot', _octop_iso(p_slots[1]), 'error', v_error)) from octop_schedules s where s.id = p_schedules[1];
  return array[null::uuid];
end $$;
comment on function _octop_fire(uuid[], timestamptz[]) is
  'Make the tasks of these slots; answers their ids in the same order, null where a task was refused: its schedule says why (last_error), and an alert.';

create or replace function _octop_fire_due(p_ids uuid[], p_most integer, out fired integer, out skipped integer)
  language plpgsql set search_path from current set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_variable
declare
  v_now  timestamptz := _octop_now();
  d      record;
  v_made uuid[];
begin
  -- What becomes of each slot: by catch_up, then by overlap. What a backfill has fired already is not looked at again. k counts those that are fired.
  select array_agg(y.id order by y.n) as ids, array_agg(y.slot order by y.n) as slots, array_agg(y.through order by y.n) as throughs, array_agg(y.status order by y.n) as statuses,
         array_agg(y.reason order by y.n) as reasons, array_agg(y.next order by y.n) as nexts, array_agg(y.late order by y.n) as lates,
         array_agg(case when y.status = 'fired' then y.k end order by y.n) as ks,
         array_agg(y.id order by y.n) filter (where y.status = 'fired') as fire_ids, array_agg(y.slot order by y.n) filter (where y.status = 'fired') as fire_slots
    into d
    from (
      select x.*, row_number() over (order by x.id, x.slot) as n, row_number() over (partition by x.status order by x.id, x.slot) as k
        from (
          select s.id, z.slot, z.through, z.next, z.slot < v_now - make_interval(secs => s.late_after_seconds) as late,
                 case when not o.overlaps then z.status when s.overlap = 'skip' or s.waiting + z.before >= s.catch_up_max then 'skipped' else 'waiting' end as status,
                 case when o.overlaps then 'overlap' else z.reason end as reason
            from unnest(p_ids) u (id) join octop_schedules s on s.id = u.id
            cross join lateral (select e.*, count(*) filter (where e.status = 'fired') over (order by e.slot rows between unbounded preceding and 1 preceding) as before
                                  from _octop_due_slots(s, v_now, p_most) e) z
            cross join lateral (select s.overlap <> 'allow' and z.status = 'fired' and (z.before > 0 or s.waiting > 0 or _octop_is_unfinished(s.last_task_id)) as overlaps) o
           where not exists (select from octop_schedule_slots h where h.schedule_id = s.id and h.slot = z.slot)) x) y;
  v_made := _octop_fire(d.fire_ids, d.fire_slots);
  with slots as materialized (
    select u.id, u.slot, u.through, u.next, u.late, v_made[u.k] as task_id, u.k is not null and v_made[u.k] is null as failed,
           case when u.k is not null and v_made[u.k] is null then 'skipped' else u.status end as status, u.reason
      from unnest(d.ids, d.slots, d.throughs, d.statuses, d.reasons, d.nexts, d.lates, d.ks) u (id, slot, through, status, reason, next, late, k)
  ), written as (
    insert into octop_schedule_slots (schedule_id, slot, through, status, origin, reason, task_id, check_at)
    select w.id, w.slot, w.through, w.status, case when w.status = 'fired' and w.late then 'caught_up' else 'due' end,
           case when w.failed then left('error: ' || s.last_error, 1000) else w.reason end, case when w.reason = 'overlap' then s.last_task_id else w.task_id end,
           case when w.status = 'fired' then _octop_slot_check_at(s, w.slot) end
      from slots w join octop_schedules s on s.id = w.id
  ), summed as materialized (
    select w.id, max(w.slot) as slot, (array_agg(w.next order by w.slot desc))[1] as next, (array_agg(w.task_id order by w.slot desc) filter (where w.status = 'fired'))[1] as task_id,
           count(*) filter (where w.status = 'waiting') as waiting, bool_or(w.failed) as failed from slots w group by w.id
  ), known as materialized (
    -- all slots of a schedule may have been fired by a backfill
    select u.id, x.slot, x.next, x.task_id, coalesce(x.waiting, 0) as waiting, x.failed, x.id is null as passed from unnest(p_ids) u (id) left join summed x on x.id = u.id
  ), moved as (
    update octop_schedules s
       set last_slot = coalesce(k.slot, s.next_slot), next_slot = case when k.passed then _octop_next_slot(s, s.next_slot) else k.next end,
           last_task_id = coalesce(k.task_id, s.last_task_id), waiting = s.waiting + k.waiting, last_error = case when k.failed then s.last_error end
      from known k
     where s.id = k.id
  )
  select count(*) filter (where w.status = 'fired'), count(*) filter (where w.status = 'skipped') into fired, skipped from slots w;
  perform _octop_alert_slots(d.ids, d.slots, d.statuses, d.reasons, d.lates);
end $$;
comment on function _octop_fire_due(uuid[], integer) is 'Fire what is due of these schedules, whose rows are locked, of each at most so many slots.';

create or replace function _octop_fire_each(p_ids uuid[], p_most integer, out fired integer, out skipped integer)
  language plpgsql set search_path from current
as $$
#variable_conflict use_variable
declare
  v_half  integer := cardinality(p_ids) / 2;
  v_error text;
begin
  begin
    select f.fired, f.skipped into fired, skipped from _octop_fire_due(p_ids, p_most) f;
    return;
  exception when operator_intervention or transaction_rollback or lock_not_available or insufficient_resources or system_error then
    raise;   -- nobody's fault: the tick is taken back, and repeated
  when others then
    get stacked diagnostics v_error = message_text;
  end;
  if v_half > 0 then
    select a.fired + b.fired, a.skipped + b.skipped into fired, skipped from _octop_fire_each(p_ids[:v_half], p_most) a, _octop_fire_each(p_ids[v_half + 1:], p_most) b;
    return;
  end if;
  -- A rule that does not advance, a time zone that the server has no more: it would fail again in each tick. It is stopped, and says so.
  fired := 0;
  skipped := 0;
  update octop_schedules s set next_slot = null, last_error = left('stopped: ' || v_error, 1000) where s.id = p_ids[1];
  perform _octop_alert('schedule_failed', _octop_schedule_called(s.name, s.tenant), 'error',
            format('The schedule "%s" is stopped: %s. A change of its rule, time zone, starts_at or ends_at lets it fire again.', s.name, v_error),
            jsonb_build_object('schedule', s.name, 'tenant', s.tenant, 'stopped', true, 'error', v_error)) from octop_schedules s where s.id = p_ids[1];
end $$;
comment on function _octop_fire_each(uuid[], integer) is 'As _octop_fire_due, and one schedule that cannot be fired at all is found by halves, stopped, and stops no other.';

create or replace function _octop_tick_due(p_most integer, out fired integer, out skipped integer)
  language plpgsql set search_path from current set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_variable
declare
  v_now timestamptz := _octop_now();
  v_ids uuid[] := array(select s.id from octop_schedules s where s.paused_at is null and s.next_slot <= v_now order by s.next_slot limit p_most for update skip locked);
begin
  fired := 0;
  skipped := 0;
  if v_ids = '{}' then
    return;
  end if;
  -- After an outage one schedule has many slots: about how many is told by the distance of two, so that a tick stays short. The rest is due still.
  v_ids := array(
    select x.id from (
      select u.id, u.n, sum(w.slots) over (order by u.n) - w.slots as before
        from unnest(v_ids) with ordinality u (id, n) join octop_schedules s on s.id = u.id
        cross join lateral (
          select least(case when s.catch_up = 'all' then s.catch_up_max else 101 end,
                       1 + floor(extract(epoch from v_now - s.next_slot) / greatest(1, coalesce(extract(epoch from s.next_slot - s.last_slot), 60)))) as slots) w) x
     where x.before < 2 * p_most order by x.n);
  select f.fired, f.skipped into fired, skipped from _octop_fire_each(v_ids, p_most) f;
end $$;
comment on function _octop_tick_due(integer) is 'Fire the slots of so many schedules that are due, the longest due first; what another session fires now is passed over.';

create or replace function _octop_tick_waiting(p_most integer) returns integer
  language plpgsql set search_path from current set enable_seqscan = off
as $$
declare
  s       octop_schedules;
  v_slot  timestamptz;
  v_made  uuid[];
  v_fired integer := 0;
begin
  for s in select x.* from octop_schedules x where x.waiting > 0 and x.paused_at is null and not _octop_is_unfinished(x.last_task_id) order by x.id limit p_most for update skip locked loop
    -- looked at again, now that the row is locked: another tick may have fired the slot before this one between the look and the lock
    continue when _octop_is_unfinished(s.last_task_id);
    v_made := '{}';
    select o.slot into v_slot from octop_schedule_slots o where o.schedule_id = s.id and o.status = 'waiting' order by o.slot limit 1;
    if found then
      v_made := _octop_fire(array[s.id], array[v_slot]);
      update octop_schedule_slots o
         set status = case when v_made[1] is null then 'skipped' else 'fired' end, task_id = v_made[1], at = _octop_now(),
             reason = case when v_made[1] is null then 'error' end, check_at = case when v_made[1] is not null then _octop_slot_check_at(s, v_slot) end
       where o.schedule_id = s.id and o.slot = v_slot;
      v_fired := v_fired + 1;
    end if;
    update octop_schedules x
       set last_task_id = coalesce(v_made[1], x.last_task_id), waiting = (select count(*) from octop_schedule_slots o where o.schedule_id = s.id and o.status = 'waiting') where x.id = s.id;
  end loop;
  return v_fired;
end $$;
comment on function _octop_tick_waiting(integer) is 'Fire the next slot of so many schedules with overlap = queue whose earlier task has ended.';

create or replace function _octop_backfill_slots(s octop_schedules, p_slots timestamptz[]) returns uuid[]
  language plpgsql set search_path from current set enable_seqscan = off
as $$
declare
  v_ids uuid[] := _octop_fire(array_fill(s.id, array[cardinality(p_slots)]), p_slots);
begin
  for i in 1 .. cardinality(p_slots) loop
    -- one row may stand for many slots that were skipped: the rest of them keeps one
    insert into octop_schedule_slots (schedule_id, slot, through, status, origin, reason, at)
    select o.schedule_id, x.next, nullif(o.through, x.next), o.status, o.origin, o.reason, o.at
      from octop_schedule_slots o cross join lateral (select _octop_next_slot(s, o.slot) as next) x
     where o.schedule_id = s.id and o.slot = p_slots[i] and x.next <= o.through
    on conflict do nothing;
    insert into octop_schedule_slots as o (schedule_id, slot, status, origin, reason, task_id)
    values (s.id, p_slots[i], case when v_ids[i] is null then 'skipped' else 'fired' end, 'backfill', case when v_ids[i] is null then 'error' end, v_ids[i])
    on conflict (schedule_id, slot) do update set status = excluded.status, origin = excluded.origin, reason = excluded.reason, task_id = excluded.task_id, at = excluded.at, through = null;
  end loop;
  return v_ids;
end $$;
comment on function _octop_backfill_slots(octop_schedules, timestamptz[]) is 'Fire these slots of a backfill, and write them down; answers the ids of their tasks, null where one was refused.';

create or replace function _octop_tick_backfills(p_most integer) returns integer
  language plpgsql set search_path from current set enable_seqscan = off
as $$
declare
  b       octop_backfills;
  s       octop_schedules;
  v_slots timestamptz[];
  v_at    timestamptz;
  v_ids   uuid[];
  v_open  uuid[];
  v_fired integer := 0;
  v_passed integer;
begin
  for b in select x.* from octop_backfills x where x.status = 'running' order by x.id limit p_most for update skip locked loop
    select * into s from octop_schedules x where x.id = b.schedule_id for update skip locked;
    continue when not found;
    s.starts_at := null;   -- a range before it is what a backfill is for
    v_open := array(select u from unnest(b.open_tasks) u where _octop_is_unfinished(u));
    v_slots := '{}';
    v_ids := '{}';
    v_passed := 0;
    v_at := b.next_slot;
    while v_at < b.until_at and cardinality(v_slots) + cardinality(v_open) < b.most_running and v_passed < 1000 loop
      -- what was fired, or waits, is passed over; what was skipped makes its task now
      if exists (select from octop_schedule_slots o where o.schedule_id = s.id and o.slot = v_at and o.status <> 'skipped') then
        v_passed := v_passed + 1;
      else
        v_slots := v_slots || v_at;
      end if;
      v_at := _octop_next_slot(s, v_at);
    end loop;
    if v_slots <> '{}' then
      v_ids := _octop_backfill_slots(s, v_slots);
    end if;
    v_open := v_open || array_remove(v_ids, null);
    v_fired := v_fired + cardinality(v_slots);
    v_at := case when v_at < b.until_at then v_at end;
    update octop_backfills x
       set next_slot = v_at, open_tasks = v_open, made = x.made + cardinality(array_remove(v_ids, null)), passed = x.passed + v_passed,
           status = case when v_at is null and v_open = '{}' then 'done' else 'running' end, ended_at = case when v_at is null and v_open = '{}' then _octop_now() end
     where x.id = b.id;
  end loop;
  return v_fired;
end $$;
comment on function _octop_tick_backfills(integer) is 'Go on with so many backfills: as many tasks as may be unfinished at once.';

create or replace function octop_tick(most integer default 500) returns table (fired integer, skipped integer, next_seconds double precision)
  language plpgsql security definer set search_path from current set lock_timeout = '2s' set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_most integer := least(greatest(coalesce(octop_tick.most, 500), 1), 10000);
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'octop: firing needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
      using errcode = 'OC301', hint = 'Set default_transaction_isolation of this role to read committed.';
  end if;
  select t.fired, t.skipped into fired, skipped from _octop_tick_due(v_most) t;
  fired := fired + _octop_tick_waiting(v_most) + _octop_tick_backfills(v_most);
  perform _octop_watch_slots(v_most);
  -- In a statement of its own, so that it sees what was written above. What is due and was not fired here is being fired by another session: no reason to
  -- ask again without a pause.
  select greatest(case when fired + skipped = 0 then 0.05 else 0 end, extract(epoch from x.at - _octop_now() - (clock_timestamp() - now()))) into next_seconds
    from (select least(
            (select s.next_slot from octop_schedules s where s.paused_at is null and s.next_slot is not null order by s.next_slot limit 1),
            (select o.check_at from octop_schedule_slots o where o.check_at is not null order by o.check_at limit 1),
            case when exists (select from octop_schedules s where s.waiting > 0) or exists (select from octop_backfills b where b.status = 'running')
                 then _octop_now() + interval '500 ms' end) as at) x
   where x.at is not null;
  return next;
end $$;
comment on function octop_tick(integer) is
  'Fire schedules: the slots that are due of at most so many (1 to 10,000), what waits for an earlier task, backfills, and alerts for what is late. Anybody may call it at any time, several at once; worker processes do, and pg_cron may: select octop_tick(). '
  'Answers how many slots were fired and skipped, and in how many seconds there is something to do again, on the database''s clock; null = not before somebody makes or changes a schedule. Error: OC301 isolation level.';
