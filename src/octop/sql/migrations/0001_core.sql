-- The tables of the scheduler. Statuses and names are the contract; see the comments on each object.
-- Readers see one table, octop_tasks. Underneath, what is hot (live), what waits for a person (frozen) and history (done, by
-- day) lie apart, so that the hot part stays small and history is dropped, never deleted.

create sequence octop_tasks_seq;
comment on sequence octop_tasks_seq is 'Order of enqueue: octop_tasks.seq. Gaps are normal (rollbacks).';

-- Order of columns: fixed width and never null first (reading attributes is the top line of a claim's profile), then text, then what is often null.
create table octop_tasks (
  id              uuid        not null default octop_uuid7(),
  seq             bigint      not null default nextval('octop_tasks_seq'),
  scheduled_at    timestamptz not null default _octop_now(),
  created_at      timestamptz not null default _octop_now(),
  retry_count     integer     not null default 0,
  attempt         integer     not null default 0,
  priority        smallint    not null default 5,
  lost_count      smallint    not null default 0,
  status          text        collate "C" not null default 'pending',
  queue           text        collate "C" not null default 'default',
  lane            text        collate "C" not null default '',
  tenant          text        collate "C" not null default '',
  task_type       text        collate "C" not null,
  -- as _octop_caller(), which comes later: in a function of another owner a task is still made by who called it
  created_by      text        collate "C" not null default coalesce(nullif(current_setting('role', true), 'none'), session_user),
  payload         jsonb       not null default '{}',
  due_at          timestamptz,
  started_at      timestamptz,
  completed_at    timestamptz,
  deadline_at     timestamptz,
  worker_id       uuid,
  claim_id        uuid,
  max_retries     integer,
  min_version     integer,
  last_error      text,
  result          jsonb,
  timeout_seconds double precision,
  cancel_requested_at timestamptz,
  blocked_by      text        collate "C",
  retry_policy    jsonb,
  tags            text[],
  meta            jsonb,
  retry_of        uuid
) partition by list (status);

comment on table octop_tasks is
  'All tasks. INSERT here registers a task in your transaction. The owner may repair by UPDATE of status: frozen or failed to pending, '
  'running to pending or failed (fences the worker), anything unfinished to cancelled. Everything else goes through the octop_ functions. '
  'Refused by hand: another id, seq, created_at or attempt; of a running task another queue, lane, tenant, task_type or payload, worker_id, claim_id or started_at.';
comment on column octop_tasks.id is 'Time-ordered UUID (version 7) made by the client or by default. Unique among live and frozen tasks.';
comment on column octop_tasks.seq is 'Order of enqueue, kept for life.';
comment on column octop_tasks.tenant is 'Whose task this is; empty for a single tenant. Part of every key.';
comment on column octop_tasks.queue is 'Where the task waits, 1 to 200 characters.';
comment on column octop_tasks.lane is 'Tasks of one queue that share a key (a customer, an account). Empty = no lane. Lanes take turns.';
comment on column octop_tasks.task_type is 'Name under which a function is registered, 1 to 200 characters.';
comment on column octop_tasks.payload is 'Arguments by name: a JSON object of at most task.payload_bytes_max bytes.';
comment on column octop_tasks.status is 'pending, running, failed (waits for its retry), blocked (waits for something else than time), frozen (retries used up), success, cancelled.';
comment on column octop_tasks.priority is '0 runs first, 9 last.';
comment on column octop_tasks.scheduled_at is 'When the task may start next. A retry moves it.';
comment on column octop_tasks.due_at is 'When the task was first due; set by the first claim. Delays are counted from it.';
comment on column octop_tasks.created_at is 'When the task was registered (start of that transaction).';
comment on column octop_tasks.started_at is 'When the current or last attempt was claimed.';
comment on column octop_tasks.completed_at is 'When the task reached success or cancelled.';
comment on column octop_tasks.retry_count is 'Tries used up beyond the first: failures, timeouts and lost workers; releases and snoozes do not count.';
comment on column octop_tasks.max_retries is 'Further tries after the first, 0 to 1000. Null = the task type''s, else the queue''s, else task.default_max_retries.';
comment on column octop_tasks.min_version is 'Smallest version of the task type''s code that may run it, 1 to 1000: workers with older code leave it to others. Null = any.';
comment on column octop_tasks.last_error is 'Short form of the last error, at most 1,024 characters. The long form is in octop_attempts.';
comment on column octop_tasks.result is 'What the function returned, as JSON.';
comment on column octop_tasks.timeout_seconds is 'Time limit of one attempt. Null = the task type''s, else the queue''s, else task.default_timeout_seconds.';
comment on column octop_tasks.deadline_at is 'started_at plus the time limit that holds for the running attempt.';
comment on column octop_tasks.attempt is 'Number of starts. With worker_id and claim_id the fence: a write for another attempt changes nothing.';
comment on column octop_tasks.lost_count is 'Attempts whose worker died. From the first one on the task runs in a process of its own.';
comment on column octop_tasks.worker_id is 'The worker that runs, or last ran, the task.';
comment on column octop_tasks.claim_id is 'Random id of the exchange that claimed the task.';
comment on column octop_tasks.cancel_requested_at is 'Set when a running task is to be cancelled; its worker sees it within a second.';
comment on column octop_tasks.blocked_by is 'What a blocked task waits for, as kind:name.';
comment on column octop_tasks.retry_policy is 'Retry delays of this task: {"base","growth","cap","jitter"} or {"delays":[…]}, and {"final":[exception names]}. Null = the task type''s.';
comment on column octop_tasks.tags is 'Labels to find tasks by: at most 50, none null, together at most 8,000 bytes, without control characters.';
comment on column octop_tasks.meta is 'Riders such as trace context: a JSON object of at most 65,536 bytes that the engine carries and never reads.';
comment on column octop_tasks.retry_of is 'The finished task of which this one is a repetition.';
comment on column octop_tasks.created_by is 'Who registered the task: the role chosen by SET ROLE, else the login, also inside SECURITY DEFINER functions. A repetition keeps it.';

-- Born here and refused here: what would stop a worker later never gets in. Constraints stand on the leaf only: a move to
-- frozen or done needs no second check (three short checks cost 1 % of a claim, five cost 4 %). Of a refusal a person sees the name alone:
-- it says the bounds, as far as 63 characters go. The priority, which people write most, has its own; one for each number would be dearer.
create table octop_tasks_live partition of octop_tasks (
  primary key (id),
  constraint octop_tasks_live_names_are_1_to_200_long check (
    length(task_type) between 1 and 200 and length(queue) between 1 and 200 and length(lane) <= 200 and length(tenant) <= 200),
  constraint octop_tasks_live_payload_is_an_object check (
    jsonb_typeof(payload) = 'object' and (meta is null or jsonb_typeof(meta) = 'object')),
  constraint octop_tasks_live_priority_is_0_to_9 check (priority between 0 and 9),
  constraint octop_tasks_live_retries_and_version_to_1000_timeout_to_31_days check (
    retry_count >= 0 and attempt >= 0
    and (max_retries is null or max_retries between 0 and 1000) and (min_version is null or min_version between 1 and 1000)
    and (timeout_seconds is null or (timeout_seconds > 0 and timeout_seconds <= 2678400))
    and (last_error is null or length(last_error) <= 1024)),
  constraint octop_tasks_live_times_are_in_years_2000_to_2999 check (
    scheduled_at >= '2000-01-01 00:00:00+00' and scheduled_at < '3000-01-01 00:00:00+00'
    and created_at >= '2000-01-01 00:00:00+00' and created_at < '3000-01-01 00:00:00+00'
    and (due_at is null or (due_at >= '2000-01-01 00:00:00+00' and due_at < '3000-01-01 00:00:00+00')))
) for values in ('pending', 'running', 'failed', 'blocked')
  with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
comment on table octop_tasks_live is 'Leaf of octop_tasks: unfinished tasks. Small and hot. The engine names it, people name octop_tasks.';
comment on constraint octop_tasks_live_names_are_1_to_200_long on octop_tasks_live is 'Task type and queue have 1 to 200 characters, lane and tenant at most 200.';
comment on constraint octop_tasks_live_payload_is_an_object on octop_tasks_live is 'payload and meta are JSON objects.';
comment on constraint octop_tasks_live_priority_is_0_to_9 on octop_tasks_live is '0 to 9: 0 runs first.';
comment on constraint octop_tasks_live_retries_and_version_to_1000_timeout_to_31_days on octop_tasks_live is 'max_retries 0 to 1000, min_version 1 to 1000, timeout_seconds above 0 and at most 2678400 (31 days); retry_count and attempt not below 0, last_error at most 1,024 characters.';
comment on constraint octop_tasks_live_times_are_in_years_2000_to_2999 on octop_tasks_live is 'scheduled_at, due_at and created_at lie between the years 2000 and 3000.';

-- The one index that every waiting task pays for: a claim reads it from the front, priority by priority.
create index octop_tasks_live_ready on octop_tasks_live (queue, lane, priority, scheduled_at, id)
  where status in ('pending', 'failed');
comment on index octop_tasks_live_ready is 'Claims: what is due, by queue, lane and priority.';
-- Small: only what runs. Rescue, deadlines, limits. Completion must never use it (it holds all dead versions of a worker's tasks).
create index octop_tasks_live_running on octop_tasks_live (queue, lane, worker_id) where status = 'running';
comment on index octop_tasks_live_running is 'Sweep, deadlines and limits: what runs now.';
create index octop_tasks_live_failed on octop_tasks_live (created_at) where status = 'failed';
comment on index octop_tasks_live_failed is 'Lists of tasks that wait for a retry.';
create index octop_tasks_live_blocked on octop_tasks_live (blocked_by, queue, scheduled_at, id) where status = 'blocked';
comment on index octop_tasks_live_blocked is 'Bringing back what a hold or an unknown task type had parked.';

-- Looked at by every worker each second; empty but for the moments between a cancel and its effect.
create index octop_tasks_live_cancel on octop_tasks_live (worker_id) where cancel_requested_at is not null;
comment on index octop_tasks_live_cancel is 'Running tasks that are to be cancelled, by worker.';

create table octop_tasks_frozen partition of octop_tasks (primary key (id)) for values in ('frozen');
comment on table octop_tasks_frozen is 'Leaf of octop_tasks: retries used up. Kept until somebody retries, cancels or deletes.';
create index octop_tasks_frozen_created_at on octop_tasks_frozen (created_at);
comment on index octop_tasks_frozen_created_at is 'Lists of frozen tasks, newest first.';

create table octop_tasks_done partition of octop_tasks for values in ('success', 'cancelled') partition by range (completed_at);
comment on table octop_tasks_done is 'Part of octop_tasks: finished tasks, one partition a day (UTC) of completed_at. Retention drops whole days.';
create index octop_tasks_done_id on octop_tasks_done (id);
comment on index octop_tasks_done_id is 'octop_task(id) looks day by day.';
create table octop_tasks_done_stray partition of octop_tasks_done default;
comment on table octop_tasks_done_stray is 'Finished tasks whose day has no partition yet: no outcome can fail for want of a day. Moved when the day is made.';

-- Empty for ever: what would have gone nowhere goes here and is refused with the list of statuses. (No trigger can come before the routing
-- without standing on the hot leaf.) Its key lets look-ups by id use an index here too.
create table octop_tasks_unknown partition of octop_tasks (primary key (id)) default;
comment on table octop_tasks_unknown is 'Leaf of octop_tasks without rows: refuses a status that does not exist.';

create table octop_attempts (
  task_id       uuid        not null,
  attempt       integer     not null,
  tenant        text        collate "C" not null,
  queue         text        collate "C" not null,
  task_type     text        collate "C" not null,
  worker_id     uuid,
  claim_id      uuid,
  started_at    timestamptz,
  ended_at      timestamptz not null,
  outcome       text        collate "C" not null
    constraint octop_attempts_outcome_is_known check (outcome in ('failure', 'timeout', 'lost', 'snoozed', 'cancelled', 'released')),
  error_class   text,
  error_message text,
  traceback     text,
  primary key (task_id, attempt)
);
comment on table octop_attempts is 'Every ended attempt that was not a plain success, with its error in full. Kept as long as its task, or the retention time.';
comment on column octop_attempts.task_id is 'The task (no foreign key: history is dropped by day).';
comment on column octop_attempts.attempt is 'Number of the start, from 1.';
comment on column octop_attempts.tenant is 'Tenant of the task.';
comment on column octop_attempts.queue is 'Queue of the task at that time.';
comment on column octop_attempts.task_type is 'Task type of the task.';
comment on column octop_attempts.worker_id is 'The worker that ran it.';
comment on column octop_attempts.claim_id is 'The exchange that claimed it.';
comment on column octop_attempts.started_at is 'When it was claimed.';
comment on column octop_attempts.ended_at is 'When its end was recorded.';
comment on column octop_attempts.outcome is 'failure, timeout, lost, snoozed, cancelled or released.';
comment on column octop_attempts.error_class is 'Qualified name of the exception class.';
comment on column octop_attempts.error_message is 'Text of the exception, at most 10,000 characters.';
comment on column octop_attempts.traceback is 'Traceback, at most 50,000 characters, the end is kept.';
comment on constraint octop_attempts_outcome_is_known on octop_attempts is 'failure, timeout, lost, snoozed, cancelled or released.';
create index octop_attempts_ended_at on octop_attempts (ended_at);
comment on index octop_attempts_ended_at is 'Retention and lists of the latest failures.';

create table octop_config (
  key        text        collate "C" primary key,
  value      jsonb       not null,
  updated_at timestamptz default _octop_now()
);
comment on table octop_config is
  'Settings that rule while it runs. Values look like {"value": 5}. INSERT of an existing key is an update (psql says INSERT 0 0), DELETE goes back to the default. '
  'Running workers follow within a second. octop_config_keys() lists keys, bounds and defaults.';
comment on column octop_config.key is 'Name of the setting, as in octop_config_keys().';
comment on column octop_config.value is '{"value": …}, of the type and within the bounds of the key.';
comment on column octop_config.updated_at is 'When it was last changed.';

create table octop_queues (
  name            text        collate "C" primary key
    constraint octop_queues_name_is_1_to_200_long check (length(name) between 1 and 200),
  worker_limit    integer     constraint octop_queues_worker_limit_is_in_range check (worker_limit between 0 and 10000),
  max_retries     integer     constraint octop_queues_max_retries_is_in_range check (max_retries between 0 and 1000),
  timeout_seconds double precision
    constraint octop_queues_timeout_is_in_range check (timeout_seconds > 0 and timeout_seconds <= 2678400),
  retry_policy    jsonb,
  declared        jsonb       not null default '{}',
  created_at      timestamptz not null default _octop_now(),
  updated_at      timestamptz not null default _octop_now()
);
comment on table octop_queues is
  'Queues that a worker declared or an operator set. A column that differs from "declared" was set by an operator and wins over flags and files until it is reset.';
comment on column octop_queues.name is 'Name of the queue, 1 to 200 characters.';
comment on column octop_queues.worker_limit is 'Tasks that one worker process runs at once from this queue, 0 to 10,000. Null = the worker''s own flag.';
comment on column octop_queues.max_retries is 'Default for tasks of this queue whose type says nothing.';
comment on column octop_queues.timeout_seconds is 'Default time limit for tasks of this queue whose type says nothing.';
comment on column octop_queues.retry_policy is 'Default retry delays, as in octop_tasks.retry_policy.';
comment on column octop_queues.declared is 'What the last registered application declared; what "reset" goes back to.';
comment on column octop_queues.created_at is 'When the queue was first seen.';
comment on column octop_queues.updated_at is 'When the row last changed.';
comment on constraint octop_queues_name_is_1_to_200_long on octop_queues is '1 to 200 characters.';
comment on constraint octop_queues_worker_limit_is_in_range on octop_queues is '0 to 10,000.';
comment on constraint octop_queues_max_retries_is_in_range on octop_queues is '0 to 1,000.';
comment on constraint octop_queues_timeout_is_in_range on octop_queues is 'Above 0, at most 31 days.';

create table octop_task_types (
  name            text        collate "C" primary key
    constraint octop_task_types_name_is_1_to_200_long check (length(name) between 1 and 200),
  queue           text        collate "C"
    constraint octop_task_types_queue_is_1_to_200_long check (length(queue) between 1 and 200),
  priority        smallint    constraint octop_task_types_priority_is_in_range check (priority between 0 and 9),
  max_retries     integer     constraint octop_task_types_max_retries_is_in_range check (max_retries between 0 and 1000),
  timeout_seconds double precision
    constraint octop_task_types_timeout_is_in_range check (timeout_seconds > 0 and timeout_seconds <= 2678400),
  retry_policy    jsonb,
  run_in          text        collate "C"
    constraint octop_task_types_run_in_is_known check (run_in in ('loop', 'thread', 'process')),
  description     text,
  declared        jsonb       not null default '{}',
  created_at      timestamptz not null default _octop_now(),
  updated_at      timestamptz not null default _octop_now()
);
comment on table octop_task_types is
  'Policy of each task type. Workers declare it at start; a column that differs from "declared" was set by an operator and wins until it is reset.';
comment on column octop_task_types.name is 'Name of the task type, 1 to 200 characters.';
comment on column octop_task_types.queue is 'Queue for tasks that name none.';
comment on column octop_task_types.priority is 'Priority for tasks that name none, 0 to 9.';
comment on column octop_task_types.max_retries is 'Further tries for tasks that name none.';
comment on column octop_task_types.timeout_seconds is 'Time limit for tasks that name none.';
comment on column octop_task_types.retry_policy is 'Retry delays and final exceptions, as in octop_tasks.retry_policy.';
comment on column octop_task_types.run_in is 'Where the worker runs it: loop (async), thread or process. For people: the code decides.';
comment on column octop_task_types.description is 'First line of the function''s docstring.';
comment on column octop_task_types.declared is 'What the last registered application declared; what "reset" goes back to.';
comment on column octop_task_types.created_at is 'When the type was first registered.';
comment on column octop_task_types.updated_at is 'When the row last changed.';
comment on constraint octop_task_types_name_is_1_to_200_long on octop_task_types is '1 to 200 characters.';
comment on constraint octop_task_types_queue_is_1_to_200_long on octop_task_types is '1 to 200 characters.';
comment on constraint octop_task_types_priority_is_in_range on octop_task_types is '0 to 9.';
comment on constraint octop_task_types_max_retries_is_in_range on octop_task_types is '0 to 1,000.';
comment on constraint octop_task_types_timeout_is_in_range on octop_task_types is 'Above 0, at most 31 days.';
comment on constraint octop_task_types_run_in_is_known on octop_task_types is 'loop, thread or process.';

create table octop_workers (
  id            uuid        primary key,
  name          text        not null default '',
  host          text        not null default '',
  pid           integer,
  supervisor_id uuid,
  version       text        not null default '',
  queues        text[]      collate "C" not null default '{}',
  task_types    text[]      collate "C" not null default '{}',
  versions      integer[]   not null default '{}',
  started_at    timestamptz not null default _octop_now(),
  beat_at       timestamptz not null default _octop_now(),
  beating_since timestamptz not null default _octop_now(),
  draining      boolean     not null default false
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
comment on table octop_workers is 'Who lives: one row per worker process, by an id that is new at each start. Name and host are labels only.';
comment on column octop_workers.id is 'New at each start, never reused.';
comment on column octop_workers.name is 'Label chosen by the operator.';
comment on column octop_workers.host is 'Label: where it runs.';
comment on column octop_workers.pid is 'Label: process id on that host.';
comment on column octop_workers.supervisor_id is 'Id of the supervisor that beats for it.';
comment on column octop_workers.version is 'Version of the package that it runs.';
comment on column octop_workers.queues is 'Queues that it serves.';
comment on column octop_workers.task_types is 'Task types that it knows.';
comment on column octop_workers.versions is 'Version of its code for each of task_types, in the same order; none = 1.';
comment on column octop_workers.started_at is 'When it registered.';
comment on column octop_workers.beat_at is 'Last accepted heartbeat. Older than worker.lease_seconds = its tasks are given to others.';
comment on column octop_workers.beating_since is 'Start of its unbroken beats: only who has beaten for a whole lease may judge others.';
comment on column octop_workers.draining is 'It ends its tasks and claims no more.';

create table octop_holds (
  kind       text        collate "C" not null
    constraint octop_holds_kind_is_known check (kind in ('queue', 'task_type')),
  target     text        collate "C" not null,
  reason     text        not null default '',
  author     text        collate "C" not null default current_user,
  created_at timestamptz not null default _octop_now(),
  primary key (kind, target)
);
comment on table octop_holds is 'Orders not to start tasks. While a row is here, no claim that begins later takes a task of the target.';
comment on column octop_holds.kind is 'queue or task_type.';
comment on column octop_holds.target is 'Name of the queue or task type.';
comment on column octop_holds.reason is 'Why, for the next person; octop_pause and octop_freeze cut it at 1,000 characters.';
comment on column octop_holds.author is 'Role that gave the order.';
comment on column octop_holds.created_at is 'Since when.';
comment on constraint octop_holds_kind_is_known on octop_holds is 'queue or task_type.';

create table octop_audit (
  seq         bigint      generated always as identity primary key,
  xid         xid8        not null default pg_current_xact_id(),
  at          timestamptz not null default clock_timestamp(),
  role        text        collate "C" not null default session_user,
  login       text        collate "C" not null default session_user,
  application text        not null default current_setting('application_name'),
  action      text        collate "C" not null,
  subject     text        not null,
  detail      jsonb       not null default '{}'
);
comment on table octop_audit is 'Every act of a person or program on tasks, configuration, limits and holds; not what is enqueued and run, nor what the owner writes to a leaf or to this table. Append-only for everyone but the owner. Never trimmed by itself.';
comment on column octop_audit.seq is 'Order of writing.';
comment on column octop_audit.xid is 'Transaction that wrote it.';
comment on column octop_audit.at is 'Moment of writing.';
comment on column octop_audit.role is 'As whom it was done: the role chosen by SET ROLE, else the login.';
comment on column octop_audit.login is 'The role that logged in, whatever SET ROLE said.';
comment on column octop_audit.application is 'application_name of the session.';
comment on column octop_audit.action is 'What was done: cancel, retry, delete, update (tasks, by hand), update or delete attempt and worker (by hand), truncate, lost (a worker), drop day, recount, pause, resume, freeze, thaw, set or declare or forget queue or task type, config …';
comment on column octop_audit.subject is 'To what: an id or a name.';
comment on column octop_audit.detail is 'Before, after, reason.';
create index octop_audit_subject on octop_audit (subject, seq);
comment on index octop_audit_subject is 'What was done to one task, queue, task type or setting, and by whom last.';
create index octop_audit_at on octop_audit (at);
comment on index octop_audit_at is 'The latest acts.';

-- Sleepers are a hint, not state: unlogged, because after a crash every worker connects and says again that it sleeps.
create unlogged table _octop_sleepers (
  queue     text        collate "C" not null,
  worker_id uuid        not null,
  wake_at   timestamptz not null,
  primary key (queue, worker_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
comment on table _octop_sleepers is 'Which worker sleeps until when, by queue: an enqueue notifies only if somebody would oversleep it.';
comment on column _octop_sleepers.queue is 'Queue that the sleeper serves.';
comment on column _octop_sleepers.worker_id is 'Who sleeps.';
comment on column _octop_sleepers.wake_at is 'Until when, at the latest; -infinity = awake.';

create table _octop_control (
  only_row boolean primary key default true constraint _octop_control_has_one_row check (only_row),
  version  bigint  not null default 1
) with (fillfactor = 50);
comment on table _octop_control is 'One number that rises with every change of configuration, queues, task types and holds: workers look at it each second.';
comment on column _octop_control.only_row is 'Always true.';
comment on column _octop_control.version is 'Rises with every change.';
comment on constraint _octop_control_has_one_row on _octop_control is 'There is exactly one row.';
insert into _octop_control default values;

create table _octop_counters (
  tenant       text   collate "C" not null,
  queue        text   collate "C" not null,
  status       text   collate "C" not null,
  day          date   not null,
  n            bigint not null,
  scheduled_sum numeric not null default 0,
  scheduled_min timestamptz,
  scheduled_max timestamptz,
  primary key (tenant, queue, status, day)
) with (fillfactor = 70);
comment on table _octop_counters is 'Counts by status, so that no view counts millions of rows. Days only for finished tasks (UTC day of completed_at).';
comment on column _octop_counters.tenant is 'Tenant of the tasks.';
comment on column _octop_counters.queue is 'Queue of the tasks.';
comment on column _octop_counters.status is 'waiting (pending and failed), blocked, frozen, success or cancelled.';
comment on column _octop_counters.day is 'UTC day of completed_at; -infinity for what is not finished.';
comment on column _octop_counters.n is 'How many; in a delta how many more, or fewer.';
comment on column _octop_counters.scheduled_sum is 'Sum of scheduled_at in seconds, for the mean; finished tasks only.';
comment on column _octop_counters.scheduled_min is 'Earliest scheduled_at; finished tasks only.';
comment on column _octop_counters.scheduled_max is 'Latest scheduled_at; finished tasks only.';

-- the same columns: a delta is a counter that nobody has added up yet
create table _octop_counter_deltas (like _octop_counters including defaults including comments)
  with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
comment on table _octop_counter_deltas is 'What changed and is not yet in _octop_counters: appended by each exchange, so that no counter row is fought for; folded by the sweep.';

create table _octop_chores (
  name    text        collate "C" primary key,
  next_at timestamptz not null default '-infinity'
) with (fillfactor = 50);
comment on table _octop_chores is 'When each repeated duty is next due. Whoever locks the row first does it; no leader.';
comment on column _octop_chores.name is 'days, purge, or running: a walk over the running tasks, which is put off only where it takes long.';
comment on column _octop_chores.next_at is 'Not before this moment.';
