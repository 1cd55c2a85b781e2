-- Parking. Promise: a task whose type is held, or that no living worker of its queue knows in the version that it needs, leaves the ready
-- index without using a try (blocked, blocked_by task_type:NAME or version:N:NAME), and comes back when the type is known again and not held. Bounded both ways.

create or replace function _octop_knows(p_types text[], p_versions integer[], p_type text, p_version integer) returns boolean
  language sql immutable
  return p_type = any (p_types) and (p_version is null or p_version <= coalesce(p_versions[array_position(p_types, p_type)], 1));
comment on function _octop_knows(text[], integer[], text, integer) is
  'May who knows these types, in these versions, run a task of this type that needs this version? A type without a version is at 1. Inlined.';

create or replace function _octop_parked_by(p_type text, p_version integer) returns text
  language sql immutable
  return case when p_version is null then 'task_type:' else 'version:' || p_version || ':' end || p_type;
comment on function _octop_parked_by(text, integer) is
  'octop_tasks.blocked_by of a task whose type is held or unknown: task_type:NAME, or version:N:NAME if it needs that version. A name may hold anything, so it stands last.';

create or replace function _octop_parkable(p_queue text, p_tids tid[]) returns text[]
  language plpgsql stable set search_path from current
as $$
begin
  return array(
    select _octop_parked_by(y.task_type, y.min_version)
      from (select distinct t.task_type, t.min_version from octop_tasks_live t where t.ctid = any (p_tids)) y
     where exists (select from octop_holds h where h.kind = 'task_type' and h.target = y.task_type)
        or not exists (select from octop_workers w where _octop_knows(w.task_types, w.versions, y.task_type, y.min_version)
                          and p_queue = any (w.queues) and w.beat_at > _octop_now() - _octop_lease()));
end $$;
comment on function _octop_parkable(text, tid[]) is
  'Of the task types (and the versions that they need) of these rows, those that are held, or known to no living worker of the queue: as _octop_parked_by writes them.';

create or replace function _octop_park_rows(p_parked_by text[], p_tids tid[]) returns integer
  language plpgsql set search_path from current
as $$
declare
  v_parked integer;
begin
  with parked as (
    update octop_tasks_live t set status = 'blocked', blocked_by = _octop_parked_by(t.task_type, t.min_version)
     where t.ctid = any (p_tids) and _octop_parked_by(t.task_type, t.min_version) = any (p_parked_by)
    returning t.tenant, t.queue
  ), counted as (
    insert into _octop_counter_deltas (tenant, queue, status, day, n)
    select p.tenant, p.queue, s.status, '-infinity', s.sign * count(*)
      from parked p cross join (values ('blocked', 1), ('waiting', -1)) s (status, sign)
     group by p.tenant, p.queue, s.status, s.sign
  )
  select count(*) into v_parked from parked;
  return v_parked;
end $$;
comment on function _octop_park_rows(text[], tid[]) is 'Set these rows, which the caller has locked, to blocked if their type is one of these (_octop_parkable). Answers how many.';

create or replace function _octop_park(p_queue text, p_parked_by text[], p_most integer) returns integer
  language plpgsql set search_path from current
as $$
begin
  return _octop_park_rows(p_parked_by, array(
    select r.tid from generate_series(0, 9) p cross join lateral (
      select t.ctid as tid from octop_tasks_live t
       where t.queue = p_queue and t.lane = '' and t.priority = p and t.status in ('pending', 'failed')
         and t.scheduled_at <= _octop_now() and _octop_parked_by(t.task_type, t.min_version) = any (p_parked_by)
       order by t.scheduled_at, t.id limit p_most for update skip locked) r
     limit p_most));
end $$;
comment on function _octop_park(text, text[], integer) is
  'Set due tasks of these types (_octop_parkable) to blocked, without using a try. Answers how many.';

