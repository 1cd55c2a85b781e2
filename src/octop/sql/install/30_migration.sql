-- One migration: once, remembered with its checksum, refused when it has changed.
do $octop_migration$
declare
  v_name     text := :'name';
  v_checksum text := (select m.checksum from octop_migrations m where m.name = :'name');
begin
  if v_checksum is null then
    execute :'text';
    insert into octop_migrations (name, checksum, version) values (v_name, :'checksum', :'version');
  elsif v_checksum <> :'checksum' then
    raise exception 'octop: the installed migration % differs from this one', v_name
      using errcode = 'OC504', hint = 'A migration never changes after a release: use the package that installed it, or install into another schema.';
  end if;
end $octop_migration$;
