-- Schedules that an application's code declares. Promise: a column that still says what was declared before follows the code; what somebody changed, paused or
-- dropped stays, and the answer says so. Nothing is dropped unless it is asked for.

create or replace function _octop_declared_values(s octop_schedules, p_declared jsonb) returns jsonb
  language plpgsql stable set search_path from current
as $$
declare
  v_row jsonb;
begin
  -- as the table would write it: 5 and 5.0, or two ways to write one moment, are the same
  v_row := to_jsonb(jsonb_populate_record(s, (select jsonb_object_agg(n, null) from unnest(_octop_schedule_values()) n) || _octop_schedule_defaults() || p_declared));
  return (select jsonb_object_agg(n, v_row -> n) from unnest(_octop_schedule_values()) n);
exception when data_exception then
  raise exception 'octop: a value of the schedule "%" cannot be read: %', left(s.name, 200), sqlerrm using errcode = 'OC141', hint = 'Nothing was written.';
end $$;
comment on function _octop_declared_values(octop_schedules, jsonb) is 'What the columns of a schedule would say by a declaration.';

create or replace function _octop_schedule_changes(s octop_schedules) returns jsonb
  language plpgsql stable security definer set search_path from current
as $$
declare
  v_row jsonb := to_jsonb(s);
begin
  if s.declared is null then
    return null;
  end if;
  return (select coalesce(jsonb_object_agg(e.key, jsonb_build_object('is', v_row -> e.key, 'declared', e.value)), '{}')
            from jsonb_each(_octop_declared_values(s, s.declared)) e where e.value <> v_row -> e.key);
end $$;
comment on function _octop_schedule_changes(octop_schedules) is 'What somebody has changed of a schedule that code declares: by column what it is, and what is declared. Null = no code declares it.';

create or replace function _octop_declare_schedule(p_name text, p_tenant text, p_values jsonb, p_look boolean, out what text, out "columns" jsonb)
  language plpgsql set search_path from current
as $$
declare
  s        octop_schedules;
  v_row    jsonb;
  v_before jsonb;
  v_follow jsonb;
begin
  columns := '{}';
  select * into s from octop_schedules x where x.name = p_name and x.tenant = p_tenant;
  if not found and exists (select from _octop_dropped_schedules d where d.name = p_name and d.tenant = p_tenant) then
    what := 'dropped';
    return;
  elsif not found then
    what := 'added';
    perform _octop_cron_parse(p_values ->> 'rule');
    begin
      perform _octop_write_schedule(p_name, p_tenant, p_values, p_values);
      if p_look then
        raise exception 'octop: only a look' using errcode = 'OC129', hint = 'Taken back.';
      end if;
    exception when sqlstate 'OC129' then
      -- its last slot lies behind us: code may name one instant, and run for years after it
      what := case when p_look and sqlerrm = 'octop: only a look' then 'added' else 'past' end;
    end;
    return;
  end if;
  v_row := to_jsonb(s);
  v_before := _octop_declared_values(s, s.declared);
  select coalesce(jsonb_object_agg(e.key, jsonb_build_object('is', v_row -> e.key, 'declared', e.value)) filter (where s.declared is null or v_row -> e.key <> v_before -> e.key), '{}'),
         coalesce(jsonb_object_agg(e.key, e.value) filter (where s.declared is not null and v_row -> e.key = v_before -> e.key), '{}')
    into columns, v_follow
    from jsonb_each(_octop_declared_values(s, p_values)) e
   where e.value <> v_row -> e.key;
  what := case when columns <> '{}' then 'kept' when v_follow <> '{}' then 'changed' when s.paused_at is not null then 'paused' else 'same' end;
  if what = 'changed' then
    columns := v_follow;
  end if;
  if not p_look and (v_follow <> '{}' or s.declared is distinct from p_values) then
    perform _octop_write_schedule(p_name, p_tenant, v_follow, p_values);
  end if;
end $$;
comment on function _octop_declare_schedule(text, text, jsonb, boolean) is 'Declare one schedule; answers what became of it, as octop_declare_schedules says it.';

create or replace function octop_declare_schedules(declarations jsonb, prune boolean default false, only_look boolean default false)
  returns table (name text, tenant text, what text, "columns" jsonb)
  language plpgsql security definer set search_path from current set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  d        jsonb;
  s        octop_schedules;
  v_values jsonb;
  v_look   constant boolean := coalesce(octop_declare_schedules.only_look, false);
  v_prune  constant boolean := coalesce(octop_declare_schedules.prune, false);
begin
  if octop_declare_schedules.declarations is null or jsonb_typeof(octop_declare_schedules.declarations) <> 'array'
     or exists (select from jsonb_array_elements(octop_declare_schedules.declarations) x where jsonb_typeof(x) <> 'object' or x ->> 'name' is null) then
    raise exception 'octop: declarations of schedules are a JSON array of objects with a name' using errcode = 'OC141', hint = 'Nothing was written.';
  elsif v_prune and not v_look and not has_table_privilege(_octop_caller()::name, 'octop_schedules', 'delete') then
    raise exception 'octop: "%" may declare schedules, and not drop them', _octop_caller() using errcode = 'insufficient_privilege', hint = 'Nothing was written. Operators may prune.';
  end if;
  -- in one order, so that two applications that declare the same never wait for each other in a circle
  for d in select x from jsonb_array_elements(octop_declare_schedules.declarations) x order by x ->> 'name', coalesce(x ->> 'tenant', '') loop
    name := d ->> 'name';
    tenant := coalesce(d ->> 'tenant', '');
    v_values := (select coalesce(jsonb_object_agg(e.key, e.value), '{}') from jsonb_each(d) e where e.key not in ('name', 'tenant') and e.value <> 'null');
    perform _octop_check_schedule_values(v_values);
    select x.what, x.columns into what, columns from _octop_declare_schedule(name, tenant, v_values, v_look) x;
    return next;
  end loop;
  -- declared once, and by this code no more: another application may do so
  for s in select x.* from octop_schedules x
            where x.declared is not null and not exists (select from jsonb_array_elements(octop_declare_schedules.declarations) y where y ->> 'name' = x.name and coalesce(y ->> 'tenant', '') = x.tenant)
            order by x.name, x.tenant loop
    name := s.name;
    tenant := s.tenant;
    columns := _octop_schedule_changes(s);
    what := case when v_prune and columns = '{}' and s.paused_at is null then 'pruned' else 'undeclared' end;
    if what = 'pruned' and not v_look then
      delete from octop_schedules x where x.id = s.id;
      delete from _octop_dropped_schedules x where x.name = s.name and x.tenant = s.tenant;
    end if;
    return next;
  end loop;
exception when lock_not_available then
  raise exception 'octop: another transaction, not ended yet, has changed the schedule "%"', name
    using errcode = 'OC303', hint = 'Try again. If nobody ends it: see the how-to "End a transaction that was left open".';
end $$;
comment on function octop_declare_schedules(jsonb, boolean, boolean) is
  'Declare schedules, an array of objects with name, tenant and the columns of octop_put_schedule. A column that still says what was declared before follows; what somebody changed, paused, dropped, or made by hand stays. '
  'prune: drop those that code declared and this code does not, unless somebody changed or paused them (for roles that may delete from octop_schedules). only_look: write nothing. '
  'Answers for each: added, changed (columns: the new values), kept (columns: what stays, and what is declared), paused, dropped, past (it has no slot any more, and was not made), same; then for the others undeclared or pruned. '
  'Errors: OC128, OC129, OC130, OC141, OC114 as octop_put_schedule, OC303 after a second, when another open transaction has changed one.';
