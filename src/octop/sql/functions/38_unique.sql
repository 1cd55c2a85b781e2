-- Uniqueness. Promise: among the tasks of a tenant and task type that hold the same key in the same scope there is one, whoever enqueues
-- how many at once. The database's unique index decides, so a loser waits for the winner's commit, and takes over if it rolls back: who is
-- told that a task exists can name a committed one (or one of his own transaction). A task that is told of and still waits can't start
-- before the caller's transaction ends. A running task is never locked: its worker waits for no producer.
-- Order of locks: tasks without a key first, by id, then keys in the order of their hash, one by one: all at once gave 19 deadlocks
-- in 1,800 calls on six keys, one by one none.

create or replace function _octop_canonical(value jsonb) returns text
  language plpgsql immutable parallel safe set search_path from current
as $$
begin
  -- jsonb has sorted the keys and thrown out doubles and spaces; all that is left is that a number keeps its zeros: 1.0, 1.50
  if value::text !~ '[0-9][.][0-9]' then
    return value::text;
  end if;
  return case jsonb_typeof(value)
    when 'number' then trim_scale(value::numeric)::text
    when 'object' then (select '{' || string_agg(to_json(e.key)::text || ': ' || _octop_canonical(e.value), ', ' order by e.key collate "C") || '}' from jsonb_each(value) e)
    when 'array' then (select '[' || string_agg(_octop_canonical(e.value), ', ' order by e.n) || ']' from jsonb_array_elements(value) with ordinality e (value, n))
    else value::text end;
end $$;
comment on function _octop_canonical(jsonb) is 'The same text for values that are equal as JSON: 1, 1.0 and 1e0, and objects in whatever order of keys.';

create or replace function _octop_unique_hold(tenant text, task_type text, scope text, key text) returns uuid
  language sql immutable parallel safe
  -- each part with its length, so that no two lists read the same; sha256, because md5 is refused where FIPS rules
  return encode(substring(sha256(convert_to(
           length(tenant) || ':' || tenant || length(task_type) || ':' || task_type
           || case when scope in ('pending', 'live') then scope else 'window' end || ':' || key, 'UTF8')) for 16), 'hex')::uuid;
comment on function _octop_unique_hold(text, text, text, text) is
  'Hash of what no two tasks may hold. The tenant is part of it: nobody meets, learns of or replaces the task of another tenant. So is the scope: tasks of different scopes do not see each other.';

create or replace function _octop_unique_window(scope text) returns interval
  language plpgsql stable set search_path from current
as $$
declare
  v_window interval;
begin
  if scope in ('pending', 'live') or scope is null then
    return null;
  end if;
  v_window := scope::interval;
  if not (v_window >= interval '1 millisecond' and v_window <= interval '366 days') then
    raise invalid_datetime_format;
  end if;
  return v_window;
exception when data_exception then
  raise exception 'octop: unique_scope must be pending, live or an interval of at most 366 days such as 1 hour, not %', left(scope, 100)
    using errcode = 'OC113', hint = 'Nothing was enqueued. pending = until the first start, live = until the end, an interval = so long after the enqueue.';
end $$;
comment on function _octop_unique_window(text) is 'The scope as an interval; null for pending and live. Else OC113.';

create or replace function _octop_unique_key(payload jsonb, fields text[], key text) returns text
  language plpgsql immutable set search_path from current
as $$
declare
  v_key text;
