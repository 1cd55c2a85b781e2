-- Schedules: rules that make tasks at instants, the slots that came of them, and backfills over a range.

create table octop_schedules (
  id         uuid        primary key default octop_uuid7(),
  name       text        collate "C" not null,
  tenant     text        collate "C" not null default '',
  rule       text        not null,
  timezone   text        not null default 'UTC',
  task_type  text        collate "C" not null,
  payload    jsonb       not null default '{}',
  queue      text        collate "C",
  lane       text        collate "C",
  priority   smallint,
  max_retries integer,
  timeout_seconds double precision,
  tags       text[],
  meta       jsonb,
  starts_at  timestamptz,
  ends_at    timestamptz,
  catch_up   text        collate "C" not null default 'last',
  catch_up_max integer   not null default 100,
  overlap    text        collate "C" not null default 'allow',
  jitter_seconds double precision not null default 0,
  late_after_seconds double precision not null default 60,
  expected_seconds double precision,
  deadline_seconds double precision,
  paused_at  timestamptz,
  paused_by  text        collate "C",
  pause_reason text,
  declared   jsonb,
  parsed     bigint[]    not null,
  next_slot  timestamptz,
  last_slot  timestamptz,
  last_task_id uuid,
  waiting    integer     not null default 0,
  last_error text,
  created_at timestamptz not null default _octop_now(),
  created_by text        collate "C" not null default coalesce(nullif(current_setting('role', true), 'none'), session_user),
  updated_at timestamptz not null default _octop_now(),
  updated_by text        collate "C" not null default coalesce(nullif(current_setting('role', true), 'none'), session_user)
) with (fillfactor = 70);
create unique index octop_schedules_one_per_name on octop_schedules (name, tenant);
comment on index octop_schedules_one_per_name is 'A schedule is known by its name; each tenant has names of its own.';
create index octop_schedules_due on octop_schedules (next_slot) where paused_at is null and next_slot is not null;
comment on index octop_schedules_due is 'What octop_tick fires next.';
create index octop_schedules_waiting on octop_schedules (id) where waiting > 0;
comment on index octop_schedules_waiting is 'Schedules of which a slot waits for the end of the task before it.';
comment on table octop_schedules is
  'Rules that make tasks at instants. A plain INSERT of name, rule and task_type is enough; what is wrong is refused with the name of the column. octop_tick() fires what is due: any worker calls it, pg_cron may.';
