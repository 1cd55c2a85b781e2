-- The acts of people and programs on many tasks at once. Promise: one statement per kind of task, not per task; one row of the
-- audit per task, so that each can be answered for; one verdict per id, and no error because of a task that is not as it was.
-- Rows are locked in one order, live before frozen and by id in each, so that two acts at once wait for each other and not in a circle.
-- A task that somebody moves meanwhile is looked for once more, and only there can a circle close: what such an act has done is undone
-- then, its locks too, and it begins anew. Its caller sees nothing of it.

create or replace function _octop_ids_once(ids uuid[]) returns uuid[]
  language plpgsql immutable set search_path from current
as $$
begin
  if cardinality(ids) > 10000 then
    raise exception 'octop: % ids at once, more than 10000', cardinality(ids)
      using errcode = 'OC113', hint = 'Call it several times, each in its own transaction: some hundreds of ids lock for a short time only.';
  end if;
  return array(select distinct u from unnest(ids) u where u is not null order by u);
end $$;
comment on function _octop_ids_once(uuid[]) is 'Each id once, in order, without nulls; more than 10,000 are refused (OC113).';

create or replace function _octop_ids_without(ids uuid[], gone uuid[]) returns uuid[]
  language plpgsql immutable set search_path from current
as $$
begin
  if cardinality(gone) = 0 then
    return ids;
  end if;
  return array(select x.u from (select unnest(ids) as u except select unnest(gone)) x order by x.u);
end $$;
comment on function _octop_ids_without(uuid[], uuid[]) is 'The ids that are not among the others, in order.';

create or replace function _octop_cancel_these(ids uuid[], reason text) returns table (id uuid, verdict text)
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_all     boolean := has_function_privilege(_octop_caller()::name, 'octop_retry(uuid)', 'execute');
  v_me      text := _octop_caller();
  v_left    uuid[] := _octop_ids_once(ids);
  v_running uuid[];
  v_waiting uuid[];
  v_frozen  uuid[];
  v_now     uuid[];
  v_was     text[];
  v_freed   text[];
begin
  -- A task that moves in this moment is invisible to the first look: look again, in a second statement, before saying "not found".
  for v_look in 1..3 loop
    exit when cardinality(v_left) = 0;
    select coalesce(array_agg(x.id) filter (where x.status = 'running'), '{}'), coalesce(array_agg(x.id) filter (where x.status <> 'running'), '{}')
      into v_running, v_waiting
      from (select t.id, t.status from octop_tasks_live t where t.id = any (v_left) and (v_all or t.created_by = v_me) order by t.id for update) x;
    v_frozen := array(select t.id from octop_tasks_frozen t where t.id = any (v_left) and (v_all or t.created_by = v_me) order by t.id for update);
    if cardinality(v_running) > 0 then
      update octop_tasks_live t set cancel_requested_at = coalesce(t.cancel_requested_at, _octop_now()) where t.id = any (v_running);
      perform pg_notify('octop_wake', '');
      perform _octop_audit_write('cancel', u::text, jsonb_build_object('reason', reason, 'was', 'running')) from unnest(v_running) u;
      return query select u, 'requested' from unnest(v_running) u;
    end if;
    with gone as (
      -- bounds instead of "= any": of an empty list the planner would take any partial index
      delete from octop_tasks_live t using unnest(v_waiting) u (id) where t.id between u.id and u.id returning t.*
    ), frozen as (
      delete from octop_tasks_frozen t where t.id = any (v_frozen) returning t.*
    ), it as (
      select * from gone union all select * from frozen
    ), kept as (
      insert into octop_tasks_done (id, seq, tenant, queue, lane, task_type, payload, status, priority, scheduled_at, due_at, created_at, started_at,
                                    completed_at, retry_count, max_retries, min_version, last_error, timeout_seconds, attempt, lost_count, retry_policy,
                                    tags, meta, retry_of, created_by, unique_key, unique_scope)
      select g.id, g.seq, g.tenant, g.queue, g.lane, g.task_type, g.payload, 'cancelled', g.priority, g.scheduled_at, g.due_at, g.created_at, g.started_at,
             _octop_now(), g.retry_count, g.max_retries, g.min_version, coalesce(nullif(left(_octop_cancel_these.reason, 1024), ''), g.last_error),
             g.timeout_seconds, g.attempt, g.lost_count, g.retry_policy, g.tags, g.meta, g.retry_of, g.created_by, g.unique_key, g.unique_scope from it g
      returning tenant, queue, scheduled_at
    ), counted as (
      insert into _octop_counter_deltas (tenant, queue, status, day, n, scheduled_sum, scheduled_min, scheduled_max)
      select i.tenant, i.queue, _octop_counted_as(i.status), '-infinity', -count(*), 0, null, null from it i group by 1, 2, 3
      union all
      select k.tenant, k.queue, 'cancelled', (_octop_now() at time zone 'UTC')::date, count(*), sum(extract(epoch from k.scheduled_at)),
             min(k.scheduled_at), max(k.scheduled_at) from kept k group by 1, 2
    )
    select coalesce(array_agg(i.id), '{}'), array_agg(i.status), array(select q.name from octop_queues q where q.limited and exists (select from it x where x.queue = q.name))
      into v_now, v_was, v_freed from it i;
    if v_freed <> '{}' then
      perform _octop_freed(v_freed);   -- one may have held up its lane
    end if;
    perform _octop_audit_write('cancel', u.id::text, jsonb_build_object('reason', reason, 'was', u.was)) from unnest(v_now, v_was) u (id, was);
    return query select u, 'cancelled' from unnest(v_now) u;
    v_left := _octop_ids_without(v_left, v_running || v_now);
    exit when cardinality(v_left) = 0;
    -- cancelled already is as good as cancelled; what is found elsewhere has moved, and the next look gets it
    select coalesce(array_agg(k.id), '{}'), array_agg(k.status) into v_now, v_was
      from octop_tasks k where k.id = any (v_left) and k.status in ('success', 'cancelled') and (v_all or k.created_by = v_me);
    return query select u.id, u.was from unnest(v_now, v_was) u (id, was);
    v_left := _octop_ids_without(v_left, v_now);
  end loop;
  return query select u, 'not found' from unnest(v_left) u;
