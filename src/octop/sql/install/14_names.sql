-- No name of ours is taken by somebody else's table, view, sequence, index or function; and nobody who could once create objects in the
-- schema has left a function there that the engine's would call instead of PostgreSQL's (the types that fit best win, whatever the path).
do $octop_names$
declare
  v_names  text[] := string_to_array(:'names', ',');
  v_funcs  text[] := string_to_array(:'functions', ',');
  v_schema oid := (select n.oid from pg_namespace n where n.nspname = :'schema');
  v_fresh  boolean := not exists (
    select from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'checksum'
     where c.relnamespace = v_schema and c.relname = 'octop_migrations' and c.relkind = 'r');
  v_taken  text;
begin
  select string_agg(format('%s, owned by %s', pg_describe_object(x.class, x.oid, 0), pg_get_userbyid(x.owner)), E'\n' order by x.name)
    into v_taken
    from (select 'pg_class'::regclass as class, c.oid, c.relname as name, c.relowner as owner
            from pg_class c where c.relnamespace = v_schema and c.relname = any (v_names)
          union all
          select 'pg_proc'::regclass, p.oid, p.proname, p.proowner
            from pg_proc p where p.pronamespace = v_schema and p.proname = any (v_funcs)) x
   where v_fresh or pg_get_userbyid(x.owner) <> :'owner';
  if v_taken is not null then
    raise exception 'octop: schema % holds something else under a name of Octop''s', :'schema'
      using errcode = '42P07', detail = v_taken,
      hint = case when v_fresh then 'Install into a schema of its own: --schema NAME. Or rename what the detail names. Nothing was changed.'
                  else format('If it is Octop''s, ALTER its OWNER TO %I; else rename it. Nothing was changed.', :'owner') end;
  end if;
  select string_agg(format('%s, owned by %s', pg_describe_object(x.class, x.oid, 0), r.rolname), E'\n' order by x.oid)
    into v_taken
    from (select 'pg_proc'::regclass as class, p.oid, p.proowner as owner
            from pg_proc p where p.pronamespace = v_schema
             and exists (select from pg_proc o where o.pronamespace = 'pg_catalog'::regnamespace and o.proname = p.proname)
          union all
          select 'pg_operator'::regclass, p.oid, p.oprowner
            from pg_operator p where p.oprnamespace = v_schema
             and exists (select from pg_operator o where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprname = p.oprname)) x
    join pg_roles r on r.oid = x.owner
   where not r.rolsuper and r.rolname not in (:'owner', current_user);
  if v_taken is not null then
    raise exception 'octop: schema % holds functions or operators of others under names of PostgreSQL''s', :'schema'
      using errcode = 'OC501', detail = v_taken,
      hint = 'Our functions would call them, with the owner''s rights. Drop what the detail names, or install into a schema of its own: --schema NAME. Nothing was changed.';
  end if;
end $octop_names$;
