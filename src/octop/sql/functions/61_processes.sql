-- How many worker processes a supervisor should run. Promise: one rule, here, so that supervisors of any version decide alike; it reads
-- a bounded number of rows, grows at once, and shrinks by one after a time without need.

create or replace function _octop_due_in(p_queue text, out due bigint, out oldest_at timestamptz)
  language plpgsql stable set search_path from current set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
  -- priority by priority, so that tasks of the future are never passed; of tasks in lanes the first 10,000 are looked at
  select count(*), min(x.scheduled_at) into due, oldest_at
    from (select r.scheduled_at from generate_series(0, 9) p cross join lateral (
            select t.scheduled_at from octop_tasks_live t
             where t.queue = p_queue and t.lane = '' and t.priority = p and t.status in ('pending', 'failed') and t.scheduled_at <= _octop_now()
             order by t.scheduled_at limit 10000) r
          union all
          (select l.scheduled_at from (select t.scheduled_at from octop_tasks_live t
                                        where t.queue = p_queue and t.lane > '' and t.status in ('pending', 'failed') limit 10000) l
            where l.scheduled_at <= _octop_now())) x;
end $$;
comment on function _octop_due_in(text) is 'Due tasks of a queue, at most 10,000 of each priority and 10,000 in lanes, and since when the oldest of them is due.';

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
   where not exists (select from octop_holds h where h.kind = 'queue' and h.target = q.q)
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
  'worth it, else one. One fewer, if for worker.scale_quiet_seconds nothing was due and a process had nothing to run: quiet counts such looks and is handed in again. Queues that are paused, or whose limits let nothing start now, do not count. Error: OC113 bounds.';
