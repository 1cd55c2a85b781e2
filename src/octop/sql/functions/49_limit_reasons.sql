-- Which limit keeps a task from starting. Promise: the answer comes from the gates that the claim itself asks, so it is true for as long as
-- they answer the same.

create or replace function _octop_ahead(p_task octop_tasks_live) returns bigint
  language plpgsql stable set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v_rules octop_queues := _octop_limits(p_task.queue);
begin
  if v_rules.ordered and p_task.lane > '' then
    return (select count(*) from (select from octop_tasks_live t
                                   where t.queue = p_task.queue and t.lane = p_task.lane and length(t.lane) > 0 and t.tenant = p_task.tenant and t.seq < p_task.seq limit 10000) x);
  end if;
  return (select count(*) from (
    select from generate_series(0, 9) p cross join lateral (
      select from octop_tasks_live t
       where t.queue = p_task.queue and t.lane = p_task.lane and t.priority = p and t.status in ('pending', 'failed') and t.scheduled_at <= _octop_now()
         and (t.lane = '' or t.tenant = p_task.tenant)
         and case when v_rules.ageing_seconds is null then p < p_task.priority or p = p_task.priority and (t.scheduled_at, t.id) < (p_task.scheduled_at, p_task.id)
                  else (t.scheduled_at + p * make_interval(secs => v_rules.ageing_seconds), t.id)
                       < (p_task.scheduled_at + p_task.priority * make_interval(secs => v_rules.ageing_seconds), p_task.id) end
       limit 10000) y
     limit 10000) x);
end $$;
comment on function _octop_ahead(octop_tasks_live) is
  'How many tasks of its lane (of its queue, if it has none) that are due stand before a waiting task; at most 10,000. Where the order is strict, all that have not ended.';

create or replace function _octop_limit_reasons(p_task octop_tasks_live)
  returns table (reason text, bound numeric, used bigint, until_at timestamptz, task_ids uuid[])
  language plpgsql stable set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v_rules octop_queues := _octop_limits(p_task.queue);
  v_gate  record;
  v_lane  record;
begin
  if v_rules.limited is not true then
    return;
  end if;
  select g.* into v_gate from _octop_gate(v_rules) g;
  if v_gate.running >= v_rules.global_limit then
    return query select 'global_limit', v_rules.global_limit::numeric, v_gate.running::bigint, _octop_windows_change_at(v_rules.windows, _octop_now()),
                        array(select t.id from octop_tasks_live t where t.queue = p_task.queue and t.status = 'running' limit 100);
  end if;
  if v_gate.tokens <= 0 then
    return query select 'rate', v_rules.rate::numeric, null::bigint, v_gate.token_at, null::uuid[];
  end if;
  if p_task.lane = '' then
    return;
  end if;
  select g.* into v_lane from _octop_lane_gate(v_rules, p_task.tenant, p_task.lane, v_gate.by_lane) g;
  if v_lane.running >= v_rules.lane_limit then
    return query select 'lane_limit', v_rules.lane_limit::numeric, v_lane.running::bigint, _octop_windows_change_at(v_rules.windows, _octop_now()),
                        array(select t.id from octop_tasks_live t
                               where t.queue = p_task.queue and t.lane = p_task.lane and t.tenant = p_task.tenant and t.status = 'running' limit 100);
  end if;
  if v_lane.tokens <= 0 then
    return query select 'lane_rate', v_rules.lane_rate::numeric, null::bigint, v_lane.token_at, null::uuid[];
  end if;
  if v_rules.ordered and (v_lane.held_up_by is not null or v_lane.head_id <> p_task.id) then
    return query select 'ordered', 1::numeric, null::bigint, null::timestamptz, array[coalesce(v_lane.held_up_by, v_lane.head_id)];
  end if;
end $$;
comment on function _octop_limit_reasons(octop_tasks_live) is
  'Which limits of its queue and lane keep a waiting task from starting now: global_limit, rate, lane_limit, lane_rate or ordered; the bound, how many run, when it may be over (null = when a task ends), '
  'and by which tasks (at most 100: those that run, or the one that holds up its lane). No row = no limit does. From the same gates as the claim. Its queue''s pause, its type''s freeze and its time are not looked at. How many stand before it: _octop_ahead.';
