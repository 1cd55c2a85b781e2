-- The yardstick: the same exchange that a worker calls, with the same batches and a commit each, called by a loop inside the database.
-- No Python, no network, no task: what is left is what PostgreSQL itself needs.
create procedure pg_temp.octop_bench_drain(worker uuid, queue text, task_type text, batch integer, inout drained bigint)
  language plpgsql
as $$
declare
  v_ids      uuid[] := '{}';
  v_attempts integer[] := '{}';
  v_claims   uuid[] := '{}';
  v_results  text[] := '{}';
  v_count    integer;
  v_beaten   timestamptz := clock_timestamp();
begin
  drained := 0;
  loop
    select coalesce(array_agg(x.id), '{}'), coalesce(array_agg(x.attempt), '{}'), coalesce(array_agg(x.claim_id), '{}'), count(*)
      into v_ids, v_attempts, v_claims, v_count
      from octop_exchange(worker, array[queue], array[batch], array[task_type], null, v_ids, v_attempts, v_claims, v_results) x
     where x.verdict = 'run';
    commit;
    exit when v_count = 0;
    drained := drained + v_count;
    v_results := array_fill(null::text, array[v_count]);
    if clock_timestamp() > v_beaten + interval '1 second' then
      perform octop_beat(array[worker]);
      commit;
      v_beaten := clock_timestamp();
    end if;
  end loop;
end $$;
