-- Takes away exactly what the installer made, in one transaction: objects of ours in the schema, rights on it, and the schema
-- itself if nothing else is in it. Nothing of anybody else's: no CASCADE; what stands on an object of ours is named and everything stays.
begin;
-- before any text with a backslash
set local standard_conforming_strings = on;
set local lock_timeout = '3s';
set local client_min_messages = notice;
-- so that every name below is written with its schema, whoever's "$user" is on the path
set local search_path = pg_catalog, pg_temp;
