"""`octop doctor` about rights and roles: each finding is provoked, and gone after the very command that it names."""

from __future__ import annotations

import json
import uuid

import psycopg
import pytest

from octop.cli import entry
from tests.sql.crew import rows, value
from tests.system.doctor import Doctor
from tests.system.provoked import provokes


@provokes("grants.public_creates")
def test_public_that_may_create_is_shut_out(doctor):
    doctor.database.psql("grant create on schema public to public")
    doctor.heals("grants.public_creates")


@provokes("grants.others_create")
def test_another_role_that_may_create_is_shut_out(doctor, database):
    other = database.make_role()
    database.psql(f"grant create on schema public to {other}")
    doctor.heals("grants.others_create")


@provokes("grants.posing")
@pytest.mark.parametrize(
    "planted",
    [
        "create function round(integer, integer, integer) returns integer language sql as 'select 1'",
        """create function "Same"(text, uuid) returns boolean language sql as 'select true';
           create operator = (leftarg = text, rightarg = uuid, function = "Same")""",
    ],
)
def test_what_poses_as_postgresqls_own_is_dropped(doctor, database, planted):
    """Left by somebody who could create objects in the schema for a while."""
    other = database.make_role()
    database.psql(f"grant create on schema public to {other}")
    database.psql(planted, role=other)
    database.psql(f"revoke create on schema public from {other}")
    finding = doctor.heals("grants.posing")
    assert finding["what"].endswith(f"and belongs to {other}")


