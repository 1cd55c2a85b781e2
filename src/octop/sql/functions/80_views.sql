-- What to look at. Promise: no view counts millions of rows: waiting tasks exactly up to 10,000, beyond that and for finished
-- tasks from counters. Views are the owner's, with security_barrier, so that readers need no right on the tables.

create or replace function _octop_counted()
  returns table (tenant text, queue text, status text, n bigint, scheduled_sum numeric, scheduled_min timestamptz, scheduled_max timestamptz)
  language sql stable security definer set search_path from current
as $$
  select x.tenant, x.queue, x.status, sum(x.n)::bigint, sum(x.scheduled_sum), min(x.scheduled_min), max(x.scheduled_max)
    from (select c.tenant, c.queue, c.status, c.n, c.scheduled_sum, c.scheduled_min, c.scheduled_max from _octop_counters c
          union all
          select d.tenant, d.queue, d.status, d.n, d.scheduled_sum, d.scheduled_min, d.scheduled_max from _octop_counter_deltas d) x
   group by 1, 2, 3
$$;
comment on function _octop_counted() is 'Counters plus what is not folded yet.';

create or replace function _octop_summary()
  returns table (status text, n bigint, earliest timestamptz, latest timestamptz, mean_epoch numeric)
  language plpgsql stable security definer set search_path from current
as $$
declare
  v_total  bigint;
  v_failed bigint;
begin
  for status, n, earliest, latest, mean_epoch in
    select 'running', count(*), min(t.scheduled_at), max(t.scheduled_at), avg(extract(epoch from t.scheduled_at))
      from (select t.scheduled_at from octop_tasks_live t where t.status = 'running' limit 10000) t
    union all
    select 'failed', count(*), min(t.scheduled_at), max(t.scheduled_at), avg(extract(epoch from t.scheduled_at))
      from (select t.scheduled_at from octop_tasks_live t where t.status = 'failed' limit 10000) t
    union all
    select 'blocked', count(*), min(t.scheduled_at), max(t.scheduled_at), avg(extract(epoch from t.scheduled_at))
      from (select t.scheduled_at from octop_tasks_live t where t.status = 'blocked' limit 10000) t
    union all
    select 'pending', count(*), min(t.scheduled_at), max(t.scheduled_at), avg(extract(epoch from t.scheduled_at))
      from (select t.scheduled_at from octop_tasks_live t where t.status in ('pending', 'failed') and t.status = 'pending' limit 10000) t
    union all
    select 'frozen', count(*), min(t.scheduled_at), max(t.scheduled_at), avg(extract(epoch from t.scheduled_at))
      from (select t.scheduled_at from octop_tasks_frozen t limit 10000) t
  loop
    if n >= 10000 then
      -- more than were looked at: the number comes from the counters, the times from those that were
      select sum(c.n) into v_total from _octop_counted() c
       where c.status = case when _octop_summary.status in ('pending', 'failed') then 'waiting' else _octop_summary.status end;
      -- pending and failed share a counter: the failed ones are counted in their own small index, at most 200,000 of them
      if status in ('pending', 'failed') then
        v_failed := (select count(*) from (select from octop_tasks_live t where t.status = 'failed' limit 200000) f);
        v_total := case when status = 'failed' then v_failed else v_total - v_failed end;
      elsif status = 'running' then
        v_total := (select count(*) from octop_tasks_live t where t.status = 'running');
      end if;
      n := greatest(n, v_total);
    end if;
    if n > 0 then
      return next;
    end if;
  end loop;
  return query
  select c.status, sum(c.n)::bigint, min(c.scheduled_min), max(c.scheduled_max), sum(c.scheduled_sum) / nullif(sum(c.n), 0)
    from _octop_counted() c where c.status in ('success', 'cancelled') group by c.status having sum(c.n) > 0;
end $$;
comment on function _octop_summary() is 'Counts and times by status, bounded.';

create or replace view octop_task_summary with (security_barrier) as
  select s.status collate "C" as status,
         s.n as count,
         s.earliest as earliest_scheduled,
         s.latest as latest_scheduled,
         extract(epoch from _octop_now()) - s.mean_epoch as avg_delay_seconds
    from _octop_summary() s;
comment on view octop_task_summary is
  'Health at a glance: by status the count, first and last scheduled_at, and the mean of now minus scheduled_at in seconds. Exact up to 10,000 waiting tasks of a status; beyond, count comes from counters and the times from 10,000 of them.';

create or replace view octop_failed_tasks with (security_barrier) as
  select t.id, t.task_type, t.scheduled_at, t.created_at, t.last_error,
         extract(epoch from (_octop_now() - t.created_at)) as age_seconds
    from octop_tasks t
   where t.status in ('failed', 'frozen')
   order by t.created_at desc
   limit 10;
comment on view octop_failed_tasks is
  'The ten newest tasks that wait for a retry or are frozen, with their last error. Which of them wait for a person (frozen) and which for their time (failed): '
  'select id, status, queue, retry_count, task_type, last_error from octop_tasks where status in (''failed'', ''frozen'') order by created_at desc limit 10;';

create or replace view octop_running_tasks with (security_barrier) as
  select t.id, t.task_type, t.queue, t.lane, t.tenant, t.attempt, t.worker_id, w.name as worker_name, w.host as worker_host, w.pid as worker_pid,
         t.started_at, t.deadline_at, extract(epoch from _octop_now() - t.started_at)::double precision as running_seconds,
         t.cancel_requested_at
    from octop_tasks_live t
    left join octop_workers w on w.id = t.worker_id
   where t.status = 'running';
comment on view octop_running_tasks is 'What runs now, where, since when and until when.';

