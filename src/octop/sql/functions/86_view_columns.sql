-- What each column of the views means: psql's \d+ shows it, the reference is made of it. Promise: every column has a comment; one that is a
-- table's own column says what it says there.

do $$
declare
  r record;
begin
  for r in
    select v.view, a.attname, col_description(t.attrelid, t.attnum) as text
      from (values ('octop_failed_tasks', 'octop_tasks'), ('octop_running_tasks', 'octop_tasks'), ('octop_my_tasks', 'octop_tasks'),
                   ('octop_worker_summary', 'octop_workers'), ('octop_latest_failures', 'octop_attempts'), ('octop_schedule_list', 'octop_schedules'), ('octop_schedule_history', 'octop_schedule_slots')) v (view, of_table)
      join pg_attribute a on a.attrelid = to_regclass(v.view) and a.attnum > 0 and not a.attisdropped
      join pg_attribute t on t.attrelid = to_regclass(v.of_table) and t.attname = a.attname
  loop
    execute format('comment on column %I.%I is %L', r.view, r.attname, r.text);
  end loop;
end $$;

comment on column octop_task_summary.status is 'Status of the tasks; one that no task has is left out.';
comment on column octop_task_summary.count is 'How many. Exact up to 10,000, and for running tasks; beyond that and for finished tasks from counters.';
comment on column octop_task_summary.earliest_scheduled is 'Earliest scheduled_at, of at most 10,000 tasks; of finished ones all that are kept.';
comment on column octop_task_summary.latest_scheduled is 'Latest scheduled_at, of the same tasks.';
comment on column octop_task_summary.avg_delay_seconds is 'Mean of now minus scheduled_at, in seconds, of the same tasks; negative = most are due in the future.';

comment on column octop_failed_tasks.age_seconds is 'Seconds since created_at.';

comment on column octop_running_tasks.worker_name is 'Label of its worker. Null, as host and pid, if somebody deleted the worker''s row.';
comment on column octop_running_tasks.worker_host is 'Where its worker runs.';
comment on column octop_running_tasks.worker_pid is 'Process id of its worker on that host.';
comment on column octop_running_tasks.running_seconds is 'Seconds since started_at.';

comment on column octop_queue_summary.name is 'Name of the queue: declared, limited, paused, served by a living worker, or with tasks that wait.';
comment on column octop_queue_summary.waiting is 'Tasks that are pending or failed (wait for a retry). Exact up to 10,000, beyond that from counters.';
comment on column octop_queue_summary.due is 'Those of them that could start now; of 10,000 at most.';
comment on column octop_queue_summary.running is 'Tasks that run now.';
comment on column octop_queue_summary.blocked is 'Tasks that wait for something else than time, such as a frozen or unknown task type; of 10,000 blocked tasks of all queues at most.';
comment on column octop_queue_summary.oldest_due_at is 'scheduled_at of the task that has been due for longest, of 10,000 at most. Null = none is due.';
comment on column octop_queue_summary.next_due_at is 'When the next task becomes due: perhaps too early, never too late. Null = none waits for the future.';
comment on column octop_queue_summary.paused is 'Is it paused?';
comment on column octop_queue_summary.pause_ends_at is 'When the pause ends by itself. Null = when somebody lifts it.';
comment on column octop_queue_summary.pause_reason is 'Why, at most 1,000 characters; empty if nobody said. Null = not paused.';
comment on column octop_queue_summary.paused_by is 'Role that paused it. Null = not paused.';
comment on column octop_queue_summary.paused_at is 'Since when. Null = not paused.';
comment on column octop_queue_summary.worker_limit is 'The operator''s limit: tasks that one worker process runs at once. Null = the workers'' own flags.';
comment on column octop_queue_summary.workers is 'Living workers that serve it and are not draining.';

comment on column octop_worker_summary.task_types is 'How many task types it knows.';
comment on column octop_worker_summary.silent_seconds is 'Seconds since its last accepted heartbeat.';
comment on column octop_worker_summary.state is 'alive, draining (ends its tasks, claims no more) or silent (longer than worker.lease_seconds: its tasks are given to others).';
comment on column octop_worker_summary.running is 'Tasks that it runs now.';

comment on column octop_throughput.tenant is 'Tenant of the tasks.';
comment on column octop_throughput.queue is 'Queue of the tasks.';
comment on column octop_throughput.status is 'success, cancelled or frozen.';
comment on column octop_throughput.total is 'How many there are now: finished ones of the days that are kept. It falls when a day is dropped or frozen tasks are retried.';

comment on column octop_latest_failures.outcome is 'failure, timeout or lost.';

comment on column octop_failure_groups.group_id is 'Eight hex digits: the same for the same task type and pattern.';
comment on column octop_failure_groups.task_type is 'Task type of the attempts.';
comment on column octop_failure_groups.pattern is 'What their errors share: octop_error_pattern(class, message); the outcome if there is neither.';
comment on column octop_failure_groups.attempts is 'How many attempts, among the latest 10,000.';
comment on column octop_failure_groups.tasks is 'Of how many tasks.';
comment on column octop_failure_groups.first_at is 'When the first of them ended.';
comment on column octop_failure_groups.last_at is 'When the latest of them ended.';
comment on column octop_failure_groups.example_task_id is 'Task of the latest of them.';
comment on column octop_failure_groups.example_message is 'Text of its exception, at most 1,000 characters. Null if it had none.';

comment on column octop_chores.name is 'days (make and drop days of history, each 10 minutes) or purge (old attempts and workers, each 10 seconds).';
comment on column octop_chores.next_at is 'Not before this moment. Null = never done yet.';
comment on column octop_chores.overdue_seconds is 'Seconds since next_at, 0 before it. Null = never done yet.';

comment on column octop_schedule_list.explained is 'The rule in English.';
comment on column octop_schedule_list.state is 'active, paused, ended (no slot is to come), failing (its last slot made no task: last_error), stopped (it cannot fire: last_error), overdue (a slot is late: nobody fires).';
comment on column octop_schedule_list.next_slot is 'The slot that is fired next. Null = never again, or it is paused.';
comment on column octop_schedule_list.last_task_status is 'Status of that task. Null = there is none, or it is no longer kept.';
comment on column octop_schedule_list.overdue_seconds is 'Seconds since next_slot, which should have been fired. Null = it is to come.';
comment on column octop_schedule_list.is_declared is 'Does an application''s code declare it?';
comment on column octop_schedule_list.changes is 'What somebody has changed of what code declares, by column: is, declared. {} = nothing, null = no code declares it.';

comment on column octop_schedule_history.name is 'octop_schedules.name.';
comment on column octop_schedule_history.tenant is 'octop_schedules.tenant.';
comment on column octop_schedule_history.timezone is 'Name of the schedule''s time zone.';
comment on column octop_schedule_history.late_seconds is 'Seconds from the slot to the moment when this row was written.';
comment on column octop_schedule_history.task_status is 'Status of that task. Null = there is none, or it is no longer kept.';
comment on column octop_schedule_history.started_at is 'When its last attempt was started.';
comment on column octop_schedule_history.completed_at is 'When it ended.';
comment on column octop_schedule_history.last_error is 'Why its last attempt failed.';
