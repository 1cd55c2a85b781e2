-- Enqueue. Promise: in the caller's transaction, all or nothing, refused where it enters with what was wrong, and a call that
-- is repeated with the same ids makes nothing twice.

create or replace function _octop_unreadable(payloads text[], metas text[], tags text[], retry_policies text[], out n bigint, out code text, out text text)
  language plpgsql immutable set search_path from current
as $$
declare
  v_text   text;
  v_detail text;
begin
  -- of one argument after the other; whichever cast fails is the first that failed
  code := 'OC111'; text := 'the payload is no JSON that PostgreSQL can keep'; n := 0;
  foreach v_text in array coalesce(payloads, '{}') loop
    n := n + 1; perform v_text::jsonb;
  end loop;
  text := 'meta is no JSON that PostgreSQL can keep'; n := 0;
  foreach v_text in array coalesce(metas, '{}') loop
    n := n + 1; perform v_text::jsonb;
  end loop;
  code := 'OC113'; text := 'tags must be an array literal such as {a,b}'; n := 0;
  foreach v_text in array coalesce(tags, '{}') loop
    n := n + 1; perform v_text::text[];
  end loop;
  text := 'the retry policy is no JSON'; n := 0;
  foreach v_text in array coalesce(retry_policies, '{}') loop
    n := n + 1; perform v_text::jsonb;
  end loop;
  n := null;
exception when data_exception or program_limit_exceeded then
  get stacked diagnostics v_detail = pg_exception_detail;
  text := format('%s (%s)', text, concat_ws(': ', sqlerrm, nullif(v_detail, '')));
end $$;
comment on function _octop_unreadable(text[], text[], text[], text[]) is
  'Which text of which task cannot be cast; n null = none. Asked only after a cast of them all has failed.';

-- as they were before uniqueness: a function has one signature
drop function if exists octop_enqueue(text, jsonb, text, text, text, integer, timestamptz, double precision, integer, double precision, jsonb, text[], jsonb, uuid, integer);
drop function if exists octop_enqueue_many(text[], text[], uuid[], text[], text[], text[], integer[], timestamptz[], double precision[], integer[],
                                           double precision[], text[], text[], text[], uuid[], boolean, text[], integer[], integer[]);

create or replace function octop_enqueue_many(
  task_types      text[],
  payloads        text[],
  ids             uuid[]             default null,
  queues          text[]             default null,
  lanes           text[]             default null,
  tenants         text[]             default null,
  priorities      integer[]          default null,
  scheduled_at    timestamptz[]      default null,
  delay_seconds   double precision[] default null,
  max_retries     integer[]          default null,
  timeout_seconds double precision[] default null,
  retry_policies  text[]             default null,
  tags            text[]             default null,
  metas           text[]             default null,
  retry_of        uuid[]             default null,
  fresh           boolean            default false,
  declared_queues text[]             default null,
  declared_priorities integer[]      default null,
  min_versions    integer[]          default null,
  unique_by       text[]             default null,
  unique_keys     text[]             default null,
  unique_scopes   text[]             default null,
  on_conflicts    text[]             default null
) returns table (id uuid, created boolean)
  language plpgsql security definer set search_path from current set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
-- A lone enqueue pays 15 to 150 µs for each statement in here that is more than an expression, and as much again if it is planned anew for
-- just so long arrays. Hence generic plans, in which "x = any (array)" walks through the array for each row: where both are long it says
-- "in (select unnest(array))". And hence a short way for tasks that are alike, as those of one call mostly are: half the cost of the general one.
declare
  v_ids      uuid[] := ids;
  v_known    uuid[];
  v_made     uuid[];
  v_new      integer;
  v_queues   text[];
  v_due      timestamptz[];
  v_count    integer := coalesce(cardinality(task_types), 0);
  v_type     text := case when task_types[1] = all (task_types) then task_types[1] end;
  v_plain    boolean;  -- nothing is said but names and payloads, and these are sound
  v_alike    boolean;  -- new tasks of one type, and what is said is the same for all of them
  v_queue    text;
  v_priority smallint;
  v_bytes    integer := 1024;  -- no limit of a payload is below that
  v_caller   text := _octop_caller();
  v_asleep   boolean;
  v_frozen   boolean;
  v_payloads jsonb[];
  v_metas    jsonb[];
  v_policies jsonb[];
  v_bad      bigint;
  v_code     text;
  v_text     text;
  v_keys     text[];  -- null where no task has one
  v_keyed    integer[];
  v_theirs   uuid[];
  v_own      boolean[];
  v_count_keyed integer := 0;
