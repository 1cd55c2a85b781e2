-- One transaction, one installer at a time, a server that is new enough. Names after a colon, as in psql, are put in by the installer.
begin;
-- before any text with a backslash
set local standard_conforming_strings = on;
-- Does it end with "canceling statement due to lock timeout" or "is in use"? Somebody's transaction holds a table, and nothing was changed.
-- See who, end it if nobody else does (select pg_terminate_backend(PID);), and run this again:
--   select pid, usename, application_name, state, now() - xact_start as open_for, left(query, 60) as last_statement
--     from pg_stat_activity where datname = current_database() and xact_start is not null and pid <> pg_backend_pid() order by xact_start;
set local lock_timeout = '3s';
set local client_min_messages = warning;
-- Until we act as the owner a superuser may be running this: no function but PostgreSQL's own, whatever lies on the path of this login.
set local search_path = pg_catalog, pg_temp;
-- the others wait, look again and find nothing to do
do $octop_opening$
begin
  set local lock_timeout = 0;
  perform pg_advisory_xact_lock(hashtextextended('octop install', 0));
  set local lock_timeout = '3s';
  if current_setting('server_version_num')::integer < 140000 then
    raise exception 'octop: PostgreSQL % is too old', current_setting('server_version')
      using errcode = 'OC505', hint = 'Octop runs on PostgreSQL 14 to 18.';
  end if;
  -- names, payloads and errors hold any character, and those of clients arrive as what they are in UTF8 alone
  if getdatabaseencoding() <> 'UTF8' then
    raise exception 'octop: the database % has the encoding %', current_database(), getdatabaseencoding()
      using errcode = '55000', hint = 'Octop needs UTF8. Make a database of that encoding: CREATE DATABASE name ENCODING ''UTF8'' TEMPLATE template0;';
  end if;
end $octop_opening$;
