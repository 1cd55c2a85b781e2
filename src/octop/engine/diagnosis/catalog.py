"""The objects of the schema as the catalog has them: compared with the picture that the package brings.

Texts that PostgreSQL prints anew from its own trees (views, SQL bodies) differ between its versions in spaces, brackets
and needless prefixes: these are taken out before the text is hashed.
"""

from octop.engine.call import Call
from octop.engine.rows import Row, objects

# The days come and go, so they are no part of the picture; every other name that begins with ours is.


def tables(schema: str) -> Call[list[Row]]:
    """Read tables, sequences and views: name, kind, owner, persistence, partition bound, columns, text."""
    return Call(
        """
        select jsonb_build_object(
          'kind', case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end,
          'name', c.relname, 'owner', pg_get_userbyid(c.relowner),
          'unlogged', c.relpersistence = 'u',
          'partition_of', (select p.relname from pg_inherits i join pg_class p on p.oid = i.inhparent where i.inhrelid = c.oid),
          'bound', pg_get_expr(c.relpartbound, c.oid),
          'partition_by', pg_get_partkeydef(c.oid),
          'columns', (select jsonb_agg(jsonb_build_object(
                        'name', a.attname,
                        'type', format_type(a.atttypid, a.atttypmod)
                                || case when a.attcollation <> t.typcollation then ' collate ' || quote_ident(l.collname) else '' end,
                        'not_null', a.attnotnull,
                        'default', case when a.attidentity <> '' then 'identity' else pg_get_expr(d.adbin, d.adrelid, true) end)
                        order by a.attnum)
                        from pg_attribute a
                        join pg_type t on t.oid = a.atttypid
                        left join pg_collation l on l.oid = a.attcollation
                        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                       where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and c.relkind <> 'S'),
          'text', case c.relkind when 'v' then
                    md5(regexp_replace(lower(pg_get_viewdef(c.oid)), '\\m\\w+\\.|[\\s()]', '', 'g')) end)
          from pg_class c
         where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = %(schema)s::text)
           and c.relname ~ '^_?octop_' and c.relname !~ '_done_[0-9]{8}' and c.relkind in ('r', 'p', 'v', 'S')
         order by c.relname
        """,
        {"schema": schema},
        objects,
    )


def parts(schema: str) -> Call[list[Row]]:
    """Read indexes, constraints and triggers: kind, name, table, definition, state (what is not in order)."""
    return Call(
        """
        with t as materialized (
          select c.oid, c.relname from pg_class c
           where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = %(schema)s::text)
             and c.relname ~ '^_?octop_' and c.relname !~ '_done_[0-9]{8}' and c.relkind in ('r', 'p', 'v'))
        select jsonb_build_object('kind', x.kind, 'name', x.name, 'table', x.of, 'definition', x.definition, 'state', x.state)
          from (
            select 'index' as kind, i.relname::text as name, t.relname::text as of, pg_get_indexdef(i.oid, 0, true) as definition,
                   case when not x.indisvalid or not x.indisready then 'invalid' end as state
              from t join pg_index x on x.indrelid = t.oid join pg_class i on i.oid = x.indexrelid
             where not i.relispartition
               and not exists (select from pg_constraint k where k.conindid = i.oid and k.contype in ('p', 'u', 'x'))
            union all
            select 'constraint', k.conname::text, t.relname::text, pg_get_constraintdef(k.oid, true),
                   case when not k.convalidated then 'not valid'
                        when exists (select from pg_index x where x.indexrelid = k.conindid and not x.indisvalid) then 'invalid' end
              from t join pg_constraint k on k.conrelid = t.oid where k.contype in ('c', 'p', 'u', 'f', 'x')
            union all
            select 'trigger', g.tgname::text, t.relname::text, pg_get_triggerdef(g.oid, true),
                   case g.tgenabled when 'O' then null when 'D' then 'disabled' else 'enabled otherwise' end
              from t join pg_trigger g on g.tgrelid = t.oid where not g.tgisinternal and g.tgparentid = 0) x
         order by x.kind, x.of, x.name
        """,
        {"schema": schema},
        objects,
    )


def functions(schema: str) -> Call[list[Row]]:
    """Read functions: name with its argument types, owner, body (hashed), and all that changes what it does."""
    return Call(
        """
        select jsonb_build_object(
          'name', p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
          'owner', pg_get_userbyid(p.proowner),
          'body', md5(case when p.prosqlbody is null then p.prosrc
                      else regexp_replace(lower(pg_get_function_sqlbody(p.oid)), '\\m\\w+\\.|[\\s()]', '', 'g') end),
          'manner', concat_ws(' ', l.lanname,
                      case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
                      case when p.proisstrict then 'strict' end, case when p.prosecdef then 'security definer' end,
                      'parallel ' || p.proparallel::text, 'returns ' || pg_get_function_result(p.oid),
                      (select string_agg(replace(s, quote_ident(%(schema)s::text), 'SCHEMA'), ' ' order by s) from unnest(p.proconfig) s)))
          from pg_proc p join pg_language l on l.oid = p.prolang
         where p.pronamespace = (select n.oid from pg_namespace n where n.nspname = %(schema)s::text) and p.proname ~ '^_?octop_'
         order by p.proname, p.oid::regprocedure::text
        """,
        {"schema": schema},
        objects,
    )


def grants(schema: str) -> Call[list[Row]]:
    """Read every right on an object of ours that is not its owner's: kind, object, column, grantee ('' = PUBLIC), privilege."""
    return Call(
        """
        with t as materialized (
          select c.oid, c.relname::text, c.relkind, c.relowner, c.relacl from pg_class c
           where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = %(schema)s::text)
             and c.relname ~ '^_?octop_' and c.relkind in ('r', 'p', 'v', 'S')),
        acl as (
          select case t.relkind when 'S' then 'sequence' else 'table' end as kind, t.relname as object, null as col,
                 t.relowner as owner, x.*
            from t, aclexplode(t.relacl) x
          union all
          select 'table', t.relname, a.attname::text, t.relowner, x.*
            from t join pg_attribute a on a.attrelid = t.oid and not a.attisdropped, aclexplode(a.attacl) x
          union all
          select 'function', p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', null, p.proowner, x.*
            from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
           where p.pronamespace = (select n.oid from pg_namespace n where n.nspname = %(schema)s::text) and p.proname ~ '^_?octop_')
        select jsonb_build_object('kind', kind, 'object', object, 'column', col,
                                  'grantee', case when grantee = 0 then '' else pg_get_userbyid(grantee) end, 'privilege', privilege_type)
          from acl where grantee <> owner
         order by kind, object, col nulls first, 1
        """,
        {"schema": schema},
        objects,
    )