begin
  if task_types is null then
    raise exception 'octop: task_types is null' using errcode = 'OC110', hint = 'Nothing was enqueued. An array of names; an empty one enqueues nothing. array_agg over no rows is null.';
  end if;
  if v_count = 0 then
    return;
  end if;
  if cardinality(payloads) not in (0, v_count) or cardinality(ids) not in (0, v_count) or cardinality(queues) not in (0, v_count)
     or cardinality(lanes) not in (0, v_count) or cardinality(tenants) not in (0, v_count) or cardinality(priorities) not in (0, v_count)
     or cardinality(scheduled_at) not in (0, v_count) or cardinality(delay_seconds) not in (0, v_count)
     or cardinality(max_retries) not in (0, v_count) or cardinality(timeout_seconds) not in (0, v_count)
     or cardinality(retry_policies) not in (0, v_count) or cardinality(tags) not in (0, v_count) or cardinality(metas) not in (0, v_count)
     or cardinality(retry_of) not in (0, v_count) or cardinality(declared_queues) not in (0, v_count)
     or cardinality(declared_priorities) not in (0, v_count) or cardinality(min_versions) not in (0, v_count)
     or cardinality(unique_by) not in (0, v_count) or cardinality(unique_keys) not in (0, v_count)
     or cardinality(unique_scopes) not in (0, v_count) or cardinality(on_conflicts) not in (0, v_count) then
    raise exception 'octop: arrays of different length: % task types, and other arrays have more or fewer', v_count
      using errcode = 'OC302', hint = 'Nothing was enqueued. Arrays run in parallel; leave out those that say nothing.';
  end if;
  if v_ids is null then
    v_ids := array(select octop_uuid7() from generate_series(1, v_count));
  elsif array_position(v_ids, null) is not null then
    v_ids := array(select coalesce(u.id, octop_uuid7()) from unnest(v_ids) with ordinality u (id, n) order by u.n);
  end if;
  -- 1. what was wrong, and in which task
  v_plain := coalesce(queues, lanes, tenants, tags, metas, retry_policies) is null and coalesce(priorities, max_retries, min_versions) is null
             and coalesce(delay_seconds, timeout_seconds) is null and scheduled_at is null and retry_of is null;
  v_alike := fresh and cardinality(v_ids) = v_count and v_type is not null and coalesce(unique_by, unique_keys, unique_scopes, on_conflicts) is null
             and (declared_queues is null or declared_queues[1] = all (declared_queues))
             and (declared_priorities is null or declared_priorities[1] = all (declared_priorities));
  if v_alike and not v_plain then
    v_alike := (queues is null or queues[1] = all (queues)) and (lanes is null or lanes[1] = all (lanes))
               and (tenants is null or tenants[1] = all (tenants)) and (priorities is null or priorities[1] = all (priorities))
               and (scheduled_at is null or scheduled_at[1] = all (scheduled_at)) and (delay_seconds is null or delay_seconds[1] = all (delay_seconds))
               and (max_retries is null or max_retries[1] = all (max_retries)) and (timeout_seconds is null or timeout_seconds[1] = all (timeout_seconds))
               and (retry_policies is null or retry_policies[1] = all (retry_policies)) and (tags is null or tags[1] = all (tags))
               and (metas is null or metas[1] = all (metas)) and (retry_of is null or retry_of[1] = all (retry_of))
               and (min_versions is null or min_versions[1] = all (min_versions));
  end if;
  v_plain := v_plain and length(v_type) between 1 and 200 and not _octop_has_control(v_type);
  if v_plain and v_count = 1 then
    v_plain := payloads[1] like '{%' and octet_length(payloads[1]) <= v_bytes;
  elsif v_plain then
    perform from unnest(payloads, task_types) u (payload) where u.payload is null or u.payload not like '{%' or octet_length(u.payload) > v_bytes limit 1;
    v_plain := not found;
  end if;
  -- In a block of its own, which writes nothing and so costs no transaction id: which text is no JSON is looked for only when one is not.
  begin
    if v_plain is not true then
      if octet_length(array_to_string(payloads, '')) > v_bytes then
        v_bytes := _octop_setting('task.payload_bytes_max');
      end if;
      select u.n, u.problem[1] as code, u.problem[2] as text into v_bad, v_code, v_text
        from (select u.n, case
          when u.task_type is null or length(u.task_type) not between 1 and 200 or _octop_has_control(u.task_type) then
            array['OC110', 'the task type must have 1 to 200 characters and no control characters']
          when length(u.queue) not between 1 and 200 or _octop_has_control(u.queue) then array['OC110', 'the queue must have 1 to 200 characters and no control characters']
          when length(u.lane) > 200 or length(u.tenant) > 200 or _octop_has_control(u.lane) or _octop_has_control(u.tenant) then
            array['OC110', 'lane and tenant have at most 200 characters and no control characters']
          when u.payload is null or left(ltrim(u.payload, E' \t\r\n'), 1) <> '{' then array['OC111', 'the payload must be a JSON object']
          when octet_length(u.payload) > v_bytes then
            array['OC112', format('the payload has %s bytes, more than task.payload_bytes_max (%s)', octet_length(u.payload), v_bytes)]
          when u.priority not between 0 and 9 then array['OC113', format('priority must be 0 to 9, not %s', u.priority)]
          when u.max_retries not between 0 and 1000 then array['OC113', format('max_retries must be 0 to 1000, not %s', u.max_retries)]
          when u.min_version not between 1 and 1000 then array['OC113', format('min_version must be 1 to 1000, not %s', u.min_version)]
          when not (u.timeout_seconds > 0 and u.timeout_seconds <= 2678400) then
            array['OC113', format('timeout_seconds must be above 0 and at most 2678400 (31 days), not %s', u.timeout_seconds)]
          when not (u.delay_seconds >= 0 and u.delay_seconds <= 3153600000) then
            array['OC113', format('delay_seconds must be 0 to 100 years, not %s', u.delay_seconds)]
          when u.delay_seconds is not null and u.scheduled_at is not null then array['OC113', 'give either delay_seconds or scheduled_at']
          when u.scheduled_at < '2000-01-01 00:00:00+00' or u.scheduled_at >= '3000-01-01 00:00:00+00' then
            array['OC114', format('scheduled_at must lie between the years 2000 and 3000, not %s', u.scheduled_at)]
          when u.tags is not null and _octop_tags_problem(u.tags::text[]) is not null then array['OC113', _octop_tags_problem(u.tags::text[])]
          when left(ltrim(u.meta, E' \t\r\n'), 1) <> '{' or octet_length(u.meta) > 65536 then array['OC111', 'meta must be a JSON object of at most 65,536 bytes']
          end as problem
          from unnest(task_types, queues, lanes, tenants, payloads, priorities, scheduled_at, delay_seconds, max_retries, timeout_seconds, tags, metas, min_versions)
                 with ordinality u (task_type, queue, lane, tenant, payload, priority, scheduled_at, delay_seconds, max_retries, timeout_seconds, tags, meta, min_version, n)) u
       where u.problem is not null limit 1;
    end if;
    if v_bad is null then
      v_payloads := payloads::jsonb[];
      v_metas := metas::jsonb[];
      v_policies := retry_policies::jsonb[];
    end if;
  exception when data_exception or program_limit_exceeded then
    select x.n, x.code, x.text into v_bad, v_code, v_text from _octop_unreadable(payloads, metas, octop_enqueue_many.tags, retry_policies) x;
    if v_bad is null then
      raise;
    end if;
  end;
  if v_bad is not null then
    raise exception 'octop: %', case when v_count > 1 then format('task %s of %s: %s', v_bad, v_count, v_text) else v_text end
      using errcode = v_code, hint = 'Nothing was enqueued. Correct the value and call again.';
  end if;
  if v_policies is not null then
    perform _octop_check_retry_policy(p) from unnest(v_policies) p where p is not null;
  end if;
  if coalesce(unique_by, unique_keys, unique_scopes, on_conflicts) is not null then
    v_keys := _octop_unique_keys(v_payloads, unique_by, unique_keys, unique_scopes, on_conflicts);
    v_count_keyed := cardinality(array_remove(v_keys, null));
    v_keys := case when v_count_keyed > 0 then v_keys end;
  end if;
  -- 2. the rows
  if v_alike then
    select y.queue, y.priority into v_queue, v_priority from octop_task_types y where y.name = v_type;
    if not found then
      v_queue := declared_queues[1];
      v_priority := declared_priorities[1];
    end if;
    v_queues := array[coalesce(queues[1], v_queue, 'default')];
    v_due := array[coalesce(scheduled_at[1], _octop_now() + make_interval(secs => delay_seconds[1]), _octop_now())];
    -- no "on conflict", which costs a tenth of a row and more: an id that is not fresh is an error of the caller's
    insert into octop_tasks_live (id, tenant, queue, lane, task_type, payload, priority, scheduled_at, max_retries, timeout_seconds,
                                  retry_policy, tags, meta, retry_of, created_by, min_version)
    select u.id, coalesce(tenants[1], ''), v_queues[1], coalesce(lanes[1], ''), v_type,
           u.payload, coalesce(priorities[1], v_priority, 5), v_due[1], max_retries[1], timeout_seconds[1],
           v_policies[1], tags[1]::text[], v_metas[1], retry_of[1], v_caller, min_versions[1]
      from unnest(v_ids, v_payloads) u (id, payload);
    with counted as (
      insert into _octop_counter_deltas (tenant, queue, status, day, n) values (coalesce(tenants[1], ''), v_queues[1], 'waiting', '-infinity', v_count)
    )
    -- only after the rows: whoever sees nobody sleep must have its transaction id by then (octop_doubt)
    select exists (select from _octop_sleepers s where s.queue = v_queues[1] and s.wake_at > '-infinity'),
           exists (select from octop_tasks_frozen f where f.id = any (v_ids))
      into v_asleep, v_frozen;
  else
    -- Ids that others may send too, in one order: two calls with the same ids, the other way round, would wait for each other. seq is drawn
    -- before that: it is the order of the call.
    with made as (
      insert into octop_tasks_live (seq, id, tenant, queue, lane, task_type, payload, priority, scheduled_at, max_retries, timeout_seconds,
                                    retry_policy, tags, meta, retry_of, created_by, min_version)
      select u.seq, coalesce(u.id, octop_uuid7()), coalesce(u.tenant, ''), coalesce(u.queue, y.queue, case when y.name is null then u.declared_queue end, 'default'), coalesce(u.lane, ''), u.task_type,
             u.payload, coalesce(u.priority, y.priority, case when y.name is null then u.declared_priority end, 5),
             coalesce(u.scheduled_at, _octop_now() + make_interval(secs => u.delay_seconds), _octop_now()),
             u.max_retries, u.timeout_seconds, u.retry_policy, u.tags::text[], u.meta, u.retry_of, v_caller, u.min_version
        from (select nextval('octop_tasks_seq') as seq, a.*
                from unnest(v_ids, task_types, v_payloads, queues, lanes, tenants, priorities, scheduled_at, delay_seconds, max_retries,
                            timeout_seconds, v_policies, tags, v_metas, retry_of, declared_queues, declared_priorities, min_versions, v_keys)
                     a (id, task_type, payload, queue, lane, tenant, priority, scheduled_at, delay_seconds, max_retries,
                        timeout_seconds, retry_policy, tags, meta, retry_of, declared_queue, declared_priority, min_version, key)
               where a.key is null offset 0) u
        left join octop_task_types y on y.name = u.task_type
       order by case when not fresh then u.id end, u.seq
      on conflict (id) do nothing
      returning octop_tasks_live.id, octop_tasks_live.tenant, octop_tasks_live.queue, octop_tasks_live.scheduled_at
    ), g as (
      select m.tenant, m.queue, count(*) as n, min(m.scheduled_at) as due from made m group by m.tenant, m.queue
    ), counted as (
      insert into _octop_counter_deltas (tenant, queue, status, day, n) select g.tenant, g.queue, 'waiting', '-infinity', g.n from g
    )
    select (select array_agg(g.queue) from g), (select array_agg(g.due) from g),
           case when not fresh or v_keys is not null then (select coalesce(array_agg(m.id), '{}') from made m) end, (select sum(g.n) from g)
      into v_queues, v_due, v_made, v_new;
    if v_keys is not null then
      select coalesce(array_agg(k.n), '{}'), array_agg(k.id), array_agg(k.created), v_made || coalesce(array_agg(k.id) filter (where k.created), '{}'),
             v_queues || array_agg(k.queue) filter (where k.queue is not null), v_due || array_agg(k.due) filter (where k.queue is not null)
        into v_keyed, v_theirs, v_own, v_made, v_queues, v_due
        from _octop_enqueue_keyed_many(v_keys, unique_scopes, on_conflicts, v_ids, task_types, v_payloads, queues, lanes, tenants, priorities, scheduled_at, delay_seconds,
               max_retries, timeout_seconds, v_policies, octop_enqueue_many.tags, v_metas, retry_of, declared_queues, declared_priorities, min_versions, v_caller) k;
    end if;
    -- 3. which of them were there, and have ended (a caller repeats an enqueue whose answer it lost). Asked only now, in a statement of its own:
    -- whoever enqueued the same id in this moment has made us wait at its row, and that task may have been run and finished since. No
    -- lock is needed for it: advisory ones made transactions that enqueue several tasks wait for each other, and end in deadlocks.
    if not fresh and ids is not null and v_made <> '{}' then
      select coalesce(array_agg(t.id), '{}') into v_known
        from octop_tasks t where t.id = any (v_made) and t.status in ('frozen', 'success', 'cancelled');
      if v_known <> '{}' then
        with again as (
          delete from octop_tasks_live t using unnest(v_known) u (id) where t.id between u.id and u.id returning t.tenant, t.queue
        )
        insert into _octop_counter_deltas (tenant, queue, status, day, n)
        select a.tenant, a.queue, 'waiting', '-infinity', -count(*) from again a group by a.tenant, a.queue;
        v_made := array(select unnest(v_made) except select unnest(v_known));
      end if;
    end if;
    select exists (select from _octop_sleepers s where s.queue = any (v_queues) and s.wake_at > '-infinity'),
           fresh and ids is not null and exists (select from octop_tasks_frozen f where f.id = any (case when v_keys is null then v_ids else v_made end))
      into v_asleep, v_frozen;
    if fresh and coalesce(v_new, 0) < v_count - v_count_keyed then
      raise exception 'octop: the id of one of these tasks exists already' using errcode = 'unique_violation', hint = 'Leave fresh out to look first.';
    end if;
  end if;
  -- fresh is the caller's word; a live task with the id of a frozen one could never freeze, and would stop its worker
  if v_frozen then
    raise exception 'octop: the id of one of these tasks exists already' using errcode = 'unique_violation', hint = 'Leave fresh out to look first.';
  end if;
  -- an old snapshot may hide that somebody sleeps
  if v_queues is not null and (v_asleep or current_setting('transaction_isolation') <> 'read committed') then
    perform _octop_wake(v_queues, v_due);
  end if;
  if v_keys is not null then
    return query select coalesce(k.id, u.id), coalesce(k.created, true) and coalesce(k.id, u.id) = any (v_made)
                   from unnest(v_ids) with ordinality u (id, n) left join unnest(v_keyed, v_theirs, v_own) k (n, id, created) on k.n = u.n order by u.n;
  elsif fresh and v_count = 1 then
    id := v_ids[1];
    created := true;
    return next;
  elsif fresh then
    return query select u, true from unnest(v_ids) u;
  else
    return query select u, u in (select unnest(v_made)) from unnest(v_ids) u;
  end if;