end $$;
comment on function _octop_cancel_these(uuid[], text) is 'What octop_cancel_many does, once: it may be the victim of a circle of locks.';

create or replace function octop_cancel_many(ids uuid[], reason text default '') returns table (id uuid, verdict text)
  language plpgsql security definer set search_path from current
as $$
begin
  for v_try in 1..5 loop
    begin
      return query select t.id, t.verdict from _octop_cancel_these(ids, reason) t;
      return;
    exception when deadlock_detected then
      if v_try = 5 then
        raise;
      end if;
    end;
  end loop;
end $$;
comment on function octop_cancel_many(uuid[], text) is
  'Cancel many tasks. Answers for each id once: cancelled, requested (it runs: its worker ends it within a second or so), success (it had finished, nothing was done) or not found. Repeating it is harmless. '
  'Producers cancel their own. At most 10,000 ids, better some hundreds in each transaction. Example: select verdict, count(*) from octop_cancel_many(array(select id from octop_tasks where status = ''blocked'' limit 500), ''not needed'') group by 1;';

create or replace function _octop_retry_these(ids uuid[]) returns table (id uuid, verdict text, retried_as uuid)
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_left   uuid[] := _octop_ids_once(ids);
  v_now    uuid[];
  v_new    uuid[];
  v_frozen uuid[];
  v_was    text[];
  v_queues text[];
  v_found  octop_tasks[];
