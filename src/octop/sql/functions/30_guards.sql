-- Guard of birth and transitions. People and applications name the parent, the engine names the leaves, and statement
-- triggers fire only for the table that is named: so the checks here are complete for people and cost the engine nothing.
-- (Row triggers on live would cost 4 to 20 %, even with a WHEN that is false.)

create or replace function _octop_counted_as(status text) returns text
  language sql immutable parallel safe
  return case when status in ('pending', 'failed') then 'waiting' else status end;
comment on function _octop_counted_as(text) is
  'Under which name a status is counted. pending and failed are one counter (waiting): a claim need not know which it took, and failed tasks are counted by their own index.';

create or replace function _octop_counted_on(status text, completed_at timestamptz, scheduled_at timestamptz, out day date, out epoch numeric)
  language sql stable parallel safe
begin atomic
  select case when status in ('success', 'cancelled') then (coalesce(completed_at, _octop_now()) at time zone 'UTC')::date else '-infinity' end,
         case when status in ('success', 'cancelled') then extract(epoch from scheduled_at) else 0 end;
end;
comment on function _octop_counted_on(text, timestamptz, timestamptz) is
  'Under which day a task is counted, and with which scheduled_at: only finished tasks have either.';

create or replace function _octop_wake(queue_names text[], due timestamptz[]) returns void
  language plpgsql set search_path from current
as $$
declare
  q text;
begin
  -- An old snapshot may hide that somebody sleeps: then notify without looking.
  if current_setting('transaction_isolation') = 'read committed' then
    for q in
      select distinct u.queue from unnest(queue_names, due) u (queue, due)
        join _octop_sleepers s on s.queue = u.queue and s.wake_at > u.due
    loop
      perform pg_notify('octop_wake', q);
    end loop;
  else
    for q in select distinct u from unnest(queue_names) u loop
      perform pg_notify('octop_wake', q);
    end loop;
  end if;
end $$;
comment on function _octop_wake(text[], timestamptz[]) is
  'Notify channel octop_wake, once per queue, if a worker of that queue would sleep beyond the due time. A hint to look: nothing is decided from it.';

create or replace function _octop_tasks_inserted() returns trigger
  language plpgsql security definer set search_path from current set enable_seqscan = off
as $$
declare
  s text;
  v_queues text[];
  v_due timestamptz[];
  v_max int;
  v_keyed int;
  v_caller text := _octop_caller();
