-- Uniqueness: a task may hold a key, and while it holds it no other task with the same key is made. Tasks without a key pay nothing: their
-- columns are null, and the index has no entry for them.

alter table octop_tasks
  add column unique_key   text collate "C",
  add column unique_scope text collate "C",
  add column unique_hold  uuid;
comment on column octop_tasks.unique_key is 'What no second task of the tenant and task type may share while this one holds it: text of 1 to 1,000 characters, or the chosen payload fields as JSON. Null = not unique.';
comment on column octop_tasks.unique_scope is 'How long the key is held: pending (until the first start), live (until success, cancelled or frozen), or an interval such as 1 hour (so long after the enqueue, whatever becomes of the task). Null with a key = pending.';
comment on column octop_tasks.unique_hold is 'Hash of tenant, task type, scope and key while the task holds it. A claim clears it for scope pending, and no later state takes it again: so no retry or release can collide. Set by the engine.';

create unique index octop_tasks_live_one_per_unique_key on octop_tasks_live (unique_hold) where unique_hold is not null;
comment on index octop_tasks_live_one_per_unique_key is 'At most one task holds a unique key. Empty but for tasks that have one.';

create table _octop_unique_windows (
  unique_hold uuid        primary key,
  task_id     uuid        not null,
  until_at    timestamptz not null
) with (fillfactor = 70);
comment on table _octop_unique_windows is 'Unique keys that are held for a time, however long their task lives. The sweep takes away what is over.';
comment on column _octop_unique_windows.unique_hold is 'Hash of tenant, task type and key, as in octop_tasks.unique_hold.';
comment on column _octop_unique_windows.task_id is 'The task that was enqueued at its beginning (no foreign key: history is dropped by day).';
comment on column _octop_unique_windows.until_at is 'The key is free from this moment on.';
create index _octop_unique_windows_until_at on _octop_unique_windows (until_at);
comment on index _octop_unique_windows_until_at is 'What is over.';
