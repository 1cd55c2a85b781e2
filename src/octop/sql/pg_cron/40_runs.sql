-- pg_cron notes each run and forgets none.
select cron.schedule(:'runs', '17 3 * * *', format(
  'delete from cron.job_run_details where end_time < now() - interval ''7 days'' and jobid in (select jobid from cron.job where jobname in (%L, %L, %L))',
  :'tick', :'upkeep', :'runs'));
