-- Failures that are alike. Promise: errors are told apart by task type, class and message, less what differs from task to task in
-- a message; nothing here reads more than the latest so many attempts.

create or replace function octop_error_pattern(error_class text, error_message text) returns text
  language plpgsql immutable parallel safe set search_path from current
as $$
declare
  v_message text := regexp_replace(left(error_message, 1000), '[[:space:]]+', ' ', 'g');
begin
  -- one pass: quoted text, addresses, paths, ids, and every word with a digit in it
  v_message := regexp_replace(v_message,
    '"[^"]*"|`[^`]*`|(?<![[:alnum:]])''[^'']*''(?![[:alnum:]])'
    || '|[[:alpha:]][[:alnum:]+.-]*://[^[:space:]"''<>]+'
    || E'|[[:alpha:]]:\\\\[^[:space:]"'']+|~?(?:/[^[:space:]"''/:,;()]+)+/?'
    || '|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}'
    || '|[[:alnum:]_-]*[0-9][[:alnum:]_-]*(?:[.:,@+][[:alnum:]_-]*[0-9][[:alnum:]_-]*)*',
    '*', 'g');
  -- a list of three is like a list of four
  v_message := regexp_replace(v_message, '[*](?:[],;:.()[{} =-]*[*])+', '*', 'g');
  return concat_ws(': ', nullif(error_class, ''), nullif(btrim(left(v_message, 200)), ''));
end $$;
comment on function octop_error_pattern(text, text) is
  'What alike errors share: the class and the message, with * for quoted text, addresses, paths, ids, numbers and words with digits; at most the first 1,000 characters are looked at. Example: select octop_error_pattern(''KeyError'', ''user 42'');';

create or replace function octop_failed_attempts(since timestamptz default null, most integer default 10000)
  returns table (group_id text, pattern text, task_type text, task_id uuid, attempt integer, tenant text, queue text, outcome text,
                 ended_at timestamptz, error_class text, error_message text)
  language plpgsql stable security definer set search_path from current set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  return query
  select left(lpad(to_hex(hashtextextended(p.task_type || chr(1) || p.pattern, 0)), 16, '0'), 8),
         p.pattern, p.task_type, p.task_id, p.attempt, p.tenant, p.queue, p.outcome, p.ended_at, p.error_class, p.error_message
    from (select coalesce(nullif(octop_error_pattern(x.error_class, x.error_message), ''), x.outcome) as pattern,
                 x.task_type, x.task_id, x.attempt, x.tenant, x.queue, x.outcome, x.ended_at, x.error_class, left(x.error_message, 1000) as error_message
            from (select * from octop_attempts a
                   where a.ended_at >= coalesce(octop_failed_attempts.since, '-infinity')
                   order by a.ended_at desc
                   limit least(greatest(octop_failed_attempts.most, 0), 100000)) x
           where x.outcome in ('failure', 'timeout', 'lost')) p;
end $$;
comment on function octop_failed_attempts(timestamptz, integer) is
  'The attempts that failed, timed out or were lost among the latest so many (at most 100,000) that ended since a moment, each with the pattern of its error and the group of its kind; messages cut to 1,000 characters.';

create or replace view octop_failure_groups with (security_barrier) as
  select f.group_id, f.task_type, f.pattern, count(*) as attempts, count(distinct f.task_id) as tasks,
         min(f.ended_at) as first_at, max(f.ended_at) as last_at,
         (array_agg(f.task_id order by f.ended_at desc))[1] as example_task_id,
         (array_agg(f.error_message order by f.ended_at desc))[1] as example_message
    from octop_failed_attempts() f
   group by f.group_id, f.task_type, f.pattern
   order by max(f.ended_at) desc;
comment on view octop_failure_groups is
  'Failures that are alike, by task type and pattern of the error: how many attempts and tasks, first and last seen, the latest as an example. Reads the latest 10,000 attempts and no more; octop_failed_attempts(since, most) reads others.';
