-- The exchange: one call, one commit, for everything hot. A worker hands in what it has and gets what it may start.
-- Promise: fenced (id, attempt, worker, claim), bounded, never waits for a row longer than 50 ms, plans pinned: only primary key,
-- ready index and TID scans, with any statistics. Rows are moved by DELETE and INSERT: an UPDATE across leaves would make others
-- fail with 40001. Order of locks: outcomes before claims; whoever meets a locked row there is thrown out after 50 ms and comes back careful.

-- it answered one number before
drop function if exists _octop_complete(uuid, uuid[], integer[], uuid[], text[], boolean);
create or replace function _octop_complete(p_worker uuid, p_ids uuid[], p_attempts integer[], p_claims uuid[], p_results text[], p_careful boolean,
                                           out kept integer, out freed text[])
  language plpgsql set search_path from current
as $$
#variable_conflict use_column
declare
  v_tids tid[];
begin
  if p_careful then
    -- somebody holds rows of ours: take those that are free, the rest is sent again
    v_tids := array(select t.ctid from unnest(p_ids) u (id) join octop_tasks_live t on t.id between u.id and u.id for update of t skip locked);
  end if;
  with gone as (
    delete from octop_tasks_live t using unnest(p_ids, p_attempts, p_claims, p_results) u (id, attempt, claim_id, result)
     -- no word of status here: it would let the planner take the index over running rows, which holds all dead versions of this worker's
     -- tasks (8,500 tasks/s instead of several times that). A claim_id exists only while a task runs.
     -- "between", because "=" lets a session that once saw an empty table keep a plan that walks the whole primary key in the order of a
     -- merge join (100,000 rows per call, tests/sql/test_plans.py); a pair of bounds can only be looked up, at the same cost.
     where t.id between u.id and u.id and t.attempt = u.attempt and t.claim_id = u.claim_id and t.worker_id = p_worker
       and (not p_careful or t.ctid = any (v_tids))
    returning t.id, t.seq, t.tenant, t.queue, t.lane, t.task_type, t.payload, t.priority, t.scheduled_at, t.due_at, t.created_at, t.started_at,
              t.retry_count, t.max_retries, t.min_version, t.last_error, t.timeout_seconds, t.attempt, t.lost_count, t.claim_id, t.retry_policy,
              t.tags, t.meta, t.retry_of, t.created_by, t.unique_key, t.unique_scope, u.result
  ), kept as (
    insert into octop_tasks_done (id, seq, tenant, queue, lane, task_type, payload, status, priority, scheduled_at, due_at, created_at, started_at,
                                  completed_at, retry_count, max_retries, min_version, last_error, result, timeout_seconds, attempt, lost_count,
                                  worker_id, claim_id, retry_policy, tags, meta, retry_of, created_by, unique_key, unique_scope)
    select g.id, g.seq, g.tenant, g.queue, g.lane, g.task_type, g.payload, 'success', g.priority, g.scheduled_at, g.due_at, g.created_at, g.started_at,
           _octop_now(), g.retry_count, g.max_retries, g.min_version, g.last_error, g.result::jsonb, g.timeout_seconds, g.attempt, g.lost_count,
           p_worker, g.claim_id, g.retry_policy, g.tags, g.meta, g.retry_of, g.created_by, g.unique_key, g.unique_scope
      from gone g
    returning tenant, queue, scheduled_at
  ), counted as (
    insert into _octop_counter_deltas (tenant, queue, status, day, n, scheduled_sum, scheduled_min, scheduled_max)
    select k.tenant, k.queue, 'success', (_octop_now() at time zone 'UTC')::date, count(*), sum(extract(epoch from k.scheduled_at)),
           min(k.scheduled_at), max(k.scheduled_at)
      from kept k group by k.tenant, k.queue
    returning n, queue
  )
  select coalesce(sum(c.n), 0), array(select q.name from octop_queues q where q.limited and exists (select from counted x where x.queue = q.name))
    into _octop_complete.kept, _octop_complete.freed from counted c;
end $$;
comment on function _octop_complete(uuid, uuid[], integer[], uuid[], text[], boolean) is
  'Plain successes: from live to today''s history, fenced. Answers how many were still this worker''s, and in which queues with limits places became free.';

