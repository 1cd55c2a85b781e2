-- Schedules as rows: what is refused, what follows from a change, who may order what. Promise: a schedule that is in the table can fire, also one that came by a
-- plain INSERT or UPDATE; a change never brings back a slot that has had its turn; each order of a person or a program is in the audit.

create or replace function _octop_schedule_values() returns text[]
  language sql immutable
  return array['rule', 'timezone', 'task_type', 'payload', 'queue', 'lane', 'priority', 'max_retries', 'timeout_seconds', 'tags', 'meta', 'starts_at', 'ends_at', 'catch_up', 'catch_up_max',
               'overlap', 'jitter_seconds', 'late_after_seconds', 'expected_seconds', 'deadline_seconds'];
comment on function _octop_schedule_values() is 'The columns of a schedule that people and programs set.';

create or replace function _octop_schedule_defaults() returns jsonb
  language sql immutable
  return '{"timezone": "UTC", "payload": {}, "catch_up": "last", "catch_up_max": 100, "overlap": "allow", "jitter_seconds": 0, "late_after_seconds": 60}'::jsonb;
comment on function _octop_schedule_defaults() is 'What those columns are when nobody says otherwise; null where they are not named here.';

create or replace function _octop_schedule_called(p_name text, p_tenant text) returns text
  language sql immutable
  return case when p_tenant = '' then p_name else p_tenant || '/' || p_name end;
comment on function _octop_schedule_called(text, text) is 'A schedule as the subject of an alert: its name, behind its tenant where it has one.';

create or replace function _octop_schedule_problem(s octop_schedules) returns text
  language plpgsql stable set search_path from current
as $$
declare
  v_token text;
begin
  -- a task that would be refused is refused with its schedule, and not each night
  if s.name is null or length(s.name) not between 1 and 200 or _octop_has_control(s.name) then
    return 'name must have 1 to 200 characters and no control characters';
  elsif s.task_type is null or length(s.task_type) not between 1 and 200 or _octop_has_control(s.task_type) then
    return 'task_type must have 1 to 200 characters and no control characters';
  elsif length(s.queue) not between 1 and 200 or _octop_has_control(s.queue) then
    return 'queue must have 1 to 200 characters and no control characters';
  elsif s.tenant is null or length(s.tenant) > 200 or _octop_has_control(s.tenant) or length(s.lane) > 200 or _octop_has_control(s.lane) then
    return 'tenant and lane have at most 200 characters and no control characters';
  elsif s.payload is null or jsonb_typeof(s.payload) <> 'object' then
    return 'payload must be a JSON object';
  elsif octet_length(s.payload::text) > _octop_setting('task.payload_bytes_max') then
    return format('payload has %s bytes, more than task.payload_bytes_max (%s)', octet_length(s.payload::text), _octop_setting('task.payload_bytes_max'));
  elsif jsonb_typeof(s.meta) <> 'object' or octet_length(s.meta::text) > 60000 then
    return 'meta must be a JSON object of at most 60,000 bytes';
  elsif s.priority not between 0 and 9 then
    return format('priority must be 0 to 9, not %s', s.priority);
  elsif s.max_retries not between 0 and 1000 then
    return format('max_retries must be 0 to 1000, not %s', s.max_retries);
  elsif not (s.timeout_seconds > 0 and s.timeout_seconds <= 2678400) then
    return format('timeout_seconds must be above 0 and at most 2678400 (31 days), not %s', s.timeout_seconds);
  elsif s.tags is not null and _octop_tags_problem(s.tags) is not null then
    return _octop_tags_problem(s.tags);
  elsif s.catch_up is null or s.catch_up not in ('skip', 'last', 'all') then
    return format('catch_up must be skip, last or all, not %s', coalesce(s.catch_up, 'null'));
  elsif s.catch_up_max is null or s.catch_up_max not between 1 and 10000 then
    return format('catch_up_max must be 1 to 10000, not %s', coalesce(s.catch_up_max::text, 'null'));
  elsif s.overlap is null or s.overlap not in ('allow', 'skip', 'queue') then
    return format('overlap must be allow, skip or queue, not %s', coalesce(s.overlap, 'null'));
  elsif s.jitter_seconds is null or not (s.jitter_seconds >= 0 and s.jitter_seconds <= 86400) then
    return format('jitter_seconds must be 0 to 86400, not %s', coalesce(s.jitter_seconds::text, 'null'));
  elsif s.late_after_seconds is null or not (s.late_after_seconds > 0 and s.late_after_seconds <= 31536000) then
    return format('late_after_seconds must be above 0 and at most 31536000 (a year), not %s', coalesce(s.late_after_seconds::text, 'null'));
  elsif not (s.expected_seconds > 0 and s.expected_seconds <= 31536000) then
    return format('expected_seconds must be above 0 and at most 31536000 (a year), not %s', s.expected_seconds);
  elsif not (s.deadline_seconds > 0 and s.deadline_seconds <= 31536000) then
    return format('deadline_seconds must be above 0 and at most 31536000 (a year), not %s', s.deadline_seconds);
  elsif not (s.starts_at >= '2000-01-01 00:00:00+00' and s.starts_at < '3000-01-01 00:00:00+00')
     or not (s.ends_at >= '2000-01-01 00:00:00+00' and s.ends_at < '3000-01-01 00:00:00+00') then
    return 'starts_at and ends_at lie between the years 2000 and 3000';
  elsif s.ends_at < s.starts_at then
    return format('ends_at (%s) lies before starts_at (%s)', s.ends_at, s.starts_at);
  elsif length(s.pause_reason) > 1000 then
    return 'pause_reason has at most 1000 characters';
  end if;
  select m[1] into v_token from regexp_matches(s.payload::text, '[{][{]([^{}]*)[}][}]', 'g') m
   where m[1] <> all (array['slot', 'slot.local', 'slot.date', 'slot.time', 'slot.epoch', 'previous', 'next', 'schedule']) limit 1;
  if found then
    return format('payload names {{%s}}, and there is only {{slot}}, {{slot.local}}, {{slot.date}}, {{slot.time}}, {{slot.epoch}}, {{previous}}, {{next}} and {{schedule}}', left(v_token, 50));
  end if;
  return null;
