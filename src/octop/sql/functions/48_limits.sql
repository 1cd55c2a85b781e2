-- Limits of queues and lanes. Promise: exact, also when workers race and when they die. Statement 1 takes the queue's lock, or goes away;
-- statement 2 counts the rows that run and is younger than the lock, so it sees every start that was made under it. What is used is
-- counted, never kept: a place is free when the row of the task that had it runs no more, whoever ended it.

create or replace function _octop_queue_key(p_queue text) returns bigint
  language plpgsql stable set search_path from current
as $$
begin
  return hashtextextended(p_queue, 'octop_queues'::regclass::oid::bigint);
end $$;
comment on function _octop_queue_key(text) is
  'Advisory lock under which tasks of a limited queue start: of this database, schema and queue. Two queues with one key would only wait for each other.';

create or replace function _octop_window_is_open(p_window jsonb, p_at timestamptz) returns boolean
  language plpgsql stable set search_path from current
as $$
declare
  v_local timestamp := p_at at time zone coalesce(p_window ->> 'timezone', 'UTC');
  v_from  time := (p_window ->> 'from')::time;
  v_until time := (p_window ->> 'until')::time;
  v_day   date := v_local::date;
begin
  if v_from < v_until then
    if v_local::time < v_from or v_local::time >= v_until then
      return false;
    end if;
  elsif v_local::time < v_until then
    v_day := v_day - 1;   -- past midnight: it began the day before
  elsif v_local::time < v_from then
    return false;
  end if;
  return not p_window ? 'days' or p_window -> 'days' @> to_jsonb(extract(isodow from v_day)::integer);
end $$;
comment on function _octop_window_is_open(jsonb, timestamptz) is
  'Is a window of octop_queues.windows open at this moment? One whose end is not after its beginning goes over midnight and belongs to the day on which it begins.';

create or replace function _octop_windows_change_at(p_windows jsonb, p_at timestamptz) returns timestamptz
  language plpgsql stable set search_path from current
as $$
begin
  return (select min(x.at)
            from jsonb_array_elements(p_windows) w cross join generate_series(-1, 2) d cross join lateral (
              values (((p_at at time zone coalesce(w ->> 'timezone', 'UTC'))::date + d + (w ->> 'from')::time) at time zone coalesce(w ->> 'timezone', 'UTC')),
                     (((p_at at time zone coalesce(w ->> 'timezone', 'UTC'))::date + d + (w ->> 'until')::time) at time zone coalesce(w ->> 'timezone', 'UTC'))) x (at)
           where x.at > p_at);
end $$;
comment on function _octop_windows_change_at(jsonb, timestamptz) is 'When a window may next open or close: perhaps too early (its days are not looked at), never too late.';

create or replace function _octop_limits(p_queue text) returns octop_queues
  language plpgsql stable set search_path from current
as $$
declare
  q       octop_queues;
  v_open  jsonb;
begin
  select * into q from octop_queues o where o.name = p_queue;
  if q.windows is not null then
    select w into v_open from jsonb_array_elements(q.windows) with ordinality u (w, n) where _octop_window_is_open(w, _octop_now()) order by n limit 1;
    if v_open is not null then
      q.global_limit := case when v_open ? 'global_limit' then (v_open ->> 'global_limit')::integer else q.global_limit end;
      q.lane_limit := case when v_open ? 'lane_limit' then (v_open ->> 'lane_limit')::integer else q.lane_limit end;
      q.rate := case when v_open ? 'rate' then (v_open ->> 'rate')::double precision else q.rate end;
      q.burst := case when v_open ? 'burst' then (v_open ->> 'burst')::integer else q.burst end;
      q.lane_rate := case when v_open ? 'lane_rate' then (v_open ->> 'lane_rate')::double precision else q.lane_rate end;
      q.lane_burst := case when v_open ? 'lane_burst' then (v_open ->> 'lane_burst')::integer else q.lane_burst end;
    end if;
  end if;
  q.burst := case when q.rate is not null then coalesce(q.burst, greatest(1, ceil(q.rate)::integer)) end;
  q.lane_burst := case when q.lane_rate is not null then coalesce(q.lane_burst, greatest(1, ceil(q.lane_rate)::integer)) end;
  return q;
