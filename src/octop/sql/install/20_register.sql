-- What was installed, by name and checksum. An older script never replaces the functions of a newer one.
create table if not exists octop_migrations (
  name       text        collate "C" primary key,
  checksum   text        not null,
  applied_at timestamptz not null default now(),
  applied_by text        not null default session_user,
  version    text        not null
);
comment on table octop_migrations is 'What was installed: each migration once, and the present set of functions under the name "functions".';
comment on column octop_migrations.name is 'File name of the migration, or "functions".';
comment on column octop_migrations.checksum is 'SHA-256 of its text. A released migration never changes.';
comment on column octop_migrations.applied_at is 'When.';
comment on column octop_migrations.applied_by is 'By which login.';
comment on column octop_migrations.version is 'Version of the package that applied it.';
do $octop_newer$
declare
  v_name text := (select min(m.name) from octop_migrations m where m.name <> all (string_to_array(:'known', ',')));
begin
  if v_name is not null then
    raise exception 'octop: the schema knows migration %, this package does not', v_name
      using errcode = 'OC506', hint = 'Upgrade the package octop-scheduler.';
  end if;
end $octop_newer$;
