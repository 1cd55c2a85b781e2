"""The page about backups, with real dumps between two servers; and that what it leaves is whole."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from octop.engine.install import install
from tests.docs.pages import HOW_TO
from tests.docs.story import Story, blocks_of, libpq
from tests.servers import Database, Server
from tests.sql.crew import do, rows, value

PAGE = HOW_TO / "backup-and-restore.md"
OURS = """
select 'trigger', t.tgname::text, c.relname::text, t.tgenabled::text from pg_trigger t join pg_class c on c.oid = t.tgrelid
 where not t.tgisinternal and c.relnamespace = %(schema)s::regnamespace
union all select 'rights', c.relname::text, pg_get_userbyid(c.relowner), (select string_agg(x::text, ' ' order by x::text) from unnest(c.relacl) x)
  from pg_class c where c.relnamespace = %(schema)s::regnamespace
union all select 'function', p.oid::regprocedure::text, pg_get_userbyid(p.proowner), (select string_agg(x::text, ' ' order by x::text) from unnest(p.proacl) x)
  from pg_proc p where p.pronamespace = %(schema)s::regnamespace
union all select 'schema', a.privilege_type, pg_get_userbyid(a.grantee), '' from pg_namespace n cross join lateral aclexplode(n.nspacl) a
 where n.oid = %(schema)s::regnamespace and pg_get_userbyid(a.grantee) ~ '^octop_'
order by 1, 2, 3, 4"""
TABLES = (
    "octop_tasks",
    "octop_attempts",
    "octop_config",
    "octop_queues",
    "octop_holds",
    "octop_audit",
    "octop_migrations",
)
COUNTS = (
    "select tenant, queue, status, day::text, sum(n)::int from {0}._octop_counters group by 1, 2, 3, 4 union all "
    "select tenant, queue, status, day::text, sum(n)::int from {0}._octop_counter_deltas group by 1, 2, 3, 4 order by 1, 2, 3, 4"
)


def work(connection, schema: str = "public") -> UUID:
    """Leave two tasks that wait, one that runs and one that is done, by a worker that says nothing more."""
    do(connection, f"set search_path = {schema}")
    worker = uuid4()
    do(connection, "insert into octop_tasks (task_type) select 'greet' from generate_series(1, 4)")
    do(connection, """select octop_register(%s, '', '', 1, null, '', '{default}', '[{"name": "greet"}]')""", worker)
    do(connection, "select * from octop_exchange(%s, '{default}', '{2}', '{greet}')", worker)
    task = value(
        connection, "select jsonb_build_array(id, attempt, claim_id) from octop_tasks where status = 'running' limit 1"
    )
    do(
        connection,
        "select * from octop_exchange(%s, '{}', '{}', '{greet}', '{}', array[%s::uuid], array[%s::int], array[%s::uuid], array['null'])",
        worker,
        *task,
    )
    do(connection, "select octop_config_set('task.default_max_retries', '7')")
    return worker


def whole(connection, schema: str = "public") -> dict[str, list]:
    """Read what a restore must bring back."""
    found = {
        name: rows(connection, f"select to_jsonb(t) from {schema}.{name} t order by to_jsonb(t)::text")
        for name in TABLES
    }
    return {**found, "objects": ours(connection, schema), "counts": rows(connection, COUNTS.format(schema))}


def ours(connection, schema):
    with connection.cursor() as cursor:
        return cursor.execute(OURS, {"schema": schema}).fetchall()


@pytest.fixture
def new_server(own_server) -> Iterator[Server]:
    """A server on which nobody has ever heard of Octop."""
    return own_server()


def test_back_up_and_restore(database, new_server, tmp_path):
    names = {name: name.replace("shop", database.name) for name in ("shop_migrate", "shop_dashboard")}
    for name, role in (("shop_migrate", "owner"), ("shop_dashboard", "viewer")):
        with database.connect() as connection:
            do(connection, f"create role {names[name]} login in role octop_{role}")
    database.roles.extend(names.values())
    before = {}
    copy = Database(new_server, "shop")

    def lives() -> None:
        with database.connect() as connection:
            work(connection)
            before.update(whole(connection))

    def another() -> None:
        """In the new server, in a schema of its own, and a login that owns a database there."""
        with copy.connect() as connection:
            do(connection, "create role shop_dba login in role octop_owner")
            do(connection, "create database shop_b owner shop_dba")
        install(copy.url, schema="jobs")
        with copy.connect() as connection:
            work(connection, "jobs")
        story.command("pg_dump -Fc -n jobs -f jobs.dump")

    def restored() -> None:
        with copy.connect() as connection:
            assert whole(connection) == before

    events = {
        "two tasks wait, one runs and one is done": lives,
        "there is a dump of the schema jobs, and a database of shop_dba's": another,
    }
    rename = {**names, "new.example.com": libpq(copy.url)["PGHOST"]}
    with Story(PAGE, tmp_path, url=database.url, rename=rename, events=events) as story:
        for block in blocks_of(PAGE):
            story.step(block)
            if "pg_restore --exit-on-error -d shop " in block.body:
                restored()
    with copy.connect() as connection:
        assert rows(connection, "select status, retry_count, attempt from octop_tasks order by attempt") == [
            ("success", 0, 1),
            ("success", 0, 1),
            ("success", 0, 1),
            ("success", 0, 2),
        ], "given back, the running one has not used up a try"
        there = whole(connection, "jobs")
    with Database(new_server, "shop_b").connect() as connection:
        assert whole(connection, "jobs") == there


def test_left_alone_the_running_tasks_of_a_copy_count_as_lost_with_one_try(database, postgres, tmp_path):
    with database.connect() as connection:
        work(connection)
    name = f"{database.name}_copy"
    copy = Database(postgres, name)
    story = Story(PAGE, tmp_path, url=database.url)
    try:
        story.command(f"pg_dump -Fc -f shop.dump && createdb {name} && pg_restore --exit-on-error -d {name} shop.dump")
        with copy.connect() as connection:
            judge = uuid4()
            do(
                connection,
                """select octop_register(%s, '', '', 1, null, '', '{default}', '[{"name": "greet"}]')""",
                judge,
            )
            for _ in range(5):
                copy.clock.advance(10)
                do(connection, "select octop_beat(array[%s::uuid])", judge)
            do(connection, "select * from octop_sweep(%s)", judge)
            lost = "select status, attempt, retry_count, lost_count from octop_tasks where lost_count > 0"
            assert rows(connection, lost) == [("failed", 1, 1, 1)]
        with database.connect() as connection:
            assert rows(connection, lost) == [], "the original knows nothing of it"
    finally:
        story.command(f"dropdb --force --if-exists {name}")
