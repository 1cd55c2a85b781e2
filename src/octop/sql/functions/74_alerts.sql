-- Alerts: what a person should know. Promise: one row for what happens again and again; a notification on octop_alerts; each handed to a
-- callable and to a webhook at least once by some worker that has one, which is kept in rows. No task waits for any of it.

create or replace function _octop_alert(p_kind text, p_subject text, p_severity text, p_message text, p_detail jsonb) returns bigint
  language plpgsql set search_path from current
as $$
declare
  v_id bigint;
begin
  insert into octop_alerts as a (kind, subject, severity, message, detail)
  values (p_kind, left(p_subject, 200), p_severity, left(p_message, 2000), jsonb_strip_nulls(p_detail))
  on conflict (kind, subject, tenant) where acked_at is null do update
     set count = least(a.count, 2147483646) + 1, last_at = excluded.last_at, severity = excluded.severity, message = excluded.message, detail = excluded.detail
  returning a.id into v_id;
  -- what nobody acknowledges and happens on is told again, each hour
  delete from octop_alert_deliveries d where d.alert_id = v_id and d.delivered_at < _octop_now() - interval '1 hour';
  perform pg_notify('octop_alerts', v_id::text);
  return v_id;
end $$;
comment on function _octop_alert(text, text, text, text, jsonb) is 'Raise an alert, or count it where the same is open, and notify. Answers its id.';

create or replace function _octop_freeze_exhausted(p_ids uuid[]) returns void
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
declare
  r record;
begin
  for r in
    select distinct on (f.task_type) f.task_type, f.id, f.queue, f.tenant, f.last_error
      from unnest(p_ids) u (id) join octop_tasks_frozen f on f.id between u.id and u.id
      join octop_task_types y on y.name = f.task_type and y.freeze_type_on_exhaustion
     order by f.task_type, f.id
  loop
    insert into octop_holds (kind, target, cause, reason, author)
    values ('task_type', r.task_type, 'exhaustion', left(format('task %s used up its retries: %s', r.id, r.last_error), 1000), _octop_caller()) on conflict do nothing;
    if found then
      perform _octop_alert('type_frozen', r.task_type, 'error',
                format('The task type "%s" is frozen: task %s used up its retries. Later tasks of the type wait. When the cause is mended: octop types thaw %s', r.task_type, r.id, r.task_type),
                jsonb_build_object('task_type', r.task_type, 'task_id', r.id, 'queue', r.queue, 'tenant', r.tenant, 'last_error', r.last_error));
    end if;
  end loop;
end $$;
comment on function _octop_freeze_exhausted(uuid[]) is
  'Of these tasks, which have just been frozen: hold each task type that says so (freeze_type_on_exhaustion), and raise an alert. In the transaction that froze them.';

create or replace function _octop_alert_unknown_types(p_most integer) returns integer
  language plpgsql set search_path from current
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
declare
  r   record;
  v_n integer := 0;
begin
  for r in
    with recursive parked (blocked_by, queue, n) as (
      (select b.blocked_by, b.queue, 1 from octop_tasks_live b
        where b.status = 'blocked' and b.blocked_by >= 'task_type:' and b.blocked_by < 'version;' order by b.blocked_by, b.queue limit 1)
      union all
      select x.blocked_by, x.queue, p.n + 1 from parked p cross join lateral (
        select b.blocked_by, b.queue from octop_tasks_live b
         where b.status = 'blocked' and (b.blocked_by, b.queue) > (p.blocked_by, p.queue) and b.blocked_by < 'version;'
         order by b.blocked_by, b.queue limit 1) x where p.n < p_most)
    select p.queue, t.task_type, t.min_version from parked p cross join lateral (
      select b.task_type, b.min_version from octop_tasks_live b
       where b.status = 'blocked' and b.blocked_by = p.blocked_by and b.queue = p.queue limit 1) t
     where (starts_with(p.blocked_by, 'task_type:') or starts_with(p.blocked_by, 'version:'))
       and not _octop_is_known(p.queue, t.task_type, t.min_version)
  loop
    perform _octop_alert('type_unknown', r.task_type, 'warning',
              format('Tasks of the type "%s"%s wait in the queue "%s": no living worker of it knows them. No try is used up. Start a worker with the code that has it.',
                     r.task_type, coalesce(' in version ' || r.min_version, ''), r.queue),
              jsonb_build_object('task_type', r.task_type, 'queue', r.queue, 'min_version', r.min_version));
    v_n := v_n + 1;
  end loop;
  return v_n;
end $$;
comment on function _octop_alert_unknown_types(integer) is 'Raise an alert for each task type of which tasks are parked because nobody alive knows it, at most so many. Answers how many.';

create or replace function _octop_alert_lost(p_workers uuid[], p_tasks integer, p_how text) returns void
  language plpgsql set search_path from current
as $$
declare
  r record;
