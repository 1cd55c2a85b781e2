-- Limits as they hold now and what is used of them. Promise: the numbers are those of the gates that the claim asks (48_limits), so what is
-- shown as used is what keeps others from starting.

create or replace function _octop_queue_limits()
  returns table (name text, global_limit integer, running bigint, lane_limit integer, rate double precision, burst integer, tokens integer, next_token_at timestamptz,
                 lane_rate double precision, lane_burst integer, ordered boolean, lane_weights jsonb, ageing_seconds double precision, window_open boolean,
                 windows_change_at timestamptz, room integer)
  language plpgsql stable security definer set search_path from current
as $$
#variable_conflict use_column
begin
  return query
  select r.name, r.global_limit, coalesce(g.running, (select r.total from _octop_running(q.name, false) r))::bigint,
         r.lane_limit, r.rate, r.burst, g.tokens, case when g.tokens <= 0 then g.token_at end, r.lane_rate, r.lane_burst, coalesce(r.ordered, false), r.lane_weights, r.ageing_seconds,
         exists (select from jsonb_array_elements(r.windows) w where _octop_window_is_open(w, _octop_now())), _octop_windows_change_at(r.windows, _octop_now()), g.room
    from octop_queues q cross join lateral _octop_limits(q.name) r cross join lateral _octop_gate(r) g
   where q.limited;
end $$;
comment on function _octop_queue_limits() is 'Queues with limits, the limits that hold now, and what is used of them, as the gate of the claim says.';

create or replace view octop_queue_limits with (security_barrier) as select l.* from _octop_queue_limits() l;
comment on view octop_queue_limits is
  'Queues that have limits or rules: those that hold now (an open window counts), what is used of them, and how many more tasks may start. Queues without any are not here. Who set them: octop_audit, action set queue.';
comment on column octop_queue_limits.name is 'Name of the queue.';
comment on column octop_queue_limits.global_limit is 'Tasks that may run at once on all workers together. Null = no limit.';
comment on column octop_queue_limits.running is 'Tasks that run now: what is used of global_limit.';
comment on column octop_queue_limits.lane_limit is 'Tasks of one lane that may run at once. Null = no limit. octop_lanes(queue) shows what is used.';
comment on column octop_queue_limits.rate is 'Starts per second. Null = no limit.';
comment on column octop_queue_limits.burst is 'Starts that the queue may make at once when it was idle.';
comment on column octop_queue_limits.tokens is 'Starts that its rate lets through now.';
comment on column octop_queue_limits.next_token_at is 'When its rate lets the next one through. Null = now, or no rate.';
comment on column octop_queue_limits.lane_rate is 'Starts per second of each lane. Null = no limit.';
comment on column octop_queue_limits.lane_burst is 'Starts that a lane may make at once when it was idle.';
comment on column octop_queue_limits.ordered is 'Do tasks of one lane run one at a time, in the order of enqueue?';
comment on column octop_queue_limits.lane_weights is 'By lane, how many tasks it gets each time its turn comes. Others have 1.';
comment on column octop_queue_limits.ageing_seconds is 'Each such span of waiting is worth one step of priority. Null = strict priorities.';
comment on column octop_queue_limits.window_open is 'Does a window of octop_queues.windows hold now?';
comment on column octop_queue_limits.windows_change_at is 'When a window may next open or close. Null = no windows.';
comment on column octop_queue_limits.room is 'How many more tasks may start now. Null = the queue itself has no bound.';

create or replace function octop_lanes(queue text, most integer default 1000)
  returns table (lane text, tenant text, waiting bigint, running bigint, weight integer, tokens integer, next_token_at timestamptz, head_id uuid, held_up_by uuid, room integer)
  language plpgsql stable security definer set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_rules   octop_queues := _octop_limits(octop_lanes.queue);
  v_running jsonb := (select r.lanes from _octop_running(octop_lanes.queue, true) r);
begin
  return query
  with recursive lanes (lane, tenant, n) as (
    -- every lane with an unfinished task, from pair to pair of the index
    (select t.lane, t.tenant, 1 from octop_tasks_live t where t.queue = octop_lanes.queue and length(t.lane) > 0 order by t.lane, t.tenant limit 1)
    union all
    select x.lane, x.tenant, l.n + 1 from lanes l cross join lateral (
      select t.lane, t.tenant from octop_tasks_live t
       where t.queue = octop_lanes.queue and length(t.lane) > 0 and (t.lane, t.tenant) > (l.lane, l.tenant) order by t.lane, t.tenant limit 1) x
     where l.n < least(octop_lanes.most, 100000)
  )
  select l.lane, l.tenant,
         (select count(*) from (select from octop_tasks_live t
                                 where t.queue = octop_lanes.queue and t.lane = l.lane and t.tenant = l.tenant and t.status in ('pending', 'failed') limit 10000) w),
         g.running::bigint,
         coalesce((v_rules.lane_weights ->> l.lane)::integer, 1), g.tokens, case when g.tokens <= 0 then g.token_at end, g.head_id, g.held_up_by, g.room
    from lanes l cross join lateral _octop_lane_gate(v_rules, l.tenant, l.lane, v_running) g
   order by l.n;
end $$;
comment on function octop_lanes(text, integer) is
  'The lanes of a queue that have unfinished tasks, by name, at most so many: how many wait (at most 10,000 are counted) and run, the weight, what the lane''s rate lets through, the head and what holds it up where the order is strict, and how many more tasks may start (null = no bound of its own).';
