-- How long finished and frozen tasks are kept, by status and queue, and how far the walks have come that delete what goes before its day.

alter table octop_queues
  add column keep_success_days   integer constraint octop_queues_keep_success_is_in_range check (keep_success_days between 1 and 400),
  add column keep_cancelled_days integer constraint octop_queues_keep_cancelled_is_in_range check (keep_cancelled_days between 1 and 400),
  add column keep_frozen_days    integer constraint octop_queues_keep_frozen_is_in_range check (keep_frozen_days between 1 and 36500);
comment on column octop_queues.keep_success_days is 'Successful tasks of this queue are kept so many days, 1 to 400. Null = history.success_days.';
comment on column octop_queues.keep_cancelled_days is 'Cancelled tasks of this queue are kept so many days, 1 to 400. Null = history.cancelled_days.';
comment on column octop_queues.keep_frozen_days is 'Frozen tasks of this queue are kept so many days after their last start, 1 to 36,500; while the queue is ordered, for ever. Null = history.frozen_days.';
comment on constraint octop_queues_keep_success_is_in_range on octop_queues is '1 to 400 days.';
comment on constraint octop_queues_keep_cancelled_is_in_range on octop_queues is '1 to 400 days.';
comment on constraint octop_queues_keep_frozen_is_in_range on octop_queues is '1 to 36,500 days.';

create index octop_tasks_frozen_age on octop_tasks_frozen (queue, (coalesce(started_at, created_at)));
comment on index octop_tasks_frozen_age is 'Retention: the oldest frozen tasks of each queue.';

create table _octop_walks (
  name     text        collate "C" primary key,
  queues   text[]      collate "C" not null default '{}',
  statuses text[]      collate "C" not null default '{}',
  after_id uuid        not null default '00000000-0000-0000-0000-000000000000',
  after_at timestamptz not null default '-infinity',
  gone     bigint      not null default 0,
  passed   boolean     not null default false,
  next_at  timestamptz not null default '-infinity'
) with (fillfactor = 50);
comment on table _octop_walks is 'Walks of the retention that are not at their end: a bounded step goes on where the last one stopped, so that none passes again what is kept.';
comment on column _octop_walks.name is 'attempts, or a day of history (2030-01-07) from which some tasks go before the others.';
comment on column _octop_walks.queues is 'Of a day: the queues whose tasks go, each with its status in the same place of statuses.';
comment on column _octop_walks.statuses is 'Of a day: success or cancelled, for each of queues.';
comment on column _octop_walks.after_id is 'Of a day: the last task that was looked at.';
comment on column _octop_walks.after_at is 'Of attempts: ended_at of the last one that was looked at.';
comment on column _octop_walks.gone is 'Of a day: tasks deleted so far.';
comment on column _octop_walks.passed is 'Of a day: was one passed over that should go, because somebody had locked it, or somebody keeps it longer now?';
comment on column _octop_walks.next_at is 'No step before this moment.';
insert into _octop_walks (name) values ('attempts');
