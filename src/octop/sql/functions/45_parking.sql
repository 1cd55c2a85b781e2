-- Parking. Promise: a task that is held, or that no living worker of its queue knows in the version that it needs, leaves the ready
-- index without using a try (blocked; blocked_by hold:ID, task_type:NAME or version:N:NAME), and comes back when the hold is lifted, or the type
-- known again. Under several holds it waits for one after the other. Bounded both ways, oldest first, and nothing is left behind: who
-- parks a task locks the hold's row first (shared, never waiting), so that a hold is lifted after the last task that was parked for it.

create or replace function _octop_knows(p_types text[], p_versions integer[], p_type text, p_version integer) returns boolean
  language sql immutable
  return p_type = any (p_types) and (p_version is null or p_version <= coalesce(p_versions[array_position(p_types, p_type)], 1));
comment on function _octop_knows(text[], integer[], text, integer) is
  'May who knows these types, in these versions, run a task of this type that needs this version? A type without a version is at 1. Inlined.';

create or replace function _octop_parked_by(p_type text, p_version integer) returns text
  language sql immutable
  return case when p_version is null then 'task_type:' else 'version:' || p_version || ':' end || p_type;
comment on function _octop_parked_by(text, integer) is
  'octop_tasks.blocked_by of a task whose type is unknown: task_type:NAME, or version:N:NAME if it needs that version. A name may hold anything, so it stands last.';

create or replace function _octop_is_known(p_queue text, p_type text, p_version integer) returns boolean
  language plpgsql stable set search_path from current
as $$
begin
  return exists (select from octop_workers w where _octop_knows(w.task_types, w.versions, p_type, p_version)
                    and p_queue = any (w.queues) and w.beat_at > _octop_now() - _octop_lease());
end $$;
comment on function _octop_is_known(text, text, integer) is 'Does a living worker of this queue know this task type, in the version that a task needs (null = any)? What else is parked.';

create or replace function _octop_park_rows(p_queue text, p_tids tid[], p_held text[]) returns integer
  language plpgsql set search_path from current
as $$
declare
  v_tenants  text[];
  v_lanes    text[];
  v_types    text[];
  v_versions integer[];
  v_holds    bigint[];
  v_locked   bigint[];
  v_labels   text[];
  v_parked   integer;
begin
  select array_agg(k.tenant), array_agg(k.lane), array_agg(k.task_type), array_agg(k.min_version), array_agg(k.hold)
    into v_tenants, v_lanes, v_types, v_versions, v_holds
    from (select d.*, case when _octop_is_held(p_held, d.tenant, d.lane, d.task_type) then _octop_hold_of(p_queue, d.tenant, d.lane, d.task_type) end as hold
            from (select distinct t.tenant, t.lane, t.task_type, t.min_version from octop_tasks_live t where t.ctid = any (p_tids)) d) k;
  if array_remove(v_holds, null) <> '{}' then
    -- whoever lifts it waits until this transaction ends, and finds what it parked; whose row is being lifted parks nothing any more
    v_locked := array(select h.id from octop_holds h where h.id = any (v_holds) for key share skip locked);
  end if;
  v_labels := array(
    select case when u.hold = any (v_locked) then 'hold:' || u.hold
                when u.hold is null and not _octop_is_held(p_held, u.tenant, u.lane, u.task_type) and not _octop_is_known(p_queue, u.task_type, u.version)
                  then _octop_parked_by(u.task_type, u.version) end
      from unnest(v_tenants, v_lanes, v_types, v_versions, v_holds) with ordinality u (tenant, lane, task_type, version, hold, n) order by u.n);
  with parked as (
    update octop_tasks_live t set status = 'blocked', blocked_by = u.label
      from unnest(v_tenants, v_lanes, v_types, v_versions, v_labels) u (tenant, lane, task_type, version, label)
     where t.ctid = any (p_tids) and t.tenant = u.tenant and t.lane = u.lane and t.task_type = u.task_type
       and t.min_version is not distinct from u.version and u.label is not null
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
comment on function _octop_park_rows(text, tid[], text[]) is
  'Set these rows of one queue, which the caller has locked, to blocked if they are held (_octop_held_keys) or nobody alive knows them. Answers how many.';

create or replace function _octop_park(p_queue text, p_strange tid[], p_held text[], p_types text[], p_versions integer[], p_most integer) returns integer
  language plpgsql set search_path from current
as $$
declare
  -- before they are parked: that gives them another address
  v_lanes  text[] := array(select distinct t.lane from octop_tasks_live t where t.ctid = any (p_strange) limit 20);
  v_parked integer := _octop_park_rows(p_queue, p_strange, p_held);
  v_front  tid[];
begin
  if v_parked = 0 then
    return 0;
  end if;
  -- More like them, from the front of the lanes in which they lay: looked at, so many, and locked only if they are strangers too.
  v_front := array(
    select r.tid from unnest(v_lanes) l (lane)
      cross join generate_series(0, 9) p cross join lateral (
      select t.ctid as tid from octop_tasks_live t
       where t.queue = p_queue and t.lane = l.lane collate "C" and t.priority = p and t.status in ('pending', 'failed') and t.scheduled_at <= _octop_now()
       order by t.scheduled_at, t.id limit p_most) r
     limit p_most);
  return v_parked + _octop_park_rows(p_queue, array(
    select t.ctid from octop_tasks_live t
     where t.ctid = any (v_front) and t.queue = p_queue and t.status <> all ('{running,blocked}')   -- no word that the ready index knows
       and (_octop_is_held(p_held, t.tenant, t.lane, t.task_type) or not _octop_knows(p_types, p_versions, t.task_type, t.min_version))
       for update skip locked), p_held);
end $$;
comment on function _octop_park(text, tid[], text[], text[], integer[], integer) is
  'Park these locked rows of one queue, which are strangers to who claims, and up to so many more of those that lie in front. Answers how many were parked: 0 = others know them.';

create or replace function _octop_lifted_rows(p_most integer) returns tid[]
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
declare
  v_id    bigint;
  v_label text;
  v_front tid[];
  v_tids  tid[] := '{}';
begin
  for v_id in select l.id from _octop_lifted_holds l order by l.id limit 100 for update skip locked loop
    v_label := 'hold:' || v_id;
    -- oldest first over all queues: the index has them queue by queue
    with recursive q (queue, n) as (
      (select b.queue, 1 from octop_tasks_live b where b.status = 'blocked' and b.blocked_by = v_label order by b.queue limit 1)
      union all
      select x.queue, q.n + 1 from q cross join lateral (
        select b.queue from octop_tasks_live b where b.status = 'blocked' and b.blocked_by = v_label and b.queue > q.queue order by b.queue limit 1) x
       where q.n < 100)
    select coalesce(array_agg(f.tid), '{}') into v_front from (
      select r.tid from q cross join lateral (
        select b.ctid as tid, b.scheduled_at, b.id from octop_tasks_live b
         where b.status = 'blocked' and b.blocked_by = v_label and b.queue = q.queue order by b.scheduled_at, b.id limit p_most - cardinality(v_tids)) r
       order by r.scheduled_at, r.id limit p_most - cardinality(v_tids)) f;
    if v_front = '{}' then
      delete from _octop_lifted_holds l where l.id = v_id;
    end if;
    -- no word that an index knows: it would be taken in place of the addresses, and all that is parked would be walked over
    v_tids := v_tids || array(select b.ctid from octop_tasks_live b where b.ctid = any (v_front) and b.blocked_by is not distinct from v_label for update skip locked);
    exit when cardinality(v_tids) >= p_most;
  end loop;
  return v_tids;
end $$;
comment on function _octop_lifted_rows(integer) is 'Lock tasks that were parked for holds that are no more, the oldest first of each, at most so many; forget a hold for which none is left.';

create or replace function _octop_known_rows(p_most integer) returns tid[]
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
begin
  -- for each queue that a living worker serves: as in _octop_is_known, or what comes back would be parked again
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
    select r.tid from (select 'task_type:' || y.name as parked_by, q.queue
                         from living w, unnest(w.task_types) y (name), unnest(w.queues) q (queue) group by y.name, q.queue
                       union all
                       select d.blocked_by, d.queue from named d
                        where exists (select from living w where d.queue = any (w.queues) and _octop_knows(w.task_types, w.versions, d.name, d.version))) n
      cross join lateral (
        select b.ctid as tid from octop_tasks_live b
         where b.status = 'blocked' and b.blocked_by = n.parked_by and b.queue = n.queue
         order by b.scheduled_at, b.id limit p_most for update skip locked) r
     limit p_most);
