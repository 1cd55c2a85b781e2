"""An installation as its tests see it: roles of its own, what it leaves in the catalog, and whether it works."""

from __future__ import annotations

from uuid import uuid4

from octop.engine import calls, script
from octop.engine.call import run
from octop.engine.connect import open_connection
from octop.engine.install import require
from octop.model.ids import new_id
from octop.model.task import Success
from octop.model.work import NewTask, TaskTypePolicy

CATALOG = """
  select 'table ' || c.relname || ' ' || c.relkind::text || coalesce(c.reloptions::text, '') || coalesce(c.relacl::text, '')
         || pg_get_userbyid(c.relowner) || coalesce(pg_get_expr(c.relpartbound, c.oid), '') || coalesce(obj_description(c.oid, 'pg_class'), '')
    from pg_class c where c.relnamespace = %(schema)s::regnamespace
  union all
  select 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || a.attnotnull || a.attnum
         || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || coalesce(a.attacl::text, '') || coalesce(col_description(c.oid, a.attnum), '')
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
   where c.relnamespace = %(schema)s::regnamespace
  union all
  select 'constraint ' || conrelid::regclass || conname || pg_get_constraintdef(oid)
    from pg_constraint where connamespace = %(schema)s::regnamespace
  union all
  select 'function ' || pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '')
         || pg_get_userbyid(p.proowner) || obj_description(p.oid, 'pg_proc')
    from pg_proc p where p.pronamespace = %(schema)s::regnamespace
  union all
  select 'trigger ' || pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
   where not t.tgisinternal and c.relnamespace = %(schema)s::regnamespace
  union all
  select 'view ' || c.relname || pg_get_viewdef(c.oid) from pg_class c where c.relkind = 'v' and c.relnamespace = %(schema)s::regnamespace
   order by 1"""


def own_prefix(database, text="") -> str:
    """Make up a prefix of roles that no other test uses; they are dropped with the database."""
    prefix = f"{text}{uuid4().hex[:8]}_"
    database.roles += [prefix + role for role in script.ROLES]
    return prefix


def catalog(database, schema):
    with database.connect() as connection:
        return [
            row[0]
            for row in connection.execute(
                CATALOG, {"schema": f'"{schema}"' if schema != "public" else schema}
            ).fetchall()
        ]


def smoke(url, schema):
    """Register, claim and finish one task in a schema, through the calls alone."""
    with open_connection(url, application_name="smoke", schema=schema) as connection:
        require(connection, schema)
        worker = new_id()
        run(
            connection,
            calls.octop_register(
                worker,
                name="",
                host="",
                pid=1,
                supervisor_id=None,
                version="",
                queues=["q"],
                task_types=[TaskTypePolicy("t")],
            ),
        )
        ((task_id, created),) = run(connection, calls.octop_enqueue_many([NewTask("t", "{}", new_id(), queue="q")]))
        (claimed,) = run(connection, calls.octop_exchange(worker, wanted={"q": 5}, task_types=["t"])).tasks
        assert (created, claimed.id) == (True, task_id)
        assert (
            run(
                connection,
                calls.octop_exchange(worker, wanted={}, task_types=["t"], successes=[Success(claimed.fence)]),
            ).settled
            == []
        )
        run(connection, calls.octop_sweep(worker))
        found = run(connection, calls.octop_task(task_id))
        assert found is not None
        assert found.status == "success"
        run(connection, calls.octop_pause("q"))
        run(connection, calls.octop_config_set("task.default_max_retries", "5"))
        assert run(connection, calls.octop_settings()).held_queues == {"q"}
