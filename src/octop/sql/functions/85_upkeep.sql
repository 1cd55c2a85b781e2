-- Upkeep seen and repaired by hand. Promise: what the sweep has still to do can be read by anyone who may read tasks; counters that
-- have drifted are brought back to the truth at once, exactly, also while workers run.

create or replace view octop_chores with (security_barrier) as
  select c.name, nullif(c.next_at, '-infinity') as next_at,
         case when c.next_at > '-infinity' then greatest(0, extract(epoch from _octop_now() - c.next_at))::double precision end as overdue_seconds
    from _octop_chores c
   where c.name <> 'running' or c.next_at > _octop_now();
comment on view octop_chores is
  'Repeated duties of the sweep and when each is due next: overdue by minutes = no worker sweeps. Empty moment = never done yet. running: walks over the running tasks (for those that are far over their limit, or whose worker was deleted) take long, because dead rows cannot be vacuumed, and are put off. octop_sweep(octop_uuid7()) does what is due.';

create or replace function octop_recount() returns table (tenant text, queue text, status text, was bigint, n bigint)
  language plpgsql security definer set search_path from current set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  v_wrong bigint;
  v_pids text;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'octop: counting needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
      using errcode = 'OC301', hint = 'Begin the transaction with: begin isolation level read committed;';
  end if;
  -- Whoever changes a task appends to the deltas in the same transaction: with this lock nobody is between the two. The next
  -- statement sees all that is committed; what waits for us is in neither, and adds its own delta later.
  begin
    lock table _octop_counter_deltas, _octop_counters in share row exclusive mode;
  exception when lock_not_available then
    select string_agg(distinct coalesce('session ' || l.pid, 'a prepared transaction'), ', ') into v_pids from pg_locks l
     where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid() and l.mode <> 'AccessShareLock'
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and l.relation in ('_octop_counter_deltas'::regclass, '_octop_counters'::regclass);
    raise exception 'octop: nothing was counted: tasks were changed in % and not committed', coalesce(v_pids, 'a transaction that has ended now')
      using errcode = '55P03', hint = 'Call again when that transaction has ended, or end it: select pg_terminate_backend(PID).';
  end;
  return query
  with before as (
    select x.tenant, x.queue, x.status, x.day, sum(x.n)::bigint as n
      from (select c.tenant, c.queue, c.status, c.day, c.n from _octop_counters c
            union all select d.tenant, d.queue, d.status, d.day, d.n from _octop_counter_deltas d) x group by 1, 2, 3, 4
  ), truth as materialized (
    select t.tenant, t.queue, _octop_counted_as(t.status) as status, d.day, count(*) as n, sum(d.epoch) as scheduled_sum,
           min(t.scheduled_at) filter (where d.epoch <> 0) as scheduled_min, max(t.scheduled_at) filter (where d.epoch <> 0) as scheduled_max
      from octop_tasks t cross join lateral _octop_counted_on(t.status, t.completed_at, t.scheduled_at) d
     where t.status <> 'running' group by 1, 2, 3, 4
  ), no_deltas as (
    delete from _octop_counter_deltas
  ), no_others as (
    delete from _octop_counters c
     where not exists (select from truth t where (t.tenant, t.queue, t.status, t.day) = (c.tenant, c.queue, c.status, c.day))
  ), written as (
    insert into _octop_counters as c (tenant, queue, status, day, n, scheduled_sum, scheduled_min, scheduled_max)
    select t.tenant, t.queue, t.status, t.day, t.n, t.scheduled_sum, t.scheduled_min, t.scheduled_max from truth t
    on conflict (tenant, queue, status, day) do update
       set n = excluded.n, scheduled_sum = excluded.scheduled_sum, scheduled_min = excluded.scheduled_min, scheduled_max = excluded.scheduled_max
  )
  select coalesce(t.tenant, b.tenant), coalesce(t.queue, b.queue), coalesce(t.status, b.status),
         coalesce(sum(b.n), 0)::bigint, coalesce(sum(t.n), 0)::bigint
    from truth t full join before b on (t.tenant, t.queue, t.status, t.day) = (b.tenant, b.queue, b.status, b.day)
   where coalesce(b.n, 0) <> coalesce(t.n, 0) group by 1, 2, 3;
  get diagnostics v_wrong = row_count;
  perform _octop_audit_write('recount', 'counters', jsonb_build_object('wrong', v_wrong));
end $$;
comment on function octop_recount() is
  'Count all tasks anew and write the counters behind the views, if they have drifted; answers what was wrong. Reads every task, history too: seconds for millions, and exchanges wait meanwhile. Error: OC301 isolation level.';
