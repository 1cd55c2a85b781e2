-- Guard of the tables that people write by hand beside the tasks: queues, task types, holds, settings, attempts, workers. Promise: a bad
-- name or policy is refused where it enters, and whoever changes, deletes or truncates is in the audit. The engine's own writes
-- are told from a person's by the function that does them, and hot ones pay nothing: no trigger fires for a beat or a new attempt.

create or replace function _octop_order_of(kind text, old jsonb, new jsonb, context text) returns text
  language sql immutable
  return case
    when kind = 'octop_holds' and coalesce(new, old) ->> 'kind' = 'queue' then case when new is null then 'resume' else 'pause' end
    when kind = 'octop_holds' and coalesce(new, old) ->> 'kind' = 'task_type' then case when new is null then 'thaw' else 'freeze' end
    when kind = 'octop_holds' then case when new is null then 'lift' else 'hold' end
    else case when new is null then 'forget '
              -- an application says what its code says; of a new row nothing but the function that makes it tells its from a person's
              when old is null and context ~ '[[:<:]](octop_register|octop_declare_task_types|octop_declare_queues)["(]'
                   or old is not null and old -> 'declared' <> new -> 'declared' then 'declare '
              else 'set ' end
         || case kind when 'octop_queues' then 'queue' else 'task type' end
  end;
comment on function _octop_order_of(text, jsonb, jsonb, text) is
  'The word for a change of a row in a table of orders, as functions and command say it: pause, resume, freeze, thaw, hold, lift, or set, declare (by an application, which the call stack tells, PG_CONTEXT), forget with queue or task type.';

create or replace function _octop_audit_table_change() returns trigger
  language plpgsql security definer set search_path from current
as $$
declare
  v_old jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) end;
  v_new jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) end;
  v_not text[] := array['declared', 'created_at', 'updated_at', 'limited'];
  v_context text;
begin
  get diagnostics v_context = pg_context;
  if tg_op = 'INSERT' and v_context ~ 'octop_(set_queue|declare_queues)[(]' and jsonb_strip_nulls(v_new - v_not) = jsonb_build_object('name', v_new -> 'name') then
    null;  -- made to be locked: its values follow, and they are the order
  elsif v_old - v_not = v_new - v_not and v_old -> 'declared' <> v_new -> 'declared' then
    -- what a reset goes back to has changed, and nothing else
    perform _octop_audit_write(_octop_order_of(tg_table_name, v_old, v_new, v_context), v_new ->> 'name',
              jsonb_build_object('from', jsonb_build_object('declared', v_old -> 'declared'), 'to', jsonb_build_object('declared', v_new -> 'declared')));
  elsif v_old - v_not is distinct from v_new - v_not then
    perform _octop_audit_write(_octop_order_of(tg_table_name, v_old, v_new, v_context), coalesce(v_new, v_old) ->> case tg_table_name when 'octop_holds' then 'target' else 'name' end,
              jsonb_strip_nulls(jsonb_build_object('from', v_old - v_not, 'to', v_new - v_not)));
  end if;
  return null;
end $$;
comment on function _octop_audit_table_change() is 'Writes what changed in a table of orders (queues, task types, holds) to the audit.';
create or replace trigger octop_queues_audit after insert or update or delete on octop_queues
  for each row execute function _octop_audit_table_change();
create or replace trigger octop_task_types_audit after insert or update or delete on octop_task_types
  for each row execute function _octop_audit_table_change();
create or replace trigger octop_holds_audit after insert or update or delete on octop_holds
  for each row execute function _octop_audit_table_change();

create or replace function _octop_order_check() returns trigger
  language plpgsql security definer set search_path from current
as $$
declare
  v_new   jsonb := to_jsonb(new);
  v_key   text;
  v_value text;
  v_bad   text;
