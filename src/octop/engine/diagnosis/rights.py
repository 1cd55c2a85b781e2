"""Who may do what, beyond the rights on single objects: schema, owner, logins."""

from octop.engine.call import Call
from octop.engine.diagnosis.words import ours
from octop.engine.rows import Row, objects, only


def installation(schema: str) -> Call[Row]:
    """Read by which roles the installation was made, and which of its objects belong to somebody else.

    The grants say it first: after a restore under the wrong owner they name the roles still. Without grants, the owner
    does, if his name ends as it should; then roles that look like ours.

    Returns:
        role_prefix, owner (the role that should own all), owner_there (does it exist?), foreign (kind, name, owner of each
        object that belongs to another; sequences of columns belong to their table's owner), others (names that begin with
        ours, of things that the package does not make: they are a person's, whoever owns them).
    """
    return Call(
        """
        with n as materialized (select n.oid from pg_namespace n where n.nspname = %(schema)s::text),
        things as materialized (
          select case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end as kind, c.relname::text as name,
                 c.relowner as owner, c.relacl as acl
            from pg_class c
           where c.relnamespace = (select n.oid from n) and c.relkind in ('r', 'p', 'v', 'S')
             and (c.relname = any (%(relations)s::text[]) or c.relname ~ '^octop_tasks_done_[0-9]{8}$')
             and not (c.relkind = 'S' and exists (select from pg_depend d
                       where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i')))
          union all
          select 'function', p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', p.proowner, p.proacl
            from pg_proc p where p.pronamespace = (select n.oid from n) and p.proname = any (%(functions)s::text[])),
        by_grants as (
          select substr(r.rolname, 1, length(r.rolname) - length(s)) as prefix, count(distinct s) as roles, count(*) as rights
            from things t cross join lateral aclexplode(t.acl) x
            join pg_roles r on r.oid = x.grantee
            join unnest(array['producer', 'worker', 'operator', 'viewer']) s on r.rolname like '%%' || s
           group by 1),
        by_roles as (
          select substr(r.rolname, 1, length(r.rolname) - length(s)) as prefix, count(*) as roles
            from pg_roles r
            join unnest(array['owner', 'producer', 'worker', 'operator', 'viewer']) s on r.rolname like '%%' || s and not r.rolcanlogin
           group by 1 having count(*) = 5),
        p as materialized (
          select coalesce(
            (select g.prefix from by_grants g where g.roles > 1 order by g.roles desc, g.rights desc, g.prefix limit 1),
            (select left(r.rolname, -5) from things t join pg_roles r on r.oid = t.owner
              where t.name = 'octop_migrations' and r.rolname like '%%owner'),
            (select b.prefix from by_roles b order by b.prefix <> 'octop_', b.prefix limit 1),
            'octop_') as prefix)
        select jsonb_build_object(
          'role_prefix', p.prefix, 'owner', p.prefix || 'owner',
          'owner_there', exists (select from pg_roles r where r.rolname = p.prefix || 'owner'),
          'foreign', (select coalesce(jsonb_agg(jsonb_build_object('kind', t.kind, 'name', t.name, 'owner', pg_get_userbyid(t.owner))
                                                order by t.kind, t.name), '[]')
                        from things t where pg_get_userbyid(t.owner) <> p.prefix || 'owner'),
          'others', (select coalesce(jsonb_agg(x.name order by x.name), '[]') from (
             select c.relname::text as name from pg_class c
              where c.relnamespace = (select n.oid from n) and c.relkind in ('r', 'p', 'v', 'S') and c.relname ~ '^_?octop_'
                and c.relname <> all (%(relations)s::text[]) and c.relname !~ '^octop_tasks_done_[0-9]{8}$'
                and not exists (select from pg_depend d
                                 where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i'))
             union
             select p.proname::text from pg_proc p
              where p.pronamespace = (select n.oid from n) and p.proname ~ '^_?octop_' and p.proname <> all (%(functions)s::text[])) x))
          from p
        """,
        {"schema": schema, **ours()},
        only,
    )


