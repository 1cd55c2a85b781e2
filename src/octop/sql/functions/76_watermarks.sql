-- Watermarks: the backlog of one queue holds others. Promise: decided by rows, by any worker's sweep: the queue's row of looks is locked
-- first, the backlog counted in the next statement; a person's order on the same queue is another row and stays.

create or replace function _octop_backlog(p_queue text, p_most bigint) returns bigint
  language plpgsql stable set search_path from current
as $$
declare
  v_waiting bigint := (select sum(c.n) from _octop_counted() c where c.queue = p_queue and c.status = 'waiting');
begin
  if v_waiting < p_most then
    return v_waiting;
  end if;
  return (select count(*) from (
    select from octop_tasks_live t where t.queue = p_queue and t.status in ('pending', 'failed') and t.scheduled_at <= _octop_now() limit p_most) x);
end $$;
comment on function _octop_backlog(text, bigint) is
  'Tasks of a queue that wait and are due: at most so many. If fewer than that wait at all, their number from the counters, future ones among them.';

create or replace function _octop_watch(p_queue text) returns void
  language plpgsql set search_path from current
as $$
declare
  v_look    _octop_watermark_looks;
  v_high    bigint;
  v_low     bigint;
  v_backlog bigint;
  v_cause   text := 'watermark:' || p_queue;
  v_held    text[];
begin
  select l.* into v_look from _octop_watermark_looks l where l.queue = p_queue and l.next_at <= _octop_now() for update skip locked;
  if not found then
    return;
  end if;
  select q.watermark_high, coalesce(q.watermark_low, q.watermark_high / 2) into v_high, v_low from octop_queues q where q.name = p_queue;
  v_backlog := case when v_high is not null then coalesce(_octop_backlog(p_queue, v_high), 0) end;
  if v_high is null or v_look.looks > 0 and v_backlog <= v_low then
    with lifted as (
      delete from octop_holds h where h.kind = 'queue' and h.cause = v_cause returning h.target
    )
    select array_agg(l.target order by l.target) into v_held from lifted l;
    if v_look.looks > 0 then
      perform _octop_alert('watermark_lifted', p_queue, 'info', format('The backlog of the queue "%s" has fallen to %s: %s held no more.', p_queue, coalesce(v_backlog::text, 'no watermark'),
                coalesce('"' || array_to_string(v_held, '", "') || '" is', 'nothing is')), jsonb_build_object('queue', p_queue, 'backlog', v_backlog, 'low', v_low, 'lifted', v_held));
    end if;
    if v_high is null then
      delete from _octop_watermark_looks l where l.queue = p_queue;
    else
      update _octop_watermark_looks l set looks = 0, backlog = v_backlog, next_at = _octop_now() + interval '5 s' where l.queue = p_queue;
    end if;
  elsif v_look.looks > 0 or v_backlog >= v_high then
    with held as (
      -- also those that were made, or marked, since the last look; and one that a person resumed
      insert into octop_holds (kind, target, cause, reason, author)
      select 'queue', q.name, v_cause, format('the backlog of the queue "%s" stands at its watermark of %s', p_queue, v_high), _octop_caller()
        from octop_queues q where q.critical = false and q.name <> p_queue order by q.name
      on conflict do nothing returning target
    )
    select array_agg(h.target order by h.target) into v_held from held h;
    delete from octop_holds h where h.kind = 'queue' and h.cause = v_cause and not exists (select from octop_queues q where q.name = h.target and q.critical = false);
    if v_look.looks = 0 then
      perform _octop_alert('watermark_reached', p_queue, 'warning', format('The backlog of the queue "%s" has reached %s: %s held until it has fallen to %s.', p_queue, v_high,
                coalesce('"' || array_to_string(v_held, '", "') || '" is', 'nothing, for no other queue is marked non-critical, is'), v_low), jsonb_build_object('queue', p_queue, 'backlog', v_backlog, 'high', v_high, 'low', v_low, 'held', v_held));
    end if;
    update _octop_watermark_looks l
       set looks = least(l.looks, 1000000) + 1, backlog = v_backlog,
           next_at = _octop_now() + case l.looks when 0 then interval '30 s' when 1 then interval '1 min' else interval '5 min' end
     where l.queue = p_queue;
  else
    update _octop_watermark_looks l set backlog = v_backlog, next_at = _octop_now() + interval '5 s' where l.queue = p_queue;
  end if;
end $$;
comment on function _octop_watch(text) is
  'Look at the backlog of a queue with a watermark, if that is due and nobody else does: hold the non-critical queues when it has reached the watermark, look again after 30 s, 1 min, 5 min, 5 min …, and let them go when it has fallen. Else every 5 s.';

create or replace function _octop_watch_all(p_most integer) returns void
  language plpgsql set search_path from current
as $$
begin
  insert into _octop_watermark_looks (queue)
  select q.name from octop_queues q where q.watermark_high is not null
     and not exists (select from _octop_watermark_looks l where l.queue = q.name) order by q.name limit p_most
  on conflict do nothing;
  perform _octop_watch(x.queue) from (
    select l.queue from _octop_watermark_looks l where l.next_at <= _octop_now()
        or not exists (select from octop_queues q where q.name = l.queue and q.watermark_high is not null) order by l.next_at, l.queue limit p_most) x;
end $$;
comment on function _octop_watch_all(integer) is 'Look at all watermarks that are due, at most so many. A queue that has none is not looked at.';
