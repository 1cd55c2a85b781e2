"""The server: who we are there, its settings, its connections, its costliest statements."""

from collections.abc import Sequence

from octop.engine.call import Call, first_value
from octop.engine.rows import Row, objects, only


def place() -> Call[Row]:
    """Read where we are: version, database, login, role (that the session has now), standby, data_directory (None = we may not know)."""
    return Call(
        """
        select jsonb_build_object('version', current_setting('server_version'), 'database', current_database(),
                                  'login', session_user, 'role', current_user, 'standby', pg_is_in_recovery(),
                                  'data_directory', case when pg_has_role('pg_read_all_settings', 'usage')
                                                         then current_setting('data_directory') end)
        """,
        {},
        only,
    )


def settings(names: Sequence[str]) -> Call[list[Row]]:
    """Read settings of the whole server: name, value, source. Those that this session or this login changed are left out.

    Args:
        names: Which; those that this version does not know are left out too.
    """
    return Call(
        """
        select jsonb_build_object('name', s.name, 'value', s.reset_val, 'unit', s.unit, 'source', s.source) from pg_settings s
         where s.name = any (%(names)s::text[]) and s.source not in ('database', 'user', 'database user', 'client', 'environment variable')
         order by s.name
        """,
        {"names": list(names)},
        objects,
    )


def role_settings(names: Sequence[str], role_prefix: str) -> Call[list[Row]]:
    """Read what was set for this database, or for a login that works with Octop: role, database ('' = all), name, value.

    Args:
        names: Which settings.
        role_prefix: Before the names of the roles: their members count as logins that work with Octop.
    """
    return Call(
        """
        with recursive m (oid) as (
          select r.oid from pg_roles r
           where starts_with(r.rolname, %(prefix)s::text)
             and substr(r.rolname, length(%(prefix)s::text) + 1) in ('owner', 'producer', 'worker', 'operator', 'viewer')
          union select a.member from pg_auth_members a join m on m.oid = a.roleid
           where coalesce((to_jsonb(a) ->> 'inherit_option')::boolean or (to_jsonb(a) ->> 'set_option')::boolean, true)),
        at_work as (
          select oid from m
          union select a.usesysid from pg_stat_activity a where a.datname = current_database()
             and (starts_with(a.application_name, 'octop worker') or a.application_name = 'octop client'))
        select jsonb_build_object('role', coalesce(r.rolname, ''), 'database', coalesce(d.datname, ''),
                                  'name', split_part(c, '=', 1), 'value', substr(c, strpos(c, '=') + 1))
          from pg_db_role_setting x
          cross join lateral unnest(x.setconfig) c
          left join pg_roles r on r.oid = x.setrole
          left join pg_database d on d.oid = x.setdatabase
         where split_part(c, '=', 1) = any (%(names)s::text[])
           and (x.setdatabase = 0 or d.datname = current_database())
           and (x.setrole = 0 or x.setrole in (select oid from at_work))
         order by 1
        """,
        {"names": list(names), "prefix": role_prefix},
        objects,
    )