end $$;
comment on function _octop_schedule_problem(octop_schedules) is 'What is wrong with a schedule beside its rule and time zone; null = nothing.';

create or replace function _octop_next_slot(s octop_schedules, p_after timestamptz) returns timestamptz
  language plpgsql stable set search_path from current
as $$
declare
  v_next timestamptz := _octop_cron_next(s.parsed, s.timezone, greatest(p_after, s.starts_at - interval '1 microsecond'));
begin
  if v_next <= p_after then
    -- no rule does that; should one, its schedule must not fire without end
    raise exception 'octop: the next slot of the schedule "%" would be %, and that is not after %', s.name, v_next, p_after
      using errcode = 'OC129', hint = 'This is a fault of Octop: please report it with the rule and the time zone.';
  end if;
  return case when s.ends_at is null or v_next <= s.ends_at then v_next end;
end $$;
comment on function _octop_next_slot(octop_schedules, timestamptz) is 'The first slot of a schedule after a moment, between its starts_at and ends_at; null = none.';

create or replace function _octop_schedule_check() returns trigger
  language plpgsql security definer set search_path from current
as $$
declare
  v_problem  text;
  v_declared jsonb;
begin
  if new.rule is null then
    raise exception 'octop: rule is null' using errcode = 'OC128', hint = 'Nothing was written. Five cron fields, @every 90s, @at 2030-01-07T09:00:00+01:00 or RRULE.';
  end if;
  -- what stays is not read again: a schedule whose zone is gone from the server can be paused, and corrected
  if tg_op = 'INSERT' or (new.rule, new.timezone) is distinct from (old.rule, old.timezone) then
    perform _octop_zone_check(new.timezone);
    new.parsed := _octop_cron_parse(new.rule);
  end if;
  v_problem := _octop_schedule_problem(new);
  if v_problem is not null then
    raise exception 'octop: the schedule "%": %', left(new.name, 200), v_problem using errcode = 'OC141', hint = 'Nothing was written. Correct the value and try again.';
  end if;
  if tg_op = 'INSERT' then
    -- made by hand after somebody dropped it: the code knows it again
    delete from _octop_dropped_schedules d where d.name = new.name and d.tenant = new.tenant returning d.declared into v_declared;
    new.declared := coalesce(new.declared, v_declared);
    new.next_slot := _octop_next_slot(new, _octop_now());
    if new.next_slot is null then
      raise exception 'octop: the schedule "%" would never fire: it has no slot after now%', new.name, coalesce(' until ' || new.ends_at, '')
        using errcode = 'OC129', hint = 'Nothing was written. Look at the rule, starts_at and ends_at.';
    end if;
  else
    if new.id <> old.id then
      raise exception 'octop: the id of the schedule "%" cannot be changed', old.name using errcode = 'OC141', hint = 'Drop it and make another.';
    end if;
    if (new.rule, new.timezone, new.starts_at, new.ends_at) is distinct from (old.rule, old.timezone, old.starts_at, old.ends_at) then
      new.next_slot := _octop_next_slot(new, greatest(_octop_now(), new.last_slot));
      new.last_error := null;
      if new.next_slot is null and new.rule <> old.rule then
        raise exception 'octop: the schedule "%" would never fire again: % has no slot after now%', new.name, new.rule, coalesce(' until ' || new.ends_at, '')
          using errcode = 'OC129', hint = 'Nothing was written. Look at the rule, starts_at and ends_at; octop_drop_schedule drops it.';
      end if;
    end if;
    new.updated_at := _octop_now();
    new.updated_by := _octop_caller();
  end if;
  return new;
