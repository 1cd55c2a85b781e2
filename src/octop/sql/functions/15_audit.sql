-- Who did what. Promise: every acting function and every repair by hand writes one row, through the one function here.

create or replace function _octop_caller() returns text
  language sql stable
  return coalesce(nullif(current_setting('role', true), 'none'), session_user::text);
comment on function _octop_caller() is 'The person or program behind this call, also inside SECURITY DEFINER functions: the role chosen by SET ROLE, else the login.';

create or replace function _octop_audit_write(action text, subject text, detail jsonb default '{}') returns void
  language plpgsql set search_path from current
as $$
-- plpgsql: bulk acts call it once per task, and a pinned SQL function is planned anew in every call before 18
begin
  insert into octop_audit (role, action, subject, detail)
  values (_octop_caller(), _octop_audit_write.action, left(_octop_audit_write.subject, 1000), coalesce(_octop_audit_write.detail, '{}'));
end $$;
comment on function _octop_audit_write(text, text, jsonb) is 'The only writer of octop_audit.';
