-- Schedules and their slots for people. Promise: what stands here is what octop_tick goes by.

create or replace view octop_schedule_list with (security_barrier) as
  select s.name, s.tenant, s.rule, s.timezone, octop_cron_explain(s.rule) as explained, s.task_type, s.queue,
         case when s.paused_at is not null then 'paused' when s.last_error like 'stopped: %' then 'stopped' when s.last_error is not null then 'failing' when s.next_slot is null then 'ended'
              when s.next_slot < _octop_now() - make_interval(secs => s.late_after_seconds) then 'overdue' else 'active' end as state,
         case when s.paused_at is null then s.next_slot end as next_slot, s.last_slot, s.last_task_id, t.status as last_task_status, s.waiting,
         case when s.paused_at is null and s.next_slot < _octop_now() then extract(epoch from _octop_now() - s.next_slot)::double precision end as overdue_seconds,
         s.catch_up, s.overlap, s.jitter_seconds, s.paused_at, s.paused_by, s.pause_reason, s.last_error, s.declared is not null as is_declared,
         _octop_schedule_changes(s) as changes, s.updated_at, s.updated_by
    from octop_schedules s left join lateral octop_task(s.last_task_id) t on true;
comment on view octop_schedule_list is 'Schedules in words: rule, next slot, the last slot and what became of its task, who paused it, what somebody changed of what code declares.';

create or replace view octop_schedule_history with (security_barrier) as
  select s.name, s.tenant, s.timezone, o.slot, o.through, o.status, o.origin, o.reason, o.at, extract(epoch from o.at - o.slot)::double precision as late_seconds, o.task_id,
         t.status as task_status, t.started_at, t.completed_at, t.last_error
    from octop_schedule_slots o join octop_schedules s on s.id = o.schedule_id left join lateral octop_task(o.task_id) t on true;
comment on view octop_schedule_history is 'What became of each slot, and of its task. A row with through stands for all slots from slot to there. Name a schedule: where name = ....';
