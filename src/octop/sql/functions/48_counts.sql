-- How many tasks of a limited queue run. Promise: exact, from the rows themselves, and as quick beside a transaction that somebody holds open:
-- what has ended leaves its entries in the index of running tasks until vacuum may take them, so a count begins at a mark. Few of those
-- entries lie behind it, and the ids of the tasks that were started before it and run still are listed: each is looked up by its key.

create or replace function _octop_pair(p_lane text, p_tenant text) returns text
  language sql immutable parallel safe
  return p_lane || case when p_tenant > '' then E'\x03' || p_tenant else '' end;
comment on function _octop_pair(text, text) is 'Name of a lane of one tenant: names have no control characters. Inlined.';

create or replace function _octop_runs(p_queue text)
  returns table (id uuid, lane text, tenant text, started_at timestamptz)
  language sql stable
begin atomic
  with mark as materialized (
    select g.since, g.earlier
      from (select x.* from _octop_gates x where x.queue = p_queue and x.lane = '' and x.tenant = '' order by x.no desc limit 1) g
     where g.rules = (select q.xmin from octop_queues q where q.name = p_queue))
  select t.id, t.lane, t.tenant, t.started_at from octop_tasks_live t
   where t.queue = p_queue and t.status = 'running' and t.started_at >= coalesce((select m.since from mark m), '-infinity')
  union all
  -- One that was given back and started again may lie on both sides of the mark. (coalesce: only by its key, never by the index of what runs.)
  select t.id, t.lane, t.tenant, t.started_at from octop_tasks_live t
   where t.id = any ((select m.earlier from mark m)::uuid[]) and coalesce(t.status, '') = 'running' and t.queue = p_queue and t.started_at < (select m.since from mark m);
end;
comment on function _octop_runs(text) is 'The tasks of a queue that run now. Inlined.';

create or replace function _octop_running(p_queue text, p_lanes boolean, out total integer, out lanes jsonb)
  language plpgsql stable set search_path from current
as $$
begin
  if p_lanes then
    select coalesce(sum(r.n), 0), coalesce(jsonb_object_agg(_octop_pair(r.lane, r.tenant), r.n), '{}') into total, lanes
      from (select x.lane, x.tenant, count(*) as n from _octop_runs(p_queue) x group by x.lane, x.tenant) r;
  else
    select count(*) into total from _octop_runs(p_queue);
  end if;
end $$;
comment on function _octop_running(text, boolean) is 'How many tasks of a queue run now, and, where that is asked, by lane and tenant: an object of _octop_pair, without those where none runs.';

create or replace function _octop_is_counted(p_rules octop_queues) returns boolean
  language sql immutable
  return (p_rules).global_limit is not null or (p_rules).lane_limit is not null or coalesce((p_rules).ordered, false) or (p_rules).windows is not null;
comment on function _octop_is_counted(octop_queues) is 'Does a queue count what runs, now or in a window? As long as nobody changes its row the answer is the same. Inlined.';

create or replace function _octop_note_starts(p_rules octop_queues, p_tids tid[], p_running integer) returns void
  language plpgsql set search_path from current
as $$
declare
  v_now  timestamptz := _octop_now();
  v_xmin xid;
  v_span double precision;
  g      record;
begin
  select x.ctid as tid, x.* into g from _octop_gates x where x.queue = p_rules.name and x.lane = '' and x.tenant = '' order by x.no desc limit 1;
  if not found then
    insert into _octop_gates (queue, tenant, lane, no) values (p_rules.name, '', '', 1) returning ctid as tid, * into g;
  end if;
  if p_rules.rate is not null then
    select k.empty_at + cardinality(p_tids) * _octop_token_span(p_rules.rate) into g.empty_at from _octop_tokens(p_rules.name, '', '', p_rules.rate, p_rules.burst) k;
  end if;
  if _octop_is_counted(p_rules) then
    v_xmin := (select q.xmin from octop_queues q where q.name = p_rules.name);
    if g.rules is distinct from v_xmin then
      -- Exchanges that are under way may have looked before the change. Their last look says whether they still may start something, and
      -- whoever was let through has its transaction id by then: it is smaller than this one.
      g.rules := v_xmin; g.sure := pg_snapshot_xmax(pg_current_snapshot()); g.since := null; g.earlier := '{}';
    elsif g.since is null then
      if pg_snapshot_xmin(pg_current_snapshot()) >= g.sure then
        g.since := v_now; g.starts := cardinality(p_tids); g.earlier := array(select r.id from _octop_runs(p_rules.name) r where r.started_at < v_now);
      end if;
    else
      g.starts := g.starts + cardinality(p_tids);
      if g.starts > 200 + 4 * p_running then
        -- A look-up by key costs some four entries of the index. Where to begin, so that both together cost least? What was started since the
        -- last mark lies about evenly between it and now.
        v_span := greatest(0.000001, extract(epoch from v_now - g.since));
        with runs as materialized (
          select r.id, r.started_at from _octop_runs(p_rules.name) r
        ), cuts as (
          select distinct r.started_at as at, rank() over (order by r.started_at) - 1 as before from runs r
          union all select v_now, count(*) filter (where r.started_at < v_now) from runs r
        ), best as (
          select c.at, ceil(g.starts * least(1, greatest(0, extract(epoch from v_now - c.at) / v_span)))::integer as behind
            from cuts c order by 4 * c.before + g.starts * least(1, greatest(0, extract(epoch from v_now - c.at) / v_span)), c.at limit 1)
        select b.at, b.behind, array(select r.id from runs r where r.started_at < b.at) into g.since, g.starts, g.earlier from best b;
      end if;
    end if;
    if v_now < g.since then
      -- this transaction began before the mark: what it starts now lies on the wrong side
      g.earlier := g.earlier || array(select t.id from octop_tasks_live t where t.ctid = any (p_tids));
    end if;
  end if;
  update _octop_gates x set no = x.no + 1, empty_at = g.empty_at, rules = g.rules, sure = g.sure, since = g.since, earlier = g.earlier, starts = g.starts
   where x.ctid = g.tid;
end $$;
comment on function _octop_note_starts(octop_queues, tid[], integer) is
  'These tasks are about to start in a limited queue, in which so many ran: spend the tokens of its rate, and see that they will be counted. Under the queue''s lock.';
