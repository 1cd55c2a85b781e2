-- Whose is what is installed already? Asked before anything is done, by the installer and by the script that uninstalls.
do $octop_prefix$
declare
  v_owner  text := :'owner';
  v_is     text := (select pg_get_userbyid(c.relowner) from pg_class c join pg_namespace n on n.oid = c.relnamespace
                     where n.nspname = :'schema' and c.relname = 'octop_migrations' and c.relkind = 'r'
                       and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'checksum'));
  v_prefix text := substring(v_is from '^(.*)owner$');
begin
  if v_is <> v_owner and v_prefix <> '' then
    raise exception 'octop: Octop in schema % was installed with the role prefix %', :'schema', v_prefix
      using errcode = '55000', hint = format('Use --role-prefix %s (here it is %s).',
        case when v_prefix ~ '^[a-zA-Z0-9_-]+$' then v_prefix else quote_literal(v_prefix) end, substring(v_owner from '^(.*)owner$'));
  elsif v_is <> v_owner then
    raise exception 'octop: Octop in schema % belongs to the role %, not to %', :'schema', v_is, v_owner
      using errcode = '55000', hint = 'octop doctor --only schema names the objects and the statements that give them back.';
  end if;
end $octop_prefix$;