end $$;
comment on function _octop_schedule_check() is 'Refuses a schedule that could not fire, or whose tasks would be refused (OC128, OC129, OC130, OC141), and says which column; finds its next slot.';
-- only where a person or a program changes something: what the tick writes is not looked at again
create or replace trigger octop_schedules_check
  before insert or update of id, name, tenant, rule, timezone, task_type, payload, queue, lane, priority, max_retries, timeout_seconds, tags, meta, starts_at, ends_at, catch_up, catch_up_max,
                             overlap, jitter_seconds, late_after_seconds, expected_seconds, deadline_seconds, paused_at, paused_by, pause_reason, declared
  on octop_schedules for each row execute function _octop_schedule_check();

create or replace function _octop_schedule_changed() returns trigger
  language plpgsql security definer set search_path from current
as $$
declare
  v_old jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) else '{}' end;
  v_new jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) else '{}' end;
  v_row octop_schedules := coalesce(new, old);
begin
  if tg_op = 'DELETE' then
    update octop_backfills b set status = 'cancelled', ended_at = _octop_now() where b.schedule_id = old.id and b.status = 'running';
    update octop_schedule_slots o set status = 'skipped', reason = 'dropped' where o.schedule_id = old.id and o.status = 'waiting';
    insert into _octop_dropped_schedules (name, tenant, declared) select old.name, old.tenant, old.declared where old.declared is not null
    on conflict (name, tenant) do update set declared = excluded.declared, dropped_at = excluded.dropped_at, dropped_by = excluded.dropped_by;
  end if;
  perform _octop_audit_write(case when tg_op = 'INSERT' then 'schedule.add' when tg_op = 'DELETE' then 'schedule.drop'
                 when old.paused_at is null and new.paused_at is not null then 'schedule.pause' when old.paused_at is not null and new.paused_at is null then 'schedule.resume'
                 else 'schedule.set' end,
            'schedule:' || v_row.name,
            jsonb_build_object('tenant', nullif(v_row.tenant, '')) || case when tg_op = 'DELETE' then '{}' else
              (select coalesce(jsonb_object_agg(e.key, jsonb_build_object('from', v_old -> e.key, 'to', e.value)), '{}') from jsonb_each(v_new) e
                where e.value is distinct from v_old -> e.key and e.value <> coalesce(v_old -> e.key, 'null')
                  and e.key not in ('id', 'name', 'tenant', 'parsed', 'next_slot', 'last_slot', 'last_task_id', 'last_error', 'created_at', 'created_by', 'updated_at', 'updated_by', 'waiting', 'declared')) end);
  perform pg_notify('octop_schedules', '');
  return null;
end $$;
comment on function _octop_schedule_changed() is 'Writes each change of a schedule by a person or a program into the audit, and wakes who fires.';
create or replace trigger octop_schedules_changed
  after insert or delete or update of id, name, tenant, rule, timezone, task_type, payload, queue, lane, priority, max_retries, timeout_seconds, tags, meta, starts_at, ends_at, catch_up, catch_up_max,
                                      overlap, jitter_seconds, late_after_seconds, expected_seconds, deadline_seconds, paused_at, paused_by, pause_reason
  on octop_schedules for each row execute function _octop_schedule_changed();

