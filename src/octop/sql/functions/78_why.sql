-- Why does this task not run? Promise: the same predicates that the claim uses, asked in its order, of one task; what decides comes first,
-- and each answer ends with what to do. Who may see the task may ask; who may not see all tasks learns nothing of others'.

create or replace function _octop_told_at(p_at timestamptz) returns text
  language plpgsql stable set search_path from current
as $$
begin
  return to_char(p_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || '+00:00'
    || case when p_at > _octop_now() then format(', in %s s', trim_scale(round(extract(epoch from p_at - _octop_now())::numeric, case when p_at < _octop_now() + interval '1 min' then 1 else 0 end))) else '' end;
end $$;
comment on function _octop_told_at(timestamptz) is 'A moment for people: in UTC, and how far away it is if it is to come.';

create or replace function _octop_tries(p_task octop_tasks) returns integer
  language plpgsql stable set search_path from current
as $$
begin
  return coalesce(p_task.max_retries, (select y.max_retries from octop_task_types y where y.name = p_task.task_type),
                  (select q.max_retries from octop_queues q where q.name = p_task.queue), _octop_setting('task.default_max_retries')::integer);
end $$;
comment on function _octop_tries(octop_tasks) is 'How many further tries a task has after the first: its own word, its type''s, its queue''s, or the setting.';

create or replace function _octop_why_held(p_task octop_tasks)
  returns table (reason text, message text, detail jsonb, advice text)
  language plpgsql stable set search_path from current
as $$
declare
  h record;
begin
  for h in
    select x.*, case x.kind when 'lane' then format('lane "%s"', x.target) when 'task_type' then format('type %s', x.target) else format('%s %s', x.kind, x.target) end as named
      from octop_holds x
     where _octop_in_force(x.ends_at)
       and (x.kind = 'queue' and x.target = p_task.queue or x.kind = 'task_type' and x.target = p_task.task_type or x.kind = 'tenant' and x.target = p_task.tenant
            or x.kind = 'lane' and x.target = p_task.lane and x.queue = p_task.queue and x.tenant = p_task.tenant)
     order by x.kind <> 'queue', x.cause <> 'order', x.id
  loop
    reason := case h.kind when 'queue' then 'queue_paused' when 'task_type' then 'type_frozen' else h.kind || '_held' end;
    message := format('The %s is %s%s, by %s since %s%s.', h.named, case h.kind when 'queue' then 'paused' when 'task_type' then 'frozen' else 'held' end,
                      case when h.reason > '' then format(' (%s)', h.reason) else '' end, h.author, _octop_told_at(h.created_at),
                      case when h.ends_at is not null then ', until ' || _octop_told_at(h.ends_at) else '' end);
    detail := jsonb_strip_nulls(jsonb_build_object('hold_id', h.id, 'kind', h.kind, 'target', h.target, 'queue', nullif(h.queue, ''), 'tenant', nullif(h.tenant, ''), 'cause', h.cause,
                                                   'reason', h.reason, 'author', h.author, 'since', h.created_at, 'until', h.ends_at));
    advice := case when h.cause like 'watermark:%' then format('It goes on when that backlog has fallen. To go on now: octop queues set %s --critical yes', h.target)
                   else 'To go on: ' || case h.kind when 'queue' then 'octop queues resume ' || h.target when 'task_type' then 'octop types thaw ' || h.target
                                                    when 'tenant' then 'octop holds lift tenant ' || h.target
                                                    else format('octop holds lift lane %s --queue %s%s', h.target, h.queue, case when h.tenant > '' then ' --tenant ' || h.tenant else '' end) end end;
    return next;
  end loop;
end $$;
comment on function _octop_why_held(octop_tasks) is 'The holds that keep this task from starting, what the claim asks first before the others.';

create or replace function _octop_why_nobody(p_task octop_tasks)
  returns table (reason text, message text, detail jsonb, advice text)
  language plpgsql stable set search_path from current
as $$
declare
  c record;
  v_start constant text := 'octop worker -A module:attribute, or octop dev while you write';
begin
  select count(*) filter (where w.alive and w.serves and w.knows and w.new_enough) as able, count(*) filter (where w.alive and w.serves) as serving,
         count(*) filter (where w.alive and w.knows) as knowing, count(*) filter (where w.alive and w.serves and w.knows) as named,
         count(*) filter (where not w.alive and w.serves and w.knows) as silent into c
    from (select o.beat_at > _octop_now() - _octop_lease() as alive, p_task.queue = any (o.queues) as serves, p_task.task_type = any (o.task_types) as knows,
                 _octop_knows(o.task_types, o.versions, p_task.task_type, p_task.min_version) as new_enough
            from octop_workers o where not o.draining) w;
  if c.able > 0 then
    return;
  end if;
  detail := jsonb_build_object('serving_the_queue', c.serving, 'knowing_the_type', c.knowing, 'silent', c.silent, 'min_version', p_task.min_version);
  message := case
    when c.named > 0 then format('The code of the living workers is older than version %s of the type %s.', p_task.min_version, p_task.task_type)
    when c.serving > 0 and c.knowing = 0 then format('The living workers of the queue %s do not know the type %s.', p_task.queue, p_task.task_type)
    when c.knowing > 0 and c.serving = 0 then format('No living worker serves the queue %s, though some know the type %s.', p_task.queue, p_task.task_type)
    else format('No living worker serves the queue %s and knows the type %s.', p_task.queue, p_task.task_type) end
    || case when c.silent > 0 then format(' %s that did beat no more: octop workers', c.silent) else '' end;
  if p_task.scheduled_at <= _octop_now() and p_task.status <> 'blocked' then
    message := 'It is due, and ' || lower(left(message, 1)) || substr(message, 2);
  end if;
  reason := case when c.named > 0 then 'version_unknown' when c.serving > 0 then 'type_unknown' when c.silent > 0 then 'workers_silent' else 'no_worker' end;
  advice := case reason when 'version_unknown' then 'Deploy it, and restart them.' when 'type_unknown' then 'Deploy code that has it, or start a worker: ' || v_start
                        else format('Start one: %s%s', v_start, case when c.knowing > 0 then ' -q ' || p_task.queue else '' end) end;
  return next;
end $$;
comment on function _octop_why_nobody(octop_tasks) is 'Which worker is missing for this task; no row = a living one serves its queue and knows its type in the version that it needs.';

create or replace function _octop_why_waits(p_task octop_tasks)
  returns table (reason text, message text, detail jsonb, advice text)
  language plpgsql stable set search_path from current
as $$
declare
  v_retries integer;
  v_n       bigint;
  l         record;
  v_live    octop_tasks_live;
begin
  if p_task.scheduled_at > _octop_now() then
    if p_task.status = 'failed' then
      v_retries := _octop_tries(p_task);
      return query select 'waits_for_retry', format('Retry %s of %s. It starts at %s. The last error: %s', p_task.retry_count, v_retries, _octop_told_at(p_task.scheduled_at),
                                                    coalesce(split_part(p_task.last_error, E'\n', 1), 'none')),
                          jsonb_build_object('at', p_task.scheduled_at, 'in_seconds', extract(epoch from p_task.scheduled_at - _octop_now()), 'retry', p_task.retry_count, 'of', v_retries), format('To try now: octop tasks retry %s', p_task.id);
    else
      return query select 'not_due', format('It starts at %s.', _octop_told_at(p_task.scheduled_at)), jsonb_build_object('at', p_task.scheduled_at, 'in_seconds', extract(epoch from p_task.scheduled_at - _octop_now())), format('To start it now: octop tasks retry %s', p_task.id);
    end if;
    return;
  end if;
  if exists (select from octop_queues q where q.name = p_task.queue and q.worker_limit = 0) then
    return query select 'queue_limit_is_zero', format('The limit of the queue %s is 0: no worker takes tasks of it.', p_task.queue), '{}'::jsonb, format('To go on: octop queues scale %s reset', p_task.queue);
  end if;
  select t.* into v_live from octop_tasks_live t where t.id = p_task.id;
  if not found then
    return;
  end if;
  for l in select * from _octop_limit_reasons(v_live) loop
    return query select l.reason,
      case l.reason when 'global_limit' then format('The queue %s runs %s at once on all workers, and %s run.', p_task.queue, l.bound, l.used)
                    when 'lane_limit' then format('The lane "%s" runs %s at once, and %s run.', p_task.lane, l.bound, l.used)
                    when 'rate' then format('The queue %s starts %s a second; the next one may start at %s.', p_task.queue, trim_scale(l.bound), _octop_told_at(l.until_at))
                    when 'lane_rate' then format('The lane "%s" starts %s a second; the next one may start at %s.', p_task.lane, trim_scale(l.bound), _octop_told_at(l.until_at))
                    else format('The lane "%s" runs in order, and the task %s is before it (%s).', p_task.lane, l.task_ids[1], coalesce((select f.status from _octop_find(l.task_ids[1]) f), 'gone')) end
        || case when l.reason like '%limit' and l.task_ids <> '{}' then format(' Among them: %s', array_to_string(l.task_ids[1:3], ', ')) else '' end,
      jsonb_strip_nulls(jsonb_build_object('bound', l.bound, 'running', l.used, 'until', l.until_at, 'task_ids', l.task_ids)),
      case when l.reason = 'ordered' then format('It goes on when that one has ended. Look at it: octop tasks why %s', l.task_ids[1])
           when l.reason like '%limit' then format('It goes on when one of them ends. For more: octop queues set %s --%s N', p_task.queue, replace(l.reason, '_', '-'))
           else format('For more: octop queues set %s --%s N/s', p_task.queue, replace(l.reason, '_', '-')) end;
  end loop;
  if found then
    return;
  end if;
  v_n := _octop_ahead(v_live);
  return query select 'waits_for_room',
    case when p_task.status = 'failed' then format('Retry %s of %s. ', p_task.retry_count, _octop_tries(p_task)) else '' end || case when v_n > 0 then format('It is due, behind %s%s others%s; it starts as soon as they have and a worker of the queue %s has room.', case when v_n >= 10000 then 'at least ' else '' end, v_n,
                                  case when p_task.lane > '' then format(' in the lane "%s"', p_task.lane) else '' end, p_task.queue)
         else format('It is due and starts as soon as a worker of the queue %s has room.', p_task.queue) end,
    jsonb_build_object('ahead', v_n, 'running', (select count(*) from (select from octop_tasks_live r where r.queue = p_task.queue and r.status = 'running' limit 10000) x)),
    format('More at once: octop queues scale %s N, or more workers.', p_task.queue);
end $$;
comment on function _octop_why_waits(octop_tasks) is 'What a waiting task that nothing holds and that somebody knows waits for: its time, a limit and who fills it, those before it, or room.';

create or replace function octop_why(id uuid)
  returns table (reason text, message text, detail jsonb, advice text)
  language plpgsql volatile security definer set search_path from current
as $$
#variable_conflict use_column
declare
  t       octop_tasks;
  h       record;
  v_sees  boolean := has_table_privilege(_octop_caller()::name, 'octop_tasks', 'select');
  v_again text := 'octop tasks retry ' || octop_why.id;
  v_hold  octop_holds;
  v_n     integer := 0;
begin
  select x.* into t from octop_task(octop_why.id) x;
  if t.id is null then
    return query select 'unknown', format('There is no task %s, or it is not yours.', octop_why.id), '{}'::jsonb, 'Check the id; finished tasks are dropped after history.retention_days.';
  elsif t.status = 'success' then
    return query select 'succeeded', format('Nothing: it succeeded at %s.', _octop_told_at(t.completed_at)), jsonb_build_object('at', t.completed_at), 'To run it as a new task: ' || v_again;
  elsif t.status = 'cancelled' then
    return query select 'cancelled', format('Nothing: it was cancelled at %s.', _octop_told_at(t.completed_at)), jsonb_build_object('at', t.completed_at), 'To run it as a new task: ' || v_again;
  elsif t.status = 'frozen' then
    return query select 'retries_used_up', format(E'Nothing by itself: %s.%s', case when _octop_tries(t) = 0 then 'it has no retries' when t.retry_count < _octop_tries(t) then 'no retry follows its last error'
                                                    else 'its retries are used up' end,
                                                  coalesce(E'\nThe last error: ' || split_part(t.last_error, E'\n', 1), '')),
                        jsonb_build_object('retries', t.retry_count, 'attempt', t.attempt, 'last_error', t.last_error), 'To run it again: ' || v_again;
  elsif t.status = 'running' then
    select coalesce(nullif(w.name, ''), w.host || ':' || w.pid, t.worker_id::text) as name, w.host, w.pid, w.beat_at > _octop_now() - _octop_lease() as alive into h
      from (values (true)) one left join octop_workers w on w.id = t.worker_id;
    return query select case when t.cancel_requested_at is not null then 'cancel_requested' else 'runs' end,
      case when t.cancel_requested_at is not null then format('Its cancellation was asked for; the worker %s ends it within a second, if it can be ended.', h.name)
           else format('The worker %s runs it since %s. Its time limit ends it at %s.', h.name, _octop_told_at(t.started_at), _octop_told_at(t.deadline_at)) end
        || case when h.alive is not true then ' That worker beats no more: its tasks are given to others.' else '' end,
      jsonb_strip_nulls(jsonb_build_object('worker_id', t.worker_id, 'worker', h.name, 'host', h.host, 'pid', h.pid, 'since', t.started_at, 'deadline', t.deadline_at, 'attempt', t.attempt)),
      'To end it: octop tasks cancel ' || t.id;
  elsif t.status = 'blocked' and t.blocked_by !~ '^(hold|task_type|version):' then
    return query select 'blocked', format('It waits for %s.', coalesce(t.blocked_by, 'an order')), jsonb_build_object('blocked_by', t.blocked_by), 'It goes on when that has come. To end it: octop tasks cancel ' || t.id;
  else
    -- What the claim asks, in its order. A hold that ends before the task is due keeps it from nothing.
    for h in
      select w.*, 1 as step from _octop_why_held(t) w where (w.detail ->> 'until')::timestamptz > t.scheduled_at is not false
      union all
      select w.*, 3 from _octop_why_nobody(t) w
      union all
      -- whose time has not come is waited for by no worker yet
      select w.*, case when t.scheduled_at > _octop_now() then 2 else 4 end from _octop_why_waits(t) w where t.status <> 'blocked' or t.scheduled_at > _octop_now()
      order by step
    loop
      -- room is what only a task waits for that may start
      continue when h.reason = 'waits_for_room' and v_n > 0;
      v_n := v_n + 1;
      reason := h.reason; message := h.message; advice := h.advice; detail := h.detail;
      if not v_sees then
        detail := detail - array['task_ids', 'author', 'hold_id', 'silent'];
        message := regexp_replace(regexp_replace(regexp_replace(message, ' Among them: .*$', ''), 'the task [0-9a-f-]{36}', 'another task'), ', by [^ ]+ since ', ' since ');
        advice := regexp_replace(advice, ' Look at it: .*$', '');
      end if;
      return next;
    end loop;
    if v_n = 0 then
      return query select 'coming_back', 'It was set aside, and what it waited for is over: it comes back within seconds.', jsonb_build_object('blocked_by', t.blocked_by),
                          'Nothing is to be done while a worker lives: its sweep, or whoever has room, brings it back.';
    end if;
  end if;
end $$;
comment on function octop_why(uuid) is
  'Why does this task not run, or what happens to it next? What decides is the first row; others stand in its way as well. reason: queue_paused, type_frozen, tenant_held, lane_held, not_due, waits_for_retry, no_worker, workers_silent, type_unknown, version_unknown, '
  'queue_limit_is_zero, global_limit, rate, lane_limit, lane_rate, ordered, waits_for_room, coming_back, blocked, runs, cancel_requested, retries_used_up, succeeded, cancelled, unknown. message and advice are for people, detail for programs. '
  'From the same predicates as the claim. Who may see the task may ask. Example: select reason, message, advice from octop_why((select id from octop_tasks limit 1));';