end $$;
comment on function octop_enqueue_many(text[], text[], uuid[], text[], text[], text[], integer[], timestamptz[], double precision[], integer[],
                                       double precision[], text[], text[], text[], uuid[], boolean, text[], integer[], integer[], text[], text[], text[], text[]) is
  'Register many tasks in your transaction, all or nothing; answers id and whether it is new, in the order of the input. Arrays run in parallel; null = default for all, '
  'null inside = default for one. tags holds array literals. fresh = the ids were just made, do not look whether they exist. declared_queues and declared_priorities are what the code says '
  'of the type; they hold until a worker has declared it, from then on the row in octop_task_types does. min_versions: workers with older code of the type leave the task to others. '
  'unique_by: array literals of payload fields ({} = all), or unique_keys: a text, make the task unique among those of its tenant and type; unique_scopes: pending (default: until the first start), live (until the end) or an interval; '
  'on_conflicts says what becomes of a conflict: keep (default), replace (payload, and time and priority if given), move (the time), raise: the answer is always the id of the task that exists, created = false, and a conflict never stops the others (so raise is keep here). '
  'Errors, which say in which task: OC110 name (or no array of them), OC111 payload or meta, OC112 payload too large, OC113 option, OC114 time, OC302 arrays of different length.';

create or replace function octop_enqueue(
  task_type       text,
  payload         jsonb            default '{}',
  queue           text             default null,
  lane            text             default '',
  tenant          text             default '',
  priority        integer          default null,
  scheduled_at    timestamptz      default null,
  delay_seconds   double precision default null,
  max_retries     integer          default null,
  timeout_seconds double precision default null,
  retry_policy    jsonb            default null,
  tags            text[]           default null,
  meta            jsonb            default null,
  id              uuid             default null,
  min_version     integer          default null,
  unique_by       text[]           default null,
  unique_key      text             default null,
  unique_scope    text             default null,
  on_conflict     text             default null
) returns table (id uuid, created boolean)
  language sql security definer set search_path from current
