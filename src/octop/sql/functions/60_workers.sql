-- Who lives, what it declared, what it must know. Promise: a worker is its id; names and hosts are labels; a lease ends only by
-- silence; an operator's setting is never overwritten by a deploy.

create or replace function octop_declare_task_types(policies jsonb) returns void
  language plpgsql security definer set search_path from current set lock_timeout = '1s'
as $$
declare
  v_pids integer[];
  v_name text;
begin
  -- a column that still has the declared value follows the code; one that an operator changed stays
  insert into octop_task_types as t (name, queue, priority, max_retries, timeout_seconds, retry_policy, freeze_type_on_exhaustion, run_in, description, declared)
  select p.name, p.queue, p.priority, p.max_retries, p.timeout_seconds, p.retry_policy, p.freeze_type_on_exhaustion, p.run_in, p.description,
         jsonb_strip_nulls(jsonb_build_object('queue', p.queue, 'priority', p.priority, 'max_retries', p.max_retries,
                                              'timeout_seconds', p.timeout_seconds, 'retry_policy', p.retry_policy,
                                              'freeze_type_on_exhaustion', p.freeze_type_on_exhaustion))
    from jsonb_to_recordset(policies) p (name text, queue text, priority smallint, max_retries integer, timeout_seconds double precision,
                                         retry_policy jsonb, freeze_type_on_exhaustion boolean, run_in text, description text)
   -- what says the same is left alone: ON CONFLICT locks a row before it compares, and somebody may hold it in a transaction left open
   where not exists (select from octop_task_types y where y.name = p.name and y.run_in is not distinct from p.run_in
                        and y.description is not distinct from p.description
                        and y.declared = jsonb_strip_nulls(jsonb_build_object('queue', p.queue, 'priority', p.priority, 'max_retries', p.max_retries,
                                                                              'timeout_seconds', p.timeout_seconds, 'retry_policy', p.retry_policy,
                                                                              'freeze_type_on_exhaustion', p.freeze_type_on_exhaustion)))
   order by p.name
  on conflict (name) do update
     set queue = case when t.queue is not distinct from t.declared ->> 'queue' then excluded.queue else t.queue end,
         priority = case when t.priority is not distinct from (t.declared ->> 'priority')::smallint then excluded.priority else t.priority end,
         max_retries = case when t.max_retries is not distinct from (t.declared ->> 'max_retries')::integer then excluded.max_retries else t.max_retries end,
         timeout_seconds = case when t.timeout_seconds is not distinct from (t.declared ->> 'timeout_seconds')::double precision
                                then excluded.timeout_seconds else t.timeout_seconds end,
         retry_policy = case when t.retry_policy is not distinct from t.declared -> 'retry_policy' then excluded.retry_policy else t.retry_policy end,
         freeze_type_on_exhaustion = case when t.freeze_type_on_exhaustion is not distinct from (t.declared ->> 'freeze_type_on_exhaustion')::boolean
                                          then excluded.freeze_type_on_exhaustion else t.freeze_type_on_exhaustion end,
         run_in = excluded.run_in, description = excluded.description, declared = excluded.declared
   where (t.declared, t.run_in, t.description) is distinct from (excluded.declared, excluded.run_in, excluded.description);
exception when lock_not_available then
  -- whose id stands in the row's xmax; nobody's, if the row is not committed yet
  select t.name, array(select l.pid from pg_locks l where l.locktype = 'transactionid' and l.transactionid = t.xmax and l.granted) into v_name, v_pids
    from octop_task_types t join jsonb_to_recordset(policies) p (name text) on p.name = t.name
   order by exists (select from pg_locks l where l.locktype = 'transactionid' and l.transactionid = t.xmax and l.granted) desc, t.name limit 1;
  raise exception 'octop: another transaction%, not ended yet, has changed the task type "%"',
      case when v_pids > '{}' then format(' (pid %s)', array_to_string(v_pids, ', ')) else '' end,
      case when v_pids > '{}' then v_name else (select string_agg(p.name, '" or "' order by p.name) from jsonb_to_recordset(policies) p (name text)
                                                  where not exists (select from octop_task_types y where y.name = p.name)) end
    using errcode = 'OC303', hint = 'Try again. If nobody ends it: see the how-to "End a transaction that was left open".';
