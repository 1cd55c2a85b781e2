-- Who may do what. Promise: the least that each role needs; EXECUTE revoked from PUBLIC; no grant on a leaf, ever; a right that
-- is not listed here does not exist. :"owner" and the other names in this form are roles; the installer puts them in.

do $$
declare
  r record;
begin
  -- only what is ours: the schema may hold other things
  for r in select p.oid::regprocedure as it from pg_proc p
            where p.pronamespace = (select n.oid from pg_namespace n where n.nspname = current_schema()) and p.proname ~ '^_?octop_'
              and p.proowner = (select o.oid from pg_roles o where o.rolname = current_user) loop
    execute format('revoke all on function %s from public', r.it);
  end loop;
end $$;

-- producer: registers tasks in its own transactions, sees and cancels its own
grant insert (id, tenant, queue, lane, task_type, payload, priority, scheduled_at, max_retries, timeout_seconds, retry_policy, tags, meta,
              min_version, unique_key, unique_scope),
      select (id) on octop_tasks to :"producer";
grant usage on sequence octop_tasks_seq to :"producer";
grant select on octop_my_tasks to :"producer";
grant execute on function
  _octop_now(), octop_uuid7(), octop_uuid_time(uuid), _octop_caller(),
  octop_enqueue(text, jsonb, text, text, text, integer, timestamptz, double precision, integer, double precision, jsonb, text[], jsonb, uuid, integer, text[], text, text, text),
  octop_enqueue_many(text[], text[], uuid[], text[], text[], text[], integer[], timestamptz[], double precision[], integer[], double precision[],
                     text[], text[], text[], uuid[], boolean, text[], integer[], integer[], text[], text[], text[], text[]),
  octop_task(uuid), octop_why(uuid), octop_cancel(uuid, text), octop_cancel_many(uuid[], text)
  to :"producer";

-- worker: claims and reports; nothing that acts on other people's tasks
grant execute on function
  _octop_now(), octop_uuid7(), octop_uuid_time(uuid),
  octop_exchange(uuid, text[], integer[], text[], text[], uuid[], integer[], uuid[], text[], jsonb, boolean, boolean, integer[], timestamptz[], uuid[]),
  octop_sleep(uuid, text[], double precision), octop_doubt(), octop_doubtful(xid8),
  octop_register(uuid, text, text, integer, uuid, text, text[], jsonb), octop_declare_task_types(jsonb),
  octop_beat(uuid[]), octop_owned(uuid, uuid[], integer[], uuid[]), octop_control(uuid, uuid[], integer[]), octop_settings(),
  octop_drain(uuid), octop_deregister(uuid), octop_release_unheld(uuid, uuid[]), octop_lost(uuid), octop_remaining(text[], text[], integer[]), octop_sweep(uuid),
  octop_take_alerts(uuid, text, integer), octop_alert_tried(uuid, text, bigint, text),
  octop_make_days(integer), octop_task(uuid), octop_wanted_processes(uuid, text[], integer, integer, integer, integer)
  to :"worker";
grant execute on function octop_declare_queues(jsonb) to :"worker";
grant select on octop_config, octop_migrations to :"worker", :"producer";

-- viewer: reads everything
grant select on octop_tasks, octop_attempts, octop_config, octop_queues, octop_task_types, octop_workers, octop_holds, octop_alerts, octop_alert_deliveries, octop_audit, octop_migrations,
  octop_task_summary, octop_failed_tasks, octop_running_tasks, octop_queue_summary, octop_worker_summary, octop_throughput, octop_latest_failures,
  octop_my_tasks, octop_failure_groups, octop_chores
  to :"viewer", :"operator";
grant execute on function
  _octop_now(), octop_uuid_time(uuid), octop_task(uuid), octop_why(uuid), octop_config_keys(), _octop_setting(text), _octop_caller(), _octop_summary(), _octop_counted(),
  _octop_queue_counts(), octop_settings(), octop_retry_delay(jsonb, integer),
  octop_error_pattern(text, text), octop_failed_attempts(timestamptz, integer)
  to :"viewer", :"operator";