@provokes("grants.too_wide", "grants.on_leaf", "grants.direct")
def test_the_wide_grant_of_the_article_is_taken_back_and_the_application_goes_on(doctor, database):
    app = database.make_role(name="octop_app")
    database.psql(
        f"GRANT USAGE ON SCHEMA public TO {app}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {app};"
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {app}"
    )
    found = doctor.findings("--only", "grants", code=1)
    assert {each["id"] for each in found} == {"grants.too_wide", "grants.on_leaf", "grants.direct"}
    leaves = json.dumps(next(each for each in found if each["id"] == "grants.on_leaf")["cure"])
    assert all(f"public.{leaf}" in leaves for leaf in ("octop_tasks_live", "octop_tasks_done_2", "_octop_counters"))
    assert "public.octop_config" not in leaves
    wide = next(each for each in found if each["id"] == "grants.too_wide")
    assert wide["hint"].startswith(
        f"If it runs workers: grant octop_worker to {app}; In psql as a superuser, or a role with ADMIN"
    )
    assert not any("octop_worker " in step["run"] for step in wide["cure"])
    for each in found:
        doctor.cure(each)
    assert doctor.findings("--only", "grants", "--strict", code=0) == []
    with database.connect() as connection:
        assert not value(connection, "select pg_has_role(%s, 'octop_worker', 'member')", app)
    with database.connect(app) as connection:
        connection.execute("insert into octop_tasks (task_type) values ('t')")
        assert rows(connection, "select status from octop_tasks") == [("pending",)]
        for statement in (
            "update octop_tasks set status = 'cancelled'",
            "select from octop_tasks_live",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_a_login_with_a_wide_grant_that_is_seen_to_run_workers_stays_one(doctor, database):
    app, other = database.make_role(name="octop_app"), database.make_role(name="octop_web")
    database.psql(f"grant select, insert on octop_tasks to {app}, {other}")
    with psycopg.connect(database.url_as(app), application_name="octop worker exchange"):
        cures = {
            role: [step["run"] for step in each["cure"]]
            for each in doctor.findings("--only", "grants.too_wide", code=1)
            for role in (app, other)
            if role in each["what"]
        }
    assert f"grant octop_worker to {app};" in cures[app]
    assert not any("octop_worker" in line for line in cures[other])


@provokes("grants.public_execute")
def test_rights_of_public_on_functions_and_columns_are_taken_back(doctor):
    doctor.database.psql(
        "grant execute on function octop_sweep(uuid) to public; grant update (status) on octop_tasks to octop_producer;"
        "grant execute on function _octop_audit_write(text, text, jsonb) to octop_viewer"
    )
    found = doctor.findings("--only", "grants", code=1)
    assert sorted((each["id"], each["what"]) for each in found) == [
        ("grants.public_execute", "PUBLIC has EXECUTE on octop_sweep"),
        ("grants.too_wide", "octop_producer has UPDATE on octop_tasks"),
        ("grants.too_wide", "octop_viewer has EXECUTE on _octop_audit_write"),
    ]
    for each in found:
        doctor.cure(each)
    assert doctor.findings("--only", "grants", "--strict", code=0) == []


@provokes("grants.missing")
def test_a_right_that_is_gone_comes_back(doctor):
    doctor.database.psql(
        "revoke execute on function octop_beat(uuid[]) from octop_worker; revoke insert (payload) on octop_tasks from octop_producer"
    )
    finding = doctor.heals("grants.missing")
    assert "EXECUTE on octop_beat(worker_ids uuid[]) of worker" in finding["what"].replace("octop_worker", "worker")


@provokes("grants.missing")
@pytest.mark.all_versions
def test_rights_on_the_schema_that_a_restore_left_behind_come_back(doctor):
    """pg_restore -n brings the objects along, and their grants, and no right on the schema."""
    doctor.database.psql(
        "revoke all on schema public from octop_owner, octop_producer, octop_worker, octop_operator, octop_viewer"
    )
    finding = doctor.one("grants.missing")
    assert finding["what"] == "rights on the schema public are gone: CREATE of octop_owner"  # PUBLIC has USAGE
    assert [step["run"] for step in finding["cure"]] == ["grant create on schema public to octop_owner;"]
    doctor.database.psql("revoke usage on schema public from public")
    finding = doctor.heals("grants.missing")
    roles = ("owner", "producer", "worker", "operator", "viewer")
    assert [step["run"] for step in finding["cure"]] == [
        f"grant {'usage, create' if role == 'owner' else 'usage'} on schema public to octop_{role};" for role in roles
    ]
    assert "the schema's owner, or a superuser" in finding["hint"]
    assert doctor.findings("--only", "grants", "--strict", code=0) == []


def test_missing_days_that_the_owner_may_not_make_are_made(doctor, database):
    database.clock.advance(days=2)
    database.psql("revoke create on schema public from octop_owner")
    finding = doctor.heals("days.missing")
    assert [step["run"] for step in finding["cure"]] == [
        "grant create on schema public to octop_owner;",
        "select public.octop_make_days();",
    ]
    assert doctor.findings("--only", "grants", code=0) == []


@provokes("roles.owner_is_mighty", "roles.group_is_mighty")
def test_roles_with_power_lose_it(alone, empty_database, monkeypatch, capsys):
    prefix = f"d{uuid.uuid4().hex[:8]}_"
    monkeypatch.setenv("OCTOP_DSN", empty_database.url)
    empty_database.psql("revoke create on schema public from public")
    empty_database.roles += [f"{prefix}{role}" for role in ("owner", "producer", "worker", "operator", "viewer")]
    assert entry.run(["migrate", "--role-prefix", prefix]) == 0
    doctor = Doctor(empty_database, capsys)
    for attributes, words in {
        "superuser login": "is a superuser and can log in",
        "createrole createdb": "may create roles and may create databases",
        "bypassrls replication": "may bypass row security and may replicate",
    }.items():
        empty_database.psql(f"alter role {prefix}owner {attributes}")
        assert doctor.heals("roles.owner_is_mighty")["what"] == f"{prefix}owner {words}"
    empty_database.psql(f"alter role {prefix}viewer login createrole; alter role {prefix}worker login")
    # a login is no power: a person may have made one of it
    assert doctor.heals("roles.group_is_mighty")["what"] == f"{prefix}viewer may create roles"
