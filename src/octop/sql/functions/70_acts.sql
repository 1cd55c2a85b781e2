-- What people and programs may do to tasks, queues and workers. Promise: each act is one function, is written to the audit, takes
-- effect on all workers without a restart, and says what it did.

create or replace function octop_cancel(id uuid, reason text default '') returns text
  language plpgsql security definer set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_id     uuid := octop_cancel.id;
  v_all    boolean := has_function_privilege(_octop_caller()::name, 'octop_retry(uuid)', 'execute');
  v_me     text := _octop_caller();
  v_status text;
  v_queue  text;
begin
  -- A task that moves in this moment is invisible to the first look: look again, in a second statement, before saying "not found".
  for v_look in 1..3 loop
    select t.status into v_status from octop_tasks_live t where t.id = v_id and (v_all or t.created_by = v_me) for update;
    if v_status = 'running' then
      update octop_tasks_live t set cancel_requested_at = coalesce(t.cancel_requested_at, _octop_now()) where t.id = v_id;
      perform pg_notify('octop_wake', '');
      perform _octop_audit_write('cancel', v_id::text, jsonb_build_object('reason', reason, 'was', v_status));
      return 'requested';
    end if;
    with gone as (
      delete from octop_tasks_live t where t.id = v_id and v_status is not null returning t.*
    ), frozen as (
      delete from octop_tasks_frozen t where t.id = v_id and v_status is null and (v_all or t.created_by = v_me) returning t.*
    ), it as (
      select * from gone union all select * from frozen
    ), kept as (
      insert into octop_tasks_done (id, seq, tenant, queue, lane, task_type, payload, status, priority, scheduled_at, due_at, created_at, started_at,
                                    completed_at, retry_count, max_retries, last_error, timeout_seconds, attempt, lost_count, retry_policy,
                                    tags, meta, retry_of, created_by)
      select g.id, g.seq, g.tenant, g.queue, g.lane, g.task_type, g.payload, 'cancelled', g.priority, g.scheduled_at, g.due_at, g.created_at, g.started_at,
             _octop_now(), g.retry_count, g.max_retries, coalesce(nullif(left(octop_cancel.reason, 1024), ''), g.last_error), g.timeout_seconds, g.attempt,
             g.lost_count, g.retry_policy, g.tags, g.meta, g.retry_of, g.created_by from it g
      returning tenant, queue, scheduled_at
    ), counted as (
      insert into _octop_counter_deltas (tenant, queue, status, day, n, scheduled_sum, scheduled_min, scheduled_max)
      select i.tenant, i.queue, _octop_counted_as(i.status), '-infinity', -1, 0, null, null from it i
      union all
      select k.tenant, k.queue, 'cancelled', (_octop_now() at time zone 'UTC')::date, 1, extract(epoch from k.scheduled_at), k.scheduled_at, k.scheduled_at from kept k
    )
    select i.status, i.queue into v_status, v_queue from it i;
    if v_status is not null then
      perform _octop_audit_write('cancel', v_id::text, jsonb_build_object('reason', reason, 'was', v_status));
      return 'cancelled';
    end if;
    select t.status into v_status from octop_task(v_id) t;
    if v_status = 'cancelled' then
      return 'cancelled';
    elsif v_status = 'success' then
      raise exception 'octop: task % has finished with success', v_id
        using errcode = 'OC104', hint = 'A finished task cannot be cancelled.';
    end if;
    v_status := null;
  end loop;
  raise exception 'octop: there is no task %', v_id
    using errcode = 'OC103', hint = 'Check the id. You see your own tasks only, unless you are an operator; finished tasks are dropped after history.retention_days.';
end $$;
comment on function octop_cancel(uuid, text) is
  'Cancel a task. Answers cancelled, or requested when it runs: its worker ends it within a second or so. Repeating it is harmless. Errors: OC103 not found, OC104 finished.';

create or replace function octop_retry(id uuid) returns uuid
  language plpgsql security definer set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_id  uuid := octop_retry.id;
  v_new   uuid;
  v_was   text;
  v_queue text;
  t       octop_tasks;
