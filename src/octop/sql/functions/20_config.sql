-- Settings that rule while it runs: rows that a DBA edits live. Keys, types, bounds and defaults are listed once, here.
-- Promise: an unknown key or a bad value is refused where it enters; keys that must agree are checked together at commit;
-- every change raises the control version, which running workers look at each second.

create or replace function octop_config_keys()
  returns table (key text, kind text, default_value jsonb, minimum numeric, maximum numeric, alias_of text, description text)
  language sql immutable parallel safe
begin atomic
  select * from (values
    ('scheduler.interval_seconds',    'number',  '5'::jsonb,    0.05,  3600, null,
     'Longest sleep of an idle worker, in seconds. Not the reaction time: a notification or the next due time wakes it earlier.'),
    ('task.default_timeout_seconds',  'number',  '300',         0.01,  2678400, null,
     'Time limit of an attempt, in seconds, when task, task type and queue name none.'),
    ('task.timeout_seconds',          'number',  '300',         0.01,  2678400, 'task.default_timeout_seconds',
     'The same under its old name: writing one writes both.'),
    ('task.default_max_retries',      'integer', '3',           0,     1000, null,
     'Further tries after the first, when task, task type and queue name none.'),
    ('task.retry_base_seconds',       'number',  '1',           0,     86400, null,
     'Delay before the first retry, in seconds.'),
    ('task.retry_growth',             'number',  '2',           1,     100, null,
     'Factor by which each further delay grows.'),
    ('task.retry_cap_seconds',        'number',  '30',          0,     2678400, null,
     'Longest delay before a retry, in seconds.'),
    ('task.retry_jitter',             'number',  '0.25',        0,     1, null,
     'Largest part of a delay that is taken off at random, 0 to 1. Jitter only shortens.'),
    ('task.payload_bytes_max',        'integer', '1048576',     1024,  67108864, null,
     'Largest payload, in bytes of JSON text.'),
    ('task.result_bytes_max',         'integer', '1048576',     1024,  67108864, null,
     'Largest result, in bytes of JSON text.'),
    ('db.connection_pool_size',       'integer', '10',          1,     1000, null,
     'Most connections in the pool of one process for enqueue and for tasks that ask for a connection.'),
    ('worker.concurrency',            'integer', '10',          1,     10000, null,
     'Tasks that a worker process runs at once from a queue that names no limit.'),
    ('worker.lease_seconds',          'number',  '30',          0.5,   3600, null,
     'A worker whose heartbeat is older loses its tasks, in seconds.'),
    ('worker.heartbeat_seconds',      'number',  '10',          0.1,   1200, null,
     'Time between heartbeats, in seconds; at most a third of the lease.'),
    ('worker.rescue_seconds',         'number',  '5',           0.1,   600, null,
     'Time between two sweeps of one worker, in seconds.'),
    ('worker.deadline_grace_seconds', 'number',  '10',          0.1,   3600, null,
     'How long after its deadline a running task is ended by the sweep, if its worker did not do it, in seconds.'),
    ('worker.grace_seconds',          'number?', 'null',        0,     86400, null,
     'How long a stopping worker waits for its tasks, in seconds. null = 1.2 times the longest time limit among them, at most 60.'),
    ('worker.scale_seconds',          'number',  '5',           0.1,   3600, null,
     'Time between two looks at the backlog of a worker with --processes MIN-MAX, in seconds.'),
    ('worker.scale_age_seconds',      'number',  '2',           0,     86400, null,
     'Such a worker starts more processes when the oldest due task of its queues has been due for so long, in seconds.'),
    ('worker.scale_backlog',          'integer', '100',         1,     1000000, null,
     'Or when more than so many tasks for each of its processes are due.'),
    ('worker.scale_quiet_seconds',    'number',  '30',          0.1,   86400, null,
     'It ends one process when for so long nothing was due and one of them ran nothing, in seconds.'),
    ('history.retention_days',        'integer', '7',           1,     30, null,
     'Finished tasks and ended attempts are kept this many days. Each day is a table that every look through octop_tasks opens; to keep longer, copy days away: see "Archive a day" in the how-to "A DBA''s day".'),
    ('history.success_days',          'integer?', 'null',       1,     400, null,
     'Successful tasks are kept this many days, where their queue names no number of its own. null = history.retention_days. Beyond 30 each look through octop_tasks opens as many more tables.'),
    ('history.cancelled_days',        'integer?', 'null',       1,     400, null,
     'Cancelled tasks are kept this many days, where their queue names no number of its own. null = history.retention_days.'),
    ('history.frozen_days',           'integer?', 'null',       1,     36500, null,
     'Frozen tasks are deleted so many days after their last start, where their queue names no number of its own and is not ordered. null = never: they wait for a person.'),
    ('history.slots_days',            'integer?', 'null',       1,     36500, null,
     'What became of the slots of schedules is kept this many days. null = history.retention_days.'),
    ('history.alerts_days',           'integer?', 'null',       1,     36500, null,
     'Alerts are kept this many days, at most 10,000 of them. null = history.retention_days.'),
    ('history.days_ahead',            'integer', '7',           1,     30, null,
     'Day partitions made ahead.')
  ) as k (key, kind, default_value, minimum, maximum, alias_of, description);
