-- Schedules. pg_cron counts in seconds since 1.5, before that in minutes.
select cron.schedule_in_database(:'tick', case when (regexp_match(extversion, '^([0-9]+)[.]([0-9]+)'))::int[] >= '{1,5}' then :'seconds' else '* * * * *' end,
                                 format('select * from %I.octop_tick(10000)', :'schema'),
                                 coalesce(nullif(:'database', ''), current_database()), nullif(:'role', ''))
  from pg_extension where extname = 'pg_cron';
-- Days of history made and dropped, what is kept no longer purged.
select cron.schedule_in_database(:'upkeep', '* * * * *', format('select * from %I.octop_upkeep()', :'schema'),
                                 coalesce(nullif(:'database', ''), current_database()), nullif(:'role', ''));