end $$;
comment on function _octop_known_rows(integer) is 'Lock parked tasks whose type is known again in their queue, the oldest first of each, at most so many. One that is held will be parked for that.';

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

create or replace function _octop_unpark_singly(p_tids tid[]) returns integer
  language plpgsql set search_path from current
as $$
declare
  v_tid  tid;
  v_back integer := 0;
begin
  -- a unique index of a DBA's own (docs/how-to/article-index.md): one row that meets its twin must not keep the others, nor a worker
  foreach v_tid in array p_tids loop
    begin
      v_back := v_back + _octop_unpark_rows(array[v_tid]);
    exception when unique_violation then
      continue;
    end;
  end loop;
  return v_back;
end $$;
comment on function _octop_unpark_singly(tid[]) is 'As _octop_unpark_rows, one by one: a task that a unique index refuses stays and stops nobody.';

create or replace function _octop_unpark_lifted(p_most integer) returns integer
  language plpgsql set search_path from current
as $$
declare
  v_tids tid[];
begin
  if not exists (select from _octop_lifted_holds) then
    return 0;
  end if;
  begin
    v_tids := _octop_lifted_rows(p_most);
    return case when v_tids = '{}' then 0 else _octop_unpark_rows(v_tids) end;
  exception when unique_violation then
    return _octop_unpark_singly(_octop_lifted_rows(least(p_most, 200)));
  end;
end $$;
comment on function _octop_unpark_lifted(integer) is 'Tasks that were parked for holds that are no more come back, oldest first, bounded.';

create or replace function _octop_unpark(p_most integer) returns integer
  language plpgsql set search_path from current
as $$
declare
  v_back integer := _octop_unpark_lifted(p_most);
  v_tids tid[];
begin
  if v_back >= p_most then
    return v_back;
  end if;
  begin
    v_tids := _octop_known_rows(p_most - v_back);
    return v_back + case when v_tids = '{}' then 0 else _octop_unpark_rows(v_tids) end;
  exception when unique_violation then
    return v_back + _octop_unpark_singly(_octop_known_rows(least(p_most, 200)));
  end;
end $$;
comment on function _octop_unpark(integer) is 'Parked tasks whose hold is no more, or whose type is known again, come back, oldest first, bounded; one that a unique index refuses stays and stops nobody.';
