-- Who sets limits and other values of a queue, and what is refused. Promise: a bad limit is refused where it enters, also by UPDATE, and says what would be
-- right; a limit holds on all workers from the commit on; each change is in the audit.

create or replace function _octop_limits_problem(p_limits jsonb) returns text
  language plpgsql stable set search_path from current
as $$
declare
  v_key   text;
  v_value jsonb;
  v_least numeric;
  v_most  numeric;
begin
  for v_key, v_value in select e.key, e.value from jsonb_each(p_limits) e where e.value <> 'null' order by e.key loop
    select b.least, b.most into v_least, v_most
      from (values ('global_limit', 0, 1000000), ('lane_limit', 1, 1000000), ('rate', 0.0000003, 10000), ('burst', 1, 1000000),
                   ('lane_rate', 0.0000003, 10000), ('lane_burst', 1, 1000000), ('ageing_seconds', 0.001, 31536000),
                   ('worker_limit', 0, 10000), ('max_retries', 0, 1000), ('timeout_seconds', 0.000001, 2678400),
                   ('keep_success_days', 1, 400), ('keep_cancelled_days', 1, 400), ('keep_frozen_days', 1, 36500)) b (key, least, most)
     where b.key = v_key;
    if found then
      if jsonb_typeof(v_value) <> 'number' or v_value::numeric not between v_least and v_most
         or v_key in ('global_limit', 'lane_limit', 'burst', 'lane_burst', 'worker_limit', 'max_retries', 'keep_success_days', 'keep_cancelled_days', 'keep_frozen_days') and v_value::numeric % 1 <> 0 then
        return format('%s must be %s%s to %s, not %s', v_key, case when v_key ~ 'limit|burst|retries|days' then 'a whole number, ' when v_key ~ 'rate' then 'starts per second, ' else 'seconds, ' end,
                      v_least, v_most, v_value);
      end if;
    elsif v_key = 'ordered' then
      if jsonb_typeof(v_value) <> 'boolean' then
        return format('ordered must be true or false, not %s', v_value);
      end if;
    elsif v_key = 'lane_weights' then
      if jsonb_typeof(v_value) <> 'object' or v_value = '{}'
         or exists (select from jsonb_each(v_value) w where jsonb_typeof(w.value) <> 'number' or length(w.key) not between 1 and 200)
         or exists (select from jsonb_each_text(v_value) w where w.value::numeric not between 1 and 1000 or w.value::numeric % 1 <> 0) then
        return format('lane_weights must be an object such as {"acme": 3} with weights of 1 to 1000, not %s', left(v_value::text, 200));
      end if;
    elsif v_key = 'windows' then
      if jsonb_typeof(v_value) <> 'array' or jsonb_array_length(v_value) not between 1 and 50 then
        return format('windows must be a list of 1 to 50 objects, not %s', left(v_value::text, 200));
      end if;
      return (select x.problem from jsonb_array_elements(v_value) w cross join lateral (select _octop_window_problem(w) as problem) x
               where x.problem is not null limit 1);
    end if;
  end loop;
  return null;
end $$;
comment on function _octop_limits_problem(jsonb) is 'What is wrong with limits of a queue, by the names of its columns; null = nothing. Names that are no limits are passed over.';

create or replace function _octop_window_problem(p_window jsonb) returns text
  language plpgsql stable set search_path from current
as $$
declare
  v_key text;
