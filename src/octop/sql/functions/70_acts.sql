-- What people and programs may do to one task. Promise: each act is one function, is written to the audit, takes effect on all
-- workers without a restart, and says what it did. What is done, and how, stands in the next group: one task is a batch of one.

create or replace function octop_cancel(id uuid, reason text default '') returns text
  language plpgsql security definer set search_path from current
as $$
declare
  v_verdict text := (select m.verdict from _octop_cancel_these(array[octop_cancel.id], octop_cancel.reason) m);
begin
  if octop_cancel.id is null then
    raise exception 'octop: the id of the task is null' using errcode = 'OC103', hint = 'Nothing was cancelled. Name a task: select id, task_type, status from octop_tasks limit 10;';
  elsif v_verdict = 'success' then
    raise exception 'octop: task % has finished with success', octop_cancel.id
      using errcode = 'OC104', hint = 'A finished task cannot be cancelled.';
  elsif v_verdict is null or v_verdict = 'not found' then
    raise exception 'octop: there is no task %', octop_cancel.id
      using errcode = 'OC103', hint = 'Check the id. You see your own tasks only, unless you are an operator; finished tasks are dropped after history.retention_days.';
  end if;
  return v_verdict;
end $$;
comment on function octop_cancel(uuid, text) is
  'Cancel a task. Answers cancelled, or requested when it runs: its worker ends it within a second or so. Repeating it is harmless. The reason stands whole in the audit, its first 1,024 characters in last_error. Errors: OC103 not found, OC104 finished.';

create or replace function octop_retry(id uuid) returns uuid
  language plpgsql security definer set search_path from current
as $$
declare
  v_verdict    text;
  v_retried_as uuid;
begin
  if octop_retry.id is null then
    raise exception 'octop: the id of the task is null' using errcode = 'OC103', hint = 'Nothing was retried. Name a task: select id, task_type, status from octop_tasks limit 10;';
  end if;
  select m.verdict, m.retried_as into v_verdict, v_retried_as from _octop_retry_these(array[octop_retry.id]) m;
  if v_verdict in ('running', 'blocked') then
    raise exception 'octop: task % is %', octop_retry.id, v_verdict
      using errcode = 'OC104', hint = case v_verdict when 'running' then 'Cancel it first, or wait for its end.'
        else 'It waits for something else than time; octop_tasks.blocked_by says for what.' end;
  elsif v_verdict = 'exists' then
    raise exception 'octop: another task holds the unique key of task %', octop_retry.id
      using errcode = 'OC116', detail = format('task %s', v_retried_as), hint = 'Nothing was retried. Wait for the end of that one, or cancel it first.';
  elsif v_retried_as is null then
    raise exception 'octop: there is no task %', octop_retry.id
      using errcode = 'OC103', hint = 'Check the id. Finished tasks are dropped after history.retention_days.';
  end if;
  return v_retried_as;
end $$;
comment on function octop_retry(uuid) is
  'Try a task again, now. Frozen or waiting: the same task (frozen gets all its tries again). Finished: a new task that names the old one in retry_of and keeps its created_by. Answers the id. Errors: OC103 not found, OC104 it runs or is blocked, OC116 another task holds its unique key.';

create or replace function octop_delete(id uuid) returns boolean
  language plpgsql security definer set search_path from current
as $$
begin
  return coalesce((select m.verdict = 'deleted' from _octop_delete_these(array[octop_delete.id]) m), false);
end $$;
comment on function octop_delete(uuid) is 'Delete a frozen task for good. Answers false if there is no frozen task with this id. Others: cancel; history drops itself.';