def has_role(role: str) -> Call[bool]:
    """Tell whether we have the rights of a role."""
    return Call(
        "select exists (select from pg_roles r where r.rolname = %(role)s::text and pg_has_role(r.oid, 'usage'))",
        {"role": role},
        lambda rows: bool(rows[0][0]),
    )


def creators(schema: str, owner: str) -> Call[Row]:
    """Read who may create objects in the schema: public (bool), roles (neither superusers nor its owners).

    Args:
        schema: Which.
        owner: The role that owns the installation.
    """
    return Call(
        """
        select jsonb_build_object(
          'public', exists (select from aclexplode(n.nspacl) x where x.grantee = 0 and x.privilege_type = 'CREATE'),
          'roles', (select coalesce(jsonb_agg(r.rolname order by r.rolname), '[]')
                      from aclexplode(n.nspacl) x join pg_roles r on r.oid = x.grantee
                     where x.privilege_type = 'CREATE' and not r.rolsuper and x.grantee <> n.nspowner
                       and r.rolname <> %(owner)s::text))
          from pg_namespace n where n.nspname = %(schema)s::text
        """,
        {"schema": schema, "owner": owner},
        only,
    )


def lacking_on_schema(schema: str, role_prefix: str) -> Call[list[Row]]:
    """Read which of our roles lack a right on the schema that they need: role, privilege. A restore brings no rights on it along.

    Args:
        schema: Where Octop is installed.
        role_prefix: Before the names of the roles; of those that exist.
    """
    return Call(
        """
        with acl as materialized (
          select x.grantee, x.privilege_type from pg_namespace n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) x
           where n.nspname = %(schema)s::text)
        select jsonb_build_object('role', r.rolname, 'privilege', w.privilege)
          from (values (1, 'owner', 'USAGE'), (2, 'owner', 'CREATE'), (3, 'producer', 'USAGE'), (4, 'worker', 'USAGE'),
                       (5, 'operator', 'USAGE'), (6, 'viewer', 'USAGE')) w (number, role, privilege)
          join pg_roles r on r.rolname = %(prefix)s::text || w.role
         where not exists (
           select from acl a where a.privilege_type = w.privilege
              -- that PUBLIC may create is another finding, and its cure takes it away
              and case when a.grantee = 0 then w.privilege = 'USAGE' else pg_has_role(r.oid, a.grantee, 'usage') end)
         order by w.number
        """,
        {"schema": schema, "prefix": role_prefix},
        objects,
    )


def posing(schema: str, owner: str) -> Call[list[Row]]:
    """Read what others own in the schema under a name of PostgreSQL's: an engine's call may reach it, if its types fit better.

    Args:
        schema: Where Octop is installed.
        owner: The role that owns the installation.

    Returns:
        what (a description), owner, drop (the statement). Those of superusers are left out.
    """
    return Call(
        """
        select pg_catalog.jsonb_build_object('what', x.what, 'owner', r.rolname, 'drop', x.statement)
          from (select pg_describe_object('pg_proc'::regclass, p.oid, 0) as what, p.proowner as owner,
                       'drop routine ' || quote_ident(n.nspname) || '.' || quote_ident(p.proname)
                         || '(' || pg_get_function_identity_arguments(p.oid) || ');' as statement
                  from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                 where n.nspname = %(schema)s::text
                   and exists (select from pg_proc o where o.pronamespace = 'pg_catalog'::regnamespace and o.proname = p.proname)
                union all
                select pg_describe_object('pg_operator'::regclass, p.oid, 0), p.oprowner,
                       'drop operator ' || quote_ident(n.nspname) || '.' || p.oprname || ' ('
                         || case when p.oprleft = 0 then 'none' else format_type(p.oprleft, null) end || ', '
                         || format_type(p.oprright, null) || ');'
                  from pg_operator p join pg_namespace n on n.oid = p.oprnamespace
                 where n.nspname = %(schema)s::text
                   and exists (select from pg_operator o where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprname = p.oprname)) x
          join pg_roles r on r.oid = x.owner
         where not r.rolsuper and r.rolname <> %(owner)s::text
         order by x.what
        """,
        {"schema": schema, "owner": owner},
        objects,
    )