as $$
  select m.id, m.created
    from octop_enqueue_many(array[task_type], array[payload::text], case when id is not null then array[octop_enqueue.id] end,
           array[queue], array[lane], array[tenant], array[priority], array[scheduled_at], array[delay_seconds], array[max_retries],
           array[timeout_seconds], array[retry_policy::text], array[tags::text], array[meta::text], min_versions => array[min_version],
           unique_by => case when unique_by is not null then array[octop_enqueue.unique_by::text] end,
           unique_keys => case when unique_key is not null then array[unique_key] end,
           unique_scopes => case when unique_scope is not null then array[unique_scope] end,
           on_conflicts => case when on_conflict is not null then array[on_conflict] end) m
   where case when m.created or on_conflict is distinct from 'raise' or m.id = octop_enqueue.id then true
              else _octop_refuse_twin(m.id, coalesce(unique_key, _octop_unique_key(payload, unique_by, null))) end
$$;
comment on function octop_enqueue(text, jsonb, text, text, text, integer, timestamptz, double precision, integer, double precision, jsonb, text[], jsonb, uuid, integer, text[], text, text, text) is
  'Register one task in your transaction. With an id of your own the call may be repeated: an existing task, finished or not, is returned with created = false. '
  'Bounds: names 1 to 200 characters (lane and tenant may be empty) without control characters; meta 65,536 bytes; 50 tags, together 8,000 bytes. '
  'unique_by names payload fields ({} = all; a.b is b inside of a), or unique_key is a text, of which one task of the tenant and type may exist; unique_scope: pending (default: until its first start), live (until success, cancelled or frozen) or an interval such as 1 hour; '
  'on_conflict: keep (default), raise (OC116), replace (the payload; time and priority if given) or move (the time). The answer is then the id of the task that exists, with created = false, and unless it runs already it does not start before your transaction ends. '
  'Errors: OC110 name, OC111 payload or meta, OC112 payload too large, OC113 option, OC114 time, OC116 exists. '
  'Example: select * from octop_enqueue(''send_welcome'', ''{"user_id": 42}'', delay_seconds => 60, unique_by => ''{user_id}'');';