begin
  -- one walk over the rows, and nothing in it but comparisons: each INSERT pays for it
  select case when n.status <> 'pending' then 'pending, not ' || n.status
              when n.created_by <> v_caller then format('as its caller''s (%s), not as %s''s', v_caller, n.created_by)
              else 'without a past: attempt, retry_count and what else an attempt leaves behind' end into s
    from new_rows n
   where n.status <> 'pending' or n.created_by <> v_caller or n.attempt <> 0 or n.retry_count <> 0 or n.lost_count <> 0
      or n.due_at is not null or n.started_at is not null or n.completed_at is not null or n.deadline_at is not null
      or n.worker_id is not null or n.claim_id is not null or n.last_error is not null or n.result is not null
      or n.cancel_requested_at is not null or n.blocked_by is not null or n.unique_hold is not null
   limit 1;
  if found then
    raise exception 'octop: a task is born %', s
      using errcode = 'OC101', hint = 'Leave out of the INSERT what the engine sets: status, created_by, attempt and the like. Statuses change through the octop_ functions.';
  end if;
  if exists (select from new_rows n where _octop_has_control(concat(n.task_type, n.queue, n.lane, n.tenant))) then
    raise exception 'octop: names of task types, queues, lanes and tenants have no control characters'
      using errcode = 'OC110', hint = 'A line break, perhaps, at the end of the name?';
  end if;
  -- a payload over the limit compresses to more than an 80th of it: the text is made only for those that may be too large
  if exists (select from new_rows n where pg_column_size(n.payload) > 12000) then
    v_max := _octop_setting('task.payload_bytes_max');
    if exists (select from new_rows n where pg_column_size(n.payload) > 12000 and octet_length(n.payload::text) > v_max) then
      raise exception 'octop: a payload is larger than % bytes', v_max
        using errcode = 'OC112', hint = 'Store the data elsewhere and pass a reference, or raise task.payload_bytes_max.';
    end if;
  end if;
  if exists (select from new_rows n where pg_column_size(n.meta) > 800 and octet_length(n.meta::text) > 65536) then
    raise exception 'octop: meta has more than 65536 bytes' using errcode = 'OC111', hint = 'It is meant for riders such as trace context.';
  end if;
  if exists (select from new_rows n where n.tags is not null) then
    select _octop_tags_problem(n.tags) into s from new_rows n where _octop_tags_problem(n.tags) is not null limit 1;
    if found then
      raise exception 'octop: %', s using errcode = 'OC113', hint = 'Tags are labels to find tasks by; put data into the payload.';
    end if;
  end if;
  -- live refuses a second row with the same id by its key; with the id of a frozen task a task could never freeze
  if exists (select from new_rows n join octop_tasks_frozen f on f.id between n.id and n.id) then
    raise exception 'octop: the id of one of these tasks exists already' using errcode = 'unique_violation', hint = 'Leave id out of the INSERT.';
  end if;
  if exists (select from new_rows n where n.retry_policy is not null) then
    perform _octop_check_retry_policy(n.retry_policy) from new_rows n where n.retry_policy is not null;
  end if;
  with g as (
    select n.tenant, n.queue, count(*) as n, min(n.scheduled_at) as due, count(coalesce(n.unique_key, n.unique_scope)) as keyed from new_rows n group by n.tenant, n.queue
  ), d as (
    insert into _octop_counter_deltas (tenant, queue, status, day, n) select g.tenant, g.queue, 'waiting', '-infinity', g.n from g
  )
  select array_agg(g.queue), array_agg(g.due), sum(g.keyed) into v_queues, v_due, v_keyed from g;
  if v_keyed > 0 then
    if exists (select from new_rows n where n.unique_scope is not null and n.unique_key is null) then
      raise exception 'octop: unique_scope needs unique_key' using errcode = 'OC113', hint = 'The key is a text, or leave both out.';
    end if;
    perform _octop_take_by_hand(array(select n.id from new_rows n where n.unique_key is not null));
  end if;
  if v_queues is not null then
    perform _octop_wake(v_queues, v_due);
  end if;
  return null;
end $$;
comment on function _octop_tasks_inserted() is
  'INSERT into octop_tasks: born pending, as the caller''s, without a past (OC101), within the limits, one for each unique key (OC116), counted, and sleeping workers are told. Not checked: seq and created_at, which only the owner can write, and retry_of.';

create or replace function _octop_tasks_updated() returns trigger
  language plpgsql security definer set search_path from current set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  r record;
  v_queues text[];
  v_due timestamptz[];
