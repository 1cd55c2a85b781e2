-- What people and programs may order for queues and task types. Promise: each order is a row that holds on all workers, also on
-- those that start later, until somebody lifts it; it is written to the audit, and it never touches a task that runs.

create or replace function _octop_check_target(p_kind text, p_target text) returns void
  language plpgsql set search_path from current
as $$
begin
  if p_target is null or length(p_target) not between 1 and 200 or _octop_has_control(p_target) then
    raise exception 'octop: the % must have 1 to 200 characters and no control characters', replace(p_kind, '_', ' ')
      using errcode = 'OC110', hint = case p_kind when 'queue' then 'select name from octop_queue_summary lists the queues.'
                                                  else 'select name from octop_task_types lists the types.' end;
  end if;
  -- a row that somebody deleted comes back when a worker starts; until then those that live know
  if not exists (select from octop_queues q where p_kind = 'queue' and q.name = p_target
                 union all select from octop_task_types y where p_kind = 'task_type' and y.name = p_target
                 union all select from octop_workers w where w.beat_at > _octop_now() - _octop_lease()
                    and p_target = any (case p_kind when 'queue' then w.queues else w.task_types end)) then
    raise notice 'octop: no worker has declared the % "%" yet', replace(p_kind, '_', ' '), p_target;
  end if;
end $$;
comment on function _octop_check_target(text, text) is 'Refuse what is no name of a queue or task type, and say if none is known by it. Error: OC110.';

create or replace function octop_hold(kind text, target text, queue text default '', tenant text default '', reason text default '',
                                      ends_at timestamptz default null) returns boolean
  language plpgsql security definer set search_path from current
as $$
begin
  if octop_hold.ends_at <= _octop_now() then
    raise exception 'octop: the hold would end at %, which has passed', octop_hold.ends_at
      using errcode = 'OC114', hint = 'Nothing was written. Name a later moment, or none: then it holds until somebody lifts it.';
  end if;
  insert into octop_holds (kind, target, queue, tenant, reason, ends_at, author)
  values (octop_hold.kind, octop_hold.target, coalesce(octop_hold.queue, ''), coalesce(octop_hold.tenant, ''), left(coalesce(octop_hold.reason, ''), 1000),
          octop_hold.ends_at, _octop_caller())
  on conflict do nothing;
  if found then
    if octop_hold.kind in ('queue', 'task_type') then
      perform _octop_check_target(octop_hold.kind, octop_hold.target);
    elsif octop_hold.kind = 'lane' then
      perform _octop_check_target('queue', octop_hold.queue);
    end if;
    return true;
  end if;
  -- one that has ended and that nobody has swept away yet holds nothing: this order takes its place
  delete from octop_holds h where h.kind = octop_hold.kind and h.target = octop_hold.target and h.queue = coalesce(octop_hold.queue, '')
     and h.tenant = coalesce(octop_hold.tenant, '') and h.cause = 'order' and not _octop_in_force(h.ends_at);
  return found and octop_hold(octop_hold.kind, octop_hold.target, octop_hold.queue, octop_hold.tenant, octop_hold.reason, octop_hold.ends_at);
end $$;
comment on function octop_hold(text, text, text, text, text, timestamptz) is
  'Hold a queue, a task_type, a tenant or a lane on all workers: no claim that begins after this commit starts a task of it; running ones end, the others wait without using a try. A lane is named with its queue and its tenant (empty = the only one). '
  'With ends_at it ends by itself. Answers false if such an order was there already; it stays as it was. The reason is cut at 1,000 characters. Errors: OC110 no such name can be, OC113 unknown kind, OC114 ends_at has passed or is absurd. '
  'Example: select octop_hold(''tenant'', ''acme'', reason => ''unpaid'', ends_at => now() + interval ''2 hours'');';

create or replace function octop_lift(kind text, target text, queue text default '', tenant text default '') returns boolean
  language plpgsql security definer set search_path from current
as $$
declare
  v_lifted boolean;
