-- When a task is tried again. Promise: computed here and nowhere else, from data that was checked where it entered; it cannot
-- overflow, and jitter only shortens.

create or replace function _octop_check_retry_policy(policy jsonb) returns void
  language plpgsql immutable set search_path from current
as $$
declare
  k text;
  v jsonb;
begin
  if policy is null then
    return;
  end if;
  if jsonb_typeof(policy) <> 'object' then
    raise exception 'octop: a retry policy is an object, not %', left(policy::text, 100)
      using errcode = 'OC113', hint = '{"base": 1, "growth": 2, "cap": 30, "jitter": 0.25} or {"delays": [1, 10, 60]}, and {"final": ["ValueError"]}.';
  end if;
  for k, v in select * from jsonb_each(policy) loop
    if k in ('base', 'cap') and jsonb_typeof(v) = 'number' and v::numeric between 0 and 2678400
       or k = 'growth' and jsonb_typeof(v) = 'number' and v::numeric between 1 and 100
       or k = 'jitter' and jsonb_typeof(v) = 'number' and v::numeric between 0 and 1
       or k = 'final' and jsonb_typeof(v) = 'array' and jsonb_array_length(v) <= 100 then
      continue;
    elsif k = 'delays' and jsonb_typeof(v) = 'array' and jsonb_array_length(v) between 1 and 1000 then
      continue when not exists (select from jsonb_array_elements(v) d
                                 where case when jsonb_typeof(d) = 'number' then d::numeric not between 0 and 2678400 else true end);
    end if;
    raise exception 'octop: a retry policy cannot have % = %', left(k, 50), left(v::text, 100)
      using errcode = 'OC113', hint = 'Known: base, cap (seconds), growth (1 to 100), jitter (0 to 1), delays (list of seconds), final (list of exception names).';
  end loop;
end $$;
comment on function _octop_check_retry_policy(jsonb) is 'Raises OC113 for a retry policy that could not be computed later.';

create or replace function octop_retry_delay(policy jsonb, try integer) returns double precision
  language plpgsql volatile set search_path from current
as $$
begin
  -- plpgsql for its kept plans: a failed task pays microseconds for its delay, not milliseconds
  return (
    select case
      when policy ? 'delays' then
        coalesce((policy -> 'delays' ->> least(greatest(try, 1) - 1, jsonb_array_length(policy -> 'delays') - 1))::double precision, 0)
      -- ln and exp with a bound in between: 100 to the 1,000th power cannot overflow
      else least(coalesce((policy ->> 'cap')::double precision, _octop_setting('task.retry_cap_seconds')::double precision),
                 coalesce((policy ->> 'base')::double precision, _octop_setting('task.retry_base_seconds')::double precision)
                 * exp(least(ln(coalesce((policy ->> 'growth')::double precision, _octop_setting('task.retry_growth')::double precision))
                             * (greatest(try, 1) - 1), 100)))
           * (1 - coalesce((policy ->> 'jitter')::double precision, _octop_setting('task.retry_jitter')::double precision) * random())
    end);
exception when data_exception then
  -- a policy that went past the checks (an import into the leaf): the longest delay, not a worker that stops
  return _octop_setting('task.retry_cap_seconds')::double precision;
end $$;
comment on function octop_retry_delay(jsonb, integer) is
  'Seconds to wait before the given retry (1 = the first). policy null = the configuration''s. Default delays grow from 1 to at most 30 seconds; jitter only shortens. '
  'It refuses nothing, for workers ask it: a retry below 1 counts as the first, and a policy that is none as null; policies are checked where they enter. '
  'Example: select octop_retry_delay(''{"delays": [1, 10, 60]}'', 2);';