begin
  if jsonb_typeof(p_window) <> 'object' then
    return format('a window must be an object, not %s', left(p_window::text, 200));
  end if;
  if p_window ? 'worker_limit' then
    return 'worker_limit of a window: the limit of each worker process does not change by the time of day; name global_limit, which holds over all of them';
  end if;
  select k into v_key from jsonb_object_keys(p_window) k
   where k not in ('days', 'from', 'until', 'timezone', 'global_limit', 'lane_limit', 'rate', 'burst', 'lane_rate', 'lane_burst') limit 1;
  if found then
    return format('a window has days, from, until, timezone and limits, but no %s', v_key);
  end if;
  if not p_window ?| array['global_limit', 'lane_limit', 'rate', 'burst', 'lane_rate', 'lane_burst'] then
    return 'a window must change a limit: global_limit, lane_limit, rate, burst, lane_rate or lane_burst';
  end if;
  foreach v_key in array array['from', 'until'] loop
    if coalesce(p_window ->> v_key, '') !~ '^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$' then
      return format('%s of a window must be a time of the day such as 22:00, not %s', v_key, coalesce(p_window ->> v_key, 'null'));
    end if;
  end loop;
  if p_window ? 'days' and (jsonb_typeof(p_window -> 'days') <> 'array' or not p_window -> 'days' <@ '[1, 2, 3, 4, 5, 6, 7]') then
    return format('days of a window must be a list of 1 (Monday) to 7, not %s', p_window -> 'days');
  end if;
  if p_window ? 'timezone' and not exists (select from pg_timezone_names z where z.name = p_window ->> 'timezone') then
    return format('timezone of a window must be a name such as Europe/Berlin, not %s', p_window ->> 'timezone');
  end if;
  return _octop_limits_problem(p_window);
end $$;
comment on function _octop_window_problem(jsonb) is 'What is wrong with one window of octop_queues.windows; null = nothing.';

create or replace function _octop_limits_check() returns trigger
  language plpgsql security definer set search_path from current
as $$
declare
  v_problem text := _octop_limits_problem(to_jsonb(new) - array['worker_limit', 'max_retries', 'timeout_seconds', 'keep_success_days', 'keep_cancelled_days', 'keep_frozen_days']);   -- of those _octop_order_check speaks
begin
  if v_problem is not null then
    raise exception 'octop: %', v_problem using errcode = 'OC113', hint = 'Nothing was written. null takes a limit back.';
  end if;
  if tg_op = 'UPDATE' then
    perform pg_notify('octop_wake', new.name);   -- more may start now
  end if;
  return new;
end $$;
comment on function _octop_limits_check() is 'Refuses limits, weights and windows that are none, and says what would be right (OC113); wakes who sleeps when a queue''s row has changed.';
create or replace trigger octop_queues_limits_check before insert or update on octop_queues
  for each row execute function _octop_limits_check();

create or replace function _octop_put_queue(p_queue text, p_values jsonb, p_declared jsonb) returns jsonb
  language plpgsql set search_path from current
as $$
declare
  v_new octop_queues;
begin
  select (jsonb_populate_record(null::octop_queues, to_jsonb(q) || p_values)).* into v_new from octop_queues q where q.name = p_queue;
  update octop_queues q
     set worker_limit = v_new.worker_limit, max_retries = v_new.max_retries, timeout_seconds = v_new.timeout_seconds, retry_policy = nullif(v_new.retry_policy, 'null'),
         global_limit = v_new.global_limit, lane_limit = v_new.lane_limit, rate = v_new.rate, burst = v_new.burst, lane_rate = v_new.lane_rate,
         lane_burst = v_new.lane_burst, ordered = v_new.ordered, lane_weights = nullif(v_new.lane_weights, 'null'), ageing_seconds = v_new.ageing_seconds,
         windows = nullif(v_new.windows, 'null'), watermark_high = v_new.watermark_high, watermark_low = v_new.watermark_low,
         critical = v_new.critical, keep_success_days = v_new.keep_success_days, keep_cancelled_days = v_new.keep_cancelled_days,
         keep_frozen_days = v_new.keep_frozen_days, declared = coalesce(p_declared, q.declared)
   where q.name = p_queue;
  return (select jsonb_object_agg(e.key, e.value) from octop_queues q cross join jsonb_each(to_jsonb(q)) e
           where q.name = p_queue and e.key not in ('name', 'limited', 'declared', 'created_at', 'updated_at'));
end $$;
comment on function _octop_put_queue(text, jsonb, jsonb) is 'Write values into the row of a queue, which the caller has locked; null = what was declared stays. Answers all values that hold now.';

create or replace function _octop_check_queue_values(p_values jsonb) returns void
  language plpgsql set search_path from current
as $$
declare
  v_names constant text[] := array['worker_limit', 'max_retries', 'timeout_seconds', 'retry_policy', 'global_limit', 'lane_limit', 'rate', 'burst', 'lane_rate',
                                   'lane_burst', 'ordered', 'lane_weights', 'ageing_seconds', 'windows', 'watermark_high', 'watermark_low', 'critical',
                                   'keep_success_days', 'keep_cancelled_days', 'keep_frozen_days'];
  v_wrong text;
