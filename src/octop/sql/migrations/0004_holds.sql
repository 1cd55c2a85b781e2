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
