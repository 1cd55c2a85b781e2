-- One transaction, one installer at a time, a server that is new enough. Names after a colon, as in psql, are put in by the installer.
begin;
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
end $octop_opening$;
