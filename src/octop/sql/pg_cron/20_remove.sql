select cron.unschedule(jobid) from cron.job where jobname in (:'tick', :'upkeep', :'runs');