create or replace function _octop_settle(p_outcomes jsonb, p_careful boolean)
  returns table (id uuid, verdict text)
  language plpgsql set search_path from current
  set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_tids    tid[];
  v_now     timestamptz := _octop_now();
  v_retries integer := _octop_setting('task.default_max_retries');
  v_ids     uuid[];
  v_next    text[];
  v_queues  text[];
  v_due     timestamptz[];
  v_freed   text[];
begin
  if p_careful then
    v_tids := array(select t.ctid from jsonb_to_recordset(p_outcomes) o (id uuid) join octop_tasks_live t on t.id between o.id and o.id for update of t skip locked);
  else
    v_tids := array(select t.ctid from jsonb_to_recordset(p_outcomes) o (id uuid) join octop_tasks_live t on t.id between o.id and o.id for update of t);
  end if;
  with handed as materialized (
    select t.*, o.outcome, coalesce(o.isolate, false) as isolate, o.error_class, left(o.error_message, 10000) as error_message, right(o.traceback, 50000) as traceback,
           o.delay_seconds, coalesce(o.final, false)
             or coalesce(coalesce(o.mro, array[o.error_class]) && array(select jsonb_array_elements_text(coalesce(
                  t.retry_policy -> 'final', y.retry_policy -> 'final', q.retry_policy -> 'final', '[]'))), false) as final,
           coalesce(t.max_retries, y.max_retries, q.max_retries, v_retries) as tries,
           coalesce(t.retry_policy, y.retry_policy, q.retry_policy) as policy
      from jsonb_to_recordset(p_outcomes) o (id uuid, attempt integer, claim_id uuid, worker_id uuid, outcome text, error_class text,
             error_message text, traceback text, delay_seconds double precision, final boolean, isolate boolean, mro text[])
      -- as in _octop_complete: bounds instead of "=", and no word of status
      join lateral (select l.ctid as tid, l.* from octop_tasks_live l
                     where l.id between o.id and o.id and l.attempt = o.attempt and l.claim_id = o.claim_id and l.worker_id = o.worker_id
                       and (not p_careful or l.ctid = any (v_tids))) t on true
      left join octop_task_types y on y.name = t.task_type
      left join octop_queues q on q.name = t.queue
  ), judged as materialized (
    select h.*, case
             when h.outcome = 'cancelled' or h.cancel_requested_at is not null then 'cancelled'
             when h.outcome in ('snoozed', 'released') then 'pending'
             when h.final or h.retry_count >= h.tries then 'frozen'
             else 'failed' end as next,
           case when h.outcome in ('failure', 'timeout', 'lost') then left(concat_ws(': ', h.error_class, h.error_message), 1024) end as short
      from handed h
  ), noted as (
    insert into octop_attempts (task_id, attempt, tenant, queue, task_type, worker_id, claim_id, started_at, ended_at, outcome,
                                error_class, error_message, traceback)
    select j.id, j.attempt, j.tenant, j.queue, j.task_type, j.worker_id, j.claim_id, j.started_at, v_now, j.outcome,
           j.error_class, j.error_message, j.traceback from judged j
    on conflict do nothing
  ), waiting as (
    update octop_tasks_live t
       set status = j.next, worker_id = null, claim_id = null, deadline_at = null,
           retry_count = least(t.retry_count, 2147483646) + case when j.next = 'failed' then 1 else 0 end,
           lost_count = least(t.lost_count, 32766) + case when j.outcome = 'lost' or j.isolate then 1 else 0 end,
           last_error = coalesce(j.short, t.last_error),
           scheduled_at = case
             when j.next = 'failed' then v_now + make_interval(secs => greatest(0, least(coalesce(j.delay_seconds, octop_retry_delay(j.policy, t.retry_count + 1)), 31536000)))
             when j.outcome = 'snoozed' then v_now + make_interval(secs => greatest(0, least(coalesce(j.delay_seconds, 0), 31536000)))
             else t.scheduled_at end
      from judged j
     where t.ctid = j.tid and j.next in ('failed', 'pending')
    returning t.id, t.status, t.tenant, t.queue, t.scheduled_at
  ), gone as (
    delete from octop_tasks_live t using judged j
     where t.ctid = j.tid and j.next in ('frozen', 'cancelled')
    returning t.id, t.seq, t.tenant, t.queue, t.lane, t.task_type, t.payload, t.priority, t.scheduled_at, t.due_at, t.created_at, t.started_at,
              t.retry_count, t.max_retries, t.min_version, coalesce(j.short, t.last_error) as last_error, t.timeout_seconds, t.attempt,
              (least(t.lost_count, 32766) + case when j.outcome = 'lost' or j.isolate then 1 else 0 end)::smallint as lost_count, t.worker_id, t.claim_id, t.retry_policy,
              t.tags, t.meta, t.retry_of, t.created_by, t.unique_key, t.unique_scope, j.next, j.outcome, j.error_message
  ), frozen as (
    insert into octop_tasks_frozen (id, seq, tenant, queue, lane, task_type, payload, status, priority, scheduled_at, due_at, created_at, started_at,
                                    retry_count, max_retries, min_version, last_error, timeout_seconds, attempt, lost_count, worker_id, claim_id,
                                    retry_policy, tags, meta, retry_of, created_by, unique_key, unique_scope)
    select g.id, g.seq, g.tenant, g.queue, g.lane, g.task_type, g.payload, 'frozen', g.priority, g.scheduled_at, g.due_at, g.created_at, g.started_at,
           g.retry_count, g.max_retries, g.min_version, g.last_error, g.timeout_seconds, g.attempt, g.lost_count, g.worker_id, g.claim_id,
           g.retry_policy, g.tags, g.meta, g.retry_of, g.created_by, g.unique_key, g.unique_scope
      from gone g where g.next = 'frozen'
    returning id, status, tenant, queue, scheduled_at
  ), cancelled as (
    insert into octop_tasks_done (id, seq, tenant, queue, lane, task_type, payload, status, priority, scheduled_at, due_at, created_at, started_at,
                                  completed_at, retry_count, max_retries, min_version, last_error, timeout_seconds, attempt, lost_count, worker_id, claim_id,
                                  retry_policy, tags, meta, retry_of, created_by, unique_key, unique_scope)
    select g.id, g.seq, g.tenant, g.queue, g.lane, g.task_type, g.payload, 'cancelled', g.priority, g.scheduled_at, g.due_at, g.created_at, g.started_at,
           v_now, g.retry_count, g.max_retries, g.min_version, coalesce(case when g.outcome = 'cancelled' then left(g.error_message, 1024) end, g.last_error),
           g.timeout_seconds, g.attempt, g.lost_count, g.worker_id, g.claim_id, g.retry_policy, g.tags, g.meta, g.retry_of, g.created_by,
           g.unique_key, g.unique_scope
      from gone g where g.next = 'cancelled'
    returning id, status, tenant, queue, scheduled_at
  ), settled as (
    select w.id, w.status, w.tenant, w.queue, w.scheduled_at from waiting w
    union all select f.id, f.status, f.tenant, f.queue, f.scheduled_at from frozen f
    union all select c.id, c.status, c.tenant, c.queue, c.scheduled_at from cancelled c
  ), counted as (
    insert into _octop_counter_deltas (tenant, queue, status, day, n, scheduled_sum, scheduled_min, scheduled_max)
    select s.tenant, s.queue, _octop_counted_as(s.status), case when s.status = 'cancelled' then (v_now at time zone 'UTC')::date else '-infinity' end,
           count(*), coalesce(sum(extract(epoch from s.scheduled_at)) filter (where s.status = 'cancelled'), 0),
           min(s.scheduled_at) filter (where s.status = 'cancelled'), max(s.scheduled_at) filter (where s.status = 'cancelled')
      from settled s group by 1, 2, 3, 4
  )
  select array_agg(s.id), array_agg(s.status), array_agg(s.queue) filter (where s.status in ('pending', 'failed')),
         array_agg(s.scheduled_at) filter (where s.status in ('pending', 'failed')),
         array(select q.name from octop_queues q where q.limited and exists (select from settled x where x.queue = q.name))
    into v_ids, v_next, v_queues, v_due, v_freed from settled s;
  if 'frozen' = any (v_next) then
    perform _octop_freeze_exhausted(array(select u.id from unnest(v_ids, v_next) u (id, next) where u.next = 'frozen'));
  end if;
  -- this worker is awake; others may sleep beyond the moment at which the task is due again, and this one may stop before
  if v_queues is not null then
    perform _octop_wake(v_queues, v_due);
  end if;
  if v_freed <> '{}' then
    perform _octop_freed(v_freed);
  end if;
  return query select u.id, u.next from unnest(v_ids, v_next) u (id, next);