end $$;
comment on function octop_declare_task_types(jsonb) is
  'Declare the policies of task types: a JSON array of {"name","queue","priority","max_retries","timeout_seconds","retry_policy","freeze_type_on_exhaustion","run_in","description"}. What an operator changed stays; a type that is declared as before is not touched. '
  'Error: OC303 after a second, when another open transaction has changed a type that must be written.';

create or replace function octop_register(worker_id uuid, name text, host text, pid integer, supervisor_id uuid, version text,
                                          queues text[], policies jsonb) returns void
  language plpgsql security definer set search_path from current set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  v_queue text;
begin
  if exists (select from jsonb_array_elements(octop_register.policies) p where (p ->> 'version')::numeric not between 1 and 1000) then
    raise exception 'octop: the version of a task type must be 1 to 1000' using errcode = 'OC113', hint = 'It counts the changes of the code that older workers must not meet.';
  end if;
  perform octop_declare_task_types(octop_register.policies);
  for v_queue in select q from unnest(octop_register.queues) q where not exists (select from octop_queues o where o.name = q) order by q loop
    begin
      perform set_config('lock_timeout', '100ms', true);   -- of this function's setting: it ends with the call
      insert into octop_queues (name) values (v_queue) on conflict do nothing;
    exception when lock_not_available then
      null;   -- somebody makes the same row and has not committed yet: a queue needs none, and is seen by its workers
    end;
  end loop;
  perform set_config('lock_timeout', '1s', true);
  insert into octop_workers (id, name, host, pid, supervisor_id, version, queues, task_types, versions)
  values (octop_register.worker_id, left(octop_register.name, 200), left(octop_register.host, 200), octop_register.pid, octop_register.supervisor_id,
          octop_register.version, octop_register.queues,
          array(select p ->> 'name' from jsonb_array_elements(octop_register.policies) with ordinality u (p, n) order by n),
          array(select coalesce((p ->> 'version')::integer, 1) from jsonb_array_elements(octop_register.policies) with ordinality u (p, n) order by n))
  on conflict (id) do update
     set name = excluded.name, host = excluded.host, pid = excluded.pid, supervisor_id = excluded.supervisor_id, version = excluded.version,
         -- not the beat: it must still show that the lease was broken
         queues = excluded.queues, task_types = excluded.task_types, versions = excluded.versions, draining = false;
  -- tasks of these types that nobody knew come back, the rest by the sweep
  perform _octop_unpark(1000);
end $$;
comment on function octop_register(uuid, text, text, integer, uuid, text, text[], jsonb) is
  'A worker says who it is, what it serves and what it knows; policies as for octop_declare_task_types, each with the "version" of its code, 1 to 1000 (none = 1). Repeating it is harmless. Errors: OC113, OC303.';

create or replace function octop_beat(worker_ids uuid[]) returns table (worker_id uuid, unbroken boolean)
  language sql security definer set search_path from current
as $$
  with known as (
    select w.id, w.beat_at > _octop_now() - _octop_lease() as unbroken from octop_workers w where w.id = any (worker_ids) order by w.id for update
  ), beaten as (
    update octop_workers w
       set beat_at = _octop_now(),
           beating_since = case when k.unbroken then w.beating_since else _octop_now() end
      from known k where w.id = k.id
  ), returned as (
    -- somebody deleted the row of a worker that runs something; others come back when they register, and one that has gone stays gone
    insert into octop_workers (id) select u from unnest(worker_ids) u
     where u not in (select k.id from known k) and exists (select from octop_tasks_live t where t.status = 'running' and t.worker_id = u)
    on conflict do nothing
  )
  select u, coalesce((select k.unbroken from known k where k.id = u), false) from unnest(worker_ids) u