begin
  select coalesce(o.id, n.id) as id, o.status as old, n.status as new,
         o.id is null or n.id is null or (o.seq, o.created_at, o.attempt) <> (n.seq, n.created_at, n.attempt) as renamed,
         (o.unique_key, o.unique_scope, o.unique_hold) is distinct from (n.unique_key, n.unique_scope, n.unique_hold)
           or (o.unique_key is not null and (o.tenant, o.task_type) <> (n.tenant, n.task_type)) as rekeyed into r
    from old_rows o full join new_rows n on n.id = o.id
   where o.id is null or n.id is null or (o.seq, o.created_at, o.attempt) <> (n.seq, n.created_at, n.attempt)
      or (o.unique_key, o.unique_scope, o.unique_hold) is distinct from (n.unique_key, n.unique_scope, n.unique_hold)
      or (o.unique_key is not null and (o.tenant, o.task_type) <> (n.tenant, n.task_type))
      or (o.status = 'running' and n.status = 'running'
          and (o.worker_id, o.claim_id, o.started_at, o.queue, o.lane, o.tenant, o.task_type, o.payload)
              is distinct from (n.worker_id, n.claim_id, n.started_at, n.queue, n.lane, n.tenant, n.task_type, n.payload))
      or (o.status <> n.status and not (
            (o.status in ('frozen', 'failed', 'running') and n.status = 'pending')
            or (o.status = 'running' and n.status = 'failed')
            or (o.status in ('pending', 'running', 'failed', 'blocked', 'frozen') and n.status = 'cancelled')))
   limit 1;
  if found then
    if r.renamed then
      raise exception 'octop: id, seq, created_at and attempt of task % cannot be changed', r.id
        using errcode = 'OC102', hint = 'They are the task''s identity for life, and the number of its starts.';
    elsif r.rekeyed then
      raise exception 'octop: unique_key, unique_scope and unique_hold of task % cannot be changed, nor what its key is made of: tenant and task_type', r.id
        using errcode = 'OC102', hint = 'Cancel it, and enqueue another one.';
    elsif r.old = r.new then
      raise exception 'octop: worker_id, claim_id, started_at, queue, lane, tenant, task_type and payload of the running task % cannot be changed', r.id
        using errcode = 'OC102', hint = 'They are its fence, or what its worker has already. To take the task from its worker set status = ''pending''; the same UPDATE may change the others.';
    end if;
    raise exception 'octop: task % cannot go from % to %', r.id, r.old, r.new
      using errcode = 'OC102', hint = case r.new
        when 'success' then 'Only a worker sets success. To end a task by hand set status = ''cancelled'', or call octop_cancel(id).'
        else 'By hand: frozen or failed to pending, running to pending or failed, anything unfinished to cancelled. Else use the octop_ functions.' end;
  end if;
  -- as at birth
  if exists (select from new_rows n where _octop_has_control(concat(n.task_type, n.queue, n.lane, n.tenant))) then
    raise exception 'octop: names of task types, queues, lanes and tenants have no control characters'
      using errcode = 'OC110', hint = 'A line break, perhaps, at the end of the name?';
  end if;
  select n.id, _octop_tags_problem(n.tags) as problem into r from old_rows o join new_rows n on n.id = o.id
   where n.tags is distinct from o.tags and _octop_tags_problem(n.tags) is not null limit 1;
  if found then
    raise exception 'octop: %', r.problem using errcode = 'OC113', detail = format('task %s', r.id), hint = 'Tags are labels to find tasks by; put data into the payload.';
  end if;
  perform _octop_check_retry_policy(n.retry_policy) from old_rows o join new_rows n on n.id = o.id
    where n.retry_policy is distinct from o.retry_policy;

  insert into _octop_counter_deltas (tenant, queue, status, day, n, scheduled_sum, scheduled_min, scheduled_max)
  select x.tenant, x.queue, _octop_counted_as(x.status), x.day, sum(x.n), sum(x.n * x.epoch), min(x.at), max(x.at)
    from (select o.tenant, o.queue, o.status, -1 as n, d.day, d.epoch, null::timestamptz as at
            from old_rows o cross join lateral _octop_counted_on(o.status, o.completed_at, o.scheduled_at) d
          union all
          select n.tenant, n.queue, n.status, 1, d.day, d.epoch, case when d.epoch <> 0 then n.scheduled_at end
            from new_rows n cross join lateral _octop_counted_on(n.status, n.completed_at, n.scheduled_at) d) x
   where x.status <> 'running'
   group by 1, 2, 3, 4 having sum(x.n) <> 0 or sum(x.n * x.epoch) <> 0;

  -- one row for each task, with what was changed: somebody may ask for this one
  perform _octop_audit_write('update', o.id::text, (
            select jsonb_build_object('from', jsonb_object_agg(c.key, p.value), 'to', jsonb_object_agg(c.key, c.value))
              from jsonb_each(to_jsonb(n)) c join jsonb_each(to_jsonb(o)) p on p.key = c.key where c.value <> p.value))
     from old_rows o join new_rows n on n.id = o.id where to_jsonb(n) <> to_jsonb(o);

  -- a moved time or queue may have to wake somebody, and so may a new status
  select array_agg(n.queue), array_agg(n.scheduled_at) into v_queues, v_due
    from old_rows o join new_rows n on n.id = o.id
   where n.status in ('pending', 'failed') and (n.scheduled_at < o.scheduled_at or n.queue <> o.queue or n.status <> o.status);
  if not exists (select from old_rows o join new_rows n on n.id = o.id where o.status <> n.status) then
    if v_queues is not null then
      perform _octop_wake(v_queues, v_due);
    end if;
    return null;
  end if;

  -- an attempt that is taken from its worker has ended: say so
  insert into octop_attempts (task_id, attempt, tenant, queue, task_type, worker_id, claim_id, started_at, ended_at, outcome, error_message)
  select o.id, o.attempt, o.tenant, o.queue, o.task_type, o.worker_id, o.claim_id, o.started_at, _octop_now(),
         case when n.status = 'cancelled' then 'cancelled' else 'released' end, 'taken back by ' || _octop_caller() || ' with UPDATE'
    from old_rows o join new_rows n on n.id = o.id
   where o.status = 'running' and n.status <> 'running'
  on conflict do nothing;

  -- fill or clear what belongs to the new status
  update octop_tasks_live t
     set worker_id = null, claim_id = null, deadline_at = null, cancel_requested_at = null, completed_at = null, blocked_by = null,
         retry_count = case when o.status = 'frozen' and n.retry_count = o.retry_count then 0 else t.retry_count end,
         scheduled_at = case when n.scheduled_at = o.scheduled_at then _octop_now() else t.scheduled_at end,
         -- back among the living, where a task of scope live holds its key; if another does, that is refused by the index
         unique_hold = case when o.status = 'frozen' and t.unique_scope = 'live' then _octop_unique_hold(t.tenant, t.task_type, 'live', t.unique_key) else t.unique_hold end
    from old_rows o join new_rows n on n.id = o.id
     -- bounds instead of "=": see _octop_complete
   where t.id between n.id and n.id and o.status <> n.status and n.status in ('pending', 'failed');
  with stray as (
    delete from octop_tasks_done_stray s using old_rows o, new_rows n
     where n.id = o.id and s.id = n.id and n.status = 'cancelled' and o.status <> 'cancelled' and s.completed_at is null returning s.*
  )
  insert into octop_tasks_done select c.* from stray cross join lateral _octop_completed(stray::octop_tasks_done_stray) c;

  if v_queues is not null then
    perform _octop_wake(v_queues, array_fill('-infinity'::timestamptz, array[cardinality(v_queues)]));
  end if;
  -- one that was cancelled may have held up its lane
  v_queues := array(select q.name from octop_queues q where q.limited and exists (select from new_rows n where n.queue = q.name and n.status = 'cancelled'));
  if v_queues <> '{}' then
    perform _octop_freed(v_queues);
  end if;
  if exists (select from old_rows o where o.status = 'running') then
    perform pg_notify('octop_wake', '');
  end if;
  return null;
