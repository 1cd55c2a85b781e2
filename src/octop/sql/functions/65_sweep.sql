-- The sweep: what must be done by somebody, again and again. Promise: any worker may do it at any time, two at once do no harm,
-- each part is bounded, nothing is decided by a task's age alone, and no task code is needed.

create or replace function _octop_adopt_strays(p_most integer) returns void
  language plpgsql set search_path from current
as $$
begin
  -- Somebody wrote into the leaf by hand: running, and nobody runs it. It gets a worker that never was, and is judged like the others;
  -- and it starts now, so that limits count it (_octop_runs).
  update octop_tasks_live t set worker_id = gen_random_uuid(), claim_id = coalesce(t.claim_id, gen_random_uuid()), started_at = _octop_now()
   where t.ctid = any (array(select r.ctid from octop_tasks_live r where r.status = 'running' and r.worker_id is null limit p_most for update skip locked));
  -- A running task whose worker has no row (somebody deleted it): the lease begins now. A living worker will beat meanwhile.
  insert into octop_workers (id, name)
  select distinct t.worker_id, 'unknown: its row was deleted' from octop_tasks_live t
   where t.status = 'running' and t.worker_id is not null and not exists (select from octop_workers w where w.id = t.worker_id)
  on conflict do nothing;
end $$;
comment on function _octop_adopt_strays(integer) is 'Running tasks that name no worker, or one without a row, get one, so that its silence can be judged.';

create or replace function _octop_put_off_walks(p_took interval) returns void
  language plpgsql set search_path from current
as $$
declare
  v_next timestamptz := case when p_took > interval '200 ms' then _octop_now() + p_took * 50 else '-infinity' end;
begin
  update _octop_chores c set next_at = v_next
   where c.ctid = any (array(select x.ctid from _octop_chores x where x.name = 'running' and x.next_at <> v_next for update skip locked));
end $$;
comment on function _octop_put_off_walks(interval) is
  'After a walk over the running tasks that took long, all sweeps leave it out for fifty times as long: a fiftieth of one session''s time goes into it.';

create or replace function _octop_rescue(p_judge uuid, p_most integer, p_walks boolean) returns integer
  language plpgsql set search_path from current
as $$
declare
  v_lease    interval := _octop_lease();
  v_outcomes jsonb;
  v_rescued  integer := 0;
  v_n        integer;
begin
  -- Only who has beaten without a break for a whole lease may judge: after an outage nobody is condemned for a silence that
  -- the judge shared.
  if not exists (select from octop_workers w where w.id = p_judge and w.beat_at > _octop_now() - v_lease
                    and w.beating_since <= _octop_now() - v_lease) then
    return 0;
  end if;
  -- Asked first: the planner begins the join below with the running tasks, and would walk over all of them for nobody. Where walks are put
  -- off, only who fell silent lately is reason enough.
  if not exists (select from octop_workers w where (p_walks or w.beat_at > _octop_now() - 2 * v_lease)
                    and w.beat_at <= _octop_now() - v_lease) then
    return 0;
  end if;
  loop
    select jsonb_agg(jsonb_build_object('id', t.id, 'attempt', t.attempt, 'claim_id', t.claim_id, 'worker_id', t.worker_id, 'outcome', 'lost',
                                        'error_class', 'WorkerLost',
                                        'error_message', format('worker %s was silent for longer than the lease of %s s', t.worker_id, trim_scale(extract(epoch from v_lease)::numeric))))
      into v_outcomes
      from (select t.* from octop_workers w join octop_tasks_live t on t.worker_id = w.id and t.status = 'running'
             where w.beat_at <= _octop_now() - v_lease
             limit least(500, p_most - v_rescued) for update of t skip locked) t;
    exit when v_outcomes is null;
    select count(*) into v_n from _octop_settle(v_outcomes, true);
    if v_n > 0 then
      perform _octop_alert_lost(array(select distinct (o ->> 'worker_id')::uuid from jsonb_array_elements(v_outcomes) o), v_n, 'was silent for longer than its lease');
    end if;
    v_rescued := v_rescued + v_n;
    exit when v_n = 0 or v_rescued >= p_most;
  end loop;
  return v_rescued;
end $$;
comment on function _octop_rescue(uuid, integer, boolean) is
  'Running tasks whose worker is silent for longer than the lease: the attempt is lost and used up. Decided by rows, bounded, never waits. Without walks: only if somebody fell silent within the last two leases.';

create or replace function _octop_end_overdue(p_most integer) returns integer
  language plpgsql set search_path from current
as $$
declare
  v_outcomes jsonb;