begin
  for v_look in 1..2 loop
    exit when cardinality(v_left) = 0;
    -- waiting: at once
    -- named by what they are not: "in (pending, failed)" would let the planner walk the whole ready index
    select coalesce(array_agg(x.id), '{}'), array_agg(x.status) into v_now, v_was
      from (select l.id, l.status from octop_tasks_live l where l.id = any (v_left) and l.status <> all ('{running,blocked}') order by l.id for update) x;
    with back as (
      update octop_tasks_live l set status = 'pending', scheduled_at = _octop_now() from unnest(v_now) u (id)
       where l.id between u.id and u.id returning l.id, l.queue
    )
    select array_agg(distinct b.queue) into v_queues from back b;
    perform _octop_retried(v_now, v_was, v_queues);
    return query select u, 'retried', u from unnest(v_now) u;
    v_left := _octop_ids_without(v_left, v_now);

    -- frozen: the same task, all tries again
    v_frozen := array(select f.id from octop_tasks_frozen f where f.id = any (v_left) order by f.id for update);
    -- One of scope live holds its key again; where another task does, it stays frozen. Keys in the order of their hash, as enqueue takes them.
    with back as (
      insert into octop_tasks_live (id, seq, tenant, queue, lane, task_type, payload, status, priority, scheduled_at, due_at, created_at, started_at,
                                    retry_count, max_retries, min_version, last_error, timeout_seconds, attempt, lost_count, retry_policy, tags, meta,
                                    retry_of, created_by, unique_key, unique_scope, unique_hold)
      select f.id, f.seq, f.tenant, f.queue, f.lane, f.task_type, f.payload, 'pending', f.priority, _octop_now(), f.due_at, f.created_at, f.started_at,
             0, f.max_retries, f.min_version, f.last_error, f.timeout_seconds, f.attempt, f.lost_count, f.retry_policy, f.tags, f.meta, f.retry_of,
             f.created_by, f.unique_key, f.unique_scope, h.hold
        from octop_tasks_frozen f
        cross join lateral (select case when f.unique_scope = 'live' then _octop_unique_hold(f.tenant, f.task_type, 'live', f.unique_key) end as hold) h
       where f.id = any (v_frozen) order by h.hold, f.id
      on conflict (unique_hold) where unique_hold is not null do nothing
      returning id, tenant, queue
    ), gone as (
      delete from octop_tasks_frozen f using back b where f.id between b.id and b.id
    ), counted as (
      insert into _octop_counter_deltas (tenant, queue, status, day, n)
      select b.tenant, b.queue, s.status, '-infinity', s.n * count(*) from back b cross join (values ('frozen', -1), ('waiting', 1)) s (status, n)
       group by b.tenant, b.queue, s.status, s.n
    )
    select coalesce(array_agg(b.id), '{}'), array_agg(distinct b.queue) into v_now, v_queues from back b;
    perform _octop_retried(v_now, array_fill('frozen'::text, array[cardinality(v_now)]), v_queues);
    return query select u, 'retried', u from unnest(v_now) u;
    v_left := _octop_ids_without(v_left, v_now);
    if cardinality(v_frozen) > cardinality(v_now) then
      select coalesce(array_agg(f.id), '{}'), array_agg(t.id) into v_now, v_new
        from octop_tasks_frozen f join octop_tasks_live t on t.unique_hold = _octop_unique_hold(f.tenant, f.task_type, 'live', f.unique_key)
       where f.id = any (v_left) and f.unique_scope = 'live';
      return query select u.id, 'exists', u.other from unnest(v_now, v_new) u (id, other);
      v_left := _octop_ids_without(v_left, v_now);
    end if;

    exit when cardinality(v_left) = 0;
    v_found := array(select k from octop_tasks k where k.id = any (v_left));
    -- finished: a new task that names the old one
    -- it stays whose it was: who made the task sees its repetition too; who repeated it stands in the audit
    with it as materialized (
      select t.*, octop_uuid7() as new_id, case when t.unique_scope in ('pending', 'live') then _octop_unique_hold(t.tenant, t.task_type, t.unique_scope, t.unique_key) end as hold
        from unnest(v_found) t where t.status in ('success', 'cancelled')
    ), made as (
      -- it takes its key as any new task does, if that is free; a time that its key is held for binds enqueues, not who asks for just this one
      insert into octop_tasks_live (id, tenant, queue, lane, task_type, payload, priority, max_retries, timeout_seconds, retry_policy, tags, meta,
                                    retry_of, created_by, min_version, unique_key, unique_scope, unique_hold)
      select t.new_id, t.tenant, t.queue, t.lane, t.task_type, t.payload, t.priority, t.max_retries, t.timeout_seconds, t.retry_policy, t.tags, t.meta,
             t.id, t.created_by, t.min_version, t.unique_key, t.unique_scope, t.hold from it t order by t.hold, t.seq
      on conflict (unique_hold) where unique_hold is not null do nothing
      returning id, tenant, queue
    ), counted as (
      insert into _octop_counter_deltas (tenant, queue, status, day, n)
      select m.tenant, m.queue, 'waiting', '-infinity', count(*) from made m group by m.tenant, m.queue
    )
    select coalesce(array_agg(t.id order by t.seq), '{}'), array_agg(t.status order by t.seq), array_agg(t.new_id order by t.seq), array_agg(distinct t.queue)
      into v_now, v_was, v_new, v_queues from it t join made m on m.id = t.new_id;
    if v_queues is not null then
      perform _octop_wake(v_queues, array_fill('-infinity'::timestamptz, array[cardinality(v_queues)]));
    end if;
    perform _octop_audit_write('retry', u.id::text, jsonb_build_object('was', u.was, 'new', u.new)) from unnest(v_now, v_was, v_new) u (id, was, new);
    return query select u.id, 'repeated', u.new from unnest(v_now, v_new) u (id, new);
    v_left := _octop_ids_without(v_left, v_now);

    if cardinality(v_left) > 0 and exists (select from unnest(v_found) f where f.unique_scope in ('pending', 'live')) then
      select coalesce(array_agg(f.id), '{}'), array_agg(t.id) into v_now, v_new
        from unnest(v_found) f join octop_tasks_live t on t.unique_hold = _octop_unique_hold(f.tenant, f.task_type, f.unique_scope, f.unique_key)
       where f.id = any (v_left) and f.status in ('success', 'cancelled') and f.unique_scope in ('pending', 'live');
      return query select u.id, 'exists', u.other from unnest(v_now, v_new) u (id, other);
      v_left := _octop_ids_without(v_left, v_now);
    end if;

    select coalesce(array_agg(t.id), '{}'), array_agg(t.status) into v_now, v_was from unnest(v_found) t where t.status in ('running', 'blocked');
    return query select u.id, u.was, null::uuid from unnest(v_now, v_was) u (id, was);
    v_left := _octop_ids_without(v_left, v_now);
  end loop;
  return query select u, 'not found', null::uuid from unnest(v_left) u;
