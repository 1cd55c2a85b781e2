-- Orders to schedules: run now, backfill, and what an application declares. Promise: an order is whole or refused; code never overwrites what somebody changed.

create or replace function octop_run_schedule(name text, tenant text default '') returns uuid
  language plpgsql security definer set search_path from current set enable_seqscan = off
as $$
declare
  s      octop_schedules := _octop_locked_schedule(octop_run_schedule.name, coalesce(octop_run_schedule.tenant, ''));
  v_slot timestamptz := clock_timestamp() - now() + _octop_now();
  v_id   uuid;
begin
  while exists (select from octop_schedule_slots o where o.schedule_id = s.id and o.slot = v_slot) loop
    v_slot := v_slot + interval '1 microsecond';
  end loop;
  s.jitter_seconds := 0;
  v_id := octop_uuid7();
  perform octop_enqueue_many(array[s.task_type], array[_octop_slot_payload(s, v_slot, s.last_slot, s.next_slot)::text], ids => array[v_id], queues => array[s.queue], lanes => array[s.lane],
                             tenants => array[s.tenant], priorities => array[s.priority::integer], max_retries => array[s.max_retries], timeout_seconds => array[s.timeout_seconds],
                             tags => array[s.tags::text], metas => array[jsonb_build_object('schedule', s.name, 'slot', _octop_iso(v_slot))::text], fresh => true);
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

create or replace function octop_declare_schedules(declarations jsonb, only_look boolean default false)
  returns table (name text, tenant text, what text, "columns" jsonb)
  language plpgsql security definer set search_path from current set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  v_defaults constant jsonb := '{"timezone": "UTC", "payload": {}, "catch_up": "last", "catch_up_max": 100, "overlap": "allow", "jitter_seconds": 0, "late_after_seconds": 60}';
  d          jsonb;
  s          octop_schedules;
  v_values   jsonb;
  v_row      jsonb;
  v_theirs   jsonb;
  v_ours     jsonb;
begin
  if octop_declare_schedules.declarations is null or jsonb_typeof(octop_declare_schedules.declarations) <> 'array' then
    raise exception 'octop: declarations of schedules are a JSON array' using errcode = 'OC141', hint = 'Nothing was written.';
  end if;
  for d in select x from jsonb_array_elements(octop_declare_schedules.declarations) x order by x ->> 'name', coalesce(x ->> 'tenant', '') loop
    name := d ->> 'name';
    tenant := coalesce(d ->> 'tenant', '');
    v_values := (select coalesce(jsonb_object_agg(e.key, e.value), '{}') from jsonb_each(d) e where e.key not in ('name', 'tenant') and e.value <> 'null');
    perform _octop_schedule_values(v_values);
    columns := '{}';
    select * into s from octop_schedules x where x.name = octop_declare_schedules.name and x.tenant = octop_declare_schedules.tenant;
    if not found then
      what := 'added';
      if not only_look then
        perform _octop_write_schedule(name, tenant, v_values, v_values);
      end if;
      return next;
      continue;
    end if;
    -- A column that still says what was declared before follows the code; what somebody changed stays. Compared as the table would write it: 5 and 5.0, or
    -- two ways to write one moment, are the same.
    v_row := to_jsonb(s);
    v_theirs := to_jsonb(jsonb_populate_record(s, v_defaults || jsonb_build_object('queue', null, 'lane', null, 'priority', null, 'max_retries', null, 'timeout_seconds', null, 'tags', null,
                  'starts_at', null, 'ends_at', null, 'expected_seconds', null, 'deadline_seconds', null) || coalesce(s.declared, '{}')));
    v_ours := to_jsonb(jsonb_populate_record(s, v_defaults || jsonb_build_object('queue', null, 'lane', null, 'priority', null, 'max_retries', null, 'timeout_seconds', null, 'tags', null,
                  'starts_at', null, 'ends_at', null, 'expected_seconds', null, 'deadline_seconds', null) || v_values));
    select coalesce(jsonb_object_agg(e.key, jsonb_build_object('is', v_row -> e.key, 'declared', e.value)) filter (where s.declared is null or v_row -> e.key <> v_theirs -> e.key), '{}'),
           coalesce(jsonb_object_agg(e.key, e.value) filter (where s.declared is not null and v_row -> e.key = v_theirs -> e.key), '{}')
      into columns, v_values
      from jsonb_each(v_ours) e
     where e.value <> v_row -> e.key and e.key in ('rule', 'timezone', 'task_type', 'payload', 'queue', 'lane', 'priority', 'max_retries', 'timeout_seconds', 'tags', 'starts_at', 'ends_at', 'catch_up',
                                                   'catch_up_max', 'overlap', 'jitter_seconds', 'late_after_seconds', 'expected_seconds', 'deadline_seconds');
    what := case when columns <> '{}' then 'kept' when v_values <> '{}' then 'changed' when s.paused_at is not null then 'paused' else 'same' end;
    if what = 'changed' then
      columns := v_values;
    end if;
    d := d - array['name', 'tenant'];
    if not only_look and (v_values <> '{}' or s.declared is distinct from jsonb_strip_nulls(d)) then
      perform _octop_write_schedule(name, tenant, v_values, jsonb_strip_nulls(d));
    end if;
    return next;
  end loop;
  -- declared once, and by this code no more: another application may do so, and nobody but a person drops a schedule
  return query
  select x.name, x.tenant, 'undeclared', '{}'::jsonb from octop_schedules x
   where x.declared is not null and not exists (select from jsonb_array_elements(octop_declare_schedules.declarations) y where y ->> 'name' = x.name and coalesce(y ->> 'tenant', '') = x.tenant);
exception when lock_not_available then
  raise exception 'octop: another transaction, not ended yet, has changed the schedule "%"', name
    using errcode = 'OC303', hint = 'Try again. If nobody ends it: see the how-to "End a transaction that was left open".';
end $$;
comment on function octop_declare_schedules(jsonb, boolean) is
  'Declare schedules, an array of objects with name, tenant and the columns of octop_put_schedule. A column that still says what was declared before follows; what somebody changed, paused, or made by hand stays. only_look: write nothing. '
  'Answers for each: added, changed (columns: the new values), kept (columns: what stays, and what is declared), paused, same; and undeclared for those that another declaration made. Errors: OC128, OC129, OC130, OC141, OC303 after a second, when another open transaction has changed one.';