begin
  foreach v_key in array array['name', 'queue'] loop
    v_value := v_new ->> v_key;
    if _octop_has_control(v_value) then
      raise exception 'octop: the % has a control character: %', v_key, left(v_value, 200)
        using errcode = 'OC110', hint = 'A line break, perhaps, at the end of the name?';
    elsif length(v_value) not between 1 and 200 then
      raise exception 'octop: the % must have 1 to 200 characters, not %', v_key, length(v_value)
        using errcode = 'OC110', hint = 'Nothing was written. octop_queue_summary lists the queues, octop_task_types the types.';
    end if;
  end loop;
  -- the constraints say the same, but not the bounds
  v_bad := case
    when (v_new ->> 'priority')::numeric not between 0 and 9 then format('priority must be 0 to 9, not %s', v_new ->> 'priority')
    when (v_new ->> 'max_retries')::numeric not between 0 and 1000 then format('max_retries must be 0 to 1000, not %s', v_new ->> 'max_retries')
    when (v_new ->> 'worker_limit')::numeric not between 0 and 10000 then format('worker_limit must be 0 to 10000, not %s', v_new ->> 'worker_limit')
    when not ((v_new ->> 'timeout_seconds')::double precision > 0 and (v_new ->> 'timeout_seconds')::double precision <= 2678400) then
      format('timeout_seconds must be above 0 and at most 2678400 (31 days), not %s', v_new ->> 'timeout_seconds')
    when (v_new ->> 'watermark_high')::numeric not between 1 and 100000000 then format('watermark_high must be 1 to 100000000, not %s', v_new ->> 'watermark_high')
    when v_new ->> 'watermark_low' is not null and not coalesce((v_new ->> 'watermark_low')::numeric between 0 and (v_new ->> 'watermark_high')::numeric - 1, false) then
      format('watermark_low must be 0 to watermark_high - 1 (%s), not %s', coalesce(((v_new ->> 'watermark_high')::numeric - 1)::text, 'there is none'), v_new ->> 'watermark_low')
    when (v_new ->> 'keep_success_days')::numeric not between 1 and 400 then format('keep_success_days must be 1 to 400, not %s', v_new ->> 'keep_success_days')
    when (v_new ->> 'keep_cancelled_days')::numeric not between 1 and 400 then format('keep_cancelled_days must be 1 to 400, not %s', v_new ->> 'keep_cancelled_days')
    when (v_new ->> 'keep_frozen_days')::numeric not between 1 and 36500 then format('keep_frozen_days must be 1 to 36500, not %s', v_new ->> 'keep_frozen_days')
    when v_new ->> 'run_in' not in ('loop', 'thread', 'process') then format('run_in must be loop, thread or process, not %s', v_new ->> 'run_in')
  end;
  if v_bad is not null then
    raise exception 'octop: %', v_bad using errcode = 'OC113', hint = 'Nothing was written. null is the default.';
  end if;
  return new;
end $$;
comment on function _octop_order_check() is 'Refuses names that are none and numbers out of bounds in queues and task types, and says the bounds (OC110, OC113).';
create or replace trigger octop_queues_name_check before insert or update on octop_queues for each row execute function _octop_order_check();
create or replace trigger octop_task_types_name_check before insert or update on octop_task_types for each row execute function _octop_order_check();

create or replace function _octop_policy_check() returns trigger
  language plpgsql security definer set search_path from current
as $$
begin
  perform _octop_check_retry_policy(new.retry_policy);
  new.updated_at := _octop_now();
  return new;
end $$;
comment on function _octop_policy_check() is 'Refuses a bad retry policy where it enters.';
create or replace trigger octop_queues_policy_check before insert or update on octop_queues
  for each row execute function _octop_policy_check();
create or replace trigger octop_task_types_policy_check before insert or update on octop_task_types
  for each row execute function _octop_policy_check();

create or replace function _octop_by_hand(context text) returns boolean
  language sql immutable parallel safe
  return context !~ '[[:<:]](octop_register|octop_drain|octop_deregister|octop_lost|octop_sweep|octop_upkeep)["(]';   -- no word of the server's language
comment on function _octop_by_hand(text) is
  'Is none of the engine''s functions that change attempts and workers in this call stack (PG_CONTEXT)? They run as the owner, so the role does not tell.';

create or replace function _octop_attempts_deleted() returns trigger
  language plpgsql security definer set search_path from current
as $$
declare
  v_context text;
begin
  get diagnostics v_context = pg_context;
  if _octop_by_hand(v_context) then
    -- under the task's id, where somebody will look for it
    perform _octop_audit_write('delete attempts', o.task_id::text, jsonb_build_object('was', jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
              'attempt', o.attempt, 'outcome', o.outcome, 'ended_at', o.ended_at, 'error_class', o.error_class)) order by o.attempt)))
       from old_rows o group by o.task_id;
  end if;
  return null;
end $$;
comment on function _octop_attempts_deleted() is 'DELETE from octop_attempts by hand: the audit keeps which, task by task. Once for each statement of the purge.';

create or replace function _octop_row_changed_by_hand() returns trigger
  language plpgsql security definer set search_path from current