end $$;
comment on function _octop_retry_these(uuid[]) is 'What octop_retry_many does, once: it may be the victim of a circle of locks.';

create or replace function octop_retry_many(ids uuid[]) returns table (id uuid, verdict text, retried_as uuid)
  language plpgsql security definer set search_path from current
as $$
begin
  for v_try in 1..5 loop
    begin
      return query select t.id, t.verdict, t.retried_as from _octop_retry_these(ids) t;
      return;
    exception when deadlock_detected then
      if v_try = 5 then
        raise;
      end if;
    end;
  end loop;
end $$;
comment on function octop_retry_many(uuid[]) is
  'Try many tasks again, now. Answers for each id once: retried (frozen or waiting: the same task, due now; frozen gets all its tries again), repeated (finished: retried_as is a new task that names the old one and belongs to who made that), '
  'running or blocked (nothing was done), exists (nothing was done: the task retried_as holds its unique key), not found. At most 10,000 ids, better some hundreds in each transaction. '
  'Example: select verdict, count(*) from octop_retry_many(array(select id from octop_tasks where status = ''frozen'' and task_type = ''send'' limit 500)) group by 1;';

create or replace function _octop_retried(ids uuid[], was text[], queues text[]) returns void
  language plpgsql set search_path from current
as $$
begin
  if cardinality(ids) > 0 then
    perform _octop_wake(queues, array_fill('-infinity'::timestamptz, array[cardinality(queues)]));
    perform _octop_audit_write('retry', u.id::text, jsonb_build_object('was', u.was)) from unnest(ids, was) u (id, was);
  end if;
end $$;
comment on function _octop_retried(uuid[], text[], text[]) is 'Wakes who sleeps for these queues, and writes the audit.';

create or replace function _octop_delete_these(ids uuid[]) returns table (id uuid, verdict text)
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_left uuid[] := _octop_ids_once(ids);
  v_now  uuid[];
  v_was  text[];
  v_freed text[];
begin
  if cardinality(v_left) = 0 then
    return;
  end if;
  v_now := array(select f.id from octop_tasks_frozen f where f.id = any (v_left) order by f.id for update);
  with it as (
    delete from octop_tasks_frozen f where f.id = any (v_now) returning f.*
  ), counted as (
    insert into _octop_counter_deltas (tenant, queue, status, day, n) select i.tenant, i.queue, 'frozen', '-infinity', -count(*) from it i group by 1, 2
  )
  -- nothing is left of it but this
  select coalesce(array_agg(x.id), '{}'), array(select q.name from octop_queues q where q.limited and exists (select from it y where y.queue = q.name))
    into v_now, v_freed
    from (select i.id, _octop_audit_write('delete', i.id::text, jsonb_strip_nulls(jsonb_build_object(
            'was', i.status, 'task_type', i.task_type, 'queue', i.queue, 'tenant', i.tenant, 'payload', i.payload, 'last_error', i.last_error)))
            from it i offset 0) x;
  if v_freed <> '{}' then
    perform _octop_freed(v_freed);   -- one may have held up its lane
  end if;
  return query select u, 'deleted' from unnest(v_now) u;
  v_left := _octop_ids_without(v_left, v_now);
  if cardinality(v_left) = 0 then
    return;
  end if;
  select coalesce(array_agg(k.id), '{}'), array_agg(k.status) into v_now, v_was from octop_tasks k where k.id = any (v_left);
  return query select u.id, u.was from unnest(v_now, v_was) u (id, was);
  return query select u, 'not found' from unnest(_octop_ids_without(v_left, v_now)) u;
end $$;
comment on function _octop_delete_these(uuid[]) is 'What octop_delete_many does, once: it may be the victim of a circle of locks.';

create or replace function octop_delete_many(ids uuid[]) returns table (id uuid, verdict text)
  language plpgsql security definer set search_path from current
as $$
begin
  for v_try in 1..5 loop
    begin
      return query select t.id, t.verdict from _octop_delete_these(ids) t;
      return;
    exception when deadlock_detected then
      if v_try = 5 then
        raise;
      end if;
    end;
  end loop;
end $$;
comment on function octop_delete_many(uuid[]) is
  'Delete frozen tasks for good. Answers for each id once: deleted; or its status, when that is not frozen (nothing was done: cancel what is not finished, history drops itself); or not found. At most 10,000 ids, better some hundreds in each transaction.';