begin
  if octop_lift.kind is null or octop_lift.kind not in ('queue', 'task_type', 'tenant', 'lane') then
    raise exception 'octop: kind must be queue, task_type, tenant or lane, not %', coalesce(octop_lift.kind, 'null')
      using errcode = 'OC113', hint = 'Nothing was lifted. select kind, target, queue, tenant from octop_holds lists all holds.';
  end if;
  with gone as (
    delete from octop_holds h where h.kind = octop_lift.kind and h.target = octop_lift.target and h.queue = coalesce(octop_lift.queue, '')
       and h.tenant = coalesce(octop_lift.tenant, '') returning h.ends_at
  )
  select bool_or(_octop_in_force(g.ends_at)) into v_lifted from gone g;
  if v_lifted is not null and octop_lift.kind <> 'queue' then
    -- the oldest thousand at once; the rest by whoever has room, and by the sweep, in bounded steps
    perform _octop_unpark_lifted(1000);
  end if;
  return coalesce(v_lifted, false);
end $$;
comment on function octop_lift(text, text, text, text) is
  'Lift a hold, whatever its cause. Tasks that waited come back oldest first: a thousand at once, the rest as workers have room; what another hold holds waits on. Answers false if nothing was held. '
  'A watermark that is still reached holds its queues again at its next look. Error: OC113 unknown kind.';

create or replace function octop_pause(queue text, reason text default '', ends_at timestamptz default null) returns boolean
  language sql security definer set search_path from current
as $$
  select octop_hold('queue', queue, reason => reason, ends_at => ends_at)
$$;
comment on function octop_pause(text, text, timestamptz) is
  'Pause a queue on all workers: no claim that begins after this commit takes a task of it; running tasks end. With ends_at it goes on by itself. Answers false if it was paused already. The reason is cut at 1,000 characters. Errors: OC110, OC114.';

create or replace function octop_resume(queue text) returns boolean
  language sql security definer set search_path from current
as $$
  select octop_lift('queue', queue)
$$;
comment on function octop_resume(text) is 'Lift the pause of a queue. Answers false if it was not paused.';

create or replace function octop_scale(queue text, worker_limit integer) returns void
  language plpgsql security definer set search_path from current
as $$
begin
  perform _octop_check_target('queue', octop_scale.queue);
  if octop_scale.worker_limit not between 0 and 10000 then
    raise exception 'octop: worker_limit must be 0 to 10000, not %', octop_scale.worker_limit
      using errcode = 'OC113', hint = 'null goes back to the workers'' own flags; 0 stops the queue on all workers.';
  end if;
  insert into octop_queues as q (name, worker_limit) values (octop_scale.queue, octop_scale.worker_limit)
  on conflict (name) do update set worker_limit = excluded.worker_limit;
  perform pg_notify('octop_wake', octop_scale.queue);
end $$;
comment on function octop_scale(text, integer) is
  'How many tasks of this queue each worker process runs at once, on all workers, within a second; wins over flags. null = back to the workers'' flags. Errors: OC110, OC113.';

create or replace function octop_freeze(task_type text, reason text default '', ends_at timestamptz default null) returns boolean
  language sql security definer set search_path from current
as $$
  select octop_hold('task_type', task_type, reason => reason, ends_at => ends_at)
$$;
comment on function octop_freeze(text, text, timestamptz) is
  'Freeze a task type on all workers: no claim that begins after this commit starts a task of it, in any queue; its tasks wait as blocked, without using a try; running ones end. With ends_at it thaws by itself. Answers false if it was frozen already. The reason is cut at 1,000 characters. Errors: OC110, OC114.';

create or replace function octop_thaw(task_type text) returns boolean
  language sql security definer set search_path from current
as $$
  select octop_lift('task_type', task_type)
$$;
comment on function octop_thaw(text) is
  'Lift the freeze of a task type. Tasks that waited come back oldest first: a thousand at once, the rest as workers have room. Answers false if it was not frozen.';
