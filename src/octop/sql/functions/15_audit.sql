-- Who did what, and under which names. Promise: every acting function and every repair by hand writes one row, through the one function
-- here; a name that is refused in one place is refused in all.

create or replace function _octop_caller() returns text
  language sql stable
  return coalesce(nullif(current_setting('role', true), 'none'), session_user::text);
comment on function _octop_caller() is 'The person or program behind this call, also inside SECURITY DEFINER functions: the role chosen by SET ROLE, else the login.';

create or replace function _octop_has_control(name text) returns boolean
  language sql immutable parallel safe
  return name collate "C" ~ '[[:cntrl:]]';
comment on function _octop_has_control(text) is 'Has a name a control character, such as a line break at its end? The same everywhere: of ASCII, whatever the collation of the database.';

create or replace function _octop_tags_problem(tags text[]) returns text
  language sql stable parallel safe
  return case
    when array_ndims(tags) > 1 or cardinality(tags) > 50 or octet_length(array_to_string(tags, '')) > 8000 then 'tags are a list of at most 50 texts of together 8,000 bytes'
    when array_position(tags, null) is not null then 'a tag cannot be null'
    when _octop_has_control(array_to_string(tags, '')) then 'tags have no control characters'
  end;
comment on function _octop_tags_problem(text[]) is 'What is wrong with the tags of a task; null = nothing.';

create or replace function _octop_audit_write(action text, subject text, detail jsonb default '{}') returns void
  language plpgsql set search_path from current
as $$
-- plpgsql: bulk acts call it once per task, and a pinned SQL function is planned anew in every call before 18
begin
  insert into octop_audit (role, action, subject, detail)
  values (_octop_caller(), _octop_audit_write.action, left(_octop_audit_write.subject, 1000), coalesce(_octop_audit_write.detail, '{}'));
end $$;
comment on function _octop_audit_write(text, text, jsonb) is 'The only writer of octop_audit.';
