-- What a person should know of schedules: slots that were fired late or not at all, tasks that take longer than expected or miss their deadline.

create or replace function _octop_alert_slots(p_ids uuid[], p_slots timestamptz[], p_statuses text[], p_reasons text[], p_lates boolean[]) returns void
  language plpgsql set search_path from current set enable_seqscan = off
as $$
declare
  r record;
begin
  -- one alert per schedule and tick: what happens again is counted in the row that is there
  for r in
    select s.name, s.tenant, count(*) filter (where u.status = 'fired' and u.late) as late, count(*) filter (where u.status = 'skipped' and u.reason in ('late', 'catch_up')) as missed,
           min(u.slot) as first, max(u.slot) as last
      from unnest(p_ids, p_slots, p_statuses, p_reasons, p_lates) u (id, slot, status, reason, late) join octop_schedules s on s.id = u.id
     where u.late or u.status = 'skipped' and u.reason in ('late', 'catch_up')
     group by s.name, s.tenant order by s.name, s.tenant limit 100
  loop
    if r.missed > 0 then
      perform _octop_alert('schedule_missed', _octop_schedule_called(r.name, r.tenant), 'warning',
                format('The schedule "%s" skipped %s slots from %s to %s: nobody could fire them in time. Its catch_up says how many are made up for; octop schedules backfill does the rest.', r.name, r.missed, _octop_iso(r.first), _octop_iso(r.last)),
                jsonb_build_object('schedule', r.name, 'tenant', r.tenant, 'missed', r.missed, 'first', _octop_iso(r.first), 'last', _octop_iso(r.last)));
    end if;
    if r.late > 0 then
      perform _octop_alert('schedule_late', _octop_schedule_called(r.name, r.tenant), 'warning',
                format('The schedule "%s" was fired late: its slot %s at %s. Was there no worker?', r.name, _octop_iso(r.last), _octop_iso(_octop_now())),
                jsonb_build_object('schedule', r.name, 'tenant', r.tenant, 'slot', _octop_iso(r.last)));
    end if;
  end loop;
end $$;
comment on function _octop_alert_slots(uuid[], timestamptz[], text[], text[], boolean[]) is 'Alerts for slots that were fired late or skipped, one per schedule, at most 100.';

create or replace function _octop_watch_slots(p_most integer) returns integer
  language plpgsql set search_path from current set enable_seqscan = off
as $$
declare
  v_now  timestamptz := _octop_now();
  r      record;
  v_slow boolean;
  v_over boolean;
  v_end  timestamptz;
  v_next timestamptz;
  v_n    integer := 0;
begin
  for r in
    select o.schedule_id, o.slot, o.task_id, s.name, s.tenant, s.expected_seconds, s.deadline_seconds, t.status, t.started_at, t.completed_at, t.id is not null as known
      from octop_schedule_slots o join octop_schedules s on s.id = o.schedule_id left join lateral _octop_find(o.task_id) t on true
     where o.check_at <= v_now order by o.check_at limit p_most for update of o skip locked
  loop
    v_n := v_n + 1;
    v_end := case when r.status = 'success' then r.completed_at end;
    v_slow := coalesce(coalesce(v_end, v_now) - r.started_at > make_interval(secs => r.expected_seconds), false) and (v_end is not null or r.status = 'running');
    v_over := r.known and coalesce(coalesce(v_end, v_now) > r.slot + make_interval(secs => r.deadline_seconds), false);
    if v_slow then
      perform _octop_alert('schedule_slow', _octop_schedule_called(r.name, r.tenant), 'warning', format('The task %s of the schedule "%s" (slot %s) runs longer than the expected %s s.', r.task_id, r.name, _octop_iso(r.slot), r.expected_seconds),
                jsonb_build_object('schedule', r.name, 'tenant', r.tenant, 'slot', _octop_iso(r.slot), 'task_id', r.task_id));
    end if;
    if v_over then
      perform _octop_alert('schedule_deadline', _octop_schedule_called(r.name, r.tenant), 'error',
                format('The schedule "%s" missed its deadline: the task %s of the slot %s had not succeeded after %s s; it is %s.', r.name, r.task_id, _octop_iso(r.slot), r.deadline_seconds, r.status),
                jsonb_build_object('schedule', r.name, 'tenant', r.tenant, 'slot', _octop_iso(r.slot), 'task_id', r.task_id));
    end if;
    -- Each is told once. What is not decided yet is looked at again: the deadline when it comes, a task that runs when it should have ended.
    v_next := case when v_end is null and r.known then least(
      case when not v_over then greatest(r.slot + make_interval(secs => r.deadline_seconds), v_now + interval '1 millisecond') end,
      case when not v_slow and r.status = 'running' then greatest(r.started_at + make_interval(secs => r.expected_seconds), v_now + interval '1 millisecond')
           when not v_slow and r.status in ('pending', 'failed', 'blocked') then v_now + make_interval(secs => greatest(1, least(60, r.expected_seconds))) end) end;
    update octop_schedule_slots o set check_at = v_next where o.schedule_id = r.schedule_id and o.slot = r.slot;
  end loop;
  delete from octop_schedule_slots o using (select x.ctid as tid from octop_schedule_slots x where x.check_at <= v_now and not exists (select from octop_schedules s where s.id = x.schedule_id) limit 100) g where o.ctid = g.tid;
  return v_n;
end $$;
comment on function _octop_watch_slots(integer) is 'Look at so many tasks of schedules that should have ended by now: alerts for those that run too long or missed their deadline. Answers how many were looked at.';

create or replace function _octop_purge_slots(p_most integer) returns void
  language plpgsql set search_path from current set enable_seqscan = off
as $$
declare
  v_keep timestamptz := _octop_now() - make_interval(days => coalesce(_octop_setting('history.slots_days'), _octop_setting('history.retention_days'))::integer);
begin
  -- one that waits is no history; the last one of each schedule is what a slot is compared with
  delete from octop_schedule_slots o
   where o.ctid = any (array(select x.ctid from octop_schedule_slots x where x.at < v_keep and x.status <> 'waiting' order by x.at limit p_most for update skip locked));
  delete from octop_backfills b where b.ctid = any (array(select x.ctid from octop_backfills x where x.ended_at < v_keep limit p_most for update skip locked));
end $$;
comment on function _octop_purge_slots(integer) is 'Remove slots and backfills that are older than history.slots_days, at most so many of each.';