end $$;
comment on function _octop_limits(text) is 'The limits that hold for a queue now: its row, with what an open window says in its place, and bursts filled in.';

create or replace function _octop_token_span(p_rate double precision) returns interval
  language sql immutable
  -- up to the next microsecond: a rate is never exceeded by rounding
  return ceil(1000000 / p_rate) * interval '1 microsecond';
comment on function _octop_token_span(double precision) is 'How long a bucket takes to win one token.';

create or replace function _octop_tokens(p_queue text, p_tenant text, p_lane text, p_rate double precision, p_burst integer)
  returns table (tokens integer, token_at timestamptz, empty_at timestamptz)
  language sql stable
begin atomic
  select greatest(0, floor(extract(epoch from _octop_now() - e.at) / extract(epoch from _octop_token_span(p_rate))))::integer,
         e.at + _octop_token_span(p_rate), e.at
    from (select greatest(_octop_now() - p_burst * _octop_token_span(p_rate),
                          (select g.empty_at from _octop_gates g where g.queue = p_queue and g.lane = p_lane and g.tenant = p_tenant order by g.no desc limit 1)) as at) e;
end;
comment on function _octop_tokens(text, text, text, double precision, integer) is
  'Tokens in a bucket now, when it has, or had, its first one, and when it was empty. Inlined.';

create or replace function _octop_gate(p_rules octop_queues, out running integer, out by_lane jsonb, out tokens integer, out token_at timestamptz, out room integer)
  language plpgsql stable set search_path from current
as $$
begin
  if p_rules.global_limit is not null or p_rules.lane_limit is not null or p_rules.ordered then
    select r.total, r.lanes into running, by_lane from _octop_running(p_rules.name, p_rules.lane_limit is not null or coalesce(p_rules.ordered, false)) r;
  end if;
  if p_rules.rate is not null then
    select k.tokens, k.token_at into tokens, token_at from _octop_tokens(p_rules.name, '', '', p_rules.rate, p_rules.burst) k;
  end if;
  room := least(p_rules.global_limit - running, tokens);   -- null = no bound
end $$;
comment on function _octop_gate(octop_queues) is
  'What the limits of a queue let through now: tasks that run (counted only where something is limited by it; by_lane where lanes are), tokens, the moment of the next one, and how many tasks may start. Null = no such limit. Claims, sleep, views and reasons all ask here.';

create or replace function _octop_lane_gate(p_rules octop_queues, p_tenant text, p_lane text, p_by_lane jsonb)
  returns table (running integer, tokens integer, token_at timestamptz, head_id uuid, held_up_by uuid, room integer)
  language sql stable
begin atomic
  select r.running, k.tokens, k.token_at, h.id, h.held_up_by,
         least((p_rules).lane_limit - r.running, k.tokens, case when (p_rules).ordered and p_lane > '' then case when h.id is null or h.held_up_by is not null or h.scheduled_at > _octop_now() then 0 else 1 end end)
    from (select case when p_lane > '' then coalesce((p_by_lane ->> _octop_pair(p_lane, p_tenant))::integer, case when p_by_lane is not null then 0 end) end as running) r
    left join lateral _octop_tokens((p_rules).name, p_tenant collate "C", p_lane collate "C", (p_rules).lane_rate, (p_rules).lane_burst) k
           on p_lane > '' and (p_rules).lane_rate is not null
    left join lateral (
      -- the head is the first that has not ended; one that runs, is blocked, or has frozen holds up the others, and so does one that runs although it is not the head
      select t.id, t.scheduled_at, case when t.status not in ('pending', 'failed') then t.id
                        else coalesce((select f.id from octop_tasks_frozen f
                                        where f.queue = (p_rules).name and f.lane = p_lane collate "C" and length(f.lane) > 0 and f.tenant = p_tenant collate "C" and f.seq < t.seq
                                        order by f.seq limit 1),
                                      case when r.running > 0 then
                                        (select x.id from _octop_runs((p_rules).name) x where x.lane = p_lane collate "C" and x.tenant = p_tenant collate "C" limit 1) end)
                   end as held_up_by
        from octop_tasks_live t
       where t.queue = (p_rules).name and t.lane = p_lane collate "C" and length(t.lane) > 0 and t.tenant = p_tenant collate "C"
       order by t.seq limit 1) h on p_lane > '' and (p_rules).ordered;