begin
  v_wrong := case when p_values is null or jsonb_typeof(p_values) <> 'object' then 'values of a queue are a JSON object'
                  else coalesce((select format('a queue has no value named %s', k) from jsonb_object_keys(p_values) k where k <> all (v_names) limit 1),
                                _octop_limits_problem(p_values)) end;
  if v_wrong is not null then
    raise exception 'octop: %', v_wrong using errcode = 'OC113', hint = 'Nothing was written. Values are ' || array_to_string(v_names, ', ') || '; null takes one back.';
  end if;
end $$;
comment on function _octop_check_queue_values(jsonb) is 'Refuse what is no object of values of a queue, by the names of its columns. Error: OC113.';

create or replace function octop_set_queue(queue text, "values" jsonb) returns jsonb
  language plpgsql security definer set search_path from current
as $$
begin
  perform _octop_check_target('queue', octop_set_queue.queue);
  perform _octop_check_queue_values(octop_set_queue."values");
  insert into octop_queues (name) values (octop_set_queue.queue) on conflict do nothing;
  -- the row first, what follows from it in the next statement
  perform from octop_queues q where q.name = octop_set_queue.queue for update;
  return _octop_put_queue(octop_set_queue.queue, (
    select coalesce(jsonb_object_agg(e.key, case when e.value = 'null' then coalesce(q.declared -> e.key, 'null') else e.value end), '{}')
      from octop_queues q cross join jsonb_each(octop_set_queue."values") e where q.name = octop_set_queue.queue), null);
end $$;
comment on function octop_set_queue(text, jsonb) is
  'Set values of a queue, by the names of its columns in octop_queues: {"global_limit": 20, "lane_limit": 2, "rate": 1.5, "burst": 10, "lane_rate": 0.1, "lane_burst": 2, "ordered": true, "lane_weights": {"acme": 3}, "ageing_seconds": 60, "windows": [...], '
  '"watermark_high": 10000, "watermark_low": 2000, "critical": false, "keep_success_days": 1, "keep_cancelled_days": 30, "keep_frozen_days": 90, "worker_limit": 5, "max_retries": 3, "timeout_seconds": 60, "retry_policy": {...}}. Those that are not named stay; null takes one back to what the application declared, else none. They hold for all claims that begin after the commit. Answers all that hold. Errors: OC110, OC113.';

create or replace function octop_declare_queues(declarations jsonb) returns void
  language plpgsql security definer set search_path from current set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  v_name   text;
  v_values jsonb;
begin
  for v_name, v_values in select e.key, e.value from jsonb_each(octop_declare_queues.declarations) e order by e.key loop
    perform _octop_check_target('queue', v_name);
    perform _octop_check_queue_values(v_values);
    v_values := (select coalesce(jsonb_object_agg(e.key, e.value), '{}') from jsonb_each(v_values) e where e.value <> 'null');
    -- one that is declared as before is not touched: somebody may hold its row in a transaction left open
    continue when exists (select from octop_queues q where q.name = v_name and q.declared = v_values);
    insert into octop_queues (name) values (v_name) on conflict do nothing;
    perform from octop_queues q where q.name = v_name for update;
    -- a value that still is the declared one follows the code; one that an operator changed stays
    perform _octop_put_queue(v_name, (
      select coalesce(jsonb_object_agg(k.key, coalesce(v_values -> k.key, 'null')), '{}')
        from octop_queues q cross join lateral (select jsonb_object_keys(q.declared || v_values)) k (key)
       where q.name = v_name and nullif(to_jsonb(q) -> k.key, 'null') is not distinct from q.declared -> k.key), v_values);
  end loop;
exception when lock_not_available then
  raise exception 'octop: another transaction, not ended yet, has changed the queue "%"', v_name
    using errcode = 'OC303', hint = 'Try again. If nobody ends it: see the how-to "End a transaction that was left open".';
end $$;
comment on function octop_declare_queues(jsonb) is
  'Declare values of queues, by name, as octop_set_queue takes them: {"mail": {"global_limit": 20}}. The last declaration holds for all workers; what an operator changed stays. Errors: OC110, OC113, OC303 after a second, when another open transaction has changed such a queue.';