begin
  for r in select u.id, w.name, w.host, w.pid from unnest(p_workers) u (id) left join octop_workers w on w.id = u.id limit 20 loop
    perform _octop_alert('worker_lost', coalesce(nullif(r.name, ''), r.id::text), 'warning',
              format('The worker %s (%s, pid %s) %s; what it ran is tried again and has used up a try.', coalesce(nullif(r.name, ''), r.id::text), coalesce(r.host, '?'), coalesce(r.pid::text, '?'), p_how),
              jsonb_build_object('worker_id', r.id, 'host', r.host, 'pid', r.pid, 'tasks', p_tasks));
  end loop;
end $$;
comment on function _octop_alert_lost(uuid[], integer, text) is 'Raise an alert for each of these workers, whose tasks were lost.';

create or replace function octop_take_alerts(worker_id uuid, channel text, most integer default 10)
  returns table (id bigint, at timestamptz, last_at timestamptz, count integer, kind text, subject text, tenant text, severity text, message text,
                 detail jsonb, taken_at timestamptz, tries integer)
  language plpgsql security definer set search_path from current
as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  if octop_take_alerts.channel is null or octop_take_alerts.channel not in ('callable', 'webhook') then
    raise exception 'octop: the channel must be callable or webhook, not %', coalesce(octop_take_alerts.channel, 'null')
      using errcode = 'OC113', hint = 'Nothing was taken.';
  end if;
  v_ids := array(
    select a.id from octop_alerts a
     where a.last_at > _octop_now() - interval '1 day'
       and not exists (select from octop_alert_deliveries d where d.alert_id = a.id and d.channel = octop_take_alerts.channel
                          and (d.delivered_at is not null or d.next_try_at > _octop_now()))
     order by a.id limit least(greatest(octop_take_alerts.most, 0), 100) for update of a skip locked);
  -- who waited for the lock of another sees with this statement what that one took
  return query
  with taken as (
    insert into octop_alert_deliveries as d (alert_id, channel, tries, next_try_at, worker_id)
    select u, octop_take_alerts.channel, 1, _octop_now() + interval '1 minute', octop_take_alerts.worker_id from unnest(v_ids) u order by u
    on conflict (alert_id, channel) do update
       set tries = least(d.tries, 2147483646) + 1, next_try_at = excluded.next_try_at, worker_id = excluded.worker_id
     where d.delivered_at is null and d.next_try_at <= _octop_now()
    returning d.alert_id, d.tries
  )
  select a.id, a.at, a.last_at, a.count, a.kind, a.subject, a.tenant, a.severity, a.message, a.detail, _octop_now(), t.tries
    from taken t join octop_alerts a on a.id = t.alert_id order by a.id;
end $$;
comment on function octop_take_alerts(uuid, text, integer) is
  'A worker that has such a hook (callable or webhook) takes alerts of the last day that are not delivered yet, at most 100. It has a minute for them; after that another may try. Error: OC113.';

create or replace function octop_alert_tried(worker_id uuid, channel text, id bigint, error text default null) returns void
  language plpgsql security definer set search_path from current
as $$
#variable_conflict use_column
begin
  update octop_alert_deliveries d
     set delivered_at = case when octop_alert_tried.error is null then _octop_now() end, last_error = left(octop_alert_tried.error, 500),
         -- 2, 4, 8 … 300 seconds after the first, second, third … try
         next_try_at = _octop_now() + make_interval(secs => least(300, 2 ^ least(d.tries, 9)))
   where d.alert_id = octop_alert_tried.id and d.channel = octop_alert_tried.channel and d.delivered_at is null
     and d.worker_id = octop_alert_tried.worker_id;
end $$;
comment on function octop_alert_tried(uuid, text, bigint, text) is 'Say how the try of a taken alert ended: delivered, or with this error; then it is tried again after 2, 4, 8 … 300 seconds, by any worker.';

create or replace function octop_ack_alerts(ids bigint[] default null) returns integer
  language plpgsql security definer set search_path from current
as $$
#variable_conflict use_column
declare
  v_acked bigint[];
begin
  with acked as (
    update octop_alerts a set acked_at = _octop_now(), acked_by = _octop_caller()
     where a.acked_at is null and (octop_ack_alerts.ids is null or a.id = any (octop_ack_alerts.ids)) returning a.id
  )
  select array_agg(x.id order by x.id) into v_acked from acked x;
  perform _octop_audit_write('ack alert', u::text) from unnest(v_acked) u;
  return coalesce(cardinality(v_acked), 0);
end $$;
comment on function octop_ack_alerts(bigint[]) is 'Acknowledge open alerts, without ids all of them: what happens again makes a new one. Answers how many were open.';

create or replace function _octop_purge_alerts(p_most integer) returns void
  language plpgsql set search_path from current
as $$
begin
  delete from octop_alerts a where a.ctid = any (array(
    select x.ctid from octop_alerts x
     where x.last_at < greatest(_octop_now() - make_interval(days => coalesce(_octop_setting('history.alerts_days'), _octop_setting('history.retention_days'))::integer),
                                (select y.last_at from octop_alerts y order by y.last_at desc offset 10000 limit 1))
     order by x.last_at limit p_most for update skip locked));
  delete from octop_alert_deliveries d where not exists (select from octop_alerts a where a.id = d.alert_id);
end $$;
comment on function _octop_purge_alerts(integer) is 'Alerts older than history.alerts_days, and all but the latest 10,000, at most so many, with their deliveries.';
