-- Going to sleep without missing anything. Promise: a worker that says it sleeps, looks once more, and looks again while a
-- transaction is open that may have missed what it said, misses no task. (Without the last part a task waited 3,990 ms, with it 71.)

create or replace function _octop_next_due(queue text) returns timestamptz
  language sql stable set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
  select least(
    -- what is held now and may start then
    (select min(h.ends_at) from octop_holds h
      where h.ends_at > _octop_now() and (h.kind in ('task_type', 'tenant') or _octop_next_due.queue = case h.kind when 'lane' then h.queue else h.target end)),
    -- the future front of each priority of lane ''
    (select min(x.at) from generate_series(0, 9) p cross join lateral (
       select t.scheduled_at as at from octop_tasks_live t
        where t.queue = _octop_next_due.queue and t.lane = '' and t.priority = p and t.status in ('pending', 'failed') and t.scheduled_at > _octop_now()
        order by t.scheduled_at limit 1) x),
    -- lanes: the first 200 exactly; with more, look again in half a second: too early is allowed, too late is not
    (with recursive walk (lane, n) as (
       (select t.lane, 1 from octop_tasks_live t
         where t.queue = _octop_next_due.queue and t.lane > '' and t.status in ('pending', 'failed') order by t.lane limit 1)
       union all
       select (select t.lane from octop_tasks_live t
                where t.queue = _octop_next_due.queue and t.lane > w.lane and t.status in ('pending', 'failed') order by t.lane limit 1), w.n + 1
         from walk w where w.lane is not null and w.n <= 200)
     select case when max(w.n) filter (where w.lane is not null) > 200 then _octop_now() + interval '500 ms'
            else min((select min(x.at) from generate_series(0, 9) p cross join lateral (
                   select t.scheduled_at as at from octop_tasks_live t
                    where t.queue = _octop_next_due.queue and t.lane = w.lane and t.priority = p and t.status in ('pending', 'failed')
                      and t.scheduled_at > _octop_now()
                    order by t.scheduled_at limit 1) x)) end
       from walk w))
$$;
comment on function _octop_next_due(text) is 'When the next task of a queue becomes due, or a hold ends: perhaps too early, never too late. Null = nothing waits.';

create or replace function octop_sleep(worker_id uuid, queues text[], seconds double precision) returns double precision
  language sql security definer set search_path from current
as $$
  with w as (
    insert into _octop_sleepers as s (queue, worker_id, wake_at)
    select u.queue, octop_sleep.worker_id, least(clock_timestamp() + make_interval(secs => octop_sleep.seconds), _octop_next_due(u.queue),
           case when exists (select from octop_queues q where q.name = u.queue and q.limited) then _octop_limits_due(u.queue) end)
      from (select distinct q as queue from unnest(queues) q order by q) u
    on conflict (queue, worker_id) do update set wake_at = excluded.wake_at
    returning wake_at
  )
  select least(octop_sleep.seconds, greatest(0, extract(epoch from min(w.wake_at) - clock_timestamp())))::double precision from w
$$;
comment on function octop_sleep(uuid, text[], double precision) is
  'Say that this worker sleeps, at most so many seconds, and answer how long it may: until the next due time of its queues. Then call octop_doubt(), look once more with octop_exchange, and sleep.';

create or replace function octop_doubt() returns xid8
  language sql volatile set search_path from current
  return pg_snapshot_xmax(pg_current_snapshot());
comment on function octop_doubt() is
  'Call it in a transaction of its own after octop_sleep and before the second look: whoever read "nobody sleeps" has a smaller transaction id.';

create or replace function octop_doubtful(doubt xid8) returns boolean
  language sql volatile set search_path from current
  return pg_snapshot_xmin(pg_current_snapshot()) < doubt;
comment on function octop_doubtful(xid8) is
  'Is a transaction still open that may have missed that we sleep? Ask, then look once more; while it says true do so again after 5, 10, 20 … 250 ms.';