create or replace function _octop_locked_schedule(p_name text, p_tenant text) returns octop_schedules
  language plpgsql set search_path from current
as $$
declare
  s octop_schedules;
begin
  select * into s from octop_schedules x where x.name = p_name and x.tenant = p_tenant for update;
  if not found then
    raise exception 'octop: there is no schedule "%"%', left(p_name, 200), case when p_tenant > '' then format(' of the tenant "%s"', left(p_tenant, 200)) else '' end
      using errcode = 'OC140', hint = 'octop schedules list, or select name, tenant from octop_schedules, shows all.';
  end if;
  return s;
end $$;
comment on function _octop_locked_schedule(text, text) is 'The row of a schedule, locked. Error: OC140 there is none.';

create or replace function _octop_check_schedule_values(p_values jsonb) returns void
  language plpgsql set search_path from current
as $$
declare
  v_names constant text[] := _octop_schedule_values();
  v_key text;
begin
  if p_values is null or jsonb_typeof(p_values) <> 'object' then
    raise exception 'octop: values of a schedule are a JSON object' using errcode = 'OC141', hint = 'Nothing was written. Values are ' || array_to_string(v_names, ', ') || '.';
  end if;
  select k into v_key from jsonb_object_keys(p_values) k where k <> all (v_names) limit 1;
  if found then
    raise exception 'octop: a schedule has no value named %', left(v_key, 100) using errcode = 'OC141', hint = 'Nothing was written. Values are ' || array_to_string(v_names, ', ') || '.';
  end if;
  -- a moment without an offset would be read by the time zone of this session
  select e.key into v_key from jsonb_each_text(p_values) e
   where e.key in ('starts_at', 'ends_at') and e.value is not null and e.value !~* '(z|[+-][0-9]{2}(:?[0-9]{2})?)$' limit 1;
  if found then
    raise exception 'octop: % has no offset: %', v_key, left(p_values ->> v_key, 100) using errcode = 'OC114', hint = 'Nothing was written. Write date, time and offset: 2030-01-07T09:00:00+01:00.';
  end if;
end $$;
comment on function _octop_check_schedule_values(jsonb) is 'Refuse what is no object of values of a schedule, by the names of its columns. Errors: OC141, OC114 a moment without an offset.';

create or replace function _octop_write_schedule(p_name text, p_tenant text, p_values jsonb, p_declared jsonb) returns octop_schedules
  language plpgsql set search_path from current
as $$
declare
  v_all constant jsonb := _octop_schedule_defaults();
  s octop_schedules;
  n octop_schedules;
begin
  -- null = back to the default
  p_values := (select coalesce(jsonb_object_agg(e.key, case when e.value = 'null' then coalesce(v_all -> e.key, 'null') else e.value end), '{}') from jsonb_each(p_values) e);
  begin
    select * into s from octop_schedules x where x.name = p_name and x.tenant = p_tenant for update;
    if not found then
      n := jsonb_populate_record(null::octop_schedules, v_all || p_values);
      insert into octop_schedules (name, tenant, rule, timezone, task_type, payload, queue, lane, priority, max_retries, timeout_seconds, tags, meta, starts_at, ends_at, catch_up, catch_up_max, overlap,
                                   jitter_seconds, late_after_seconds, expected_seconds, deadline_seconds, declared)
      values (p_name, p_tenant, n.rule, n.timezone, n.task_type, n.payload, n.queue, n.lane, n.priority, n.max_retries, n.timeout_seconds, n.tags, n.meta, n.starts_at, n.ends_at, n.catch_up, n.catch_up_max, n.overlap,
              n.jitter_seconds, n.late_after_seconds, n.expected_seconds, n.deadline_seconds, p_declared)
      on conflict (name, tenant) do nothing returning * into s;
      if found then
        return s;
      end if;
      -- another transaction has made it just now
      select * into s from octop_schedules x where x.name = p_name and x.tenant = p_tenant for update;
    end if;
    n := jsonb_populate_record(s, p_values);
  exception when data_exception then
    raise exception 'octop: a value of the schedule "%" cannot be read: %', left(p_name, 200), sqlerrm using errcode = 'OC141', hint = 'Nothing was written.';
  end;
  if n is distinct from s then
    update octop_schedules x
       set rule = n.rule, timezone = n.timezone, task_type = n.task_type, payload = n.payload, queue = n.queue, lane = n.lane, priority = n.priority, max_retries = n.max_retries,
           timeout_seconds = n.timeout_seconds, tags = n.tags, meta = n.meta, starts_at = n.starts_at, ends_at = n.ends_at, catch_up = n.catch_up, catch_up_max = n.catch_up_max, overlap = n.overlap,
           jitter_seconds = n.jitter_seconds, late_after_seconds = n.late_after_seconds, expected_seconds = n.expected_seconds, deadline_seconds = n.deadline_seconds
     where x.id = s.id returning * into s;
  end if;
  if p_declared is distinct from s.declared and p_declared is not null then
    update octop_schedules x set declared = p_declared where x.id = s.id returning * into s;
  end if;
  return s;
