-- Holds of tenants and lanes, holds that end by themselves, task types that freeze with their tasks, watermarks, alerts.

-- Functions whose arguments have changed; their successors are put in place after the migrations.
drop function if exists octop_pause(text, text);
drop function if exists octop_freeze(text, text);
drop function if exists _octop_hold(text, text, text);
drop function if exists _octop_check_target(text, text);
drop function if exists _octop_parkable(text, tid[]);
drop function if exists _octop_park_rows(text[], tid[]);
drop function if exists _octop_park(text, text[], integer);
drop function if exists _octop_parked_rows(integer);

-- Several orders may hold one target: a person's, and those that the engine gives. So the cause is a part of the key.
alter table octop_holds
  drop constraint octop_holds_pkey,
  drop constraint octop_holds_kind_is_known,
  add column id bigint generated always as identity,
  add column queue text collate "C" not null default '',
  add column tenant text collate "C" not null default '',
  add column cause text collate "C" not null default 'order',
  add column ends_at timestamptz,
  add constraint octop_holds_pkey primary key (kind, target, queue, tenant, cause),
  add constraint octop_holds_kind_is_known check (kind in ('queue', 'task_type', 'tenant', 'lane')),
  add constraint octop_holds_only_a_lane_has_queue_and_tenant check (kind = 'lane' and queue <> '' or queue = '' and tenant = ''),
  add constraint octop_holds_cause_is_known check (cause in ('order', 'exhaustion') or kind = 'queue' and cause like 'watermark:_%'),
  add constraint octop_holds_ends_between_2000_and_2999 check (ends_at >= '2000-01-01 00:00:00+00' and ends_at < '3000-01-01 00:00:00+00');
create unique index octop_holds_one_per_id on octop_holds (id);
create index octop_holds_ends_at on octop_holds (ends_at) where ends_at is not null;
comment on table octop_holds is
  'Orders not to start tasks. While a row is here and has not ended, no claim that begins later takes a task of the target. Rows are made, lifted and seen end; of a row that is there only reason and ends_at change.';
comment on column octop_holds.id is 'Rises with each order. A task that waits for it has blocked_by = hold:ID.';
comment on column octop_holds.kind is 'queue, task_type, tenant or lane.';
comment on column octop_holds.target is 'Name of the queue, task type, tenant or lane.';
comment on column octop_holds.queue is 'Of a lane: the queue in which it lies. Else empty.';
comment on column octop_holds.tenant is 'Of a lane: whose lane it is; empty for a single tenant. Else empty.';
comment on column octop_holds.cause is 'Why the row is here: order (of a person or a program), exhaustion (a task of the type used up its retries), watermark:QUEUE (the backlog of that queue).';
comment on column octop_holds.ends_at is 'When it ends by itself, on the database''s clock. Null = when somebody lifts it.';
comment on constraint octop_holds_kind_is_known on octop_holds is 'queue, task_type, tenant or lane.';
comment on constraint octop_holds_only_a_lane_has_queue_and_tenant on octop_holds is 'A lane is named with its queue and its tenant, all else by its name alone.';
comment on constraint octop_holds_cause_is_known on octop_holds is 'order, exhaustion, or of a queue watermark:QUEUE.';
comment on constraint octop_holds_ends_between_2000_and_2999 on octop_holds is 'ends_at lies between the years 2000 and 3000.';
comment on index octop_holds_one_per_id is 'What a parked task waits for.';
comment on index octop_holds_ends_at is 'Holds that end by themselves, the next one first.';

create table _octop_lifted_holds (
  id        bigint      primary key,
  lifted_at timestamptz not null default _octop_now()
) with (fillfactor = 50);
comment on table _octop_lifted_holds is 'Holds that are no more and whose parked tasks have not all come back.';
comment on column _octop_lifted_holds.id is 'octop_holds.id of the hold.';
comment on column _octop_lifted_holds.lifted_at is 'When it was lifted, or seen to have ended.';

alter table octop_task_types add column freeze_type_on_exhaustion boolean;
comment on column octop_task_types.freeze_type_on_exhaustion is 'When a task of this type uses up its retries, the type is frozen with it: later tasks of the type wait until octop_thaw. Null = false.';

