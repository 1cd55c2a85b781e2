-- Holds: orders not to start tasks of a queue, a task type, a tenant or a lane. Promise: each is a row that holds on all workers, also on
-- those that start later, from its commit until it is lifted or ends by itself, on the database's clock; what holds a task is decided
-- here alone, for claims, parking and explanations. A hold of a queue is looked at before its claim; of all others the claim that meets
-- a held task parks it (next group), and who lifts the hold leaves a note, so that whoever wants work brings the tasks back.

create or replace function _octop_in_force(p_ends_at timestamptz) returns boolean
  language sql stable
  return p_ends_at is null or p_ends_at > _octop_now();
comment on function _octop_in_force(timestamptz) is 'Does a hold with this end still hold? Inlined, and so cheap in a list.';

create or replace function _octop_queue_is_held(p_queue text) returns boolean
  language plpgsql stable set search_path from current
as $$
begin
  return exists (select from octop_holds h where h.kind = 'queue' and h.target = p_queue and _octop_in_force(h.ends_at));
end $$;
comment on function _octop_queue_is_held(text) is 'Is this queue paused, by whomever? Asked before its claim.';

create or replace function _octop_held_keys(p_queue text) returns text[]
  language plpgsql stable set search_path from current
as $$
begin
  -- names have no control characters, so that one between tenant and lane makes a key of both
  return array(
    select case h.kind when 'lane' then 'lane:' || h.tenant || E'\x01' || h.target else h.kind || ':' || h.target end
      from octop_holds h
     where (h.kind in ('task_type', 'tenant') or h.kind = 'lane' and h.queue = p_queue) and _octop_in_force(h.ends_at));
end $$;
comment on function _octop_held_keys(text) is 'What is held in this queue beside the queue itself, as _octop_is_held compares it: task types, tenants, lanes.';

create or replace function _octop_is_held(p_held text[], p_tenant text, p_lane text, p_type text) returns boolean
  language sql immutable
  return cardinality(p_held) > 0 and (('task_type:' || p_type) = any (p_held) or ('tenant:' || p_tenant) = any (p_held)
                                      or ('lane:' || p_tenant || E'\x01' || p_lane) = any (p_held));
comment on function _octop_is_held(text[], text, text, text) is 'Is a task of this tenant, lane and type under one of these holds (_octop_held_keys of its queue)? Inlined; without holds one comparison.';

create or replace function _octop_hold_of(p_queue text, p_tenant text, p_lane text, p_type text) returns bigint
  language plpgsql stable set search_path from current
as $$
begin
  return (select min(x.id) from (
    select h.id from octop_holds h where h.kind = 'task_type' and h.target = p_type and _octop_in_force(h.ends_at)
    union all
    select h.id from octop_holds h where h.kind = 'tenant' and h.target = p_tenant and _octop_in_force(h.ends_at)
    union all
    select h.id from octop_holds h where h.kind = 'lane' and h.target = p_lane and h.queue = p_queue and h.tenant = p_tenant and _octop_in_force(h.ends_at)) x);
end $$;
comment on function _octop_hold_of(text, text, text, text) is 'The oldest hold of task type, tenant or lane that holds a task of this queue, tenant, lane and type: what _octop_is_held compares. Null = none.';

create or replace function _octop_lift_ended(p_most integer) returns integer
  language plpgsql set search_path from current
as $$
declare
  v_ended integer;
begin
  delete from octop_holds h where h.ctid = any (array(
    select x.ctid from octop_holds x where x.ends_at <= _octop_now() order by x.ends_at limit p_most for update skip locked));
  get diagnostics v_ended = row_count;
  return v_ended;
end $$;
comment on function _octop_lift_ended(integer) is 'Take away holds whose end has come, at most so many. They hold nothing any more, also while they are there; their parked tasks may come back now.';

create or replace function _octop_hold_check() returns trigger
  language plpgsql security definer set search_path from current
as $$
declare
  v_word text := replace(new.kind, '_', ' ');