comment on column octop_schedules.id is 'Time-ordered UUID.';
comment on column octop_schedules.name is '1 to 200 characters, once per tenant.';
comment on column octop_schedules.tenant is 'Whose schedule it is, and whose its tasks are; empty for a single tenant.';
comment on column octop_schedules.rule is 'Five or six cron fields, @daily and the like, @every 90s, @at 2030-01-07T09:00:00+01:00 (once), or RRULE: see octop_cron_explain.';
comment on column octop_schedules.timezone is 'Name of the time zone by whose wall clock the rule goes, as Europe/Berlin.';
comment on column octop_schedules.task_type is 'Of the tasks that it makes.';
comment on column octop_schedules.payload is 'Of its tasks: a JSON object. In its texts stand for the slot: {{slot}} (ISO 8601, UTC), {{slot.local}} (with the offset of the zone), {{slot.date}} and {{slot.time}} (of the zone''s wall clock), {{slot.epoch}}, {{previous}} and {{next}} (the slots beside it, UTC), {{schedule}} (its name).';
comment on column octop_schedules.queue is 'Of its tasks. Null = the task type''s.';
comment on column octop_schedules.lane is 'Of its tasks. Null = none.';
comment on column octop_schedules.priority is 'Of its tasks, 0 first to 9 last. Null = the task type''s.';
comment on column octop_schedules.max_retries is 'Of its tasks, 0 to 1000. Null = the task type''s.';
comment on column octop_schedules.timeout_seconds is 'Of its tasks, above 0 to 31 days. Null = the task type''s.';
comment on column octop_schedules.tags is 'Of its tasks.';
comment on column octop_schedules.meta is 'Riders of its tasks, a JSON object; schedule (the name) and slot (the instant) are added to it. Null = no others.';
comment on column octop_schedules.starts_at is 'No slot before this moment. Null = from now on.';
comment on column octop_schedules.ends_at is 'No slot after this moment. Null = without end.';
comment on column octop_schedules.catch_up is 'When several slots have passed before one could be fired: skip (the last one, if it is not late), last (the last one), all (the newest catch_up_max).';
comment on column octop_schedules.catch_up_max is 'How many slots catch_up = all fires, 1 to 10,000.';
comment on column octop_schedules.overlap is 'When the task of an earlier slot has not ended: allow (both), skip (no task for this slot), queue (its task is made when that one has ended; at most catch_up_max slots wait).';
comment on column octop_schedules.jitter_seconds is 'The task of a slot starts up to so many seconds after it, 0 to 86,400: always as many for one slot of one schedule.';
comment on column octop_schedules.late_after_seconds is 'A slot that could not be fired for longer than this is late: an alert says so. Above 0, at most a year.';
comment on column octop_schedules.expected_seconds is 'A task that runs longer raises an alert. Null = no limit.';
comment on column octop_schedules.deadline_seconds is 'A slot whose task has not succeeded so many seconds after it raises an alert. Null = no deadline.';
comment on column octop_schedules.paused_at is 'Since when it fires nothing. Null = it is not paused.';
comment on column octop_schedules.paused_by is 'Who paused it.';
comment on column octop_schedules.pause_reason is 'Why; at most 1,000 characters.';
comment on column octop_schedules.declared is 'What an application''s code declared last, by column. A column that still says so follows the next declaration; what somebody changed stays. Null = no code knows it.';
comment on column octop_schedules.parsed is 'The rule as _octop_cron_next reads it.';
comment on column octop_schedules.next_slot is 'The slot that is fired next. Null = never again.';
comment on column octop_schedules.last_slot is 'The last slot of the rule that was fired or skipped.';
comment on column octop_schedules.last_task_id is 'The task of the last slot of the rule that was fired.';
comment on column octop_schedules.waiting is 'Slots that wait for the end of the task before them (overlap = queue).';
comment on column octop_schedules.last_error is 'Why no task could be made for the last slot. Null = it was made.';
comment on column octop_schedules.created_at is 'When it was made.';
comment on column octop_schedules.created_by is 'Who made it.';
comment on column octop_schedules.updated_at is 'When a person or a program changed it last; firing does not count.';
comment on column octop_schedules.updated_by is 'Who changed it last.';

create table octop_schedule_slots (
  schedule_id uuid        not null,
  slot        timestamptz not null,
  through     timestamptz,
  status      text        collate "C" not null constraint octop_schedule_slots_status_is_known check (status in ('fired', 'skipped', 'waiting')),
  origin      text        collate "C" not null default 'due' constraint octop_schedule_slots_origin_is_known check (origin in ('due', 'caught_up', 'backfill', 'run_now')),
  reason      text,
  task_id     uuid,
  at          timestamptz not null default _octop_now(),
  check_at    timestamptz,
  primary key (schedule_id, slot)
) with (fillfactor = 85);
create index octop_schedule_slots_task_id on octop_schedule_slots (task_id) where task_id is not null;
comment on index octop_schedule_slots_task_id is 'Of which schedule and slot is a task?';
create index octop_schedule_slots_at on octop_schedule_slots (at);
comment on index octop_schedule_slots_at is 'Retention.';
create index octop_schedule_slots_check_at on octop_schedule_slots (check_at) where check_at is not null;
comment on index octop_schedule_slots_check_at is 'Tasks that are expected to end, or must have succeeded, by some moment.';
comment on table octop_schedule_slots is 'What became of each slot: its key lets a slot be fired once, whoever fires. Kept for history.retention_days.';
comment on column octop_schedule_slots.schedule_id is 'octop_schedules.id (no foreign key: history outlives a schedule that is dropped).';
comment on column octop_schedule_slots.slot is 'The instant. Of run_now: when somebody asked for it.';
comment on column octop_schedule_slots.through is 'This row stands for all slots from slot to here. Null = for one.';
comment on column octop_schedule_slots.status is 'fired, skipped (see reason), or waiting for the end of the task before it.';
comment on column octop_schedule_slots.origin is 'due, caught_up (it was late, or one of several), backfill or run_now.';
comment on column octop_schedule_slots.reason is 'Why it was skipped: late, catch_up, overlap, paused, or error: and what it said.';
comment on column octop_schedule_slots.task_id is 'The task that was made for it; of overlap the task that had not ended.';
comment on column octop_schedule_slots.at is 'When this row was written.';
comment on column octop_schedule_slots.check_at is 'When to look whether its task has ended in time. Null = no more.';
comment on constraint octop_schedule_slots_status_is_known on octop_schedule_slots is 'fired, skipped or waiting.';
comment on constraint octop_schedule_slots_origin_is_known on octop_schedule_slots is 'due, caught_up, backfill or run_now.';