end $$;
comment on function _octop_settle(jsonb, boolean) is
  'Every end of an attempt that is not a plain success: what follows (retry when, frozen, pending, cancelled) is decided here. Rows whose fence does not match are not in the answer.';

create or replace function _octop_second_look(p_worker uuid, p_id uuid, p_attempt integer, p_claim uuid, p_outcome text)
  returns text
  language plpgsql set search_path from current
as $$
declare
  v_live boolean;
begin
  for i in 1..2 loop
    select t.status = 'running' and t.attempt = p_attempt and t.claim_id = p_claim and t.worker_id = p_worker into v_live
      from octop_tasks_live t where t.id = p_id;
    if v_live then
      return 'again';
    end if;
    -- accepted before, and only the answer was lost on the way?
    if p_outcome = 'success' then
      if exists (select from _octop_find(p_id) t where t.status = 'success' and t.attempt = p_attempt and t.claim_id = p_claim) then
        return 'kept';
      end if;
    elsif exists (select from octop_attempts a where a.task_id = p_id and a.attempt = p_attempt and a.claim_id = p_claim and a.outcome = p_outcome)
          -- a transactional task whose worker could not know that it had committed
          or exists (select from _octop_find(p_id) t where t.status = 'success' and t.attempt = p_attempt and t.claim_id = p_claim) then
      return 'kept';
    end if;
    -- a row that moves in this moment is invisible once, never twice: each look is a statement of its own
  end loop;
  return 'lost';