grant select on octop_queue_limits to :"viewer", :"operator";
grant execute on function _octop_queue_limits(), octop_lanes(text, integer) to :"viewer", :"operator";

-- operator: acts
grant delete on octop_queues, octop_task_types to :"operator";
grant insert, update, delete on octop_config to :"operator";
grant update (worker_limit, max_retries, timeout_seconds, retry_policy, watermark_high, watermark_low, critical),
      insert (name, worker_limit, max_retries, timeout_seconds, retry_policy, watermark_high, watermark_low, critical)
  on octop_queues to :"operator";
grant update (global_limit, lane_limit, rate, burst, lane_rate, lane_burst, ordered, lane_weights, ageing_seconds, windows),
      insert (global_limit, lane_limit, rate, burst, lane_rate, lane_burst, ordered, lane_weights, ageing_seconds, windows)
  on octop_queues to :"operator";
grant execute on function octop_set_queue(text, jsonb) to :"operator";
grant update (queue, priority, max_retries, timeout_seconds, retry_policy, freeze_type_on_exhaustion) on octop_task_types to :"operator";
grant execute on function
  octop_cancel(uuid, text), octop_retry(uuid), octop_delete(uuid), octop_cancel_many(uuid[], text), octop_retry_many(uuid[]), octop_delete_many(uuid[]),
  octop_ack_alerts(bigint[]), octop_hold(text, text, text, text, text, timestamptz), octop_lift(text, text, text, text),
  octop_pause(text, text, timestamptz), octop_resume(text), octop_scale(text, integer),
  octop_freeze(text, text, timestamptz), octop_thaw(text), octop_config_set(text, jsonb), octop_lost(uuid), octop_sweep(uuid), octop_make_days(integer), octop_drop_days(integer, integer), octop_uuid7(), octop_recount()
  to :"operator";

-- everyone: what a cron expression means; it reads no table
grant execute on function
  octop_cron_check(text, text), octop_cron_explain(text), octop_cron_next(text, text, timestamptz), octop_cron_next_n(text, text, timestamptz, integer)
  to :"producer", :"worker", :"viewer", :"operator";

-- what a worker's sweep does without one: pg_cron or anybody. A role that has this and octop_tick alone can do nothing else.
grant execute on function octop_upkeep(integer) to :"worker", :"operator";
grant execute on function octop_days_over(integer) to :"viewer", :"operator";
grant update (keep_success_days, keep_cancelled_days, keep_frozen_days), insert (keep_success_days, keep_cancelled_days, keep_frozen_days) on octop_queues to :"operator";

-- schedules: workers fire and declare, who reads may read, operators order
grant execute on function octop_tick(integer), octop_declare_schedules(jsonb, boolean, boolean) to :"worker", :"operator";
grant select on octop_schedules, octop_schedule_slots, octop_backfills, octop_schedule_list, octop_schedule_history to :"viewer", :"operator";
grant insert (name, tenant, rule, timezone, task_type, payload, queue, lane, priority, max_retries, timeout_seconds, tags, meta, starts_at, ends_at, catch_up, catch_up_max, overlap,
              jitter_seconds, late_after_seconds, expected_seconds, deadline_seconds),
      update (rule, timezone, task_type, payload, queue, lane, priority, max_retries, timeout_seconds, tags, meta, starts_at, ends_at, catch_up, catch_up_max, overlap,
              jitter_seconds, late_after_seconds, expected_seconds, deadline_seconds), delete
  on octop_schedules to :"operator";
grant execute on function
  octop_put_schedule(text, jsonb, text), octop_drop_schedule(text, text), octop_pause_schedule(text, text, text), octop_resume_schedule(text, text), octop_run_schedule(text, text),
  octop_backfill_schedule(text, timestamptz, timestamptz, integer, text), octop_cancel_backfill(uuid)
  to :"operator";
grant execute on function _octop_schedule_changes(octop_schedules) to :"viewer", :"operator";
