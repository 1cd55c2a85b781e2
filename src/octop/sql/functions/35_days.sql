-- Days of history. Promise: partitions are made ahead with ATTACH (it stops readers, not workers), dropped whole with a short lock_timeout, by any
-- worker, at any time, and no outcome can fail for want of a day.

create or replace view _octop_days as
  select c.oid::regclass as partition, i.inhparent::regclass as parent,
         substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM [(]''([^'']+)''[)]')::timestamptz as from_at,
         substring(pg_get_expr(c.relpartbound, c.oid) from 'TO [(]''([^'']+)''[)]')::timestamptz as to_at
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
   where i.inhparent = 'octop_tasks_done'::regclass
     and pg_get_expr(c.relpartbound, c.oid) <> 'DEFAULT';
comment on view _octop_days is 'The day partitions, from the catalog, not from names. Read it with timezone UTC: bounds print in the session''s zone.';

create or replace function _octop_say_who_reads(what text, context text, parent_modes text[], partition regclass) returns void
  language plpgsql set search_path from current
as $$
declare
  v_pids text := (select string_agg(distinct coalesce('session ' || l.pid, 'a prepared transaction'), ', ') from pg_locks l
                   where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid()
                     and l.database = (select d.oid from pg_database d where d.datname = current_database())
                     and (l.relation = partition or l.relation = 'octop_tasks_done'::regclass and (parent_modes is null or l.mode = any (parent_modes))));
begin
  -- the sweep looks again by itself
  if _octop_by_hand(context) then
    raise notice 'octop: %, but % reads or changes history: call again when it has ended', what, coalesce(v_pids, 'another transaction');
  end if;
end $$;
comment on function _octop_say_who_reads(text, text, text[], regclass) is
  'Tell a person (whom the call stack tells from a sweep, PG_CONTEXT) that days were not made or dropped, and who stands in the way: who has a lock on this partition, or one of these on octop_tasks_done (null = any).';

create or replace function octop_make_days(days_ahead integer default null) returns integer
  language plpgsql security definer set search_path from current
  set lock_timeout = '100ms' set timezone = 'UTC' set datestyle = 'ISO'
as $$
declare
  v_day  date;
  v_name text;
  v_who  oid;
  v_made integer := 0;
  v_context text;
begin
  get diagnostics v_context = pg_context;
  if days_ahead < 0 then
    raise exception 'octop: days_ahead must be 0 or more, not %', days_ahead using errcode = 'OC113', hint = '0 makes today alone; null = history.days_ahead.';
  elsif days_ahead > 60 then
    raise notice 'octop: days are made at most 60 ahead, not %', days_ahead;
  end if;
  -- another worker is at it
  if not pg_try_advisory_xact_lock(hashtextextended('octop_tasks_done', 'octop_tasks_done'::regclass::oid::bigint)) then
    if _octop_by_hand(v_context) then
      raise notice 'octop: nothing was done: somebody else makes or drops days now';
    end if;
    return 0;
  end if;
  -- also days gone by that strays wait for (nobody made days for a while): retention drops days, never strays
  for v_day in
    select _octop_now()::date + g from generate_series(0, least(coalesce(days_ahead, _octop_setting('history.days_ahead')::integer), 60)) g
    union
    (select distinct s.completed_at::date from octop_tasks_done_stray s where s.completed_at > _octop_now() - interval '1000 days' and s.completed_at < _octop_now() + interval '40 days'
      order by 1 limit 10)
    order by 1
  loop
    continue when exists (select from _octop_days where from_at = v_day::timestamptz);
    v_name := 'octop_tasks_done_' || to_char(v_day, 'YYYYMMDD');
    if not has_schema_privilege(current_schema(), 'create') then  -- a restore may have left it behind
      raise exception 'octop: % may make no day in the schema %', current_user, current_schema() using errcode = '42501',
        hint = format('As the owner of the schema or a superuser: GRANT USAGE, CREATE ON SCHEMA %I TO %I;', current_schema(), current_user);
    end if;
    begin
      -- LIKE and ATTACH take SHARE UPDATE EXCLUSIVE; CREATE … PARTITION OF would stop everybody
      execute format('create table %I (like octop_tasks_done including all)', v_name);
      -- default privileges may have given rights on it: nobody reads a day but through octop_tasks
      for v_who in select distinct a.grantee from pg_class c, aclexplode(c.relacl) a
                    where c.oid = to_regclass(quote_ident(v_name)) and a.grantee <> c.relowner loop
        execute format('revoke all on table %I from %s cascade', v_name, case when v_who = 0 then 'public' else v_who::regrole::text end);
      end loop;
      -- what found no day (no worker for a week, a clock that had jumped) goes home first, or ATTACH refuses
      if exists (select from octop_tasks_done_stray where completed_at >= v_day::timestamptz and completed_at < (v_day + 1)::timestamptz) then
        lock table octop_tasks_done_stray in access exclusive mode;
        execute format(
          'with d as (delete from octop_tasks_done_stray where completed_at >= %L and completed_at < %L returning *) insert into %I select * from d',
          v_day::timestamptz, (v_day + 1)::timestamptz, v_name);
      end if;
      execute format('alter table octop_tasks_done attach partition %I for values from (%L) to (%L)',
                     v_name, v_day::timestamptz, (v_day + 1)::timestamptz);
      v_made := v_made + 1;
    exception when lock_not_available or deadlock_detected then
      -- somebody reads; the next round tries again
      perform _octop_say_who_reads(format('the day %s and those after it were not made', v_day), v_context,
                '{ShareUpdateExclusiveLock,ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}', 'octop_tasks_done_stray');
      return v_made;
    end;
  end loop;
  return v_made;
