-- Which tasks of one queue a worker gets. Promise: bounded by what was wanted, whatever else waits; never waits: rows that others hold
-- are skipped. What no worker may start is set aside, what others may start is left to them.

-- it had no rules before
drop function if exists _octop_claim(text, integer, text[], integer[], text[], text, timestamptz[], uuid[]);
create or replace function _octop_claim(p_queue text, p_wanted integer, p_types text[], p_versions integer[], p_held text[], p_after text,
                                        p_marks_at timestamptz[], p_marks_id uuid[], p_rules octop_queues, p_by_lane jsonb,
                                        out last_lane text, out tids tid[], out parked integer)
  language plpgsql set search_path from current
as $$
declare
  v_ours     boolean := false;
  v_strange  tid[];
  v_parked   integer;
begin
  parked := 0;
  -- Strangers at the front: what is held (_octop_held_keys), or nobody alive knows in this queue, is parked, so many per exchange. Types that
  -- another worker of the queue knows are left to it: then only ours are looked for.
  for v_round in 1..8 loop
    if exists (select from octop_tasks_live t where t.queue = p_queue and t.lane > '' and t.status in ('pending', 'failed')) then
      if p_rules.limited and (p_rules.lane_limit is not null or p_rules.lane_rate is not null or p_rules.ordered
                              or p_rules.lane_weights is not null or p_rules.ageing_seconds is not null) then
        select l.last_lane, l.tids, l.strangers into last_lane, tids, v_strange
          from _octop_claim_ruled_lanes(p_rules, p_by_lane, p_wanted, p_types, p_versions, p_held, v_ours, p_after) l;
      else
        select l.last_lane, l.tids, l.strangers into last_lane, tids, v_strange
          from _octop_claim_lanes(p_queue, p_wanted, p_types, p_versions, p_held, v_ours, p_after) l;
      end if;
    elsif p_rules.ageing_seconds is not null then
      last_lane := null;
      select a.tids, a.strangers into tids, v_strange
        from _octop_claim_aged(p_rules, p_wanted, p_types, p_versions, p_held, v_ours, p_marks_at, p_marks_id) a;
    else
      last_lane := null;
      -- Bound by priority: walk each priority from its front, so that tasks of the future are never passed. The LIMIT around it has no
      -- ORDER BY: with one, all rows would be locked. The front is where the worker last claimed, if it says so: before that lie the
      -- entries of what has been claimed, which stay until vacuum may take them, and each claim would walk over all of them again.
      with picked as materialized (
        select r.tid, _octop_knows(p_types, p_versions, r.task_type, r.min_version) and not _octop_is_held(p_held, r.tenant, '', r.task_type) as ours
          from generate_series(0, 9) p cross join lateral (
            select t.ctid as tid, t.tenant, t.task_type, t.min_version from octop_tasks_live t
             where t.queue = p_queue and t.lane = '' and t.priority = p and t.status in ('pending', 'failed')
               and (t.scheduled_at, t.id) > (coalesce(p_marks_at[p + 1], '-infinity'), coalesce(p_marks_id[p + 1], '00000000-0000-0000-0000-000000000000'))
               and t.scheduled_at <= _octop_now() and (not v_ours or (_octop_knows(p_types, p_versions, t.task_type, t.min_version) and not _octop_is_held(p_held, t.tenant, '', t.task_type)))
             order by t.scheduled_at, t.id limit p_wanted for update skip locked) r
         limit p_wanted)
      select coalesce(array_agg(p.tid) filter (where p.ours), '{}'), coalesce(array_agg(p.tid) filter (where not p.ours), '{}')
        into tids, v_strange from picked p;
    end if;
    exit when v_strange = '{}' or cardinality(tids) >= p_wanted;
    v_parked := _octop_park(p_queue, v_strange, p_held, p_types, p_versions, 500);
    parked := parked + v_parked;
    v_ours := v_parked = 0;
  end loop;
end $$;
comment on function _octop_claim(text, integer, text[], integer[], text[], text, timestamptz[], uuid[], octop_queues, jsonb) is
  'Lock up to so many due tasks of one queue and answer their row addresses. Never waits: rows that others hold are skipped. Without lanes only what lies beyond the marks is looked at: one per priority, null = from the beginning. '
  'Strangers, rows that are held, or of types that this worker does not know in the version that they need, are parked or passed. Rules (null = none) are those of a limited queue, as _octop_limits answers them: which lanes may start something, their weights, ageing; and how many run in each lane, as _octop_gate answers it.';

create or replace function _octop_claim_aged(p_rules octop_queues, p_wanted integer, p_types text[], p_versions integer[], p_held text[], p_ours boolean,
                                             p_marks_at timestamptz[], p_marks_id uuid[], out tids tid[], out strangers tid[])
  language plpgsql set search_path from current
as $$
begin
  -- Within a priority whoever is due first is first, also by age. So the best of all stand among the first of each priority: ten fronts
  -- are merged, and nothing of the backlog behind them is looked at. All of the fronts are locked until the commit, by the only exchange that may
  -- claim here now: a row that somebody else holds does not stand in the way of those behind it.
  with front as materialized (
    select r.* from generate_series(0, 9) p cross join lateral (
      select t.ctid as tid, t.id, t.tenant, t.task_type, t.min_version, t.scheduled_at, t.priority from octop_tasks_live t
       where t.queue = p_rules.name and t.lane = '' and t.priority = p and t.status in ('pending', 'failed')
         and (t.scheduled_at, t.id) > (coalesce(p_marks_at[p + 1], '-infinity'), coalesce(p_marks_id[p + 1], '00000000-0000-0000-0000-000000000000'))
         and t.scheduled_at <= _octop_now() and (not p_ours or (_octop_knows(p_types, p_versions, t.task_type, t.min_version) and not _octop_is_held(p_held, t.tenant, '', t.task_type)))
       order by t.scheduled_at, t.id limit p_wanted for update skip locked) r
  ), picked as (
    select f.tid, _octop_knows(p_types, p_versions, f.task_type, f.min_version) and not _octop_is_held(p_held, f.tenant, '', f.task_type) as ours
      from front f order by f.scheduled_at + f.priority * make_interval(secs => p_rules.ageing_seconds), f.priority, f.id limit p_wanted)
  select coalesce(array_agg(p.tid) filter (where p.ours), '{}'), coalesce(array_agg(p.tid) filter (where not p.ours), '{}')
    into tids, strangers from picked p;
end $$;
comment on function _octop_claim_aged(octop_queues, integer, text[], integer[], text[], boolean, timestamptz[], uuid[]) is
  'As _octop_claim, of a queue without lanes whose tasks age: a task that has waited for ageing_seconds is before one that is new and one priority better.';