begin
  for v_look in 1..2 loop
    -- frozen: the same task, all tries again
    with it as (
      delete from octop_tasks_frozen f where f.id = v_id returning f.*
    ), back as (
      insert into octop_tasks_live (id, seq, tenant, queue, lane, task_type, payload, status, priority, scheduled_at, due_at, created_at, started_at,
                                    retry_count, max_retries, last_error, timeout_seconds, attempt, lost_count, retry_policy, tags, meta, retry_of, created_by)
      select f.id, f.seq, f.tenant, f.queue, f.lane, f.task_type, f.payload, 'pending', f.priority, _octop_now(), f.due_at, f.created_at, f.started_at,
             0, f.max_retries, f.last_error, f.timeout_seconds, f.attempt, f.lost_count, f.retry_policy, f.tags, f.meta, f.retry_of, f.created_by from it f
      returning tenant, queue
    ), counted as (
      insert into _octop_counter_deltas (tenant, queue, status, day, n)
      select b.tenant, b.queue, s.status, '-infinity', s.n from back b cross join (values ('frozen', -1), ('waiting', 1)) s (status, n)
    )
    select 'frozen', b.queue into v_was, v_queue from back b;
    if v_was is not null then
      perform _octop_wake(array[v_queue], array['-infinity'::timestamptz]);
      perform _octop_audit_write('retry', v_id::text, jsonb_build_object('was', v_was));
      return v_id;
    end if;
    -- waiting: at once
    update octop_tasks_live l set status = 'pending', scheduled_at = _octop_now()
     -- named by what they are not: "in (pending, failed)" would let the planner walk the whole ready index
     where l.id = v_id and l.status <> all ('{running,blocked}') returning l.queue into v_queue;
    if found then
      perform _octop_wake(array[v_queue], array['-infinity'::timestamptz]);
      perform _octop_audit_write('retry', v_id::text, jsonb_build_object('was', 'waiting'));
      return v_id;
    end if;
    select k.* into t from octop_task(v_id) k;
    if t.status in ('running', 'blocked') then
      raise exception 'octop: task % is %', v_id, t.status
        using errcode = 'OC104', hint = 'Cancel it first, or wait for its end.';
    elsif t.status in ('success', 'cancelled') then
      -- finished: a new task that names the old one
      select m.id into v_new
        from octop_enqueue_many(array[t.task_type], array[t.payload::text], queues => array[t.queue], lanes => array[t.lane], tenants => array[t.tenant],
               priorities => array[t.priority::integer], max_retries => array[t.max_retries], timeout_seconds => array[t.timeout_seconds],
               retry_policies => array[t.retry_policy::text], tags => array[t.tags::text], metas => array[t.meta::text], retry_of => array[v_id]) m;
      perform _octop_audit_write('retry', v_id::text, jsonb_build_object('was', t.status, 'new', v_new));
      return v_new;
    end if;
  end loop;
  raise exception 'octop: there is no task %', v_id
    using errcode = 'OC103', hint = 'Check the id. Finished tasks are dropped after history.retention_days.';
end $$;
comment on function octop_retry(uuid) is
  'Try a task again, now. Frozen or waiting: the same task (frozen gets all its tries again). Finished: a new task that names the old one in retry_of. Answers the id. Errors: OC103 not found, OC104 it runs or is blocked.';

create or replace function octop_pause(queue text, reason text default '') returns boolean
  language plpgsql security definer set search_path from current
as $$
begin
  if octop_pause.queue is null or length(octop_pause.queue) not between 1 and 200 then
    raise exception 'octop: the queue must have 1 to 200 characters' using errcode = 'OC110', hint = 'select name from octop_queue_summary lists the queues.';
  end if;
  insert into octop_holds (kind, target, reason, author) values ('queue', octop_pause.queue, left(octop_pause.reason, 1000), _octop_caller())
  on conflict do nothing;
  return found;
end $$;
comment on function octop_pause(text, text) is
  'Pause a queue on all workers: no claim that begins after this commit takes a task of it; running tasks end. Answers false if it was paused already. Error: OC110.';

create or replace function octop_resume(queue text) returns boolean
  language plpgsql security definer set search_path from current
as $$
begin
  delete from octop_holds h where h.kind = 'queue' and h.target = octop_resume.queue;
  if found then
    perform pg_notify('octop_wake', octop_resume.queue);
    return true;
  end if;
  return false;
end $$;
comment on function octop_resume(text) is 'Lift the pause of a queue. Answers false if it was not paused.';

create or replace function octop_scale(queue text, worker_limit integer) returns void
  language plpgsql security definer set search_path from current
as $$
begin
  if octop_scale.queue is null or length(octop_scale.queue) not between 1 and 200 then
    raise exception 'octop: the queue must have 1 to 200 characters' using errcode = 'OC110', hint = 'select name from octop_queue_summary lists the queues.';
  end if;
  if octop_scale.worker_limit not between 0 and 10000 then
    raise exception 'octop: worker_limit must be 0 to 10000, not %', octop_scale.worker_limit
      using errcode = 'OC113', hint = 'null goes back to the workers'' own flags; 0 stops the queue on all workers.';
  end if;
  insert into octop_queues as q (name, worker_limit) values (octop_scale.queue, octop_scale.worker_limit)
  on conflict (name) do update set worker_limit = excluded.worker_limit;
  perform pg_notify('octop_wake', octop_scale.queue);
end $$;
comment on function octop_scale(text, integer) is
  'How many tasks of this queue each worker process runs at once, on all workers, within a second; wins over flags. null = back to the workers'' flags. Errors: OC110, OC113.';

create or replace function octop_delete(id uuid) returns boolean
  language plpgsql security definer set search_path from current
as $$
#variable_conflict use_column
declare
  v_was text;
begin
  with it as (
    delete from octop_tasks_frozen f where f.id = octop_delete.id returning f.tenant, f.queue
  ), counted as (
    insert into _octop_counter_deltas (tenant, queue, status, day, n) select i.tenant, i.queue, 'frozen', '-infinity', -1 from it i returning 1
  )
  select 'frozen' into v_was from it;
  if v_was is null then
    return false;
  end if;
  perform _octop_audit_write('delete', octop_delete.id::text, jsonb_build_object('was', v_was));
  return true;
end $$;
comment on function octop_delete(uuid) is 'Delete a frozen task for good. Answers false if there is no frozen task with this id. Others: cancel; history drops itself.';