create or replace function _octop_queue_counts()
  returns table (queue text, waiting bigint, due bigint, oldest_due_at timestamptz, next_due_at timestamptz)
  language plpgsql stable security definer set search_path from current
as $$
begin
  for queue in
    with recursive q (name) as (
      (select t.queue from octop_tasks_live t where t.status in ('pending', 'failed') order by t.queue limit 1)
      union all
      select (select t.queue from octop_tasks_live t where t.status in ('pending', 'failed') and t.queue > q.name order by t.queue limit 1)
        from q where q.name is not null)
    select q.name from q where q.name is not null
  loop
    select count(*), count(*) filter (where x.scheduled_at <= _octop_now()), min(x.scheduled_at) filter (where x.scheduled_at <= _octop_now())
      into waiting, due, oldest_due_at
      from (select t.scheduled_at from octop_tasks_live t where t.queue = _octop_queue_counts.queue and t.status in ('pending', 'failed') limit 10000) x;
    if waiting >= 10000 then
      waiting := greatest(waiting, (select sum(c.n) from _octop_counted() c where c.queue = _octop_queue_counts.queue and c.status = 'waiting')::bigint);
    end if;
    next_due_at := _octop_next_due(queue);
    return next;
  end loop;
end $$;
comment on function _octop_queue_counts() is 'By queue: waiting tasks, those that are due among the first 10,000, and the next due time.';

create or replace view octop_queue_summary with (security_barrier) as
  with counts as materialized (select * from _octop_queue_counts())
  select n.name,
         coalesce(c.waiting, 0) as waiting,
         coalesce(c.due, 0) as due,
         coalesce(r.running, 0) as running,
         coalesce(b.blocked, 0) as blocked,
         c.oldest_due_at,
         c.next_due_at,
         h.id is not null as paused,
         h.reason as pause_reason,
         h.author as paused_by,
         h.created_at as paused_at,
         q.worker_limit,
         (select count(*) from octop_workers w where n.name = any (w.queues) and not w.draining
             and w.beat_at > _octop_now() - make_interval(secs => _octop_setting('worker.lease_seconds')::double precision)) as workers,
         h.ends_at as pause_ends_at
    from (select q.name from octop_queues q
          union select c.queue from counts c
          union select u.queue from octop_workers w, unnest(w.queues) u (queue)
                 where w.beat_at > _octop_now() - make_interval(secs => _octop_setting('worker.lease_seconds')::double precision)
          union select h.target from octop_holds h where h.kind = 'queue' and (h.ends_at is null or h.ends_at > _octop_now())) n
    left join octop_queues q on q.name = n.name
    -- a person's order before what the engine ordered
    left join lateral (select x.* from octop_holds x where x.kind = 'queue' and x.target = n.name and (x.ends_at is null or x.ends_at > _octop_now())
                        order by x.cause <> 'order', x.id limit 1) h on true
    left join counts c on c.queue = n.name
    left join (select t.queue, count(*) as running from octop_tasks_live t where t.status = 'running' group by t.queue) r on r.queue = n.name
    left join (select t.queue, count(*) as blocked from (select t.queue from octop_tasks_live t where t.status = 'blocked' limit 10000) t group by t.queue) b
           on b.queue = n.name;
comment on view octop_queue_summary is
  'Each queue: waiting (exact up to 10,000), due, running, blocked, oldest and next due time, paused by whom, the operator''s limit and how many living workers serve it.';

create or replace view octop_worker_summary with (security_barrier) as
  select w.id, w.name, w.host, w.pid, w.version, w.queues, cardinality(w.task_types) as task_types, w.started_at, w.beat_at,
         extract(epoch from _octop_now() - w.beat_at)::double precision as silent_seconds,
         case when w.beat_at <= _octop_now() - make_interval(secs => _octop_setting('worker.lease_seconds')::double precision) then 'silent'
              when w.draining then 'draining' else 'alive' end as state,
         (select count(*) from octop_tasks_live t where t.status = 'running' and t.worker_id = w.id) as running
    from octop_workers w;
comment on view octop_worker_summary is 'Each worker: alive, draining or silent (longer than the lease), what it serves and how much it runs.';

create or replace view octop_throughput with (security_barrier) as
  select c.tenant, c.queue, c.status, c.n as total from _octop_counted() c where c.status in ('success', 'cancelled', 'frozen');
comment on view octop_throughput is 'Finished and frozen tasks by tenant and queue, from counters: the difference of two looks is the rate.';

create or replace view octop_latest_failures with (security_barrier) as
  select a.task_id, a.attempt, a.tenant, a.queue, a.task_type, a.worker_id, a.started_at, a.ended_at, a.outcome, a.error_class, a.error_message, a.traceback
    from octop_attempts a
   where a.outcome in ('failure', 'timeout', 'lost')
   order by a.ended_at desc
   limit 100;
comment on view octop_latest_failures is 'The hundred latest attempts that failed, timed out or were lost.';

create or replace view octop_my_tasks with (security_barrier) as
  -- each by its name: what a person has added to octop_tasks must not become a part of the view
  select t.id, t.seq, t.scheduled_at, t.created_at, t.retry_count, t.attempt, t.priority, t.lost_count, t.status, t.queue, t.lane, t.tenant,
         t.task_type, t.created_by, t.payload, t.due_at, t.started_at, t.completed_at, t.deadline_at, t.worker_id, t.claim_id, t.max_retries,
         t.min_version, t.last_error, t.result, t.timeout_seconds, t.cancel_requested_at, t.blocked_by, t.retry_policy, t.tags, t.meta, t.retry_of
    from octop_tasks t where t.created_by = _octop_caller();
comment on view octop_my_tasks is 'The tasks that the reading role itself registered: what a producer sees.';