end;
comment on function _octop_lane_gate(octop_queues, text, text, jsonb) is
  'As _octop_gate, for one lane of one tenant, of which so many run as it says: also its head, where the order is strict, and what holds it up (the head itself if it runs or is blocked; a frozen one; one that runs). A head that is not due holds up its lane, too. Tasks without a lane are bound by none of it. Inlined.';

create or replace function _octop_claim_limited(p_queue text, p_wanted integer, p_types text[], p_versions integer[], p_held text[], p_after text,
                                                p_marks_at timestamptz[], p_marks_id uuid[],
                                                out last_lane text, out tids tid[], out parked integer, out is_full boolean)
  language plpgsql set search_path from current
as $$
declare
  v_rules octop_queues := _octop_limits(p_queue);
  v_running integer;
  v_by_lane jsonb;
  v_room    integer;
begin
  tids := '{}';
  parked := 0;
  is_full := false;
  -- Statement 1: the lock, until the commit. Whoever finds it taken has found nothing: it does not wait with an exchange's outcomes in its
  -- hands, polls, and is told by octop_sleep that it must not sleep. (Weights alone need none.)
  if coalesce(v_rules.global_limit, v_rules.lane_limit) is not null or coalesce(v_rules.rate, v_rules.lane_rate) is not null or v_rules.ordered
     or v_rules.ageing_seconds is not null or v_rules.windows is not null then
    if not pg_try_advisory_xact_lock(_octop_queue_key(p_queue)) then
      return;
    end if;
    -- Statement 2 and all that follow see what was started under the lock before, and the limits as they are now.
    v_rules := _octop_limits(p_queue);
    select g.running, g.by_lane, g.room into v_running, v_by_lane, v_room from _octop_gate(v_rules) g;
    if v_room <= 0 then
      is_full := true;
      return;
    end if;
    p_wanted := least(p_wanted, v_room);
  end if;
  select c.last_lane, c.tids, c.parked into last_lane, tids, parked
    from _octop_claim(p_queue, p_wanted, p_types, p_versions, p_held, p_after, p_marks_at, p_marks_id, v_rules, v_by_lane) c;
  if tids <> '{}' then
    is_full := coalesce(cardinality(tids) >= v_room, false);
    if v_rules.lane_rate is not null then
      perform _octop_spend_lane_tokens(v_rules, tids);
    end if;
    if v_rules.rate is not null or _octop_is_counted(v_rules) then
      perform _octop_note_starts(v_rules, tids, v_running);
    end if;
  end if;
end $$;
comment on function _octop_claim_limited(text, integer, text[], integer[], text[], text, timestamptz[], uuid[]) is
  'As _octop_claim, of a queue with limits: never more than they let through. Answers nothing while another exchange claims there. is_full: no place, or no token, is left.';

create or replace function _octop_spend_lane_tokens(p_rules octop_queues, p_tids tid[]) returns void
  language plpgsql set search_path from current
as $$
begin
  with spent as materialized (
    select s.tenant, s.lane, k.empty_at + s.n * _octop_token_span(p_rules.lane_rate) as empty_at,
           (select g.ctid from _octop_gates g where g.queue = p_rules.name and g.lane = s.lane and g.tenant = s.tenant order by g.no desc limit 1) as tid
      from (select t.tenant, t.lane, count(*) as n from octop_tasks_live t where t.ctid = any (p_tids) and t.lane > '' group by t.tenant, t.lane) s
     cross join lateral _octop_tokens(p_rules.name, s.tenant, s.lane, p_rules.lane_rate, p_rules.lane_burst) k
  ), changed as (
    update _octop_gates g set no = g.no + 1, empty_at = s.empty_at from spent s where g.ctid = s.tid)
  insert into _octop_gates (queue, tenant, lane, no, empty_at) select p_rules.name, s.tenant, s.lane, 1, s.empty_at from spent s where s.tid is null;
end $$;
comment on function _octop_spend_lane_tokens(octop_queues, tid[]) is 'Take one token for each of these tasks, which are about to start, from the buckets of their lanes. Under the queue''s lock.';

create or replace function _octop_purge_buckets(p_most integer) returns void
  language plpgsql set search_path from current
