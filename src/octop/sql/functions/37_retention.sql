-- How long what has ended is kept. Promise: a day of history goes whole as soon as nothing in it must be kept; what goes earlier is deleted in bounded
-- steps that never wait and never pass the same row twice; where nobody asks for more than history.retention_days, none of it is even looked for.

create or replace view _octop_keeps as
  select null::text as queue, s.status,
         coalesce(_octop_setting('history.' || s.status || '_days'), case when s.status <> 'frozen' then _octop_setting('history.retention_days') end)::integer as days
    from (values ('success'), ('cancelled'), ('frozen')) s (status)
  union all
  select q.name, v.status, v.days
    from octop_queues q cross join lateral (values ('success', q.keep_success_days), ('cancelled', q.keep_cancelled_days), ('frozen', q.keep_frozen_days)) v (status, days)
   where v.days is not null;
comment on view _octop_keeps is 'For how many days tasks are kept, by status: the row without a queue holds for all queues that have none of their own. Null days = for ever.';

create or replace function _octop_keeps_differ() returns boolean
  language plpgsql stable set search_path from current
as $$
begin
  return (select count(distinct k.days) > 1 from _octop_keeps k where k.status <> 'frozen');
end $$;
comment on function _octop_keeps_differ() is 'Are some finished tasks kept longer than others? If not, a day goes by its age alone.';

create or replace function _octop_day_counts() returns table (day date, queue text, status text, over_at timestamptz)
  language sql stable set search_path from current set timezone = 'UTC' set enable_seqscan = on set enable_hashjoin = on
as $$
  select c.day, c.queue, c.status, (c.day + 1)::timestamptz + make_interval(days => coalesce(own.days, base.days))
    from (select x.day, x.queue, x.status
            from (select a.day, a.queue, a.status, a.n from _octop_counters a where a.day > '-infinity'
                  union all select d.day, d.queue, d.status, d.n from _octop_counter_deltas d where d.day > '-infinity') x
           group by x.day, x.queue, x.status having sum(x.n) > 0) c
    join _octop_keeps base on base.queue is null and base.status = c.status
    left join _octop_keeps own on own.queue = c.queue and own.status = c.status
$$;
comment on function _octop_day_counts() is 'What lies in each day of history, by queue and status, and until when it is kept: from the counters, without a look at a task.';

create or replace function _octop_days_over(p_slack_days integer) returns table (partition regclass, from_at timestamptz, to_at timestamptz)
  language plpgsql stable set search_path from current set timezone = 'UTC' set datestyle = 'ISO'
as $$
declare
  v_now  timestamptz := _octop_now() - make_interval(days => p_slack_days);
  v_kept date[] := '{}';
begin
  if _octop_keeps_differ() then
    v_kept := array(select distinct c.day from _octop_day_counts() c where c.over_at > v_now);
  end if;
  return query
  select d.partition, d.from_at, d.to_at from _octop_days d
   where d.to_at <= v_now - make_interval(days => (select min(k.days) from _octop_keeps k where k.status <> 'frozen'))
     and d.from_at::date <> all (v_kept)
   order by d.to_at;
end $$;
comment on function _octop_days_over(integer) is 'The days of history in which nothing must be kept, and nothing had to be so many days ago, oldest first.';

create or replace function octop_days_over(slack_days integer default 0) returns setof date
  language sql stable security definer set search_path from current set timezone = 'UTC'
as $$
  select o.from_at::date from _octop_days_over(greatest(coalesce(octop_days_over.slack_days, 0), 0)) o order by 1
$$;
comment on function octop_days_over(integer) is
  'The days of history in which nothing must be kept any more, oldest first: what octop_drop_days() drops next. With slack_days those in which nothing had to be kept so many days ago. Example: select * from octop_days_over(1);';

create or replace function _octop_plan_walks() returns integer
  language plpgsql set search_path from current set timezone = 'UTC' set datestyle = 'ISO'
as $$
declare
  v_planned integer;
  v_over    date[];
begin
  if not _octop_keeps_differ() then
    return 0;
  end if;
  -- a day that is over goes whole: none of its tasks is deleted for itself
  v_over := array(select o.from_at::date from _octop_days_over(0) o);
  insert into _octop_walks (name, queues, statuses)
  select c.day::text, array_agg(c.queue order by c.queue, c.status), array_agg(c.status order by c.queue, c.status)
    from _octop_day_counts() c
   where c.over_at <= _octop_now() and c.day <> all (v_over)
     and exists (select from _octop_days d where d.from_at::date = c.day)
   group by c.day
  on conflict do nothing;
  get diagnostics v_planned = row_count;
  return v_planned;
end $$;
comment on function _octop_plan_walks() is 'Note the days from which some tasks must go while others stay. Answers how many are new.';

create or replace function _octop_clear_day(p_walk _octop_walks, p_part regclass, p_most integer, out looked integer, out gone integer, out after_id uuid, out passed boolean)
  language plpgsql set search_path from current set enable_seqscan = off set enable_hashjoin = on