begin
  select jsonb_agg(jsonb_build_object('id', t.id, 'attempt', t.attempt, 'claim_id', t.claim_id, 'worker_id', t.worker_id, 'outcome', 'timeout',
                                      'isolate', true, 'error_class', 'TimeoutError', 'error_message', 'over its time limit, and its worker did not end it')) into v_outcomes
    from (select t.* from octop_tasks_live t
           where t.status = 'running'
             and t.deadline_at < _octop_now() - make_interval(secs => _octop_setting('worker.deadline_grace_seconds')::double precision)
           limit p_most for update skip locked) t;
  if v_outcomes is null then
    return 0;
  end if;
  return (select count(*) from _octop_settle(v_outcomes, true));
end $$;
comment on function _octop_end_overdue(integer) is 'The last resort: running tasks far over their deadline end with a timeout, whatever their worker does.';

create or replace function _octop_fold_counters() returns integer
  language plpgsql set search_path from current
as $$
declare
  v_folded integer;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('_octop_counters', '_octop_counters'::regclass::oid::bigint)) then
    return 0;
  end if;
  with taken as (
    delete from _octop_counter_deltas d
     where d.ctid = any (array(select x.ctid from _octop_counter_deltas x limit 20000 for update skip locked))
    returning d.*
  ), folded as (
    insert into _octop_counters as c (tenant, queue, status, day, n, scheduled_sum, scheduled_min, scheduled_max)
    select t.tenant, t.queue, t.status, t.day, sum(t.n), sum(t.scheduled_sum), min(t.scheduled_min), max(t.scheduled_max)
      from taken t group by 1, 2, 3, 4 order by 1, 2, 3, 4
    on conflict (tenant, queue, status, day) do update
       set n = c.n + excluded.n, scheduled_sum = c.scheduled_sum + excluded.scheduled_sum,
           scheduled_min = least(c.scheduled_min, excluded.scheduled_min), scheduled_max = greatest(c.scheduled_max, excluded.scheduled_max)
  )
  select count(*) into v_folded from taken;
  return v_folded;
end $$;
comment on function _octop_fold_counters() is 'Add what the exchanges appended to the counters, at most 20,000 rows a call.';

create or replace function _octop_chore_due(p_name text, p_every interval) returns boolean
  language plpgsql set search_path from current
as $$
begin
  -- locks the row first, decides in the next statement: two at once, one of them does it
  perform from _octop_chores c where c.name = p_name for update skip locked;
  if not found then
    -- ON CONFLICT would wait for whoever does it now, for the first time in this database
    if exists (select from _octop_chores c where c.name = p_name)
       or not pg_try_advisory_xact_lock(hashtextextended(p_name, '_octop_chores'::regclass::oid::bigint)) then
      return false;
    end if;
    insert into _octop_chores (name) values (p_name) on conflict do nothing;
  end if;
  update _octop_chores c set next_at = _octop_now() + p_every where c.name = p_name and c.next_at <= _octop_now();
  return found;
end $$;
comment on function _octop_chore_due(text, interval) is 'May this caller do the chore now? At most one does, once per interval.';

create or replace function _octop_purge(p_most integer) returns void
  language plpgsql set search_path from current
as $$
begin
  perform _octop_purge_attempts(p_most);
  perform _octop_purge_frozen(p_most);
  perform _octop_clear_history(p_most);
  delete from octop_workers w
   where w.beat_at < _octop_now() - greatest(10 * _octop_lease(), interval '1 hour')
     and not exists (select from octop_tasks_live t where t.status = 'running' and t.worker_id = w.id);
  delete from _octop_sleepers s where not exists (select from octop_workers w where w.id = s.worker_id);
  perform _octop_purge_buckets(p_most);
  delete from _octop_unique_windows w
   where w.ctid = any (array(select x.ctid from _octop_unique_windows x where x.until_at <= _octop_now() order by x.until_at limit p_most for update skip locked));
end $$;
comment on function _octop_purge(integer) is
  'Attempts, frozen and finished tasks that are kept no longer, unique keys whose time is over, buckets of lanes that are full, at most so many of each, and rows of workers and sleepers that are long gone.';

create or replace function _octop_chore_failed(what text, message text, hint text, again text) returns void
  language plpgsql set search_path from current
as $$
begin
  raise warning 'octop: %: %', what, regexp_replace(message, '^octop: ', '')
    using hint = coalesce(nullif(hint, ''), format('It is tried again %s.', again));
end $$;
comment on function _octop_chore_failed(text, text, text, text) is
  'Warn of a chore that failed, with the error''s own hint, or when it is tried again.';

create or replace function _octop_do_chores(p_most integer, out days_made integer, out days_dropped integer)
  language plpgsql set search_path from current
as $$
declare
  v_hint text;