end $$;
comment on function _octop_tasks_updated() is
  'UPDATE of octop_tasks by hand: refuses illegal jumps, another identity, and of a running task what its worker has (OC102); fills or clears what belongs to the new status, counts, audits, wakes. '
  'Not checked: the other notes of the engine (due_at, deadline_at, completed_at, lost_count, last_error, result, cancel_requested_at, blocked_by, retry_of), and of a running task scheduled_at, priority, retry_count and the limits, which hold for its next start.';

create or replace function _octop_completed(task octop_tasks_done_stray) returns octop_tasks_done_stray
  language plpgsql set search_path from current
as $$
begin
  task.completed_at := _octop_now();
  task.worker_id := null;
  task.claim_id := null;
  task.deadline_at := null;
  task.blocked_by := null;
  task.unique_hold := null;
  return task;
end $$;
comment on function _octop_completed(octop_tasks_done_stray) is 'The same finished task with completed_at filled.';

create or replace function _octop_tasks_deleted() returns trigger
  language plpgsql security definer set search_path from current
as $$
begin
  insert into _octop_counter_deltas (tenant, queue, status, day, n, scheduled_sum)
  select o.tenant, o.queue, _octop_counted_as(o.status),
         case when o.status in ('success', 'cancelled') then (o.completed_at at time zone 'UTC')::date else '-infinity' end, -count(*),
         case when o.status in ('success', 'cancelled') then -sum(extract(epoch from o.scheduled_at)) else 0 end
    from old_rows o where o.status <> 'running' group by 1, 2, o.status, 4;
  perform _octop_audit_write('delete', o.id::text, jsonb_strip_nulls(jsonb_build_object(
            'was', o.status, 'task_type', o.task_type, 'queue', o.queue, 'tenant', o.tenant, 'payload', o.payload, 'last_error', o.last_error)))
     from old_rows o;
  return null;
