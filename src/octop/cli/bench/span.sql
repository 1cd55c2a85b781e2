-- From the first start to the last end, by the database's clock, of the tasks that were registered after a number.
select count(*), extract(epoch from max(completed_at) - min(started_at))::double precision, max(seq)
  from octop_tasks where queue = %s and status = 'success' and seq > %s;
