-- Orders to schedules: run now, backfill, and what an application declares. Promise: an order is whole or refused; code never overwrites what somebody changed.

create or replace function octop_run_schedule(name text, tenant text default '') returns uuid
  language plpgsql security definer set search_path from current set enable_seqscan = off
as $$
declare
  s      octop_schedules := _octop_locked_schedule(octop_run_schedule.name, coalesce(octop_run_schedule.tenant, ''));
  v_slot timestamptz := clock_timestamp() - now() + _octop_now();
  v_id   uuid;
begin
  -- a slot of the rule lies on a whole second, and must not be taken for one that has had its turn
  while v_slot = date_trunc('second', v_slot) or exists (select from octop_schedule_slots o where o.schedule_id = s.id and o.slot = v_slot) loop
    v_slot := v_slot + interval '1 microsecond';
  end loop;
  v_id := octop_uuid7();
  perform octop_enqueue_many(array[s.task_type], array[_octop_slot_payload(s, v_slot)::text], ids => array[v_id], queues => array[s.queue], lanes => array[s.lane],
                             tenants => array[s.tenant], priorities => array[s.priority::integer], max_retries => array[s.max_retries], timeout_seconds => array[s.timeout_seconds],
                             tags => array[s.tags::text], metas => array[_octop_slot_meta(s, v_slot)::text], fresh => true);
  insert into octop_schedule_slots (schedule_id, slot, status, origin, task_id, check_at)
  values (s.id, v_slot, 'fired', 'run_now', v_id, _octop_slot_check_at(s, v_slot));
  perform _octop_audit_write('schedule.run', 'schedule:' || s.name, jsonb_strip_nulls(jsonb_build_object('tenant', nullif(s.tenant, ''), 'task_id', v_id)));
  return v_id;
end $$;
comment on function octop_run_schedule(text, text) is
  'Make a task of a schedule at once, also while it is paused and whatever its overlap says; its own slots go on as if nothing had been. The task''s slot is this moment. Answers the task''s id. Error: OC140 there is no such schedule.';

create or replace function octop_backfill_schedule(name text, "from" timestamptz, until timestamptz, most_running integer default 1, tenant text default '') returns uuid
  language plpgsql security definer set search_path from current
as $$
declare
  s       octop_schedules := _octop_locked_schedule(octop_backfill_schedule.name, coalesce(octop_backfill_schedule.tenant, ''));
  v_first timestamptz;
  v_at    timestamptz;
  v_n     integer := 0;
  v_id    uuid;
begin
  if "from" is null or until is null or "from" >= until then
    raise exception 'octop: a backfill goes from one moment to a later one, not from % to %', coalesce("from"::text, 'null'), coalesce(until::text, 'null')
      using errcode = 'OC142', hint = 'Nothing was ordered. The slot at the end is not a part of it.';
  elsif most_running is null or most_running not between 1 and 100 then
    raise exception 'octop: most_running must be 1 to 100, not %', coalesce(most_running::text, 'null') using errcode = 'OC142', hint = 'Nothing was ordered.';
  elsif until > _octop_now() then
    raise exception 'octop: a backfill makes up for slots of the past, and % is to come', until
      using errcode = 'OC142', hint = 'Nothing was ordered. Slots to come are fired by the schedule itself; octop_run_schedule makes a task at once.';
  end if;
  -- a range before its start is what a backfill is for
  s.starts_at := null;
  v_first := _octop_next_slot(s, "from" - interval '1 microsecond');
  v_at := v_first;
  while v_at < until and v_n <= 100000 loop
    v_n := v_n + 1;
    v_at := _octop_next_slot(s, v_at);
  end loop;
  if v_n > 100000 then
    raise exception 'octop: from % to % the schedule "%" has more than 100,000 slots', "from", until, s.name
      using errcode = 'OC142', hint = 'Nothing was ordered. Order shorter ranges, one after the other.';
  elsif v_n = 0 then
    raise exception 'octop: from % to % the schedule "%" has no slot', "from", until, s.name
      using errcode = 'OC142', hint = 'Nothing was ordered. octop_cron_next_n shows the slots of a rule.';
  end if;
  insert into octop_backfills (schedule_id, from_at, until_at, next_slot, most_running) values (s.id, "from", until, v_first, most_running) returning id into v_id;
  perform _octop_audit_write('schedule.backfill', 'schedule:' || s.name,
            jsonb_strip_nulls(jsonb_build_object('tenant', nullif(s.tenant, ''), 'backfill_id', v_id, 'from', _octop_iso("from"), 'until', _octop_iso(until), 'slots', v_n, 'most_running', most_running)));
  perform pg_notify('octop_schedules', '');
  return v_id;
end $$;
comment on function octop_backfill_schedule(text, timestamptz, timestamptz, integer, text) is
  'Fire the slots of a schedule from one moment to before another, in order, at most so many tasks unfinished at once (1 to 100). Slots that made a task already are passed over, skipped ones are fired. The range may lie before starts_at. '
  'octop_backfills shows how far it is. Answers the backfill''s id. Errors: OC140 there is no such schedule, OC142 a range that is empty, too long, or not past.';

create or replace function octop_cancel_backfill(id uuid) returns boolean
  language plpgsql security definer set search_path from current
as $$
begin
  update octop_backfills b set status = 'cancelled', ended_at = _octop_now() where b.id = octop_cancel_backfill.id and b.status = 'running';
  if not found then
    return false;
  end if;
  perform _octop_audit_write('schedule.backfill_cancel', 'backfill:' || octop_cancel_backfill.id, '{}');
  return true;
end $$;
comment on function octop_cancel_backfill(uuid) is 'Make no more tasks of a backfill; answer whether it was running. Tasks that it made go on.';