as $$
declare
  v_queues   text[];
  v_statuses text[];
  v_due      integer;
begin
  -- somebody may keep them longer by now
  select coalesce(array_agg(u.queue), '{}'), coalesce(array_agg(u.status), '{}') into v_queues, v_statuses
    from unnest(p_walk.queues, p_walk.statuses) u (queue, status)
    join _octop_keeps base on base.queue is null and base.status = u.status
    left join _octop_keeps own on own.queue = u.queue and own.status = u.status
   where (p_walk.name::date + 1) at time zone 'UTC' + make_interval(days => coalesce(own.days, base.days)) <= _octop_now();
  execute format($q$
    with looked as materialized (
      select t.ctid as tid, t.id, t.queue, t.status from %1$s t where t.id > $1 order by t.id limit $2
    ), due as materialized (
      select l.tid from looked l where exists (select from unnest($3, $4) u (queue, status) where u.queue = l.queue and u.status = l.status)
    ), taken as materialized (
      select t.ctid as tid from %1$s t where t.ctid = any (array(select d.tid from due d)) for update skip locked
    ), gone as (
      delete from %1$s t where t.ctid = any (array(select k.tid from taken k))
      returning t.id, t.tenant, t.queue, t.status, t.completed_at, t.scheduled_at
    ), counted as (
      insert into _octop_counter_deltas (tenant, queue, status, day, n, scheduled_sum)
      select g.tenant, g.queue, g.status, d.day, -count(*), -sum(d.epoch)
        from gone g cross join lateral _octop_counted_on(g.status, g.completed_at, g.scheduled_at) d group by 1, 2, 3, 4
    ), attempts as (
      delete from octop_attempts a using gone g where a.task_id = g.id
    )
    select (select count(*) from looked), (select l.id from looked l order by l.id desc limit 1), (select count(*) from due), (select count(*) from gone)
    $q$, p_part)
    into looked, after_id, v_due, gone using p_walk.after_id, p_most, v_queues, v_statuses;
  passed := gone < v_due or cardinality(v_queues) < cardinality(p_walk.queues);
end $$;
comment on function _octop_clear_day(_octop_walks, regclass, integer) is
  'One step through a day of history, by id: of the next so many tasks, delete those of its queues and statuses that nobody keeps any more, with their attempts.';

create or replace function _octop_clear_history(p_most integer) returns integer
  language plpgsql set search_path from current set timezone = 'UTC' set datestyle = 'ISO'
as $$
declare
  w      _octop_walks;
  v_part regclass;
  s      record;
begin
  select * into w from _octop_walks x where x.name <> 'attempts' and x.next_at <= _octop_now() order by x.name limit 1 for update skip locked;
  if not found then
    return 0;
  end if;
  v_part := (select d.partition from _octop_days d where d.from_at = w.name::date::timestamptz);
  if v_part is null then
    delete from _octop_walks x where x.name = w.name;   -- it has gone whole meanwhile
    return 0;
  end if;
  select * into s from _octop_clear_day(w, v_part, p_most);
  w.passed := w.passed or s.passed;
  w.gone := w.gone + s.gone;
  if s.looked < p_most then
    perform _octop_end_walk(w);
  else
    update _octop_walks x set after_id = s.after_id, gone = w.gone, passed = w.passed where x.name = w.name;
  end if;
  return s.gone;
exception when undefined_table then
  return 0;   -- it was dropped in this moment
end $$;
comment on function _octop_clear_history(integer) is 'One step, over at most so many tasks, through the oldest day from which some go before the others. Answers how many were deleted.';

create or replace function _octop_end_walk(p_walk _octop_walks) returns void
  language plpgsql set search_path from current set timezone = 'UTC'
as $$
begin
  -- Nothing of these is left: their counters go, with their bounds of time, which no delta can take back. Only under the lock of who folds.
  if not p_walk.passed and pg_try_advisory_xact_lock(hashtextextended('_octop_counters', '_octop_counters'::regclass::oid::bigint)) then
    delete from _octop_counters c using unnest(p_walk.queues, p_walk.statuses) u (queue, status)
     where c.day = p_walk.name::date and c.queue = u.queue and c.status = u.status;
    delete from _octop_counter_deltas c using unnest(p_walk.queues, p_walk.statuses) u (queue, status)
     where c.day = p_walk.name::date and c.queue = u.queue and c.status = u.status;
  end if;
  perform _octop_audit_write('clear day', p_walk.name, jsonb_build_object('deleted', p_walk.gone)) where p_walk.gone > 0;
  delete from _octop_walks x where x.name = p_walk.name;
end $$;
comment on function _octop_end_walk(_octop_walks) is 'A walk through a day has come to its end: what it deleted stands in the audit. Days in which something is left are planned again.';

create or replace function _octop_purge_frozen(p_most integer) returns integer
  language plpgsql set search_path from current set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  r      record;
  v_left integer := p_most;
  v_n    integer;
