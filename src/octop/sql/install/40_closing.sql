-- Settings that are new, the present state by its checksum, days ahead.
insert into octop_config (key, value)
select k.key, jsonb_build_object('value', k.default_value) from octop_config_keys() k
 where not exists (select from octop_config c where c.key = k.key);
insert into octop_migrations (name, checksum, version) values ('functions', :'checksum', :'version')
on conflict (name) do update set checksum = excluded.checksum, version = excluded.version, applied_at = now(), applied_by = session_user
 where octop_migrations.checksum <> excluded.checksum or octop_migrations.version <> excluded.version;
insert into _octop_chores (name) values ('days'), ('purge'), ('running') on conflict do nothing;
do $$ begin perform octop_make_days(); end $$;