$$;
comment on function octop_beat(uuid[]) is
  'Heartbeat for these workers. unbroken = false: the beat before is older than the lease, or the row was gone; ask octop_owned which tasks are still yours, and register again.';

create or replace function octop_owned(worker_id uuid, ids uuid[], attempts integer[], claims uuid[]) returns setof uuid
  language sql security definer set search_path from current
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
  select t.id from unnest(ids, attempts, claims) u (id, attempt, claim_id)
    -- bounds and no word of status: see _octop_complete
    join octop_tasks_live t on t.id between u.id and u.id and t.attempt = u.attempt and t.claim_id = u.claim_id
     and t.worker_id = octop_owned.worker_id
$$;
comment on function octop_owned(uuid, uuid[], integer[], uuid[]) is 'Which of these attempts are still this worker''s.';

create or replace function octop_control(worker_id uuid, ids uuid[], attempts integer[])
  returns table (version bigint, cancel uuid[], lost uuid[])
  language sql stable security definer set search_path from current
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
  select c.version,
         array(select t.id from octop_tasks_live t
                where t.worker_id = octop_control.worker_id and t.cancel_requested_at is not null),
         -- No word of claims: a crash of the server may have lost the commit of one, and the task may have been given to this worker once
         -- more, or still wait with the number of starts that it had before. Such an attempt may go on: nobody else runs it.
         array(select u.id from unnest(ids, attempts) u (id, attempt)
                where not exists (select from octop_tasks_live t
                                   -- bounds and no word of status: see _octop_complete
                                   where t.id between u.id and u.id
                                     and (t.worker_id = octop_control.worker_id and t.attempt <= u.attempt
                                          or t.worker_id is null and t.attempt < u.attempt)))
    from _octop_control c
$$;
comment on function octop_control(uuid, uuid[], integer[]) is
  'Asked each second: the control version (has any setting, queue, type or hold changed?), the running tasks of this worker that are to be cancelled, and which of the attempts that it names are no longer its own: somebody took the task back, cancelled or deleted it by hand.';

create or replace function octop_settings() returns jsonb
  language sql stable security definer set search_path from current
as $$
  select jsonb_build_object(
    'version', (select c.version from _octop_control c),
    'values', (select jsonb_object_agg(k.key, coalesce(c.value -> 'value', k.default_value))
                 from octop_config_keys() k left join octop_config c on c.key = k.key),
    'worker_limits', (select coalesce(jsonb_object_agg(q.name, q.worker_limit), '{}') from octop_queues q where q.worker_limit is not null),
    -- not asked for, until somebody lifts the hold; what ends by itself is asked for, so that the next due time tells its end
    'held_queues', (select coalesce(jsonb_agg(distinct h.target), '[]') from octop_holds h where h.kind = 'queue' and h.ends_at is null),
    -- all that hold now, also those that end by themselves: what was claimed and has not begun is given back
    'paused_queues', (select coalesce(jsonb_agg(distinct h.target), '[]') from octop_holds h where h.kind = 'queue' and _octop_in_force(h.ends_at)),
    'type_queues', (select coalesce(jsonb_object_agg(y.name, y.queue), '{}') from octop_task_types y where y.queue is not null))
$$;
comment on function octop_settings() is 'All that a worker must know of settings, limits and holds, in one answer.';

create or replace function octop_drain(worker_id uuid) returns void
  language sql security definer set search_path from current
as $$
  update octop_workers w set draining = true where w.id = octop_drain.worker_id
$$;
comment on function octop_drain(uuid) is 'This worker claims no more; its running tasks may end.';

create or replace function _octop_end_all(p_worker uuid, p_held uuid[], p_outcome text, p_class text, p_message text) returns integer
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
declare
  v_outcomes jsonb;
  v_n        integer;
  v_ended    integer := 0;
