-- Lanes take turns. Promise: a claim jumps along the index from lane to lane, at most 200 of them, beginning where the last one stopped;
-- a lane that may start nothing costs a few probes, however much waits in it, and stops no other lane.

create or replace function _octop_claim_lanes(p_queue text, p_wanted integer, p_types text[], p_versions integer[], p_held text[], p_ours boolean, p_after text,
                                              out last_lane text, out tids tid[], out strangers tid[])
  language plpgsql set search_path from current
as $$
#variable_conflict use_variable
declare
  v_lanes text[];
  v_round text[] := '{}';
  v_from  text := coalesce(p_after || E'\x01', '');   -- the first name after p_after: one bound, which the index can take, with and without it
  v_share integer;
  v_room  integer;
begin
  -- Tasks without a lane are a lane of their own: they take their turn. Two walks: from the lane after the last one to the end, then from the
  -- beginning. At most 200 lanes each: a jump of the index per lane.
  for v_pass in 1..2 loop
    with recursive walk (lane, n) as (
      (select t.lane, 1 from octop_tasks_live t
        where t.queue = p_queue and t.lane >= v_from and t.status in ('pending', 'failed') order by t.lane limit 1)
      union all
      select (select t.lane from octop_tasks_live t
               where t.queue = p_queue and t.lane > w.lane and t.status in ('pending', 'failed') order by t.lane limit 1), w.n + 1
        from walk w where w.lane is not null and w.n < 200)
    select array_agg(w.lane) into v_lanes from walk w where w.lane is not null and (v_pass = 1 or w.lane <= p_after);
    v_round := v_round || coalesce(v_lanes, '{}');
    exit when cardinality(v_round) >= 200 or p_after is null;
    v_from := '';
  end loop;
  -- the share is that of the whole round: the lanes after the last one alone would get the share of those before it
  v_share := greatest(1, p_wanted / greatest(1, cardinality(v_round)));
  with picked as materialized (
    select l.lane, l.n, r.tid, _octop_knows(p_types, p_versions, r.task_type, r.min_version) and not _octop_is_held(p_held, r.tenant, l.lane, r.task_type) as ours
      from unnest(v_round) with ordinality l (lane, n) cross join lateral (
      select s.tid, s.tenant, s.task_type, s.min_version from generate_series(0, 9) p cross join lateral (
        select t.ctid as tid, t.tenant, t.task_type, t.min_version from octop_tasks_live t
         where t.queue = p_queue and t.lane = l.lane collate "C" and t.priority = p and t.status in ('pending', 'failed')
           and t.scheduled_at <= _octop_now() and (not p_ours or (_octop_knows(p_types, p_versions, t.task_type, t.min_version) and not _octop_is_held(p_held, t.tenant, l.lane, t.task_type)))
         order by t.scheduled_at, t.id limit v_share for update skip locked) s
       limit v_share) r
     limit p_wanted)
  select coalesce(array_agg(p.tid) filter (where p.ours), '{}'), coalesce(array_agg(p.tid) filter (where not p.ours), '{}'),
         (array_agg(p.lane order by p.n desc))[1]
    into tids, strangers, last_lane from picked p;
  v_room := p_wanted - cardinality(tids) - cardinality(strangers);
  if v_room > 0 then
    last_lane := coalesce(v_round[cardinality(v_round)], p_after);
    -- short lanes left room: the long ones may have it. What is ours already is not skipped by its own lock, so it is named.
    with picked as materialized (
      select r.tid, _octop_knows(p_types, p_versions, r.task_type, r.min_version) and not _octop_is_held(p_held, r.tenant, l.lane, r.task_type) as ours
        from unnest(v_round) with ordinality l (lane, n) cross join lateral (
        select s.tid, s.tenant, s.task_type, s.min_version from generate_series(0, 9) p cross join lateral (
          select t.ctid as tid, t.tenant, t.task_type, t.min_version from octop_tasks_live t
           where t.queue = p_queue and t.lane = l.lane collate "C" and t.priority = p and t.status in ('pending', 'failed')
             and t.scheduled_at <= _octop_now() and (not p_ours or (_octop_knows(p_types, p_versions, t.task_type, t.min_version) and not _octop_is_held(p_held, t.tenant, l.lane, t.task_type)))
             and t.ctid <> all (tids) and t.ctid <> all (strangers)
           order by t.scheduled_at, t.id limit v_room for update skip locked) s
         limit v_room) r
       limit v_room)
    select tids || coalesce(array_agg(p.tid) filter (where p.ours), '{}'), strangers || coalesce(array_agg(p.tid) filter (where not p.ours), '{}')
      into tids, strangers from picked p;
  end if;