create table octop_alerts (
  id       bigint      generated always as identity primary key,
  at       timestamptz not null default _octop_now(),
  last_at  timestamptz not null default _octop_now(),
  count    integer     not null default 1,
  kind     text        collate "C" not null,
  subject  text        collate "C" not null,
  tenant   text        collate "C" not null default '',
  severity text        collate "C" not null constraint octop_alerts_severity_is_known check (severity in ('info', 'warning', 'error')),
  message  text        not null,
  detail   jsonb       not null default '{}',
  acked_at timestamptz,
  acked_by text        collate "C"
);
comment on table octop_alerts is 'What a person should know. One that happens again before somebody acknowledged it is counted in the row that is there. Kept for history.retention_days, at most 10,000.';
comment on column octop_alerts.id is 'Number of the alert; the payload of the notification on channel octop_alerts.';
comment on column octop_alerts.at is 'When it happened first.';
comment on column octop_alerts.last_at is 'When it happened last.';
comment on column octop_alerts.count is 'How often it has happened since somebody acknowledged the one before.';
comment on column octop_alerts.kind is 'type_frozen, type_unknown, watermark_reached, watermark_lifted or worker_lost.';
comment on column octop_alerts.subject is 'The task type, queue or worker that it is about.';
comment on column octop_alerts.tenant is 'Whose it is; empty = of all.';
comment on column octop_alerts.severity is 'info, warning or error.';
comment on column octop_alerts.message is 'What happened, for people: one or two sentences, at most 2,000 characters.';
comment on column octop_alerts.detail is 'The same for programs.';
comment on column octop_alerts.acked_at is 'When somebody acknowledged it. Null = it is open.';
comment on column octop_alerts.acked_by is 'Who acknowledged it.';
comment on constraint octop_alerts_severity_is_known on octop_alerts is 'info, warning or error.';
create unique index octop_alerts_one_open_per_subject on octop_alerts (kind, subject, tenant) where acked_at is null;
comment on index octop_alerts_one_open_per_subject is 'An alert that happens again is counted, not repeated.';
create index octop_alerts_last_at on octop_alerts (last_at);
comment on index octop_alerts_last_at is 'The latest alerts, and what is to be delivered.';

create table octop_alert_deliveries (
  alert_id     bigint      not null,
  channel      text        collate "C" not null constraint octop_alert_deliveries_channel_is_known check (channel in ('callable', 'webhook')),
  tries        integer     not null default 0,
  next_try_at  timestamptz not null,
  delivered_at timestamptz,
  worker_id    uuid,
  last_error   text,
  primary key (alert_id, channel)
) with (fillfactor = 70);
comment on table octop_alert_deliveries is 'Which alerts workers have handed to their hooks: each at least once by some worker that has such a hook.';
comment on column octop_alert_deliveries.alert_id is 'octop_alerts.id.';
comment on column octop_alert_deliveries.channel is 'callable (@octop.on_alert) or webhook.';
comment on column octop_alert_deliveries.tries is 'How often a worker has tried.';
comment on column octop_alert_deliveries.next_try_at is 'Not before this moment by any worker; while one tries, when another may.';
comment on column octop_alert_deliveries.delivered_at is 'When it was taken. Null = not yet.';
comment on column octop_alert_deliveries.worker_id is 'The worker that tried last.';
comment on column octop_alert_deliveries.last_error is 'Why the last try failed, at most 500 characters.';
comment on constraint octop_alert_deliveries_channel_is_known on octop_alert_deliveries is 'callable or webhook.';

alter table octop_queues
  add column watermark_high bigint constraint octop_queues_watermark_high_is_in_range check (watermark_high between 1 and 100000000),
  add column watermark_low  bigint,
  add column critical       boolean,
  add constraint octop_queues_watermark_low_is_below_high check (watermark_low is null or watermark_high is not null and watermark_low between 0 and watermark_high - 1);
comment on column octop_queues.watermark_high is 'Backlog (tasks that are due and wait), 1 to 100,000,000, at which the queues with critical = false are held. Null = none.';
comment on column octop_queues.watermark_low is 'Backlog at or below which they are held no more, 0 to watermark_high - 1. Null = half of watermark_high.';
comment on column octop_queues.critical is 'False = this queue is held while another one''s backlog stands at its watermark. Null = true.';
comment on constraint octop_queues_watermark_high_is_in_range on octop_queues is '1 to 100,000,000.';
comment on constraint octop_queues_watermark_low_is_below_high on octop_queues is '0 to watermark_high - 1, and only with a watermark_high.';

create table _octop_watermark_looks (
  queue   text        collate "C" primary key,
  next_at timestamptz not null default '-infinity',
  looks   integer     not null default 0,
  backlog bigint      not null default 0
) with (fillfactor = 50);
comment on table _octop_watermark_looks is 'When the backlog of a queue with a watermark is looked at next. Whoever locks the row first looks; no leader.';
comment on column _octop_watermark_looks.queue is 'Queue whose backlog it is.';
comment on column _octop_watermark_looks.next_at is 'Not before this moment.';
comment on column _octop_watermark_looks.looks is 'Looks since the watermark was reached; 0 = it is not.';
comment on column _octop_watermark_looks.backlog is 'What the last look found, at most watermark_high.';

comment on column _octop_chores.name is 'alerts, days, purge, or running: a walk over the running tasks, which is put off only where it takes long.';
