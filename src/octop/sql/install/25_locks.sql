-- The locks that the rest takes on tables in use, at once: octop_tasks before what its triggers read, so that no enqueue waits for us while it
-- makes us wait. If somebody is in the way, he is named.
do $octop_locks$
declare
  v_table text;
  v_mode  text;
  v_in    oid := (select n.oid from pg_namespace n where n.nspname = :'schema');
  v_who   text;
  v_pids  text;
begin
  for v_table, v_mode in
    -- a trigger is replaced in the weaker mode; a constraint trigger has to be dropped and made again
    select x.table_name, x.mode
      from (select c.relname as table_name, c.oid, case when bool_or(t.tgconstraint <> 0) then 'access exclusive' else 'share row exclusive' end as mode
              from pg_trigger t join pg_class c on c.oid = t.tgrelid
             where c.relnamespace = v_in and c.relname = any (string_to_array(:'names', ',')) and not t.tgisinternal and t.tgparentid = 0
             group by c.oid, c.relname) x
     order by x.table_name !~ '^octop_tasks', x.mode, x.oid
  loop
    begin
      execute format('lock table only %I in %s mode', v_table, v_mode);
    exception when lock_not_available then
      select string_agg(format('process %s: %s, %s', l.pid, coalesce(a.usename, '?'), coalesce(nullif(a.application_name, ''), 'no application name')), E'\n' order by l.pid),
             string_agg(format(' select pg_terminate_backend(%s);', l.pid), '' order by l.pid)
        into v_who, v_pids
        from (select distinct k.pid from pg_locks k
               where k.locktype = 'relation' and k.database = (select d.oid from pg_database d where d.datname = current_database())
                 and k.relation = (select c.oid from pg_class c where c.relnamespace = v_in and c.relname = v_table)
                 and k.granted and k.pid <> pg_backend_pid()
                 and (v_mode = 'access exclusive' or k.mode not in ('AccessShareLock', 'RowShareLock'))) l
        left join pg_stat_activity a on a.pid = l.pid;
      raise exception 'octop: % is in use by a transaction that has not ended', v_table
        using errcode = '55P03', detail = coalesce(v_who, ''),
        hint = 'Run this again. If nobody ends it:' || coalesce(v_pids, ' see the how-to "End a transaction that was left open".') || ' Nothing was changed.';
    end;
  end loop;
end $octop_locks$;
