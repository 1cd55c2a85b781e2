-- Objects in the order in which they stand on each other, then rights, the schema if it is empty, and the roles that the installer made.
do $octop_uninstall$
declare
  v_schema  text := :'schema';
  v_owner   text := :'owner';
  v_roles   text[] := array[:'producer', :'worker', :'operator', :'viewer', :'owner'];
  v_found   oid := (select n.oid from pg_namespace n where n.nspname = :'schema');
  -- not ::regrole, which would read a name with capitals as another one
  v_owned   oid := (select r.oid from pg_roles r where r.rolname = :'owner');
  -- the names that the installer makes; a table with another one is a person's, whoever owns it
  v_names   text[] := string_to_array(:'names', ',');
  v_funcs   text[] := string_to_array(:'functions', ',');
  v_rels    oid[];
  v_procs   oid[];
  v_drops   text[];
  v_left    text[];
  v_drop    text;
  v_living  text[];
  v_problem text;
  v_role    text;
  v_gone    boolean := false;
begin
  perform pg_advisory_xact_lock(hashtextextended('octop install', 0));
  if v_owned is null then
    raise exception 'octop: there is no role %', v_owner
      using errcode = '42704', hint = 'The roles have another prefix: print this script with --role-prefix.';
  elsif not pg_has_role(current_user, v_owned, 'member') then
    raise exception 'octop: % may not act as %', current_user, v_owner
      using errcode = 'OC502', hint = format('As a superuser: GRANT %I TO %I;', v_owner, current_user);
  end if;
  if not :'force'::boolean then
    execute format($q$select array_agg(format('%%s on %%s, process %%s, last seen %%s s ago: %%s', w.name, w.host, w.pid,
                        round(extract(epoch from now() - w.beat_at)), w.id) order by w.name)
                      from %1$I.octop_workers w where w.beat_at > now() - %1$I._octop_lease()$q$, v_schema) into v_living;
    if v_living is not null then
      raise exception 'octop: workers live: %', cardinality(v_living)
        using errcode = 'OC507', detail = array_to_string(v_living, E'\n'),
        hint = 'Stop them first (one that was killed: octop_lost with its id), or print this script with --force. Nothing was removed.';
    end if;
  end if;

  -- Ours: what has a name of the installer's, partitions, days that somebody detached; and belongs to the owner's role. An object of
  -- somebody else's with such a name is none of ours.
  v_rels := array(
    select c.oid from pg_class c
     where c.relnamespace = v_found and c.relowner = v_owned
       and (c.relname = any (v_names) or c.relname ~ '^octop_tasks_done_[0-9]{8}$' or c.relispartition and exists (
              select from pg_partition_ancestors(c.oid) p join pg_class a on a.oid = p.relid where a.relnamespace = v_found and a.relname = 'octop_tasks')));
  v_procs := array(select p.oid from pg_proc p where p.pronamespace = v_found and p.proowner = v_owned and p.proname = any (v_funcs));

  -- Nobody meant to lose what else belongs to the owner's role here, and it would stay without one who looks after it.
  select string_agg(pg_describe_object(d.classid, d.objid, 0), E'\n' order by d.classid, d.objid) into v_problem
    from pg_shdepend d cross join lateral pg_identify_object(d.classid, d.objid, 0) i
   where d.dbid = (select b.oid from pg_database b where b.datname = current_database()) and d.refobjid = v_owned and d.deptype = 'o'
     and d.refclassid = 'pg_authid'::regclass and d.objsubid = 0 and i.schema = quote_ident(v_schema)
     and not (d.classid = 'pg_class'::regclass and d.objid = any (v_rels) or d.classid = 'pg_proc'::regclass and d.objid = any (v_procs))
     -- what goes with its table: sequences of its columns
     and not exists (select from pg_depend p where p.classid = d.classid and p.objid = d.objid and p.deptype in ('a', 'i')
                        and p.refclassid = 'pg_class'::regclass and p.refobjid = any (v_rels));
  if v_problem is not null then
    raise exception 'octop: % owns something in schema % that is not Octop''s', v_owner, v_schema
      using errcode = '2BP01', detail = v_problem,
      hint = 'Give what the detail names to another owner, or drop it, then run this again. Is it of a newer Octop: print this script with that version. Nothing was removed.';
  end if;

  -- Views, functions, tables, the sequence; partitions, indexes, triggers, constraints and types go with their tables.
  select array_agg(x.statement) into v_drops from (
    select 1 as step, format('drop trigger %I on %I.%I', t.tgname, v_schema, c.relname) as statement
      from pg_trigger t join pg_class c on c.oid = t.tgrelid
     where c.oid = any (v_rels) and not t.tgisinternal and t.tgparentid = 0
    union all
    select 2, format('drop view %I.%I', v_schema, c.relname)
      from pg_class c where c.oid = any (v_rels) and c.relkind = 'v'
    union all
    select 3, format('drop %s %s', case p.prokind when 'p' then 'procedure' else 'function' end, p.oid::regprocedure)
      from pg_proc p where p.oid = any (v_procs)
    union all
    select 4, format('drop table %I.%I', v_schema, c.relname)
      from pg_class c where c.oid = any (v_rels) and c.relkind in ('r', 'p') and not c.relispartition
    union all
    select 5, format('drop sequence %I.%I', v_schema, c.relname)
      from pg_class c where c.oid = any (v_rels) and c.relkind = 'S'
       and not exists (select from pg_depend d where d.objid = c.oid and d.deptype in ('a', 'i'))
     order by 1) x;

  -- Ours stand on each other: what cannot go yet waits for the next round. A round in which nothing went meets somebody else's object.
  execute format('set local role %I', v_owner);
  while cardinality(v_drops) > 0 loop
    v_left := '{}';
    foreach v_drop in array v_drops loop
      begin
        execute v_drop;
      exception when dependent_objects_still_exist then
        v_left := v_left || v_drop;
      end;
    end loop;
    if cardinality(v_left) = cardinality(v_drops) then
      select string_agg(distinct pg_describe_object(d.classid, d.objid, d.objsubid), E'\n') into v_problem
        from pg_depend d
        left join pg_rewrite w on d.classid = 'pg_rewrite'::regclass and w.oid = d.objid
        left join pg_attrdef a on d.classid = 'pg_attrdef'::regclass and a.oid = d.objid
        left join pg_constraint k on d.classid = 'pg_constraint'::regclass and k.oid = d.objid
        left join pg_trigger t on d.classid = 'pg_trigger'::regclass and t.oid = d.objid
       where d.deptype = 'n'
         and (d.refclassid = 'pg_class'::regclass and d.refobjid = any (v_rels)
              or d.refclassid = 'pg_proc'::regclass and d.refobjid = any (v_procs)
              or d.refclassid = 'pg_type'::regclass and d.refobjid in (select y.oid from pg_type y where y.typrelid = any (v_rels)))
         and coalesce(w.ev_class, a.adrelid, nullif(k.conrelid, 0), t.tgrelid, d.objid) <> all (v_rels || v_procs);
      raise exception 'octop: something that is not Octop''s stands on it'
        using errcode = '2BP01', detail = coalesce(v_problem, v_left[1]), hint = 'Drop or change what the detail names, then run this again. Nothing was removed.';
    end if;
    v_drops := v_left;
  end loop;
  reset role;
  if exists (select from pg_class c where c.oid = any (v_rels)) or exists (select from pg_proc p where p.oid = any (v_procs)) then
    raise exception 'octop: something of Octop would be left' using errcode = '2BP01', hint = 'Nothing was removed.';
  end if;

  foreach v_role in array v_roles loop
    if exists (select from pg_roles r where r.rolname = v_role) then
      execute format('revoke all on schema %I from %I', v_schema, v_role);
    end if;
  end loop;
  if v_schema <> 'public' and not exists (
       select from pg_depend d where d.refclassid = 'pg_namespace'::regclass and d.refobjid = v_found and d.deptype in ('n', 'a', 'i')) then
    execute format('drop schema %I', v_schema);
    v_gone := true;
  end if;
  if :'roles'::boolean then
    foreach v_role in array v_roles loop
      continue when not exists (select from pg_roles r where r.rolname = v_role);
      -- what a person made, or has made a login of, is not ours to take away
      if coalesce(shobj_description((select r.oid from pg_roles r where r.rolname = v_role), 'pg_authid'), '') <> 'Made by the installer of Octop.'
         or exists (select from pg_roles r where r.rolname = v_role and r.rolcanlogin) then
        raise notice 'octop: the role % stays: the installer did not make it, or it can log in', v_role;
        continue;
      end if;
      begin
        execute format('drop role %I', v_role);
      exception when dependent_objects_still_exist then
        get stacked diagnostics v_problem = pg_exception_detail;
        raise exception 'octop: the role % is needed elsewhere', v_role
          using errcode = '2BP01', detail = v_problem,
          hint = 'Take away what the detail names, or print this script without --roles if another installation uses the same roles. Nothing was removed.';
      end;
    end loop;
  end if;
  if v_gone then
    raise notice 'octop: dropped the empty schema %', v_schema;
  end if;
end $octop_uninstall$;
commit;
