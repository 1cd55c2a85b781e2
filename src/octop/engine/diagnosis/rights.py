"""Who may do what, beyond the rights on single objects: schema, owner, logins."""

from octop.engine.call import Call
from octop.engine.diagnosis.look import Row, objects, one


def owner(schema: str) -> Call[str]:
    """Read which role owns the installation."""
    return Call(
        "select pg_get_userbyid(c.relowner)::text from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = %(schema)s::text and c.relname = 'octop_migrations'",
        {"schema": schema},
        lambda rows: str(rows[0][0]),
    )


def creators(schema: str) -> Call[Row]:
    """Read who may create objects in the schema: public (bool), roles (neither superusers nor its owners)."""
    return Call(
        """
        select jsonb_build_object(
          'public', exists (select from aclexplode(n.nspacl) x where x.grantee = 0 and x.privilege_type = 'CREATE'),
          'roles', (select coalesce(jsonb_agg(r.rolname order by r.rolname), '[]')
                      from aclexplode(n.nspacl) x join pg_roles r on r.oid = x.grantee
                     where x.privilege_type = 'CREATE' and not r.rolsuper and x.grantee <> n.nspowner
                       and x.grantee <> (select c.relowner from pg_class c
                                          where c.relnamespace = n.oid and c.relname = 'octop_migrations')))
          from pg_namespace n where n.nspname = %(schema)s::text
        """,
        {"schema": schema},
        one,
    )


def logins(role_prefix: str) -> Call[list[Row]]:
    """Read the logins that work with Octop, by membership or by a session that is open now.

    Args:
        role_prefix: Before the names of the roles.

    Returns:
        name, superuser, bypass_rls, create_role, owner (member of the owner's role), works (member of another role of
        ours, or at work now), session (at work now).
    """
    return Call(
        """
        with recursive m (role, oid) as (
          select r.rolname, r.oid from pg_roles r where starts_with(r.rolname, %(prefix)s::text)
             and substr(r.rolname, length(%(prefix)s::text) + 1) in ('owner', 'producer', 'worker', 'operator', 'viewer')
          union select m.role, a.member from pg_auth_members a join m on m.oid = a.roleid),
        at_work as (
          select distinct a.usesysid as oid from pg_stat_activity a where a.datname = current_database()
             and (starts_with(a.application_name, 'octop worker') or a.application_name = 'octop client'))
        select jsonb_build_object(
          'name', r.rolname, 'superuser', r.rolsuper, 'bypass_rls', r.rolbypassrls, 'create_role', r.rolcreaterole,
          'owner', exists (select from m where m.oid = r.oid and m.role = %(prefix)s::text || 'owner'),
          'works', exists (select from m where m.oid = r.oid and m.role in (%(prefix)s::text || 'producer', %(prefix)s::text || 'worker'))
                   or r.oid in (select oid from at_work),
          'session', r.oid in (select oid from at_work))
          from pg_roles r
         where r.rolcanlogin and (r.oid in (select oid from m) or r.oid in (select oid from at_work))
         order by r.rolname
        """,
        {"prefix": role_prefix},
        objects,
    )


def owner_role(owner: str) -> Call[Row]:
    """Read what the owner's role may: login, superuser, bypass_rls."""
    return Call(
        "select jsonb_build_object('login', r.rolcanlogin, 'superuser', r.rolsuper, 'bypass_rls', r.rolbypassrls)"
        " from pg_roles r where r.rolname = %(owner)s::text",
        {"owner": owner},
        one,
    )