create or replace function _octop_parked_rows(p_most integer) returns tid[]
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
begin
  -- for each queue that a living worker serves: as in _octop_parkable, or what comes back would be parked again
  return array(
    with recursive living as materialized (
      select w.queues, w.task_types, w.versions from octop_workers w where w.beat_at > _octop_now() - _octop_lease()
    ), versioned (blocked_by, queue, n) as (
      -- what waits for a version, from pair to pair of the index: there are few, and the versions that a worker knows may be many
      (select b.blocked_by, b.queue, 1 from octop_tasks_live b
        where b.status = 'blocked' and b.blocked_by >= 'version:' and b.blocked_by < 'version;' order by b.blocked_by, b.queue limit 1)
      union all
      select x.blocked_by, x.queue, v.n + 1 from versioned v cross join lateral (
        select b.blocked_by, b.queue from octop_tasks_live b
         where b.status = 'blocked' and (b.blocked_by, b.queue) > (v.blocked_by, v.queue) and b.blocked_by < 'version;'
         order by b.blocked_by, b.queue limit 1) x where v.n < 1000
    ), named as (
      select v.blocked_by, v.queue, split_part(v.blocked_by, ':', 2)::integer as version,
             substr(v.blocked_by, length('version:' || split_part(v.blocked_by, ':', 2)) + 2) as name from versioned v
    )
    select r.tid from (select 'task_type:' || y.name as parked_by, q.queue, y.name
                         from living w, unnest(w.task_types) y (name), unnest(w.queues) q (queue) group by y.name, q.queue
                       union all
                       select d.blocked_by, d.queue, d.name from named d
                        where exists (select from living w where d.queue = any (w.queues) and _octop_knows(w.task_types, w.versions, d.name, d.version))) n
      cross join lateral (
        select b.ctid as tid from octop_tasks_live b
         where b.status = 'blocked' and b.blocked_by = n.parked_by and b.queue = n.queue
           and not exists (select from octop_holds h where h.kind = 'task_type' and h.target = n.name)
         order by b.scheduled_at, b.id limit p_most for update skip locked) r
     limit p_most);
end $$;
comment on function _octop_parked_rows(integer) is 'Lock parked tasks whose type is known again in their queue and not held, the oldest first of each, at most so many.';

create or replace function _octop_unpark_rows(p_tids tid[]) returns integer
  language plpgsql set search_path from current
as $$
declare
  v_back   integer;
  v_queues text[];
begin
  with back as (
    update octop_tasks_live t set status = case when t.retry_count > 0 then 'failed' else 'pending' end, blocked_by = null
     where t.ctid = any (p_tids)
    returning t.tenant, t.queue
  ), counted as (
    insert into _octop_counter_deltas (tenant, queue, status, day, n)
    select b.tenant, b.queue, s.status, '-infinity', s.sign * count(*)
      from back b cross join (values ('waiting', 1), ('blocked', -1)) s (status, sign) group by b.tenant, b.queue, s.status, s.sign
  )
  select count(*), array_agg(distinct b.queue) into v_back, v_queues from back b;
  if v_back > 0 then
    perform _octop_wake(v_queues, array_fill('-infinity'::timestamptz, array[cardinality(v_queues)]));
  end if;
  return v_back;
end $$;
comment on function _octop_unpark_rows(tid[]) is 'Let these parked tasks, which the caller has locked, wait again. Answers how many.';

create or replace function _octop_unpark(p_most integer) returns integer
  language plpgsql set search_path from current
as $$
declare
  v_tids tid[] := _octop_parked_rows(p_most);
  v_tid  tid;
  v_back integer := 0;
begin
  if v_tids = '{}' then
    return 0;
  end if;
  return _octop_unpark_rows(v_tids);
exception when unique_violation then
  -- a unique index of a DBA's own (docs/how-to/article-index.md): one row that meets its twin must not keep the others, nor a worker
  foreach v_tid in array _octop_parked_rows(least(p_most, 200)) loop
    begin
      v_back := v_back + _octop_unpark_rows(array[v_tid]);
    exception when unique_violation then
      continue;
    end;
  end loop;
  return v_back;
end $$;
comment on function _octop_unpark(integer) is 'Parked tasks whose type is known again and not held come back, oldest first, bounded; one that a unique index refuses stays and stops nobody.';