end $$;
comment on function _octop_tasks_deleted() is 'DELETE from octop_tasks by hand: counts, and keeps in the audit what each task was.';

create or replace function _octop_tasks_truncated() returns trigger
  language plpgsql security definer set search_path from current
as $$
begin
  delete from _octop_counter_deltas;
  delete from _octop_counters;
  perform _octop_audit_write('truncate', 'octop_tasks');
  return null;
end $$;
comment on function _octop_tasks_truncated() is 'TRUNCATE of octop_tasks: nothing is left to be counted, and somebody did it.';

create or replace function _octop_refuse_stray() returns trigger
  language plpgsql stable set search_path from current
as $$
declare
  v_was text;
begin
  -- stable: it sees what the statement saw, and so the row that an UPDATE has just taken from its leaf
  v_was := (select t.status from octop_tasks t where t.id = new.id limit 1);
  if v_was = new.status then
    raise exception 'octop: completed_at of the finished task % cannot be null', new.id using errcode = 'OC102', hint = 'It says in which day of history the task lies.';
  elsif v_was is null then
    raise exception 'octop: a task is born pending, not %', new.status
      using errcode = 'OC101', detail = 'And a finished one has completed_at.', hint = 'Leave status out of the INSERT; statuses change through the octop_ functions.';
  end if;
  raise exception 'octop: task % cannot go from % to %', new.id, v_was, new.status
    using errcode = 'OC102', hint = 'Only a worker sets success. To end a task by hand set status = ''cancelled'', or call octop_cancel(id).';
end $$;
comment on function _octop_refuse_stray() is 'Clear refusal of a finished status without its moment that was set by hand: by INSERT (OC101) or by UPDATE (OC102).';

create or replace trigger octop_tasks_born_pending after insert on octop_tasks
  referencing new table as new_rows for each statement execute function _octop_tasks_inserted();
create or replace trigger octop_tasks_legal_by_hand after update on octop_tasks
  referencing old table as old_rows new table as new_rows for each statement execute function _octop_tasks_updated();
create or replace trigger octop_tasks_deleted_by_hand after delete on octop_tasks
  referencing old table as old_rows for each statement execute function _octop_tasks_deleted();
create or replace trigger octop_tasks_truncated_by_hand after truncate on octop_tasks
  for each statement execute function _octop_tasks_truncated();
create or replace function _octop_refuse_unknown() returns trigger
  language plpgsql set search_path from current
as $$
begin
  raise exception 'octop: there is no status "%"', left(new.status, 100)
    using errcode = 'OC102', hint = 'pending, running, failed, blocked, frozen, success, cancelled. By hand: frozen or failed to pending, running to pending or failed, anything unfinished to cancelled.';
end $$;
comment on function _octop_refuse_unknown() is 'Clear refusal of a status that does not exist.';
create or replace trigger octop_tasks_unknown_refuse before insert on octop_tasks_unknown
  for each row execute function _octop_refuse_unknown();
-- a cancel by hand passes through here with a null time, which the statement trigger above fills a moment later
create or replace trigger octop_tasks_done_stray_refuse before insert on octop_tasks_done_stray
  for each row when (new.completed_at is null and new.status <> 'cancelled') execute function _octop_refuse_stray();