def connections() -> Call[Row]:
    """Read how many connections there may be, how many there are, and who asks for how many.

    Returns:
        max, reserved (for superusers and others), used (all databases), database_limit (-1 = none), database_used, ours
        (workers and clients of Octop), workers, supervisors (or whatever else beats for workers), pool_size, lends (a worker has
        connections for transactional tasks), roles: logins of workers with a limit of their own, each with role, limit, others (its
        connections that are not ours), workers, supervisors, lends.
    """
    return Call(
        """
        select jsonb_build_object(
          'max', current_setting('max_connections')::integer,
          'reserved', current_setting('superuser_reserved_connections')::integer
                      + coalesce(current_setting('reserved_connections', true)::integer, 0),
          'used', (select sum(s.numbackends) from pg_stat_database s),
          'database_limit', d.datconnlimit,
          'database_used', (select s.numbackends from pg_stat_database s where s.datid = d.oid),
          'ours', (select count(*) from pg_stat_activity a
                    where starts_with(a.application_name, 'octop worker') or a.application_name = 'octop client'),
          'workers', (select count(*) from octop_worker_summary w where w.state <> 'silent'),
          'supervisors', (select count(distinct coalesce(w.supervisor_id, w.id)) from octop_workers w
                           where w.id in (select s.id from octop_worker_summary s where s.state <> 'silent')),
          'pool_size', _octop_setting('db.connection_pool_size')::integer,
          'lends', (select exists (select from pg_stat_activity a where a.application_name = 'octop worker task')),
          'roles', (select coalesce(jsonb_agg(jsonb_build_object('role', r.rolname, 'limit', r.rolconnlimit, 'others', a.others,
                      'workers', a.workers, 'supervisors', a.supervisors, 'lends', a.lends) order by r.rolname), '[]')
                      from pg_roles r cross join lateral (
                        select count(*) filter (where not starts_with(a.application_name, 'octop worker')
                                                  and a.application_name <> 'octop client') as others,
                               count(*) filter (where a.application_name = 'octop worker control') as workers,
                               count(*) filter (where a.application_name = 'octop worker heart') as supervisors,
                               coalesce(bool_or(a.application_name = 'octop worker task'), false) as lends
                          from pg_stat_activity a where a.usesysid = r.oid) a
                     where r.rolconnlimit >= 0 and not r.rolsuper and a.workers > 0),
          'database', d.datname)
          from pg_database d where d.datname = current_database()
        """,
        {},
        only,
    )


def process_id() -> Call[int]:
    """Read the id of the server process that answers; behind a pooler it is another one than the connection was told."""
    return Call("select pg_backend_pid()", {}, lambda rows: int(first_value(rows)))


def statements_state() -> Call[Row]:
    """Read what stands between us and pg_stat_statements: installed (its schema), may_enter (that schema), available, loaded,
    libraries (None = we may not know), may_read.
    """
    return Call(
        """
        select jsonb_build_object(
          'installed', (select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace
                         where e.extname = 'pg_stat_statements'),
          'available', exists (select from pg_available_extensions a where a.name = 'pg_stat_statements'),
          'loaded', exists (select from pg_settings s where s.name = 'pg_stat_statements.max'),
          'libraries', case when pg_has_role('pg_read_all_settings', 'usage') then current_setting('shared_preload_libraries', true) end,
          'may_enter', (select has_schema_privilege(e.extnamespace, 'usage') from pg_extension e where e.extname = 'pg_stat_statements'),
          'may_read', pg_has_role('pg_read_all_stats', 'usage'))
        """,
        {},
        only,
    )


def costliest_statements(schema: str, most: int = 5) -> Call[list[Row]]:
    """Read our statements by their total time: calls, total_ms, mean_ms, text. Look with ``also`` its schema.

    Only what reads and writes, and names an object of ours: there PostgreSQL has put $1 for each value. It keeps the text
    of all others as it was typed, with the password of an ALTER ROLE in it.

    Args:
        schema: Where our objects are.
        most: At most so many.
    """
    return Call(
        """
        with n as (select n.oid from pg_namespace n where n.nspname = %(schema)s::text),
        ours (name) as materialized (
          select c.relname::text from pg_class c where c.relnamespace = (select n.oid from n)
          union select p.proname::text from pg_proc p where p.pronamespace = (select n.oid from n))
        select jsonb_build_object('calls', s.calls, 'total_ms', s.total_exec_time, 'mean_ms', s.total_exec_time / greatest(s.calls, 1),
                                  'text', left(regexp_replace(s.query, '\\s+', ' ', 'g'), 120))
          from pg_stat_statements s
         where s.dbid = (select d.oid from pg_database d where d.datname = current_database())
           and s.query ~* '^\\s*(select|insert|update|delete|with)\\M' and s.query !~ 'pg_stat_statements'
           and exists (select from regexp_matches(s.query, '\\m_?octop_\\w+', 'g') m where m[1] in (select o.name from ours o))
         order by s.total_exec_time desc limit %(most)s::integer
        """,
        {"schema": schema, "most": most},
        objects,
    )
