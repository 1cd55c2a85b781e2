-- How many worker processes a supervisor should run. Promise: one rule, here, so that supervisors of any version decide alike; it reads
-- a bounded number of rows, grows at once, and shrinks by one after a time without need.

create or replace function _octop_due_unheld(p_queue text, p_held text[], p_in_lanes boolean, out due bigint, out oldest_at timestamptz)
  language plpgsql stable set search_path from current set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
  -- priority by priority, so that tasks of the future are never passed; of tasks in lanes the first 10,000 are looked at
  select count(*), min(x.scheduled_at) into due, oldest_at
    from (select r.scheduled_at, r.tenant, r.lane, r.task_type from generate_series(0, 9) p cross join lateral (
            select t.scheduled_at, t.tenant, t.lane, t.task_type from octop_tasks_live t
             where t.queue = p_queue and t.lane = '' and t.priority = p and t.status in ('pending', 'failed') and t.scheduled_at <= _octop_now()
             order by t.scheduled_at limit 10000) r
          union all
          (select l.scheduled_at, l.tenant, l.lane, l.task_type
             from (select t.scheduled_at, t.tenant, t.lane, t.task_type from octop_tasks_live t
                    where p_in_lanes and t.queue = p_queue and t.lane > '' and t.status in ('pending', 'failed') limit 10000) l
            where l.scheduled_at <= _octop_now())) x
   where not _octop_is_held(p_held, x.tenant, x.lane, x.task_type);
end $$;
comment on function _octop_due_unheld(text, text[], boolean) is
  'Due tasks of a queue that are not held (_octop_held_keys), and since when the oldest of them is due: looked at are 10,000 of each priority, and, if asked for, 10,000 in lanes. What is held and lies in front is set aside by claims, so it hides the others for a moment only.';

create or replace function _octop_due_in_open_lanes(p_rules octop_queues, p_held text[], out due bigint, out oldest_at timestamptz)
  language plpgsql stable set search_path from current set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v_last    record;
  v_by_lane jsonb := (select g.by_lane from _octop_gate(p_rules) g);
begin
  -- Lanes take turns, so the next claim begins behind the lane that started last: these some 200 lanes are looked at, as it does.
  select t.lane, t.tenant into v_last from octop_tasks_live t
   where t.queue = p_rules.name and t.status = 'running' and t.lane > '' order by t.started_at desc limit 1;
  select coalesce(sum(least(d.n, g.room)), 0), min(d.oldest_at) into due, oldest_at
    from _octop_lane_turns(p_rules.name, v_last.lane, v_last.tenant, false, 200) u
   cross join lateral unnest(u.lanes, u.tenants) l (lane, tenant)
   cross join lateral _octop_lane_gate(p_rules, l.tenant, l.lane, v_by_lane) g
   cross join lateral (
     select count(*) as n, min(r.scheduled_at) as oldest_at from generate_series(0, 9) p cross join lateral (
       select t.scheduled_at, t.task_type from octop_tasks_live t
        where t.queue = p_rules.name and t.lane = l.lane collate "C" and t.tenant = l.tenant collate "C" and t.priority = p and t.status in ('pending', 'failed')
          and t.scheduled_at <= _octop_now()
        order by t.scheduled_at limit 100) r
      where not _octop_is_held(p_held, l.tenant, l.lane, r.task_type)) d
   where l.lane > '' and (g.room is null or g.room > 0) and d.n > 0;
end $$;
comment on function _octop_due_in_open_lanes(octop_queues, text[]) is
  'Due tasks that the limits and the order of their lanes let start now, and since when the oldest of them is due: of some 200 lanes, those whose turn comes next; of each at most as many as may start, and 100 of each priority.';

create or replace function _octop_due_in(p_queue text, out due bigint, out oldest_at timestamptz)
  language plpgsql stable set search_path from current
as $$
declare
  v_rules octop_queues := _octop_limits(p_queue);
  v_held  text[] := _octop_held_keys(p_queue);
  v_bound boolean := v_rules.lane_limit is not null or v_rules.lane_rate is not null or coalesce(v_rules.ordered, false);
  v_lanes record;
begin
  select u.due, u.oldest_at into due, oldest_at from _octop_due_unheld(p_queue, v_held, not v_bound) u;
  if v_bound then
    select o.due, o.oldest_at into v_lanes from _octop_due_in_open_lanes(v_rules, v_held) o;
    due := due + v_lanes.due;
    oldest_at := least(oldest_at, v_lanes.oldest_at);
  end if;
end $$;
comment on function _octop_due_in(text) is 'Due tasks of a queue that a process more could start, and since when the oldest of them is due: without those that are held, and those whose lane lets nothing start now. A bounded number is looked at.';

create or replace function octop_wanted_processes(supervisor_id uuid, queues text[], processes integer, minimum integer, maximum integer, quiet_looks integer default 0)
  returns table (wanted integer, quiet integer, due bigint, oldest_seconds double precision)
  language plpgsql stable security definer set search_path from current set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_oldest timestamptz;
  v_busy   integer;
  v_each   numeric := _octop_setting('worker.scale_backlog');
begin
  if not (minimum between 0 and maximum and maximum <= 256 and processes between 0 and 256) then
    raise exception 'octop: processes must be 0 to 256, and the minimum not above the maximum, not % to %', minimum, maximum
      using errcode = 'OC113', hint = 'As in octop worker --processes 1-8.';
  end if;
  -- tasks that nobody may start now are no reason
  select coalesce(sum(d.due), 0), min(d.oldest_at) into due, v_oldest
    from (select distinct q from unnest(queues) q) q cross join lateral _octop_due_in(q.q) d
   where not _octop_queue_is_held(q.q)
     and not exists (select from octop_queues o where o.name = q.q and o.worker_limit = 0)
     and not exists (select from octop_queues o cross join lateral _octop_gate(_octop_limits(q.q)) g where o.name = q.q and o.limited and g.room <= 0);
  oldest_seconds := coalesce(extract(epoch from _octop_now() - v_oldest), 0);
  if due > 0 and (oldest_seconds >= _octop_setting('worker.scale_age_seconds') or due > v_each * processes) then
    quiet := 0;
    -- twice as many where there is a process's share for each of them, else one more
    wanted := processes + greatest(1, least(processes, floor(due / v_each)))::integer;
  else
    v_busy := (select count(*) from octop_workers w where w.supervisor_id = octop_wanted_processes.supervisor_id
                  and exists (select from octop_tasks_live t where t.status = 'running' and t.queue = any (w.queues) and t.worker_id = w.id));
    quiet := case when due > 0 or v_busy >= processes then 0 else coalesce(quiet_looks, 0) + 1 end;
    wanted := processes;
    if quiet * _octop_setting('worker.scale_seconds') >= _octop_setting('worker.scale_quiet_seconds') then
      wanted := processes - 1;
      quiet := 0;
    end if;
  end if;
  wanted := greatest(minimum, least(maximum, wanted));
  return next;
end $$;
comment on function octop_wanted_processes(uuid, text[], integer, integer, integer, integer) is
  'How many processes a supervisor that runs so many should run next, between minimum and maximum. More, if the oldest due task of its queues has been due for worker.scale_age_seconds, or more than worker.scale_backlog tasks a process are due: twice as many where the backlog is '
  'worth it, else one. One fewer, if for worker.scale_quiet_seconds nothing was due and a process had nothing to run: quiet counts such looks and is handed in again. Queues that are paused, or whose limits let nothing start now, do not count; nor do tasks that are held, or whose lane lets nothing start now (of the next 200 lanes in turn). Error: OC113 bounds.';
