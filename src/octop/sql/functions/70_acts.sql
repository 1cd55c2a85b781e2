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

create or replace function _octop_parked_for(p_id uuid, out problem text, out cure text)
  language plpgsql stable set search_path from current
  set enable_seqscan = off
as $$
declare
  v_by   text := (select t.blocked_by from octop_tasks_live t where t.id = p_id and t.status = 'blocked');
  v_hold octop_holds;
begin
  problem := 'it waits for something else than time';
  cure := 'octop_tasks.blocked_by says for what; select * from octop_why(ID) says it in words.';
  if v_by like 'hold:%' then
    select h.* into v_hold from octop_holds h where h.id = substr(v_by, 6)::bigint and _octop_in_force(h.ends_at);
    if v_hold.id is null then
      problem := 'its hold is over';
      cure := 'It comes back by itself within seconds, as soon as a worker has room.';
    else
      problem := format('the %s %s is held%s', replace(v_hold.kind, '_', ' '), v_hold.target, coalesce(' (' || nullif(v_hold.reason, '') || ')', ''));
      cure := format('Lift that, and the task goes on by itself, with all its tries: select octop_lift(%L, %L%s); to be rid of the task, cancel it.', v_hold.kind, v_hold.target,
                     case when v_hold.kind = 'lane' then format(', %L, %L', v_hold.queue, v_hold.tenant) else '' end);
    end if;
  elsif v_by like 'task_type:%' then
    problem := format('no living worker of its queue knows the type %s', substr(v_by, 11));
    cure := 'Start a worker that has it, and the task goes on by itself, with all its tries; to be rid of it, cancel it.';
  elsif v_by like 'version:%' then
    problem := format('no living worker of its queue has its type in version %s', split_part(v_by, ':', 2));
    cure := 'Start a worker with that version of the code, and the task goes on by itself, with all its tries; to be rid of it, cancel it.';
  end if;
end $$;
comment on function _octop_parked_for(uuid) is 'For what a blocked task waits, and what to do in place of a retry, for people.';

create or replace function octop_retry(id uuid) returns uuid
  language plpgsql security definer set search_path from current
as $$
declare
  v_verdict    text;
  v_retried_as uuid;
  v_parked     record;
begin
  if octop_retry.id is null then
    raise exception 'octop: the id of the task is null' using errcode = 'OC103', hint = 'Nothing was retried. Name a task: select id, task_type, status from octop_tasks limit 10;';
  end if;
  select m.verdict, m.retried_as into v_verdict, v_retried_as from _octop_retry_these(array[octop_retry.id]) m;
  if v_verdict = 'running' then
    raise exception 'octop: task % is running', octop_retry.id using errcode = 'OC104', hint = 'Cancel it first, or wait for its end.';
  elsif v_verdict = 'blocked' then
    -- A hold is an order: a retry must not go around it, and there is nothing to try again, for no try was used up.
    v_parked := _octop_parked_for(octop_retry.id);
    raise exception 'octop: task % is blocked: %', octop_retry.id, v_parked.problem using errcode = 'OC104', hint = 'Nothing was retried. ' || v_parked.cure;
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