def logins(role_prefix: str) -> Call[list[Row]]:
    """Read the logins that work with Octop, by membership or by a session that is open now.

    Args:
        role_prefix: Before the names of the roles.

    Returns:
        name, superuser, bypass_rls, create_role, owner (member of the owner's role), works (member of another role of
        ours, or at work now), ours (one of the roles themselves), self (we are it), last (no other superuser can log in).
        A membership counts if it gives the role's rights, or lets take them by SET ROLE.
    """
    return Call(
        """
        with recursive m (role, oid) as (
          select r.rolname, r.oid from pg_roles r where starts_with(r.rolname, %(prefix)s::text)
             and substr(r.rolname, length(%(prefix)s::text) + 1) in ('owner', 'producer', 'worker', 'operator', 'viewer')
          union select m.role, a.member from pg_auth_members a join m on m.oid = a.roleid
           -- since 16 the maker of a role is its member with ADMIN alone: he has none of its rights
           where coalesce((to_jsonb(a) ->> 'inherit_option')::boolean or (to_jsonb(a) ->> 'set_option')::boolean, true)),
        at_work as (
          select distinct a.usesysid as oid from pg_stat_activity a where a.datname = current_database()
             and (starts_with(a.application_name, 'octop worker') or a.application_name = 'octop client'))
        select jsonb_build_object(
          'name', r.rolname, 'superuser', r.rolsuper, 'bypass_rls', r.rolbypassrls, 'create_role', r.rolcreaterole,
          'owner', exists (select from m where m.oid = r.oid and m.role = %(prefix)s::text || 'owner'),
          'works', exists (select from m where m.oid = r.oid and m.role in (%(prefix)s::text || 'producer', %(prefix)s::text || 'worker'))
                   or r.oid in (select oid from at_work),
          'ours', r.rolname in (select m.role from m),
          'self', r.rolname in (session_user, current_user),
          'last', r.rolsuper and not exists (select from pg_roles o where o.rolsuper and o.rolcanlogin and o.oid <> r.oid))
          from pg_roles r
         where r.rolcanlogin and (r.oid in (select oid from m) or r.oid in (select oid from at_work))
         order by r.rolname
        """,
        {"prefix": role_prefix},
        objects,
    )


def at_work_as_worker() -> Call[list[str]]:
    """Read the logins with a session of a worker that is open now; the row of a worker does not say who it is."""
    return Call(
        "select distinct a.usename::text from pg_stat_activity a"
        " where a.datname = current_database() and starts_with(a.application_name, 'octop worker') and a.usename is not null",
        {},
        lambda rows: [str(row[0]) for row in rows],
    )


def roles(role_prefix: str) -> Call[list[Row]]:
    """Read what our own roles may do to the server, the owner's first.

    Args:
        role_prefix: Before the names of the roles; those that do not exist are left out.

    Returns:
        name, owner (is it the owner's role?), login, superuser, bypass_rls, create_role, create_db, replication; and keep: we
        are it, or it is the last superuser that can log in.
    """
    return Call(
        """
        select jsonb_build_object(
          'name', r.rolname, 'owner', s.number = 1, 'login', r.rolcanlogin, 'superuser', r.rolsuper, 'bypass_rls', r.rolbypassrls,
          'create_role', r.rolcreaterole, 'create_db', r.rolcreatedb, 'replication', r.rolreplication,
          'keep', r.rolname in (session_user, current_user)
                  or r.rolsuper and r.rolcanlogin
                     and not exists (select from pg_roles o where o.rolsuper and o.rolcanlogin and o.oid <> r.oid))
          from unnest(array['owner', 'producer', 'worker', 'operator', 'viewer']) with ordinality s (role, number)
          join pg_roles r on r.rolname = %(prefix)s::text || s.role
         order by s.number
        """,
        {"prefix": role_prefix},
        objects,
    )
