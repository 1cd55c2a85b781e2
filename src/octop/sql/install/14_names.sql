-- No name of ours is taken by somebody else's table, view, sequence or index.
do $octop_names$
declare
  v_names  text[] := string_to_array(:'names', ',');
  v_schema oid := (select n.oid from pg_namespace n where n.nspname = :'schema');
  v_fresh  boolean := not exists (
    select from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'checksum'
     where c.relnamespace = v_schema and c.relname = 'octop_migrations' and c.relkind = 'r');
  v_taken  text;
begin
  select string_agg(format('%s, owned by %s', pg_describe_object('pg_class'::regclass, c.oid, 0), pg_get_userbyid(c.relowner)), E'\n' order by c.relname)
    into v_taken
    from pg_class c
   where c.relnamespace = v_schema and c.relname = any (v_names) and (v_fresh or pg_get_userbyid(c.relowner) <> :'owner');
  if v_taken is not null then
    raise exception 'octop: schema % holds something else under a name of Octop''s', :'schema'
      using errcode = '42P07', detail = v_taken,
      hint = case when v_fresh then 'Install into a schema of its own: --schema NAME. Or rename what the detail names. Nothing was changed.'
                  else format('If it is Octop''s, ALTER its OWNER TO %I; else rename it. Nothing was changed.', :'owner') end;
  end if;
end $octop_names$;