end $$;
comment on function _octop_claim_lanes(text, integer, text[], integer[], text[], boolean, text) is
  'Walk the lanes of a queue in turn, bounded, beginning after the given one, and lock a share of each; strangers are rows that are held, or of types that this worker does not know in the version that they need.';

create or replace function _octop_lane_turns(p_queue text, p_lane text, p_tenant text, p_again boolean, p_most integer)
  returns table (lane text, tenant text)
  language plpgsql set search_path from current
as $$
#variable_conflict use_column
declare
  v_lane    text := coalesce(p_lane, '');
  v_tenant  text := coalesce(p_tenant, '');
  v_lanes   text[] := '{}';
  v_tenants text[] := '{}';
  v_found   record;
  v_in      boolean := exists (select from octop_tasks_live t where t.queue = p_queue and t.lane = '' and t.status in ('pending', 'failed'));
begin
  if p_lane is null or p_again and v_lane = '' then
    if v_in then
      v_lanes := array['']; v_tenants := array[''];
    end if;
  elsif p_again then
    v_lanes := array[v_lane]; v_tenants := array[v_tenant];
  end if;
  -- From where the last walk stopped to the end of the names, then from their beginning to there. From lane to lane along what waits, and
  -- within a lane from tenant to tenant: lanes of two tenants with one name are two.
  for v_pass in 1..2 loop
    with recursive walk (lane, tenant, n) as (
      select v_lane collate "C", v_tenant collate "C", 0
      union all
      select x.lane, x.tenant, w.n + 1 from walk w cross join lateral (
        (select t.lane, t.tenant from octop_tasks_live t
          where t.queue = p_queue and t.lane = w.lane and length(t.lane) > 0 and t.tenant > w.tenant order by t.tenant limit 1)
        union all
        (select y.lane, (select t.tenant from octop_tasks_live t
                          where t.queue = p_queue and t.lane = y.lane and length(t.lane) > 0 order by t.tenant limit 1)
           from (select t.lane from octop_tasks_live t
                  where t.queue = p_queue and t.lane > w.lane and t.status in ('pending', 'failed') order by t.lane limit 1) y)
        limit 1) x
       where w.n < p_most)
    select array_agg(w.lane order by w.n) as lanes, array_agg(w.tenant order by w.n) as tenants into v_found
      from walk w where w.n > 0 and (v_pass = 1 or (w.lane, w.tenant) < (p_lane, coalesce(p_tenant, '')) or not p_again and (w.lane, w.tenant) = (p_lane, coalesce(p_tenant, '')));
    v_lanes := v_lanes || coalesce(v_found.lanes, '{}');
    v_tenants := v_tenants || coalesce(v_found.tenants, '{}');
    exit when cardinality(v_lanes) >= p_most or p_lane is null or p_again and p_lane = '';
    v_lane := ''; v_tenant := '';
    if v_in then
      v_lanes := v_lanes || ''::text; v_tenants := v_tenants || ''::text;
    end if;
  end loop;
  return query select u.lane, u.tenant from unnest(v_lanes, v_tenants) u (lane, tenant);
end $$;
comment on function _octop_lane_turns(text, text, text, boolean, integer) is
  'The lanes of a queue in their turn, each with its tenant: those after the given one (again: from it on), then from the beginning of the names. So many of each. Tasks without a lane are the lane that has no name.';