end $$;
comment on function _octop_second_look(uuid, uuid, integer, uuid, text) is
  'Why an outcome changed nothing: again (locked, send it once more), kept (it had been accepted before), lost (the attempt is no longer this worker''s).';

create or replace function octop_exchange(
  worker_id     uuid,
  queues        text[]    default '{}',
  wanted        integer[] default '{}',
  task_types    text[]    default '{}',
  lanes_after   text[]    default null,
  done_ids      uuid[]    default '{}',
  done_attempts integer[] default '{}',
  done_claims   uuid[]    default '{}',
  done_results  text[]    default '{}',
  outcomes      jsonb     default null,
  careful       boolean   default false,
  awake         boolean   default false,
  versions      integer[] default null,
  marks_at      timestamptz[] default null,
  marks_id      uuid[]    default null
) returns table (verdict text, id uuid, attempt integer, claim_id uuid, tenant text, queue text, lane text, task_type text, payload text,
                 priority smallint, retry_count integer, max_retries integer, timeout_seconds double precision,
                 scheduled_at timestamptz, due_at timestamptz, isolated boolean, tags text[], meta text)
  language plpgsql security definer set search_path from current
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan set lock_timeout = '50ms'
as $$
#variable_conflict use_column
declare
  v_worker   uuid := octop_exchange.worker_id;
  v_claim    uuid;
  v_now      timestamptz := _octop_now();
  v_tids     tid[];
  v_lane     text;
  v_timeout  double precision;
  v_retries  integer;
  v_queue    text;
  v_q        record;
  v_found    record;
  v_holds    boolean;
  v_lifted   boolean;
  v_version  bigint;
  v_beats    boolean;
  v_text     text;
  v_wanted   integer;
  v_parked   integer;
  v_bytes    integer;
  v_settled  uuid[] := '{}';
  v_policies boolean;
  v_freed    text[] := '{}';
  v_full     text[] := '{}';
  v_commit   text;
  v_n        integer := coalesce(cardinality(done_ids), 0);
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'octop: the exchange needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
      using errcode = 'OC301', hint = 'Set default_transaction_isolation of this role to read committed.';
  end if;
  if v_n <> coalesce(cardinality(done_attempts), 0) or v_n <> coalesce(cardinality(done_claims), 0) or v_n <> coalesce(cardinality(done_results), 0)
     or coalesce(cardinality(queues), 0) <> coalesce(cardinality(wanted), 0) then
    raise exception 'octop: arrays handed to the exchange differ in length'
      using errcode = 'OC302', hint = 'done_ids, done_attempts, done_claims and done_results run in parallel, and so do queues and wanted.';
  end if;
  if v_n > 0 and exists (select from unnest(done_results) r where octet_length(r) > 1024) then
    v_bytes := _octop_setting('task.result_bytes_max');
    if exists (select from unnest(done_results) r where octet_length(r) > v_bytes) then
      raise exception 'octop: a result has more than % bytes', v_bytes
        using errcode = 'OC115', hint = 'Hand outcomes in one by one; store the data elsewhere and return a reference, or raise task.result_bytes_max.';
    end if;
  end if;
  if awake then
    update _octop_sleepers s set wake_at = '-infinity' where s.worker_id = v_worker and s.queue = any (queues);
  end if;
  -- 1. outcomes
  if v_n > 0 then
    select c.kept, c.freed into v_found from _octop_complete(v_worker, done_ids, done_attempts, done_claims, done_results, careful) c;
    v_freed := v_found.freed;
    if v_found.kept < v_n then
      return query
        select x.verdict, x.id, x.attempt, x.claim_id, null, null, null, null, null, null::smallint, null::integer, null::integer,
               null::double precision, null::timestamptz, null::timestamptz, null::boolean, null::text[], null
          from (select _octop_second_look(v_worker, u.id, u.attempt, u.claim_id, 'success') as verdict, u.*
                  from unnest(done_ids, done_attempts, done_claims) u (id, attempt, claim_id)) x
         where x.verdict <> 'kept';
    end if;
  end if;
  if outcomes is not null and jsonb_array_length(outcomes) > 0 then
    select jsonb_agg(o || jsonb_build_object('worker_id', v_worker)) into outcomes from jsonb_array_elements(outcomes) o;
    for verdict, id in select s.verdict, s.id from _octop_settle(outcomes, careful) s loop
      v_settled := v_settled || id;
      return next;
    end loop;
    for verdict, id in
      select _octop_second_look(v_worker, o.id, o.attempt, o.claim_id, o.outcome), o.id
        from jsonb_to_recordset(outcomes) o (id uuid, attempt integer, claim_id uuid, outcome text) where o.id <> all (v_settled)
    loop
      return next;
    end loop;
  end if;
  -- 2. claims: only for a worker whose heart beats. What is to be known first is asked in one statement: each costs 15 to 30 µs, in a session
  -- that has slept three times as much, and a single task waits for all of them.
  if coalesce(cardinality(queues), 0) = 0 then
    if v_freed <> '{}' then
      perform _octop_freed(v_freed);
    end if;
    return;
  end if;
  select coalesce((select (c.value ->> 'value')::double precision from octop_config c where c.key = 'task.default_timeout_seconds'), _octop_setting('task.default_timeout_seconds')),
         coalesce((select (c.value ->> 'value')::integer from octop_config c where c.key = 'task.default_max_retries'), _octop_setting('task.default_max_retries')),
         -- a look at the type's row for each task costs a tenth of a claim: only where some type says anything
         exists (select from octop_task_types y where y.timeout_seconds is not null or y.max_retries is not null),
         exists (select from octop_holds), exists (select from _octop_lifted_holds), (select c.version from _octop_control c),
         exists (select from octop_workers w where w.id = v_worker and not w.draining
            and w.beat_at > v_now - make_interval(secs => 2 / 3::double precision * coalesce(
                  (select (c.value ->> 'value')::double precision from octop_config c where c.key = 'worker.lease_seconds'), _octop_setting('worker.lease_seconds'))))
    into v_timeout, v_retries, v_policies, v_holds, v_lifted, v_version, v_beats;
  if not v_beats then
    if v_freed <> '{}' then
      perform _octop_freed(v_freed);
    end if;
    return;
  end if;
  if v_n = 0 and outcomes is null then
    -- losing a claim only runs a task again: this commit need not wait for the disk
    v_commit := current_setting('synchronous_commit');
    v_text := set_config('synchronous_commit', 'off', true);
  end if;
  if v_holds and _octop_lift_ended(100) > 0 then
    v_lifted := true;
  end if;
  for i in 1..cardinality(queues) loop
    v_queue := queues[i];
    v_wanted := least(coalesce(wanted[i], 0), 10000);
    continue when v_wanted <= 0;
    select q.timeout_seconds, q.max_retries, q.limited, v_holds and _octop_queue_is_held(v_queue) as held,
           case when v_holds then _octop_held_keys(v_queue) else '{}' end as held_keys
      into v_q from (values (true)) one left join octop_queues q on q.name = v_queue;
    continue when v_q.held;
    if v_q.limited then
      v_found := _octop_claim_limited(v_queue, v_wanted, task_types, versions, v_q.held_keys, lanes_after[i], marks_at[10 * i - 9:10 * i], marks_id[10 * i - 9:10 * i]);
      if v_found.is_full then
        v_full := v_full || v_queue;
      end if;
      if v_commit is not null and v_found.tids <> '{}' then
        -- a crash that forgot these starts would let others start in their places
        v_commit := set_config('synchronous_commit', v_commit, true);
      end if;
    else
      v_found := _octop_claim(v_queue, v_wanted, task_types, versions, v_q.held_keys, lanes_after[i], marks_at[10 * i - 9:10 * i], marks_id[10 * i - 9:10 * i], null, null);
    end if;
    v_lane := v_found.last_lane;
    v_tids := v_found.tids;
    v_parked := v_found.parked;
    if v_lane is not null then
      verdict := 'lane'; queue := v_queue; lane := v_lane; id := null;
      return next;
    end if;
    if v_lifted and cardinality(v_tids) < v_wanted then
      -- there is room: what waited for a hold that is no more comes back now, and is claimed by the next call
      v_parked := v_parked + _octop_unpark_lifted(1000);
      v_lifted := false;
    end if;
    if v_parked > 0 then
      verdict := 'parked'; queue := v_queue; lane := null; attempt := v_parked;
      return next;
    end if;
    continue when cardinality(v_tids) = 0;
    v_claim := coalesce(v_claim, gen_random_uuid());
    return query
    with started as (
      update octop_tasks_live t
         set status = 'running', started_at = v_now, due_at = coalesce(t.due_at, t.scheduled_at),
             attempt = least(t.attempt, 2147483646) + 1,
             worker_id = v_worker, claim_id = v_claim,
             -- given back for good: from here on nothing that becomes of the task can collide with the next one of its key
             unique_hold = case when t.unique_scope = 'pending' then null else t.unique_hold end,
             deadline_at = v_now + make_interval(secs => coalesce(t.timeout_seconds,
               case when v_policies then (select y.timeout_seconds from octop_task_types y where y.name = t.task_type) end, v_q.timeout_seconds, v_timeout))
       -- The last word: a hold that was committed after the holds were read has raised this version. What this statement does not see is
       -- younger than the claim's own look at the tasks, so nothing that is enqueued after a pause can start.
       where t.ctid = any (v_tids) and (select c.version from _octop_control c) = v_version
      returning t.id, t.attempt, t.tenant, t.lane, t.task_type, t.payload::text as payload, t.priority, t.retry_count, t.max_retries,
                date_part('epoch', t.deadline_at - t.started_at) as timeout_seconds, t.scheduled_at, t.due_at,
                t.lost_count > 0 as isolated, t.tags, t.meta::text as meta
    ), counted as (
      insert into _octop_counter_deltas (tenant, queue, status, day, n)
      select s.tenant, v_queue, 'waiting', '-infinity', -count(*) from started s group by s.tenant
    )
    select 'run', s.id, s.attempt, v_claim, s.tenant, v_queue, s.lane, s.task_type, s.payload, s.priority, s.retry_count,
           coalesce(s.max_retries, case when v_policies then (select y.max_retries from octop_task_types y where y.name = s.task_type) end, v_q.max_retries, v_retries),
           s.timeout_seconds, s.scheduled_at, s.due_at, s.isolated, s.tags, s.meta
      from started s order by s.priority, s.scheduled_at, s.id;
    if not found then
      verdict := 'parked'; queue := v_queue; lane := null; attempt := cardinality(v_tids);
      return next;
    end if;
  end loop;
  if v_freed <> '{}' then
    -- what became free and is not taken again
    v_freed := array(select u from unnest(v_freed) u where u <> all (v_full));
    perform _octop_freed(v_freed);
  end if;
end $$;
comment on function octop_exchange(uuid, text[], integer[], text[], text[], uuid[], integer[], uuid[], text[], jsonb, boolean, boolean, integer[], timestamptz[], uuid[]) is
  'The one hot call: hand in outcomes, get tasks. Rows with verdict run are to be started; lost, again, failed, frozen, pending, cancelled answer outcomes (an accepted success has none); '
  'lane tells after which lane the next walk begins; parked how many tasks were set aside because they are held or of unknown types, came back because they are so no more, or were left because an order came just now (look again at once). careful: after 55P03, 40001 or 40P01 send the same call again with true. awake: clears what octop_sleep said. versions: of the code for each of task_types, in the same order; null = 1. '
  'marks: for each of queues ten, one for each priority: scheduled_at and id of the last task that this worker claimed there; only what lies behind is looked at (where no lanes are), so leave them out at least once a second. '
  'Errors: OC301 isolation level, OC302 arrays of different length, OC115 a result over task.result_bytes_max; then nothing was done.';