end $$;
comment on function _octop_write_schedule(text, text, jsonb, jsonb) is 'Make a schedule, or change the named values of the one that is there; nothing is written where nothing differs.';

create or replace function octop_put_schedule(name text, settings jsonb, tenant text default '') returns jsonb
  language plpgsql security definer set search_path from current
as $$
begin
  perform _octop_check_schedule_values(octop_put_schedule.settings);
  return to_jsonb(_octop_write_schedule(octop_put_schedule.name, coalesce(octop_put_schedule.tenant, ''), octop_put_schedule.settings, null)) - array['parsed', 'declared'];
end $$;
comment on function octop_put_schedule(text, jsonb, text) is
  'Make a schedule, or change the named values of the one that is there, by the names of the columns of octop_schedules: octop_put_schedule(''report'', ''{"rule": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "task_type": "report"}''). '
  'Those that are not named stay; null = back to the default. A new rule or time zone counts from now on. Answers the row. Errors: OC128, OC129, OC130 of the rule and its zone, OC141 any other value, OC114 a moment without an offset.';

create or replace function octop_drop_schedule(name text, tenant text default '') returns boolean
  language plpgsql security definer set search_path from current
as $$
begin
  delete from octop_schedules s where s.name = octop_drop_schedule.name and s.tenant = coalesce(octop_drop_schedule.tenant, '');
  return found;
end $$;
comment on function octop_drop_schedule(text, text) is
  'Drop a schedule and end its backfills; answer whether there was one. Tasks that it made stay. One that an application''s code declares does not come back with its next start; octop_put_schedule brings it back.';

create or replace function octop_pause_schedule(name text, reason text default '', tenant text default '') returns boolean
  language plpgsql security definer set search_path from current
as $$
declare
  s octop_schedules := _octop_locked_schedule(octop_pause_schedule.name, coalesce(octop_pause_schedule.tenant, ''));
begin
  if s.paused_at is not null then
    return false;
  end if;
  update octop_schedules x set paused_at = _octop_now(), paused_by = _octop_caller(), pause_reason = left(octop_pause_schedule.reason, 1000) where x.id = s.id;
  return true;
end $$;
comment on function octop_pause_schedule(text, text, text) is 'Fire no slots of a schedule until octop_resume_schedule; answer false if it was paused already. Tasks that it made go on. Error: OC140 there is none.';

create or replace function octop_resume_schedule(name text, tenant text default '') returns boolean
  language plpgsql security definer set search_path from current
as $$
declare
  s octop_schedules := _octop_locked_schedule(octop_resume_schedule.name, coalesce(octop_resume_schedule.tenant, ''));
  v_last timestamptz;
begin
  if s.paused_at is null then
    return false;
  end if;
  -- a pause is no outage: what fell into it is not caught up
  if s.next_slot <= _octop_now() then
    v_last := _octop_last_slot(s, s.next_slot, _octop_now());
    insert into octop_schedule_slots (schedule_id, slot, through, status, reason)
    values (s.id, s.next_slot, nullif(v_last, s.next_slot), 'skipped', 'paused') on conflict do nothing;
    update octop_schedules x set last_slot = v_last, next_slot = _octop_next_slot(s, v_last) where x.id = s.id;
  end if;
  update octop_schedules x set paused_at = null, paused_by = null, pause_reason = null where x.id = s.id;
  return true;
end $$;
comment on function octop_resume_schedule(text, text) is
  'Fire again what octop_pause_schedule had stopped, from the next slot on; answer false if it was not paused. Slots that fell into the pause are skipped: octop_backfill_schedule makes up for them. Error: OC140 there is none.';