create or replace function _octop_claim_ruled_lanes(p_rules octop_queues, p_by_lane jsonb, p_wanted integer, p_types text[], p_versions integer[], p_held text[], p_ours boolean,
                                                    p_after text, out last_lane text, out tids tid[], out strangers tid[])
  language plpgsql set search_path from current
as $$
#variable_conflict use_variable
declare
  v_key     text := split_part(p_after, E'\x02', 1);       -- as _octop_pair says it
  v_served  integer;   -- of its turn, that the last claim could not end
  v_most    integer;
  v_turns   integer;
  v_lanes   text[];
  v_tenants text[];
  v_heads   uuid[];
  v_rooms   integer[];
  v_weights integer[];
  v_takes   integer[];
  v_ns      bigint[];
  v_n       bigint;
  v_got     integer[];
  v_end     text;
  v_room    integer;
  v_last    bigint;
begin
  -- As many lanes as tasks are wanted; all that a claim may visit only if there are not so many in those: then anew, with the locks that it has.
  foreach v_most in array array[least(200, greatest(10, p_wanted)), 200] loop
    tids := '{}';
    strangers := '{}';
    v_room := p_wanted;
    v_served := substring(p_after from E'\x02([0-9]{1,4})$')::integer;
    -- the share is that of the whole round: the lanes after the last one alone would get the share of those before it
    with turns as materialized (
      select t.lane, t.tenant, t.n, case when p_rules.lane_weights is null then 1 else coalesce((p_rules.lane_weights ->> t.lane)::integer, 1) end as weight
        from _octop_lane_turns(p_rules.name, split_part(v_key, E'\x03', 1), split_part(v_key, E'\x03', 2), v_served is not null, v_most)
             with ordinality t (lane, tenant, n)
    ), open as (
      select t.*, g.head_id, coalesce(g.room, 10000) as room, greatest(1, p_wanted / sum(t.weight) over ()) as share
        from turns t cross join lateral _octop_lane_gate(p_rules, t.tenant, t.lane, p_by_lane) g
       where g.room is null or g.room > 0
       order by t.n)
    select (select count(*) from turns), (select _octop_pair(t.lane, t.tenant) from turns t order by t.n desc limit 1),
           coalesce(array_agg(o.lane), '{}'), array_agg(o.tenant), array_agg(o.head_id), array_agg(o.room), array_agg(o.weight),
           array_agg(least(o.room, o.weight * o.share)::integer), array_agg(0)
      into v_turns, v_end, v_lanes, v_tenants, v_heads, v_rooms, v_weights, v_takes, v_got from open o;
    last_lane := coalesce(v_end, p_after);
    if v_served is not null and v_key = _octop_pair(v_lanes[1], v_tenants[1]) then
      v_takes[1] := least(v_rooms[1], greatest(1, v_weights[1] - v_served));
    else
      v_served := 0;
    end if;
    for v_pass in 1..2 loop
      exit when v_lanes = '{}';
      if p_rules.ageing_seconds is null or p_rules.ordered then
        with picked as materialized (
          select l.n, r.tid, _octop_knows(p_types, p_versions, r.task_type, r.min_version) and not _octop_is_held(p_held, r.tenant, l.lane, r.task_type) as ours
            from unnest(v_lanes, v_tenants, v_takes, v_heads) with ordinality l (lane, tenant, take, head, n) cross join lateral (
            select h.* from (
              -- strict order: the head, and nothing else
              select t.ctid as tid, t.tenant, t.task_type, t.min_version from octop_tasks_live t
               where l.head is not null and l.take > 0 and t.id between l.head and l.head and t.status in ('pending', 'failed') and t.scheduled_at <= _octop_now()
                 and (not p_ours or (_octop_knows(p_types, p_versions, t.task_type, t.min_version) and not _octop_is_held(p_held, t.tenant, l.lane, t.task_type)))
               for update skip locked) h
            union all
            select s.* from generate_series(0, 9) p cross join lateral (
              select t.ctid as tid, t.tenant, t.task_type, t.min_version from octop_tasks_live t
               where t.queue = p_rules.name and t.lane = l.lane collate "C" and t.priority = p and t.status in ('pending', 'failed')
                 and t.scheduled_at <= _octop_now() and (l.lane = '' or t.tenant = l.tenant collate "C")
                 and (not p_ours or (_octop_knows(p_types, p_versions, t.task_type, t.min_version) and not _octop_is_held(p_held, t.tenant, l.lane, t.task_type)))
                 and t.ctid <> all (tids) and t.ctid <> all (strangers)
               order by t.scheduled_at, t.id limit l.take for update skip locked) s
             where l.head is null
             limit l.take) r
           where l.take > 0
           limit v_room)
        select tids || coalesce(array_agg(p.tid) filter (where p.ours), '{}'), strangers || coalesce(array_agg(p.tid) filter (where not p.ours), '{}'), array_agg(p.n order by p.n)
          into tids, strangers, v_ns from picked p;
      else
        with picked as materialized (
          select l.n, r.tid, _octop_knows(p_types, p_versions, r.task_type, r.min_version) and not _octop_is_held(p_held, r.tenant, l.lane, r.task_type) as ours
            from unnest(v_lanes, v_tenants, v_takes, v_heads) with ordinality l (lane, tenant, take, head, n) cross join lateral (
            -- the fronts of all priorities, merged by age: see _octop_claim_aged
            select s.* from generate_series(0, 9) p cross join lateral (
              select t.ctid as tid, t.id, t.tenant, t.task_type, t.min_version, t.scheduled_at + t.priority * make_interval(secs => p_rules.ageing_seconds) as rank
                from octop_tasks_live t
               where t.queue = p_rules.name and t.lane = l.lane collate "C" and t.priority = p and t.status in ('pending', 'failed')
                 and t.scheduled_at <= _octop_now() and (l.lane = '' or t.tenant = l.tenant collate "C")
                 and (not p_ours or (_octop_knows(p_types, p_versions, t.task_type, t.min_version) and not _octop_is_held(p_held, t.tenant, l.lane, t.task_type)))
                 and t.ctid <> all (tids) and t.ctid <> all (strangers)
               order by t.scheduled_at, t.id limit l.take for update skip locked) s
             order by s.rank, s.id limit l.take) r
           where l.take > 0
           limit v_room)
        select tids || coalesce(array_agg(p.tid) filter (where p.ours), '{}'), strangers || coalesce(array_agg(p.tid) filter (where not p.ours), '{}'), array_agg(p.n order by p.n)
          into tids, strangers, v_ns from picked p;
      end if;
      v_room := p_wanted - cardinality(tids) - cardinality(strangers);
      foreach v_n in array coalesce(v_ns, '{}') loop
        v_got[v_n] := v_got[v_n] + 1;
      end loop;
      if v_pass = 1 and v_room = 0 then
        -- the next claim goes on behind the last lane that was served, or with the rest of that lane's turn
        v_last := v_ns[cardinality(v_ns)];
        v_served := v_got[v_last] + case when v_last = 1 then v_served else 0 end;
        last_lane := _octop_pair(v_lanes[v_last], v_tenants[v_last])
                     || case when v_served < v_weights[v_last] and v_got[v_last] < v_rooms[v_last] then E'\x02' || v_served else '' end;
      end if;
      exit when v_room <= 0 or v_pass = 2;
      -- short lanes left room: the long ones may have it, as far as their limits go. One that gave less than it was asked for has no more.
      for v_n in 1..cardinality(v_lanes) loop
        v_takes[v_n] := case when v_got[v_n] < v_takes[v_n] then 0 else least(v_rooms[v_n] - v_got[v_n], v_room) end;
      end loop;
    end loop;
    exit when v_room <= 0 or v_turns < v_most;
  end loop;
end $$;
comment on function _octop_claim_ruled_lanes(octop_queues, jsonb, integer, text[], integer[], text[], boolean, text) is
  'As _octop_claim_lanes, where lanes have limits, weights, a strict order, or tasks that age: of each lane as much as its gate lets through. last_lane may end with how much of its turn a lane has had.';
