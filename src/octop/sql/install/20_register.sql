-- What was installed, by name and checksum.
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