end;
comment on function octop_config_keys() is
  'All settings with kind (number, integer; ? = may be null), default, bounds and meaning. Example: select key, default_value from octop_config_keys();';

create or replace function _octop_setting(setting text) returns numeric
  language plpgsql stable set search_path from current
as $$
-- plpgsql keeps its plans for the session; a pinned SQL function is planned anew in every call (0.5 to 2 ms before 18)
declare
  v_value numeric;
begin
  select (c.value ->> 'value')::numeric into v_value from octop_config c where c.key = setting;
  if not found then
    v_value := (select (k.default_value #>> '{}')::numeric from octop_config_keys() k where k.key = setting);
  end if;
  return v_value;
end $$;
comment on function _octop_setting(text) is 'The value of a setting that holds now; its default when the row is missing.';

create or replace function _octop_lease() returns interval
  language sql stable
  return make_interval(secs => _octop_setting('worker.lease_seconds')::double precision);
comment on function _octop_lease() is 'worker.lease_seconds as an interval.';

create or replace function octop_config_set(key text, value jsonb) returns jsonb
  language plpgsql security definer set search_path from current
as $$
#variable_conflict use_column
begin
  insert into octop_config (key, value)
  values (octop_config_set.key, jsonb_build_object('value', octop_config_set.value));
  return (select c.value -> 'value' from octop_config c where c.key = octop_config_set.key);
end $$;
comment on function octop_config_set(text, jsonb) is
  'Set one setting and return its value, which is JSON in quotes: ''5'', ''true'', ''"text"''. Errors: OC201 unknown key, OC202 bad value, OC203 settings that disagree (at commit). '
  'Example: select octop_config_set(''task.default_max_retries'', ''5'');';

create or replace function _octop_config_check() returns trigger
  language plpgsql security definer set search_path from current
as $$
declare
  k record;
  v jsonb;
begin
  if new.key is null then
    raise exception 'octop: the key of a setting cannot be null' using errcode = 'OC201', hint = 'select key, description from octop_config_keys() lists all.';
  end if;
  if tg_op = 'UPDATE' and new.key <> old.key then
    raise exception 'octop: a setting cannot be renamed' using errcode = 'OC201', hint = 'Update the value of the key that you mean.';
  end if;
  select * into k from octop_config_keys() c where c.key = new.key;
  if not found then
    raise exception 'octop: there is no setting "%"', left(new.key, 100)
      using errcode = 'OC201', hint = 'select key, description from octop_config_keys() lists all.';
  end if;
  v := new.value -> 'value';
  if jsonb_typeof(new.value) <> 'object' or v is null or (select count(*) from jsonb_object_keys(new.value)) <> 1 then
    raise exception 'octop: the value of % must look like {"value": %}', new.key, k.default_value
      using errcode = 'OC202', hint = 'An object with the one key "value".';
  end if;
  if not (jsonb_typeof(v) = 'number' or (jsonb_typeof(v) = 'null' and k.kind like '%?')) then
    raise exception 'octop: % must be a number, not %', new.key, left(v::text, 100)
      using errcode = 'OC202', hint = k.description;
  end if;
  if jsonb_typeof(v) = 'number' and (v::numeric not between k.minimum and k.maximum
                                     or (k.kind like 'integer%' and v::numeric <> trunc(v::numeric))) then
    raise exception 'octop: % must be %between % and %, not %', new.key,
      case when k.kind like 'integer%' then 'a whole number ' else '' end, k.minimum, k.maximum, left(v::text, 100)
      using errcode = 'OC202', hint = k.description;
  end if;
  new.updated_at := _octop_now();
  if tg_op = 'INSERT' and exists (select from octop_config c where c.key = new.key) then
    update octop_config c set value = new.value where c.key = new.key;
    return null;
  end if;
  return new;
end $$;
comment on function _octop_config_check() is 'Refuses unknown keys and bad values; turns the INSERT of an existing key into an update.';

create or replace function _octop_config_reset() returns trigger
  language plpgsql security definer set search_path from current
as $$
begin
  -- after, not before: of an alias and its key, both deleted by one statement, neither may be changed while the other goes
  insert into octop_config (key, value)
  select k.key, jsonb_build_object('value', k.default_value) from octop_config_keys() k where k.key = old.key;
  perform _octop_audit_write('config', old.key, jsonb_build_object('from', old.value -> 'value', 'to', k.default_value))
     from octop_config_keys() k where k.key = old.key and k.default_value <> old.value -> 'value';
  return null;
end $$;
comment on function _octop_config_reset() is 'DELETE of a setting brings its default back.';

create or replace function _octop_config_changed() returns trigger
  language plpgsql security definer set search_path from current
as $$
begin
  if tg_op = 'UPDATE' and new.value = old.value then
    return null;
  end if;
  -- an alias and its key are two rows with one value
  update octop_config c set value = new.value
    from octop_config_keys() k
   where (k.key = new.key and c.key = k.alias_of or k.alias_of = new.key and c.key = k.key) and c.value <> new.value;
  if tg_op = 'UPDATE' then
    perform _octop_audit_write('config', new.key, jsonb_build_object('from', old.value -> 'value', 'to', new.value -> 'value'));
  end if;
  return null;
end $$;
comment on function _octop_config_changed() is 'Keeps aliases equal and writes the change to the audit.';

create or replace function _octop_config_agree() returns trigger
  language plpgsql security definer set search_path from current
as $$
begin
  -- one commit after the other: two changes that agree alone and not together must meet
  perform pg_advisory_xact_lock(hashtextextended('octop config', 'octop_config'::regclass::oid::bigint));
  if _octop_setting('worker.heartbeat_seconds') * 3 > _octop_setting('worker.lease_seconds') then
    raise exception 'octop: worker.heartbeat_seconds (%) must be at most a third of worker.lease_seconds (%)',
        _octop_setting('worker.heartbeat_seconds'), _octop_setting('worker.lease_seconds')
      using errcode = 'OC203', hint = 'Change both in one transaction: they are checked together at commit.';
  end if;
  return null;
end $$;
comment on function _octop_config_agree() is 'Checked at commit: heartbeat at most a third of the lease.';

create or replace function _octop_control_changed() returns trigger
  language plpgsql security definer set search_path from current
as $$
begin
  if tg_op <> 'UPDATE' or new is distinct from old then
    update _octop_control set version = version + 1;
  end if;
  return null;
end $$;
comment on function _octop_control_changed() is
  'Raises the control version, which running workers look at each second. At commit: an open transaction of a DBA must not keep workers from registering.';

create or replace trigger octop_config_check before insert or update on octop_config
  for each row execute function _octop_config_check();
create or replace trigger octop_config_reset after delete on octop_config
  for each row execute function _octop_config_reset();
create or replace trigger octop_config_changed after insert or update on octop_config
  for each row execute function _octop_config_changed();
drop trigger if exists octop_config_agree on octop_config;
create constraint trigger octop_config_agree after insert or update on octop_config
  deferrable initially deferred for each row execute function _octop_config_agree();
drop trigger if exists octop_config_control on octop_config;
create constraint trigger octop_config_control after insert or update or delete on octop_config
  deferrable initially deferred for each row execute function _octop_control_changed();
drop trigger if exists octop_queues_control on octop_queues;
create constraint trigger octop_queues_control after insert or update or delete on octop_queues
  deferrable initially deferred for each row execute function _octop_control_changed();
drop trigger if exists octop_task_types_control on octop_task_types;
create constraint trigger octop_task_types_control after insert or update or delete on octop_task_types
  deferrable initially deferred for each row execute function _octop_control_changed();
drop trigger if exists octop_holds_control on octop_holds;
create constraint trigger octop_holds_control after insert or update or delete on octop_holds
  deferrable initially deferred for each row execute function _octop_control_changed();
