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

create or replace function _octop_hold(p_kind text, p_target text, p_reason text) returns boolean
  language plpgsql set search_path from current
as $$
begin
  perform _octop_check_target(p_kind, p_target);
  insert into octop_holds (kind, target, reason, author) values (p_kind, p_target, left(coalesce(p_reason, ''), 1000), _octop_caller()) on conflict do nothing;
  return found;
end $$;
comment on function _octop_hold(text, text, text) is 'Write an order not to start tasks of a queue or a task type. Answers false if there was one already. Error: OC110.';

create or replace function octop_pause(queue text, reason text default '') returns boolean
  language sql security definer set search_path from current
as $$
  select _octop_hold('queue', queue, reason)
$$;
comment on function octop_pause(text, text) is
  'Pause a queue on all workers: no claim that begins after this commit takes a task of it; running tasks end. Answers false if it was paused already. The reason is cut at 1,000 characters. Error: OC110.';

create or replace function octop_resume(queue text) returns boolean
  language plpgsql security definer set search_path from current
as $$
begin
  delete from octop_holds h where h.kind = 'queue' and h.target = octop_resume.queue;
  if found then
    perform pg_notify('octop_wake', octop_resume.queue);
    return true;
  end if;
  return false;
end $$;
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

create or replace function octop_freeze(task_type text, reason text default '') returns boolean
  language sql security definer set search_path from current
as $$
  select _octop_hold('task_type', task_type, reason)
$$;
comment on function octop_freeze(text, text) is
  'Freeze a task type on all workers: no claim that begins after this commit starts a task of it, in any queue; its tasks wait as blocked, without using a try; running ones end. Answers false if it was frozen already. The reason is cut at 1,000 characters. Error: OC110.';

create or replace function octop_thaw(task_type text) returns boolean
  language plpgsql security definer set search_path from current
as $$
begin
  delete from octop_holds h where h.kind = 'task_type' and h.target = octop_thaw.task_type;
  if not found then
    return false;
  end if;
  -- the oldest thousand at once, as when a worker registers; the rest by the sweep, in bounded steps
  perform _octop_unpark(1000);
  return true;
end $$;
comment on function octop_thaw(text) is
  'Lift the freeze of a task type. Tasks that waited come back oldest first: a thousand at once, the rest within seconds. Answers false if it was not frozen.';