as $$
begin
  -- A bucket that is full says what no row says. One whose rate is not known any more is full after a day. Backwards from row to row: so what
  -- is met first of each is the row itself, and not its dead versions.
  with recursive walk (queue, lane, tenant, empty_at, tid, n) as (
    (select g.queue, g.lane, g.tenant, g.empty_at, g.ctid, 1 from _octop_gates g order by g.queue desc, g.lane desc, g.tenant desc, g.no desc limit 1)
    union all
    select x.queue, x.lane, x.tenant, x.empty_at, x.ctid, w.n + 1 from walk w cross join lateral (
      select g.queue, g.lane, g.tenant, g.empty_at, g.ctid from _octop_gates g where (g.queue, g.lane, g.tenant) < (w.queue, w.lane, w.tenant)
       order by g.queue desc, g.lane desc, g.tenant desc, g.no desc limit 1) x
     where w.n < 100000)
  delete from _octop_gates b
   where b.ctid = any (array(
     select x.ctid from walk w join _octop_gates x on x.ctid = w.tid left join octop_queues q on q.name = w.queue
      where w.lane > '' and w.empty_at < _octop_now() - coalesce(coalesce(q.lane_burst, greatest(1, ceil(q.lane_rate)::integer)) * _octop_token_span(q.lane_rate), interval '1 day')
                                        - case when q.windows is not null then interval '1 day' else interval '0' end
      limit p_most for update of x skip locked));
end $$;
comment on function _octop_purge_buckets(integer) is 'Remove buckets of lanes that are full again, at most so many.';

create or replace function _octop_freed(p_queues text[]) returns void
  language plpgsql set search_path from current
as $$
declare
  v_waiting text[] := array(select u from unnest(p_queues) u
                             where exists (select from octop_tasks_live t where t.queue = u and t.status in ('pending', 'failed')));
begin
  if v_waiting <> '{}' then
    perform _octop_wake(v_waiting, array_fill('-infinity'::timestamptz, array[cardinality(v_waiting)]));
  end if;
end $$;
comment on function _octop_freed(text[]) is 'Places became free in these limited queues: wake who sleeps there, if something waits.';

create or replace function _octop_limits_due(p_queue text) returns timestamptz
  language plpgsql stable set search_path from current
  set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  v_rules octop_queues := _octop_limits(p_queue);
  v_gate  record;
  v_next  timestamptz;
  v_lanes record;
begin
  if v_rules.limited is not true then
    return null;
  end if;
  v_next := _octop_windows_change_at(v_rules.windows, _octop_now());
  select g.* into v_gate from _octop_gate(v_rules) g;
  if v_gate.running >= v_rules.global_limit then
    return v_next;   -- who ends a task there wakes the others
  elsif v_gate.tokens <= 0 then
    return least(v_next, v_gate.token_at);
  end if;
  -- Something could start, and did not: another exchange had the lock, or it is no task for who asks. Look again soon.
  if exists (select from generate_series(0, 9) p cross join lateral (
               select from octop_tasks_live t
                where t.queue = p_queue and t.lane = '' and t.priority = p and t.status in ('pending', 'failed') and t.scheduled_at <= _octop_now() limit 1) x) then
    return least(v_next, _octop_now() + interval '100 ms');
  end if;
  select count(*) as n, min(case when g.tokens <= 0 then g.token_at when g.room is null or g.room > 0 then _octop_now() + interval '100 ms' end) filter (where x.is_due) as at
    into v_lanes
    from _octop_lane_turns(p_queue, '', '', false, 200) l
   cross join lateral (select exists (select from generate_series(0, 9) p cross join lateral (
           select from octop_tasks_live t
            where t.queue = p_queue and t.lane = l.lane collate "C" and t.priority = p and t.status in ('pending', 'failed') and t.scheduled_at <= _octop_now() limit 1) y) as is_due) x
   cross join lateral _octop_lane_gate(v_rules, l.tenant, l.lane, v_gate.by_lane) g
   where l.lane > '';
  -- more lanes than were looked at: too early is allowed, too late is not
  return least(v_next, v_lanes.at, case when v_lanes.n >= 200 then _octop_now() + interval '500 ms' end);
end $$;
comment on function _octop_limits_due(text) is
  'When the limits of a queue may next let something start that is due already: perhaps too early, never too late, but for places that others free; those who free them tell. Null = none.';