begin
  if not exists (select from _octop_keeps k where k.status = 'frozen' and k.days is not null) then
    return 0;
  end if;
  for r in
    -- the queues that have frozen tasks, by jumps in the index
    with recursive q as (
      (select f.queue from octop_tasks_frozen f order by f.queue limit 1)
      union all
      select (select f.queue from octop_tasks_frozen f where f.queue > q.queue order by f.queue limit 1) from q where q.queue is not null
    )
    select q.queue, _octop_now() - make_interval(days => coalesce(own.days, base.days)) as before
      from q join _octop_keeps base on base.queue is null and base.status = 'frozen'
      left join _octop_keeps own on own.queue = q.queue and own.status = 'frozen'
      left join octop_queues o on o.name = q.queue
     -- there a frozen task holds up its lane until somebody decides
     where coalesce(own.days, base.days) is not null and not coalesce(o.ordered, false)
  loop
    with taken as materialized (
      select f.ctid as tid from octop_tasks_frozen f
       where f.queue = r.queue and coalesce(f.started_at, f.created_at) < r.before
       order by coalesce(f.started_at, f.created_at) limit v_left for update skip locked
    ), gone as (
      delete from octop_tasks_frozen f where f.ctid = any (array(select t.tid from taken t)) returning f.id, f.tenant
    ), counted as (
      insert into _octop_counter_deltas (tenant, queue, status, day, n) select g.tenant, r.queue, 'frozen', '-infinity', -count(*) from gone g group by 1
    ), attempts as (
      delete from octop_attempts a using gone g where a.task_id = g.id
    )
    select count(*) into v_n from gone;
    if v_n > 0 then
      perform _octop_audit_write('purge frozen', r.queue, jsonb_build_object('deleted', v_n));
    end if;
    v_left := v_left - v_n;
    exit when v_left <= 0;
  end loop;
  return p_most - v_left;
end $$;
comment on function _octop_purge_frozen(integer) is 'Delete at most so many frozen tasks that are kept no longer, with their attempts. None of ordered queues.';

create or replace function _octop_purge_attempts(p_most integer) returns integer
  language plpgsql set search_path from current set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  w        _octop_walks;
  v_looked integer;
  v_last    timestamptz;
  v_last_id uuid;
  v_gone    integer;
begin
  select * into w from _octop_walks x where x.name = 'attempts' and x.next_at <= _octop_now() for update skip locked;
  if not found then
    return 0;
  end if;
  with base as materialized (
    select max(k.days) filter (where k.status = 'success') as success, max(k.days) filter (where k.status = 'cancelled') as cancelled
      from _octop_keeps k where k.queue is null
  ), whole as materialized (
    -- whatever its task may have ended with
    select q.name as queue, greatest(coalesce(q.keep_success_days, b.success), coalesce(q.keep_cancelled_days, b.cancelled)) as days
      from octop_queues q cross join base b where q.keep_success_days is not null or q.keep_cancelled_days is not null
    union all select null, greatest(b.success, b.cancelled) from base b
  ), looked as materialized (
    -- many may have ended at one moment, in one transaction: among these by task
    select a.ctid as tid, a.task_id, a.queue, a.ended_at from octop_attempts a
     where a.ended_at >= w.after_at and (a.ended_at > w.after_at or a.task_id > w.after_id) and a.ended_at < _octop_now() - make_interval(days => (select min(k.days) from whole k))
     order by a.ended_at, a.task_id limit p_most
  ), due as materialized (
    select l.tid from looked l
      left join whole own on own.queue = l.queue
     where l.ended_at < _octop_now() - make_interval(days => coalesce(own.days, (select b.days from whole b where b.queue is null)))
       and not exists (select from octop_tasks_live t where t.id between l.task_id and l.task_id) and not exists (select from octop_tasks_frozen t where t.id between l.task_id and l.task_id)
  ), taken as materialized (
    select a.ctid as tid from octop_attempts a where a.ctid = any (array(select d.tid from due d)) for update skip locked
  ), gone as (
    delete from octop_attempts a where a.ctid = any (array(select t.tid from taken t)) returning 1
  )
  select (select count(*) from looked), l.ended_at, l.task_id, (select count(*) from gone) into v_looked, v_last, v_last_id, v_gone
    from (values (true)) one left join lateral (select x.ended_at, x.task_id from looked x order by x.ended_at desc, x.task_id desc limit 1) l on true;
  update _octop_walks x
     set after_at = case when v_looked < p_most then '-infinity' else v_last end, after_id = case when v_looked < p_most then x.after_id else v_last_id end,
         -- at its end it rests: what is left is kept, and a walk would pass it each time
         next_at = case when v_looked < p_most and v_looked > v_gone then _octop_now() + interval '10 minutes' else '-infinity' end
   where x.name = 'attempts' and (x.after_at > '-infinity' or v_looked > 0);
  return v_gone;
end $$;
comment on function _octop_purge_attempts(integer) is
  'One step through the attempts, oldest first: of the next so many, delete those whose task is neither live nor frozen and whose queue keeps nothing for so long.';