begin
  if key is not null then
    if length(key) not between 1 and 1000 or _octop_has_control(key) then
      raise exception 'octop: unique_key must have 1 to 1000 characters and no control characters'
        using errcode = 'OC113', hint = 'Nothing was enqueued. For the value of payload fields name them: unique_by.';
    end if;
    return key;
  elsif fields is null then
    return null;
  elsif fields = '{}' then
    select '{' || string_agg(to_json(e.key)::text || ': ' || _octop_canonical(e.value), ', ' order by e.key collate "C") || '}' into v_key
      from jsonb_each(payload) e where e.value <> 'null';
    v_key := coalesce(v_key, '{}');
  else
    -- a name with a dot is a path, unless the payload has just this name
    select case when bool_or(f.value is not null) then
             '{' || string_agg(to_json(f.name)::text || ': ' || coalesce(_octop_canonical(f.value), 'null'), ', ' order by f.name collate "C") || '}' end
      into v_key
      from (select distinct b.name, coalesce(payload -> b.name, payload #> string_to_array(b.name, '.')) as value from unnest(fields) b (name)) f;
    if v_key is null then
      -- a misspelt field would make all tasks of the type the same
      raise exception 'octop: the payload has none of the fields that make the task unique: %', left(array_to_string(fields, ', '), 200)
        using errcode = 'OC113', hint = 'Nothing was enqueued. Name fields that the payload has; a.b is b inside of a.';
    end if;
  end if;
  return case when length(v_key) <= 1000 then v_key else 'sha256:' || encode(sha256(convert_to(v_key, 'UTF8')), 'hex') end;
end $$;
comment on function _octop_unique_key(jsonb, text[], text) is
  'octop_tasks.unique_key of a task: the given text, else the named payload fields ({} = all of them) as JSON. At the top level a field that is null and one that is absent are the same. Over 1,000 characters their SHA-256 stands for them.';

create or replace function _octop_unique_keys(p_payloads jsonb[], p_by text[], p_keys text[], p_scopes text[], p_rules text[]) returns text[]
  language plpgsql stable set search_path from current
as $$
declare
  v_keys text[] := '{}';
  r      record;
  v_text text;
begin
  for r in select u.*, count(*) over () as total from unnest(p_payloads, p_by, p_keys, p_scopes, p_rules) with ordinality u (payload, fields, key, scope, rule, n) order by u.n loop
    v_text := case
      when r.fields is not null and r.key is not null then 'give either unique_by or unique_key'
      when r.fields is null and r.key is null and coalesce(r.scope, r.rule) is not null then 'unique_scope and on_conflict need unique_by or unique_key'
      when r.rule not in ('keep', 'raise', 'replace', 'move') then format('on_conflict must be keep, raise, replace or move, not %s', left(r.rule, 100)) end;
    if v_text is not null then
      raise exception 'octop: %', case when r.total > 1 then format('task %s of %s: %s', r.n, r.total, v_text) else v_text end
        using errcode = 'OC113', hint = 'Nothing was enqueued. Correct the value and call again.';
    end if;
    perform _octop_unique_window(r.scope);
    v_keys := v_keys || _octop_unique_key(r.payload, r.fields::text[], r.key);
  end loop;
  return v_keys;
exception when invalid_text_representation then
  raise exception 'octop: unique_by must hold an array literal such as {user_id} for each task' using errcode = 'OC113', hint = 'Nothing was enqueued. {} = the whole payload, null = not unique.';
end $$;
comment on function _octop_unique_keys(jsonb[], text[], text[], text[], text[]) is 'The key of each task, null = not unique. Errors: OC113, which say in which task.';

create or replace function _octop_meet(p_id uuid, p_hold uuid, p_rule text, p_new octop_tasks_live, p_priority integer, p_due timestamptz, out met boolean, out queue text, out due timestamptz)
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
  met := true;
  if p_rule = 'replace' then
    update octop_tasks_live t
       set payload = p_new.payload, meta = coalesce(p_new.meta, t.meta), min_version = p_new.min_version,
           priority = coalesce(p_priority, t.priority), scheduled_at = coalesce(p_due, t.scheduled_at)
     where t.id = p_id and t.status <> 'running' and (p_hold is null or t.unique_hold = p_hold)
    returning t.queue, t.scheduled_at into queue, due;
  elsif p_rule = 'move' then
    update octop_tasks_live t set scheduled_at = coalesce(p_due, _octop_now())
     where t.id = p_id and t.status <> 'running' and (p_hold is null or t.unique_hold = p_hold)
    returning t.queue, t.scheduled_at into queue, due;
  elsif p_new.unique_scope = 'pending' then
    -- it can't start before our transaction ends, so it sees what we wrote; many producers share this lock
    perform from octop_tasks_live t where t.id = p_id and t.status <> 'running' and t.unique_hold = p_hold for key share;
  else
    -- Whoever takes it in this moment is not waited for: a row that turns out to run would stay locked all the same, and its
    -- worker would wait at the end of it.
    perform from octop_tasks_live t where t.id = p_id and t.status <> 'running' for key share skip locked;
  end if;
  if not found and p_hold is not null then
    met := exists (select from octop_tasks_live t where t.id = p_id and t.unique_hold = p_hold);
  end if;
end $$;
comment on function _octop_meet(uuid, uuid, text, octop_tasks_live, integer, timestamptz) is
  'Do with the task that holds the key what the rule says, if it waits; one that runs is left alone. met = false: it holds the key no longer. queue and due: what may have to wake somebody.';

create or replace function _octop_enqueue_keyed(p_row octop_tasks_live, p_rule text, p_priority integer, p_due timestamptz,
                                                out id uuid, out created boolean, out queue text, out due timestamptz)
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_window interval := _octop_unique_window(p_row.unique_scope);
  v_hold   uuid := _octop_unique_hold(p_row.tenant, p_row.task_type, p_row.unique_scope, p_row.unique_key);
  v_other  uuid;
  v_met    record;
begin
  created := false;
  if v_window is not null then
    select w.task_id into v_other from _octop_unique_windows w where w.unique_hold = v_hold and w.until_at > _octop_now();
    if not found then
      -- one statement decides whose window it is; it waits for whoever is in the middle of the same decision
      insert into _octop_unique_windows as w (unique_hold, task_id, until_at) values (v_hold, p_row.id, _octop_now() + v_window)
      on conflict (unique_hold) do update set task_id = excluded.task_id, until_at = excluded.until_at where w.until_at <= _octop_now();
      if not found then
        select w.task_id into v_other from _octop_unique_windows w where w.unique_hold = v_hold;
      end if;
    end if;
    if v_other is not null then
      v_met := _octop_meet(v_other, null, p_rule, p_row, p_priority, p_due);
      id := v_other; queue := v_met.queue; due := v_met.due;
      return;
    end if;
  else
    p_row.unique_hold := v_hold;
  end if;
  -- READ COMMITTED: each look is a statement of its own, and between two the other may have been started or ended: then the key is free again
  for v_try in 1..100 loop
    insert into octop_tasks_live (id, tenant, queue, lane, task_type, payload, priority, scheduled_at, max_retries, timeout_seconds, retry_policy, tags, meta,
                                  retry_of, created_by, min_version, unique_key, unique_scope, unique_hold)
    values (p_row.id, p_row.tenant, p_row.queue, p_row.lane, p_row.task_type, p_row.payload, p_row.priority, p_row.scheduled_at, p_row.max_retries,
            p_row.timeout_seconds, p_row.retry_policy, p_row.tags, p_row.meta, p_row.retry_of, p_row.created_by, p_row.min_version, p_row.unique_key,
            p_row.unique_scope, p_row.unique_hold)
    on conflict do nothing;
    if found then
      id := p_row.id; created := true; queue := p_row.queue; due := p_row.scheduled_at;
      return;
    end if;
    if exists (select from octop_tasks_live t where t.id = p_row.id) then
      id := p_row.id;
      return;
    end if;
    select t.id into v_other from octop_tasks_live t where t.unique_hold = v_hold;
    if found then
      v_met := _octop_meet(v_other, v_hold, p_rule, p_row, p_priority, p_due);
      if v_met.met then
        id := v_other; queue := v_met.queue; due := v_met.due;
        return;
      end if;
    end if;
  end loop;
  raise exception 'octop: the unique key % changed hands a hundred times meanwhile', left(p_row.unique_key, 200) using errcode = 'serialization_failure', hint = 'Try the same again.';
end $$;
comment on function _octop_enqueue_keyed(octop_tasks_live, text, integer, timestamptz) is
  'Make one task that has a key, or answer the one that holds it, after doing with it what the rule says. p_priority and p_due: what the caller said of them, for replace and move.';

create or replace function _octop_enqueue_keyed_many(
  keys text[], scopes text[], rules text[], ids uuid[], task_types text[], payloads jsonb[], queues text[], lanes text[], tenants text[], priorities integer[],
  scheduled_at timestamptz[], delay_seconds double precision[], max_retries integer[], timeout_seconds double precision[], retry_policies jsonb[], tags text[],
  metas jsonb[], retry_of uuid[], declared_queues text[], declared_priorities integer[], min_versions integer[], created_by text
) returns table (n integer, id uuid, created boolean, queue text, due timestamptz)
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  r         record;
  v_row     octop_tasks_live;
  v_due     timestamptz;
  v_tenants text[] := '{}';
  v_queues  text[] := '{}';
begin
  for r in
    select u.*, y.name as known, y.queue as type_queue, y.priority as type_priority
      from unnest(keys, scopes, rules, ids, task_types, payloads, queues, lanes, tenants, priorities, scheduled_at, delay_seconds, max_retries, timeout_seconds,
                  retry_policies, tags, metas, retry_of, declared_queues, declared_priorities, min_versions) with ordinality
             u (key, scope, rule, id, task_type, payload, queue, lane, tenant, priority, scheduled_at, delay_seconds, max_retries, timeout_seconds,
                retry_policy, tags, meta, retry_of, declared_queue, declared_priority, min_version, n)
      left join octop_task_types y on y.name = u.task_type
     where u.key is not null
     order by _octop_unique_hold(coalesce(u.tenant, ''), u.task_type, coalesce(u.scope, 'pending'), u.key), u.n
  loop
    v_due := coalesce(r.scheduled_at, _octop_now() + make_interval(secs => r.delay_seconds));
    v_row.id := r.id;
    v_row.tenant := coalesce(r.tenant, '');
    v_row.queue := coalesce(r.queue, r.type_queue, case when r.known is null then r.declared_queue end, 'default');
    v_row.lane := coalesce(r.lane, '');
    v_row.task_type := r.task_type;
    v_row.payload := r.payload;
    v_row.priority := coalesce(r.priority, r.type_priority, case when r.known is null then r.declared_priority end, 5);
    v_row.scheduled_at := coalesce(v_due, _octop_now());
    v_row.max_retries := r.max_retries;
    v_row.timeout_seconds := r.timeout_seconds;
    v_row.retry_policy := r.retry_policy;
    v_row.tags := r.tags::text[];
    v_row.meta := r.meta;
    v_row.retry_of := r.retry_of;
    v_row.created_by := _octop_enqueue_keyed_many.created_by;
    v_row.min_version := r.min_version;
    v_row.unique_key := r.key;
    v_row.unique_scope := coalesce(r.scope, 'pending');
    select r.n, k.id, k.created, k.queue, k.due into n, id, created, queue, due
      from _octop_enqueue_keyed(v_row, coalesce(r.rule, 'keep'), r.priority, v_due) k;
    if created then
      v_tenants := v_tenants || v_row.tenant;
      v_queues := v_queues || v_row.queue;
    end if;
    return next;
  end loop;
  insert into _octop_counter_deltas (tenant, queue, status, day, n)
  select u.tenant, u.queue, 'waiting', '-infinity', count(*) from unnest(v_tenants, v_queues) u (tenant, queue) group by u.tenant, u.queue;
end $$;
comment on function _octop_enqueue_keyed_many(text[], text[], text[], uuid[], text[], jsonb[], text[], text[], text[], integer[], timestamptz[], double precision[],
                                              integer[], double precision[], jsonb[], text[], jsonb[], uuid[], text[], integer[], integer[], text) is
  'Those of octop_enqueue_many''s tasks that have a key, in the order of its hash. n: which task. queue and due: what may have to wake somebody; null = nothing new.';

create or replace function _octop_take_by_hand(p_ids uuid[]) returns void
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  r        record;
  v_window interval;
  v_other  uuid;
begin
  for r in select x.*, _octop_unique_hold(x.tenant, x.task_type, x.scope, x.unique_key) as hold
             from (select t.id, t.tenant, t.task_type, t.unique_key, coalesce(t.unique_scope, 'pending') as scope from octop_tasks_live t where t.id = any (p_ids)) x
            order by hold loop
    perform _octop_unique_key('{}', null, r.unique_key);
    v_window := _octop_unique_window(r.scope);
    v_other := null;
    if v_window is not null then
      insert into _octop_unique_windows as w (unique_hold, task_id, until_at) values (r.hold, r.id, _octop_now() + v_window)
      on conflict (unique_hold) do update set task_id = excluded.task_id, until_at = excluded.until_at where w.until_at <= _octop_now();
      if not found then
        select w.task_id into v_other from _octop_unique_windows w where w.unique_hold = r.hold;
      end if;
    else
      for v_try in 1..100 loop
        begin
          update octop_tasks_live t set unique_scope = r.scope, unique_hold = r.hold where t.id = r.id;
          v_other := null;
          exit;
        exception when unique_violation then
          select t.id into v_other from octop_tasks_live t where t.unique_hold = r.hold;
        end;
      end loop;
    end if;
    if v_other is not null then
      perform _octop_refuse_twin(v_other, r.unique_key);
    end if;
  end loop;
end $$;
comment on function _octop_take_by_hand(uuid[]) is 'Let tasks that a plain INSERT made hold their keys, or refuse the INSERT (OC116).';

create or replace function _octop_refuse_twin(p_id uuid, p_key text) returns boolean
  language plpgsql set search_path from current
as $$
begin
  raise exception 'octop: a task holds the unique key % already', left(p_key, 200)
    using errcode = 'OC116', detail = format('task %s', p_id), hint = 'Nothing was enqueued. To be answered its id instead: on_conflict keep, replace or move.';
end $$;
comment on function _octop_refuse_twin(uuid, text) is 'Raises OC116 with the id of the task that holds the key.';