as $$
declare
  v_context text;
  v_what    text := case tg_table_name when 'octop_attempts' then 'attempt' else 'worker' end;
  v_old     jsonb := to_jsonb(old);
  v_new     jsonb := case when tg_op = 'UPDATE' then to_jsonb(new) end;
begin
  get diagnostics v_context = pg_context;
  if _octop_by_hand(v_context) and v_old is distinct from v_new then
    perform _octop_audit_write(lower(tg_op) || ' ' || v_what, v_old ->> case v_what when 'attempt' then 'task_id' else 'id' end,
              case when v_new is null then jsonb_build_object('was', v_old)
                   else jsonb_strip_nulls(jsonb_build_object('attempt', v_old -> 'attempt')) || (
                          select jsonb_build_object('from', jsonb_object_agg(n.key, o.value), 'to', jsonb_object_agg(n.key, n.value))
                            from jsonb_each(v_new) n join jsonb_each(v_old) o using (key) where n.value <> o.value) end);
  end if;
  return null;
end $$;
comment on function _octop_row_changed_by_hand() is 'UPDATE of an attempt, UPDATE or DELETE of a worker, by hand: what was changed goes to the audit.';
create or replace trigger octop_attempts_deleted_by_hand after delete on octop_attempts
  referencing old table as old_rows for each statement execute function _octop_attempts_deleted();
-- the engine never updates an attempt; a beat sets beat_at and beating_since alone, for which this trigger does not fire
create or replace trigger octop_attempts_updated_by_hand after update on octop_attempts
  for each row execute function _octop_row_changed_by_hand();
create or replace trigger octop_workers_updated_by_hand
  after update of id, name, host, pid, supervisor_id, version, queues, task_types, versions, started_at, draining on octop_workers
  for each row execute function _octop_row_changed_by_hand();
create or replace trigger octop_workers_deleted_by_hand after delete on octop_workers
  for each row execute function _octop_row_changed_by_hand();

create or replace function _octop_before_truncate() returns trigger
  language plpgsql security definer set search_path from current
as $$
declare
  v_rows jsonb;
begin
  if tg_table_name <> 'octop_attempts' then
    execute format('select jsonb_agg(to_jsonb(t)) from (select * from %I limit 1000) t', tg_table_name) into v_rows;
  end if;
  perform _octop_audit_write('truncate', tg_table_name, jsonb_strip_nulls(jsonb_build_object('was', v_rows)));
  if tg_table_name = 'octop_config' then
    perform _octop_audit_write('config', c.key, jsonb_build_object('from', c.value -> 'value', 'to', k.default_value))
       from octop_config c join octop_config_keys() k on k.key = c.key where k.default_value <> c.value -> 'value';
  end if;
  return null;
end $$;
comment on function _octop_before_truncate() is 'TRUNCATE of another table than octop_tasks: the audit keeps what it was, at most 1,000 rows, of attempts none.';

create or replace function _octop_after_truncate() returns trigger
  language plpgsql security definer set search_path from current
as $$
begin
  if tg_table_name = 'octop_config' then
    insert into octop_config (key, value) select k.key, jsonb_build_object('value', k.default_value) from octop_config_keys() k;
  else
    update _octop_control set version = version + 1;
  end if;
  return null;
end $$;
comment on function _octop_after_truncate() is 'TRUNCATE of settings brings all defaults back, as DELETE does; of orders: running workers look.';
create or replace trigger octop_attempts_truncate before truncate on octop_attempts for each statement execute function _octop_before_truncate();
create or replace trigger octop_workers_truncate before truncate on octop_workers for each statement execute function _octop_before_truncate();
create or replace trigger octop_config_truncate before truncate on octop_config for each statement execute function _octop_before_truncate();
create or replace trigger octop_queues_truncate before truncate on octop_queues for each statement execute function _octop_before_truncate();
create or replace trigger octop_task_types_truncate before truncate on octop_task_types for each statement execute function _octop_before_truncate();
create or replace trigger octop_holds_truncate before truncate on octop_holds for each statement execute function _octop_before_truncate();
create or replace trigger octop_config_truncated after truncate on octop_config for each statement execute function _octop_after_truncate();
create or replace trigger octop_queues_truncated after truncate on octop_queues for each statement execute function _octop_after_truncate();
create or replace trigger octop_task_types_truncated after truncate on octop_task_types for each statement execute function _octop_after_truncate();
create or replace trigger octop_holds_truncated after truncate on octop_holds for each statement execute function _octop_after_truncate();