end $$;
comment on function octop_make_days(integer) is
  'Make the day partitions of history from today to so many days ahead (null = history.days_ahead, more than 60 = 60). Answers how many were made; 0 if none was missing, or none could be made because somebody reads history or makes days himself: a NOTICE says so, and who it is. '
  'Call it at any time, in a transaction of its own: until that commits, nobody can read octop_tasks, and no task can end whose day was missing. Error: OC113.';

create or replace function octop_drop_days(keep_days integer default null, most integer default 3) returns integer
  language plpgsql security definer set search_path from current
  set lock_timeout = '50ms' set timezone = 'UTC' set datestyle = 'ISO'
as $$
declare
  r         record;
  v_dropped integer := 0;
  v_before  timestamptz;
  v_left    bigint;
  v_context text;
begin
  get diagnostics v_context = pg_context;
  if octop_drop_days.keep_days not between 1 and 36500 then
    raise exception 'octop: keep_days must be 1 to 36500, not %', octop_drop_days.keep_days
      using errcode = 'OC113', hint = 'Days of history that ended before so many days ago are dropped, whatever is to be kept longer; null = those in which nothing must be kept.';
  end if;
  v_before := _octop_now() - make_interval(days => keep_days);
  if octop_drop_days.most < 0 then
    raise exception 'octop: most must be 0 or more, not %', octop_drop_days.most using errcode = 'OC113', hint = 'So many days are dropped at the most.';
  end if;
  if not pg_try_advisory_xact_lock(hashtextextended('octop_tasks_done', 'octop_tasks_done'::regclass::oid::bigint)) then
    if _octop_by_hand(v_context) then
      raise notice 'octop: nothing was done: somebody else makes or drops days now';
    end if;
    return 0;
  end if;
  for r in (select d.partition, d.from_at, d.to_at from _octop_days d where d.to_at <= v_before   -- a number overrides all settings
            union all select o.partition, o.from_at, o.to_at from _octop_days_over(0) o where keep_days is null) order by 3 limit most loop
    begin
      execute format('drop table %s', r.partition);
      perform _octop_audit_write('drop day', r.from_at::date::text,
                (select coalesce(jsonb_object_agg(x.status, x.n), '{}')
                   from (select y.status, sum(y.n) as n
                           from (select c.status, c.n from _octop_counters c where c.day = r.from_at::date
                                 union all select d.status, d.n from _octop_counter_deltas d where d.day = r.from_at::date) y group by y.status) x));
      delete from _octop_counter_deltas where day = r.from_at::date;
      delete from _octop_counters where day = r.from_at::date;
      v_dropped := v_dropped + 1;
    exception when lock_not_available or deadlock_detected then
      -- somebody reads; the next round tries again
      v_left := case when keep_days is null then (select count(*) from _octop_days_over(0)) else (select count(*) from _octop_days where to_at <= v_before) end;
      perform _octop_say_who_reads(case v_left when 1 then '1 day is over' else v_left || ' days are over' end, v_context, null, r.partition);
      return v_dropped;
    end;
  end loop;
  return v_dropped;
end $$;
comment on function octop_drop_days(integer, integer) is
  'Drop whole days of history: without a number those in which nothing must be kept any more (octop_days_over), with one all that ended before so many days ago, whatever is to be kept longer (1 to 36500); at most so many (null = all). Answers how many; 0 if none was over, or somebody reads history: it waits 50 ms for readers, says in a NOTICE who they are, and leaves the day to the next call. '
  'Call it in a transaction of its own: until that commits, no worker can hand in what has ended, and nobody can read octop_tasks. The audit keeps how many tasks went. Error: OC113.';