begin
  if new.kind is null or new.kind not in ('queue', 'task_type', 'tenant', 'lane') then
    raise exception 'octop: kind must be queue, task_type, tenant or lane, not %', coalesce(new.kind, 'null')
      using errcode = 'OC113', hint = 'Nothing was written. A hold is of a queue, a task type, a tenant or a lane.';
  elsif new.target is null or length(new.target) not between 1 and 200 or _octop_has_control(new.target) then
    raise exception 'octop: the % must have 1 to 200 characters and no control characters', v_word
      using errcode = 'OC110', hint = case new.kind when 'queue' then 'Nothing was written. select name from octop_queue_summary lists the queues.'
                                                    when 'task_type' then 'Nothing was written. select name from octop_task_types lists the types.'
                                                    else 'Nothing was written. A line break, perhaps, at the end of the name?' end;
  elsif new.kind = 'lane' and (new.queue is null or length(new.queue) not between 1 and 200 or _octop_has_control(new.queue)
                               or new.tenant is null or length(new.tenant) > 200 or _octop_has_control(new.tenant)) then
    raise exception 'octop: a lane is held in a queue, named with 1 to 200 characters, and for a tenant'
      using errcode = 'OC110', hint = 'Nothing was written. octop_hold(''lane'', LANE, queue => QUEUE, tenant => TENANT); the tenant is empty where there is one alone.';
  elsif new.kind <> 'lane' and (new.queue, new.tenant) <> ('', '') then
    raise exception 'octop: only a lane is named with a queue and a tenant, not a %', v_word
      using errcode = 'OC113', hint = 'Nothing was written. Leave queue and tenant out, or hold a lane.';
  elsif tg_op = 'UPDATE' and (new.id, new.kind, new.target, new.queue, new.tenant, new.cause) <> (old.id, old.kind, old.target, old.queue, old.tenant, old.cause) then
    raise exception 'octop: what hold % holds cannot be changed', old.id
      using errcode = 'OC113', hint = 'Tasks wait for it by its id. Lift it and make another; reason and ends_at may change.';
  elsif not (new.ends_at >= '2000-01-01 00:00:00+00' and new.ends_at < '3000-01-01 00:00:00+00') then
    raise exception 'octop: a hold ends between the years 2000 and 3000, not at %', new.ends_at
      using errcode = 'OC114', hint = 'Nothing was written. null = it holds until somebody lifts it.';
  end if;
  return new;
end $$;
comment on function _octop_hold_check() is 'Refuses a hold of what has no such name, or that ends at no moment (OC110, OC113, OC114), and another target in place of the first.';
drop trigger if exists octop_holds_name_check on octop_holds;
create or replace trigger octop_holds_check before insert or update on octop_holds for each row execute function _octop_hold_check();

create or replace function _octop_holds_changed() returns trigger
  language plpgsql security definer set search_path from current
as $$
begin
  if tg_op = 'DELETE' then
    if old.kind <> 'queue' then
      insert into _octop_lifted_holds (id) values (old.id) on conflict do nothing;
    end if;
    perform pg_notify('octop_wake', case when old.kind = 'queue' then old.target else old.queue end);
  elsif new.ends_at is not null then
    -- whoever sleeps reckoned without this end
    perform pg_notify('octop_wake', case when new.kind = 'queue' then new.target else new.queue end);
  end if;
  return null;
end $$;
comment on function _octop_holds_changed() is 'A hold that is lifted leaves the note by which its tasks come back, and wakes workers; one that ends by itself makes them reckon anew.';
create or replace trigger octop_holds_changed after insert or update or delete on octop_holds for each row execute function _octop_holds_changed();

create or replace function _octop_holds_truncated() returns trigger
  language plpgsql security definer set search_path from current
as $$
begin
  insert into _octop_lifted_holds (id) select h.id from octop_holds h where h.kind <> 'queue' on conflict do nothing;
  perform pg_notify('octop_wake', '');
  return null;
end $$;
comment on function _octop_holds_truncated() is 'TRUNCATE of octop_holds lifts them all: what they held comes back.';
create or replace trigger octop_holds_lifted before truncate on octop_holds for each statement execute function _octop_holds_truncated();
