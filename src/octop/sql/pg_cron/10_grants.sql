-- The least that the jobs need. pg_cron logs in as this role: it must have LOGIN.
grant usage on schema :"schema" to :"role";
grant execute on function :"schema".octop_tick(integer), :"schema".octop_upkeep(integer) to :"role";