begin
  loop
    select jsonb_agg(jsonb_build_object('id', t.id, 'attempt', t.attempt, 'claim_id', t.claim_id, 'worker_id', t.worker_id, 'outcome', p_outcome,
                                        'error_class', p_class, 'error_message', p_message)) into v_outcomes
      from (select t.* from octop_tasks_live t
             where t.status = 'running' and t.worker_id = p_worker and t.id <> all (p_held) limit 500 for update skip locked) t;
    exit when v_outcomes is null;
    select count(*) into v_n from _octop_settle(v_outcomes, true);
    exit when v_n = 0;
    v_ended := v_ended + v_n;
  end loop;
  return v_ended;
end $$;
comment on function _octop_end_all(uuid, uuid[], text, text, text) is
  'End all running attempts of a worker, but for those that it holds, with one outcome. Answers how many; never waits for a row.';

create or replace function octop_release_unheld(worker_id uuid, held uuid[]) returns integer
  language sql security definer set search_path from current
as $$
  select _octop_end_all(octop_release_unheld.worker_id, held, 'released', null, 'the answer to its claim got lost')
$$;
comment on function octop_release_unheld(uuid, uuid[]) is
  'After a connection broke in the middle of an exchange: tasks that were claimed for this worker and never reached it are released without using a try. held = all that it knows of. Answers how many.';

create or replace function octop_lost(worker_id uuid) returns integer
  language plpgsql security definer set search_path from current
as $$
#variable_conflict use_column
declare
  v_lost integer := _octop_end_all(octop_lost.worker_id, '{}', 'lost', 'WorkerLost', 'its worker process ended without a word');
begin
  if v_lost = 0 and not exists (select from octop_workers w where w.id = octop_lost.worker_id) then
    raise notice 'octop: there is no worker %, and nothing that it runs', coalesce(octop_lost.worker_id::text, 'null');
  end if;
  if v_lost > 0 then
    perform _octop_audit_write('lost', octop_lost.worker_id::text, jsonb_build_object('tasks', v_lost));
    perform _octop_alert_lost(array[octop_lost.worker_id], v_lost, 'died');
  end if;
  delete from _octop_sleepers s where s.worker_id = octop_lost.worker_id;
  delete from octop_workers w where w.id = octop_lost.worker_id
     and not exists (select from octop_tasks_live t where t.status = 'running' and t.worker_id = octop_lost.worker_id);
  return v_lost;
end $$;
comment on function octop_lost(uuid) is
  'A supervisor, or a person, saw this worker''s process die: all its attempts are lost now, without waiting for the lease, and each uses up a try. Answers how many; 0 with a NOTICE if there is no such worker.';

create or replace function octop_deregister(worker_id uuid) returns integer
  language plpgsql security definer set search_path from current
as $$
#variable_conflict use_column
declare
  v_released integer := _octop_end_all(octop_deregister.worker_id, '{}', 'released', null, 'its worker stopped');
begin
  delete from _octop_sleepers s where s.worker_id = octop_deregister.worker_id;
  delete from octop_workers w where w.id = octop_deregister.worker_id;
  return v_released;
end $$;
comment on function octop_deregister(uuid) is 'A worker goes: what it still runs is released without using a try. Answers how many tasks that were.';

create or replace function octop_remaining(queues text[], task_types text[], versions integer[] default null) returns integer
  language sql stable security definer set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
  select count(*)::integer from (
    select from octop_tasks_live t
     where t.queue = any (octop_remaining.queues) and _octop_knows(octop_remaining.task_types, octop_remaining.versions, t.task_type, t.min_version) and t.status in ('pending', 'failed')
       -- what is paused, or stopped by a limit of 0, would be waited for in vain
       and not exists (select from octop_holds h where h.kind = 'queue' and h.target = t.queue and _octop_in_force(h.ends_at))
       and not exists (select from octop_queues q where q.name = t.queue and q.worker_limit = 0)
    union all
    select from octop_tasks_live t
     where t.queue = any (octop_remaining.queues) and _octop_knows(octop_remaining.task_types, octop_remaining.versions, t.task_type, t.min_version) and t.status = 'running'
    limit 1000) x
$$;
comment on function octop_remaining(text[], text[], integer[]) is 'How many tasks of these queues and types run or may still start (queues that are paused or limited to 0 do not count), at most 1,000. For workers that stop when nothing is left.';
