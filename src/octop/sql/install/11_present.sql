-- What upgrades or uninstalls stands on what is there: a typo in the schema's name neither makes a second Octop nor passes in silence.
do $octop_present$
declare
  v_all text[] := array(select n.nspname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
                         where c.relname = 'octop_migrations' and c.relkind = 'r' order by 1);
begin
  if :'schema' <> all (v_all) then
    raise exception 'octop: Octop is not installed in schema %', :'schema'
      using errcode = '3F000', hint = case
        when v_all = '{}' then 'It is not in this database: ' || current_database() || '.'
        else format('Here it is in: %s. Print this script with --schema.', array_to_string(v_all, ', ')) end;
  end if;
end $octop_present$;