begin
  days_made := 0;
  days_dropped := 0;
  if _octop_chore_due('purge', interval '10 seconds') then
    begin
      perform _octop_purge(p_most);
      perform _octop_purge_alerts(p_most);
      perform _octop_purge_slots(p_most);
    exception when query_canceled or others then
      get stacked diagnostics v_hint = pg_exception_hint;
      perform _octop_chore_failed('the purge was put off', sqlerrm, v_hint, 'in ten seconds');
    end;
  end if;
  if _octop_chore_due('days', interval '10 minutes') then
    begin
      days_made := octop_make_days();
    exception when query_canceled or others then
      get stacked diagnostics v_hint = pg_exception_hint;
      perform _octop_chore_failed('days of history could not be made', sqlerrm, v_hint, 'in ten minutes, and at once by select octop_make_days()');
    end;
    begin
      perform _octop_plan_walks();
      days_dropped := octop_drop_days();
    exception when query_canceled or others then
      get stacked diagnostics v_hint = pg_exception_hint;
      perform _octop_chore_failed('days of history could not be dropped', sqlerrm, v_hint, 'in ten minutes, and at once by select octop_drop_days()');
    end;
  end if;
end $$;
comment on function _octop_do_chores(integer) is
  'Purges and days, as far as they are due, each for itself: one that fails is a WARNING and undoes nothing. A drop comes last: it locks history until the commit.';

create or replace function octop_sweep(worker_id uuid)
  returns table (rescued integer, overdue integer, unparked integer, folded integer, days_made integer, days_dropped integer)
  language plpgsql security definer set search_path from current set lock_timeout = '50ms'
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_hint  text;
  v_walks boolean;
  v_began timestamptz;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'octop: the sweep needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
      using errcode = 'OC301', hint = 'Set default_transaction_isolation of this role to read committed.';
  end if;
  -- What can only be found by walking over all running tasks passes the dead entries of all that ran since vacuum could last take them:
  -- millions, while somebody holds a transaction open.
  v_walks := not exists (select from _octop_chores c where c.name = 'running' and c.next_at > _octop_now());
  v_began := clock_timestamp();
  if v_walks then
    -- before the judge is judged: if all rows of workers were deleted, its own lease runs beside that of the others, not before it
    perform _octop_adopt_strays(5000);
  end if;
  rescued := _octop_rescue(octop_sweep.worker_id, 5000, v_walks);
  overdue := 0;
  if v_walks then
    overdue := _octop_end_overdue(500);
    if rescued + overdue = 0 then  -- else the time went into them, and there may be more
      perform _octop_put_off_walks(clock_timestamp() - v_began);
    end if;
  end if;
  perform _octop_lift_ended(1000);
  unparked := _octop_unpark(2000);
  folded := _octop_fold_counters();
  if rescued + overdue > 0 then
    perform pg_notify('octop_wake', '');
  end if;
  begin
    perform _octop_watch_all(100);
    if _octop_chore_due('alerts', interval '1 minute') then
      perform _octop_alert_unknown_types(100);
    end if;
  exception when query_canceled or others then
    get stacked diagnostics v_hint = pg_exception_hint;
    perform _octop_chore_failed('watermarks and alerts were put off', sqlerrm, v_hint, 'with the next sweep');
  end;
  -- Chores last: whatever fails in them (a view on a day that is to be dropped, a full disk, a right that a restore did not bring along, a
  -- statement_timeout) must not undo a rescue, nor one the other. The days very last: a drop locks history until the commit.
  select c.days_made, c.days_dropped into days_made, days_dropped from _octop_do_chores(5000) c;
  return next;
end $$;
comment on function octop_sweep(uuid) is
  'Rescue, deadlines, parked tasks, counters, days and purges, each bounded. Any worker calls it every worker.rescue_seconds; calling it at any time is harmless. A chore (days, purge) that fails is a WARNING and undoes nothing of the rest. Error: OC301 isolation level.';

create or replace function octop_upkeep(most integer default 20000) returns table (folded integer, days_made integer, days_dropped integer)
  language plpgsql security definer set search_path from current set lock_timeout = '50ms'
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'octop: upkeep needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
      using errcode = 'OC301', hint = 'Set default_transaction_isolation of this role to read committed.';
  end if;
  if octop_upkeep.most not between 1 and 1000000 then
    raise exception 'octop: most must be 1 to 1000000, not %', octop_upkeep.most using errcode = 'OC113', hint = 'So many rows of each kind are purged at the most; null = 20000.';
  end if;
  folded := _octop_fold_counters();
  select c.days_made, c.days_dropped into days_made, days_dropped from _octop_do_chores(coalesce(octop_upkeep.most, 20000)) c;
  return next;
end $$;
comment on function octop_upkeep(integer) is
  'What keeps the database small, with no worker alive: days of history made and dropped (each ten minutes), what is kept no longer purged (each ten seconds), counters added up. At most so many rows of each kind, 1 to 1,000,000. Workers do it in their sweep; pg_cron may, and anybody at any time: select * from octop_upkeep(). '
  'In a transaction of its own: one that dropped a day locks history until its commit. It rescues nothing: that takes a worker. Errors: OC113, OC301 isolation level.';