create table octop_backfills (
  id           uuid        primary key default octop_uuid7(),
  schedule_id  uuid        not null,
  from_at      timestamptz not null,
  until_at     timestamptz not null,
  next_slot    timestamptz,
  most_running integer     not null constraint octop_backfills_most_running_is_1_to_100 check (most_running between 1 and 100),
  open_tasks   uuid[]      not null default '{}',
  made         integer     not null default 0,
  passed       integer     not null default 0,
  status       text        collate "C" not null default 'running' constraint octop_backfills_status_is_known check (status in ('running', 'done', 'cancelled')),
  created_at   timestamptz not null default _octop_now(),
  created_by   text        collate "C" not null default coalesce(nullif(current_setting('role', true), 'none'), session_user),
  ended_at     timestamptz
) with (fillfactor = 70);
create index octop_backfills_running on octop_backfills (id) where status = 'running';
comment on index octop_backfills_running is 'What octop_tick goes on with.';
comment on table octop_backfills is 'Orders to fire the slots of a range that have made no task.';
comment on column octop_backfills.id is 'Time-ordered UUID.';
comment on column octop_backfills.schedule_id is 'octop_schedules.id.';
comment on column octop_backfills.from_at is 'The first slot is at or after this moment.';
comment on column octop_backfills.until_at is 'The last slot is before this moment.';
comment on column octop_backfills.next_slot is 'The slot that is looked at next. Null = all were.';
comment on column octop_backfills.most_running is 'So many of its tasks are unfinished at once, 1 to 100.';
comment on column octop_backfills.open_tasks is 'Its tasks that had not ended at the last look.';
comment on column octop_backfills.made is 'Tasks made.';
comment on column octop_backfills.passed is 'Slots passed over: they had made a task already.';
comment on column octop_backfills.status is 'running, done (all slots were looked at and the tasks have ended) or cancelled.';
comment on column octop_backfills.created_at is 'When it was ordered.';
comment on column octop_backfills.created_by is 'Who ordered it.';
comment on column octop_backfills.ended_at is 'When it was done or cancelled.';
comment on constraint octop_backfills_most_running_is_1_to_100 on octop_backfills is '1 to 100.';
comment on constraint octop_backfills_status_is_known on octop_backfills is 'running, done or cancelled.';

create table _octop_dropped_schedules (
  name       text        collate "C" not null,
  tenant     text        collate "C" not null,
  declared   jsonb       not null,
  dropped_at timestamptz not null default _octop_now(),
  dropped_by text        collate "C" not null default coalesce(nullif(current_setting('role', true), 'none'), session_user),
  primary key (name, tenant)
);
comment on table _octop_dropped_schedules is 'Schedules that an application''s code declares and that somebody dropped: its next start does not bring them back. Whoever makes one of this name by hand takes the row away.';
comment on column _octop_dropped_schedules.name is 'octop_schedules.name.';
comment on column _octop_dropped_schedules.tenant is 'octop_schedules.tenant.';
comment on column _octop_dropped_schedules.declared is 'octop_schedules.declared when it was dropped.';
comment on column _octop_dropped_schedules.dropped_at is 'When it was dropped.';
comment on column _octop_dropped_schedules.dropped_by is 'Who dropped it.';

comment on column octop_alerts.kind is
  'type_frozen, type_unknown, watermark_reached, watermark_lifted, worker_lost, schedule_late, schedule_missed, schedule_failed, schedule_slow or schedule_deadline.';
comment on column octop_alerts.subject is 'The task type, queue, worker or schedule that it is about.';
