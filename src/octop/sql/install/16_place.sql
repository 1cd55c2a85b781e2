-- Schema and roles: made where they are missing, and refused where somebody could slip code between ours.
do $octop_place$
declare
  v_schema text := :'schema';
  v_owner  text := :'owner';
  v_others text[] := array[:'producer', :'worker', :'operator', :'viewer'];
  v_role   text;
  v_right  text;
  v_whose  text;
  v_first  text := '';
  v_mighty text;
  v_fresh  boolean := not exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                                   where n.nspname = v_schema and c.relname = 'octop_migrations');
begin
  -- somebody's login is not to become a role of ours: it would be granted rights, and lose them with us
  select r.rolname into v_role from pg_roles r where r.rolcanlogin and r.rolname = any (v_owner || v_others) limit 1;
  if v_fresh and v_role is not null then
    raise exception 'octop: % is a login already, and the name of a role that Octop needs', v_role
      using errcode = '42710', hint = 'Choose another --role-prefix, so that the five names are free; then grant its roles to your logins.';
  end if;
  -- nor a role with power over the server: whoever is a member of ours could take it (of an owner who is a superuser: see below)
  select string_agg(format('%s has %s', r.rolname, p.words), E'\n' order by r.rolname), string_agg(format(' ALTER ROLE %I %s;', r.rolname, p.cure), '' order by r.rolname)
    into v_mighty, v_first
    from pg_roles r
    cross join lateral (
      select string_agg(x.power, ', ') as words, string_agg('NO' || x.power, ' ') as cure
        from (values (r.rolsuper and r.rolname <> v_owner, 'SUPERUSER'), (r.rolcreaterole, 'CREATEROLE'), (r.rolcreatedb, 'CREATEDB'),
                     (r.rolbypassrls, 'BYPASSRLS'), (r.rolreplication, 'REPLICATION')) x (has, power) where x.has) p
   where r.rolname = any (v_owner || v_others) and p.words is not null;
  if v_fresh and v_mighty is not null then
    raise exception 'octop: a role that Octop needs is there already, and has power over the server'
      using errcode = '42710', detail = v_mighty, hint = format('Choose another --role-prefix. Or as a superuser:%s', v_first);
  end if;
  v_first := '';
  -- A role that a person has made may have members already. They are meant, perhaps: but who installs is to know.
  for v_role, v_whose in
    select r.rolname, string_agg(quote_ident(m.rolname), ', ' order by m.rolname)
      from pg_roles r join pg_auth_members a on a.roleid = r.oid join pg_roles m on m.oid = a.member
     where v_fresh and r.rolname = any (v_owner || v_others) and m.rolname not in (current_user, session_user)
       and coalesce(shobj_description(r.oid, 'pg_authid'), '') <> 'Made by the installer of Octop.'
       -- since 16 the maker of a role is its member with ADMIN alone
       and coalesce((to_jsonb(a) ->> 'inherit_option')::boolean or (to_jsonb(a) ->> 'set_option')::boolean, true)
     group by r.rolname order by r.rolname
  loop
    raise warning 'octop: the role % was there before and has members: %', v_role, v_whose
      using hint = format('They get its rights on Octop. Who is not to have them: REVOKE %I FROM %s;', v_role, v_whose);
  end loop;
  v_whose := null;
  if not exists (select from pg_namespace n where n.nspname = v_schema) then
    begin
      execute format('create schema %I', v_schema);
    exception when insufficient_privilege then
      raise exception 'octop: % may not create the schema % in this database', current_user, v_schema
        using errcode = '42501', hint = format('As the owner of the database or a superuser: CREATE SCHEMA %I AUTHORIZATION %I;', v_schema, current_user);
    end;
  end if;
  -- what another one has to grant, because this login may not and the owner has no right of its own: PUBLIC's is to go
  if not has_schema_privilege(v_schema, 'create with grant option') and not exists (
       select from pg_namespace n cross join lateral aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
         join pg_roles o on o.rolname = v_owner
        where n.nspname = v_schema and a.privilege_type = 'CREATE' and a.grantee <> 0 and pg_has_role(o.oid, a.grantee, 'usage')) then
    if not exists (select from pg_roles r where r.rolname = v_owner) then
      v_first := format(' CREATE ROLE %I NOLOGIN; GRANT %I TO %I;', v_owner, v_owner, current_user);
    end if;
    v_first := v_first || format(' GRANT USAGE, CREATE ON SCHEMA %I TO %I;', v_schema, v_owner);
    v_whose := format(', as %I or a superuser (or choose a schema of your own: --schema NAME)',
                      (select pg_get_userbyid(n.nspowner) from pg_namespace n where n.nspname = v_schema));
  end if;
  if has_schema_privilege('public', v_schema, 'create') then
    raise exception 'octop: PUBLIC may create objects in schema %', v_schema
      using errcode = 'OC501',
      hint = format('Anyone could slip a function into the engine''s path. First%s: REVOKE CREATE ON SCHEMA %I FROM PUBLIC;%s', v_whose, v_schema, v_first);
  elsif v_first <> '' then
    raise exception 'octop: % may not create objects in schema %, and % may not grant it', v_owner, v_schema, current_user
      using errcode = '42501', hint = format('First%s:%s', v_whose, v_first);
  end if;
  foreach v_role in array v_owner || v_others loop
    if not exists (select from pg_roles r where r.rolname = v_role) then
      begin
        execute format('create role %I nologin', v_role);
        execute format('comment on role %I is %L', v_role, 'Made by the installer of Octop.');
      exception
        when duplicate_object or unique_violation then null;   -- made by another installer of this cluster
        when insufficient_privilege then
          raise exception 'octop: role % is missing and % may not create it', v_role, current_user
            using errcode = 'OC502',
            hint = format('As a superuser: CREATE ROLE %I NOLOGIN; GRANT %I TO %I;', v_role, v_owner, current_user);
      end;
    end if;
  end loop;
  if exists (select from pg_roles r where r.rolname = v_owner and r.rolsuper) then
    raise exception 'octop: the owner % is a superuser', v_owner
      using errcode = 'OC503', hint = format('ALTER ROLE %I NOSUPERUSER; or choose another --role-prefix.', v_owner);
  end if;
  foreach v_role in array v_others loop
    if has_schema_privilege(v_role, v_schema, 'create') then
      raise exception 'octop: role % may create objects in schema %', v_role, v_schema
        using errcode = 'OC501', hint = format('First: REVOKE CREATE ON SCHEMA %I FROM %I;', v_schema, v_role);
    end if;
  end loop;
  if not (select r.rolsuper from pg_roles r where r.rolname = current_user) then
    for i in 1..20 loop
      begin
        execute format('grant %I to %I', v_owner, current_user);
        exit;
      exception
        when internal_error then perform pg_sleep(0.05);       -- "tuple concurrently updated": another database of this cluster
        when insufficient_privilege then
          exit when pg_has_role(current_user, v_owner, 'member');
          raise exception 'octop: % may not act as %', current_user, v_owner
            using errcode = 'OC502', hint = case
              when v_fresh then format('As a superuser: GRANT %I TO %I;', v_owner, current_user)
              else format('Run it as a superuser, or as a member of %I: %s.', v_owner, coalesce(
                (select string_agg(quote_ident(pg_get_userbyid(m.member)), ', ')
                   from pg_auth_members m where pg_get_userbyid(m.roleid) = v_owner), 'none yet')) end;
      end;
    end loop;
  end if;
  -- only what is missing: a member of the owner, who upgrades, may not grant on the schema, and would be warned of each
  v_first := '';
  for v_role, v_right in
    select v_owner, r from unnest(array['USAGE', 'CREATE']) r union all select r, 'USAGE' from unnest(v_others) r
  loop
    continue when exists (
      select from pg_namespace n cross join lateral aclexplode(n.nspacl) a
       where n.nspname = v_schema and a.privilege_type = v_right and a.grantee = (select r.oid from pg_roles r where r.rolname = v_role));
    if has_schema_privilege(v_schema, v_right || ' with grant option') then
      execute format('grant %s on schema %I to %I', v_right, v_schema, v_role);
    elsif not has_schema_privilege(v_role, v_schema, v_right) then
      v_first := v_first || format(' GRANT %s ON SCHEMA %I TO %I;', v_right, v_schema, v_role);
    end if;
  end loop;
  if v_first <> '' then
    raise exception 'octop: % may not grant rights on schema %', current_user, v_schema
      using errcode = '42501', hint = format('First, as %I or a superuser:%s',
        (select pg_get_userbyid(n.nspowner) from pg_namespace n where n.nspname = v_schema), v_first);
  end if;
end $octop_place$;
set local role :"owner";
set local search_path = :"schema", pg_temp;
set local check_function_bodies = on;