create or replace function _octop_find(id uuid) returns setof octop_tasks
  language plpgsql volatile set search_path from current
  set timezone = 'UTC' set datestyle = 'ISO' set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_id   uuid := _octop_find.id;
  v_from timestamptz;
  r      record;
begin
  return query select t.* from octop_tasks_live t where t.id = v_id;
  if found then return; end if;
  return query select t.* from octop_tasks_frozen t where t.id = v_id;
  if found then return; end if;
  -- day by day, from the moment inside the id on (a day earlier: clients' clocks), then the days before: an id may only look like a version 7
  v_from := case when v_id::text ~ '^.{14}7.{4}[89ab]' and octop_uuid_time(v_id) <= _octop_now() + interval '1 day'
                 then octop_uuid_time(v_id) - interval '1 day' else '-infinity' end;
  for r in select d.partition from _octop_days d where d.parent = 'octop_tasks_done'::regclass and d.from_at <= _octop_now()
            order by d.to_at <= v_from, d.from_at loop
    return query execute format('select * from %s t where t.id = $1', r.partition) using v_id;
    if found then return; end if;
  end loop;
  return query select t.* from octop_tasks_done_stray t where t.id = v_id;
  if found then return; end if;
  -- volatile, so that each look has its own snapshot: a task that was moved back meanwhile is where it came from
  return query select t.* from octop_tasks_live t where t.id = v_id;
end $$;
comment on function _octop_find(uuid) is 'One task by id, whosoever it is: for the engine itself.';

create or replace function octop_task(id uuid) returns setof octop_tasks
  language sql volatile security definer set search_path from current
as $$
  select t.* from _octop_find(octop_task.id) t
   where t.created_by = _octop_caller() or has_table_privilege(_octop_caller()::name, 'octop_tasks', 'select')
$$;
comment on function octop_task(uuid) is
  'Find one task by id: live, frozen, then the days from the moment inside its id on. No row if there is none, or it is not yours. Example: select status from octop_task((select id from octop_tasks limit 1));';
