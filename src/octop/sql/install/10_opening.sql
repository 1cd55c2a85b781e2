-- One transaction, one installer at a time, checks, schema and roles. Names after a colon, as in psql, are put in by the installer.
begin;
set local lock_timeout = '3s';
set local client_min_messages = warning;
-- the others wait, look again and find nothing to do
do $octop_place$
declare
  v_schema text := :'schema';
  v_owner  text := :'owner';
  v_others text[] := array[:'producer', :'worker', :'operator', :'viewer'];
  v_role   text;
begin
  set local lock_timeout = 0;
  perform pg_advisory_xact_lock(hashtextextended('octop install', 0));
  set local lock_timeout = '3s';
  if current_setting('server_version_num')::integer < 140000 then
    raise exception 'octop: PostgreSQL % is too old', current_setting('server_version')
      using errcode = 'OC505', hint = 'Octop runs on PostgreSQL 14 to 18.';
  end if;
  if not exists (select from pg_namespace n where n.nspname = v_schema) then
    execute format('create schema %I', v_schema);
  end if;
  if has_schema_privilege('public', v_schema, 'create') then
    raise exception 'octop: PUBLIC may create objects in schema %', v_schema
      using errcode = 'OC501',
      hint = format('Anyone could slip a function into the engine''s path. First: REVOKE CREATE ON SCHEMA %I FROM PUBLIC;', v_schema);
  end if;
  foreach v_role in array v_owner || v_others loop
    if not exists (select from pg_roles r where r.rolname = v_role) then
      begin
        execute format('create role %I nologin', v_role);
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
            using errcode = 'OC502', hint = format('As a superuser: GRANT %I TO %I;', v_owner, current_user);
      end;
    end loop;
  end if;
  execute format('grant usage, create on schema %I to %I', v_schema, v_owner);
  foreach v_role in array v_others loop
    execute format('grant usage on schema %I to %I', v_schema, v_role);
  end loop;
end $octop_place$;
set local role :"owner";
set local search_path = :"schema", pg_temp;
set local check_function_bodies = on;
