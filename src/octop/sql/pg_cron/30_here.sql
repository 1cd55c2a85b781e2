-- Schedules. pg_cron counts in seconds since 1.5, before that in minutes.
select cron.schedule(:'tick', case when (regexp_match(extversion, '^([0-9]+)[.]([0-9]+)'))::int[] >= '{1,5}' then :'seconds' else '* * * * *' end,
                     format('select * from %I.octop_tick(10000)', :'schema'))
  from pg_extension where extname = 'pg_cron';
-- Days of history made and dropped, what is kept no longer purged.
select cron.schedule(:'upkeep', '* * * * *', format('select * from %I.octop_upkeep()', :'schema'));
