"""`octop doctor` about owners and logins: it finds a wrong owner, and cuts nobody off who copies what it prints."""

from __future__ import annotations

import re
import uuid

import pytest

from octop.cli import entry
from octop.engine.diagnosis.words import ownership_lines
from tests.sql.crew import value
from tests.system.doctor import Doctor
from tests.system.provoked import provokes

LOCKS_OUT = re.compile(r"nologin|nosuperuser|nobypassrls|nocreaterole|revoke", re.IGNORECASE)


class Shop:
    """An installation with a prefix of its own, made as documented: by a login that may create roles, no superuser."""

    def __init__(self, database, monkeypatch, capsys) -> None:
        self.database = database
        self.prefix = f"shop{uuid.uuid4().hex[:6]}_"
        self.dba = database.make_role(name="dba")
        database.roles[:0] = [f"{self.prefix}{role}" for role in ("producer", "worker", "operator", "viewer", "owner")]
        database.psql(f"alter role {self.dba} createrole; create schema shop authorization {self.dba}")
        monkeypatch.setenv("OCTOP_SCHEMA", "shop")
        monkeypatch.setenv("OCTOP_DSN", database.url_as(self.dba))
        self.installed = entry.run(["migrate", "--role-prefix", self.prefix])
        capsys.readouterr()
        self.doctor = Doctor(database, capsys)

    @property
    def owner(self) -> str:
        return f"{self.prefix}owner"

    def give_all_to(self, role: str) -> None:
        """Leave it as pg_restore --no-owner does: the grants are there, all belongs to who restored."""
        self.database.psql("\n".join(ownership_lines("shop", role)))


@pytest.fixture
def shop(alone, empty_database, database, monkeypatch, capsys):  # database: roles with our usual prefix are there too
    made = Shop(empty_database, monkeypatch, capsys)
    assert made.installed == 0
    return made


def commands(found):
    """Return all that a reader would copy."""
    return [step["run"] for each in found for step in each["cure"]]


@pytest.mark.all_versions
def test_what_a_login_that_may_create_roles_has_installed_is_fine(shop):
    found = shop.doctor.findings("--only", "roles,grants", code=0)
    assert {each["id"] for each in found} <= {"roles.installer"}
    assert not any(LOCKS_OUT.search(line) for line in commands(found))


@pytest.mark.parametrize("restored_by", ["dba", "superuser"])
@provokes("schema.owner_differs")
def test_a_restore_under_the_wrong_owner_is_one_finding_and_takes_no_right(shop, monkeypatch, restored_by):
    if restored_by == "superuser":
        monkeypatch.setenv("OCTOP_DSN", shop.database.url)
    wrong = shop.dba if restored_by == "dba" else "octop"
    shop.give_all_to(wrong)
    found = shop.doctor.findings("--only", "schema,grants,roles", code=1)
    assert [each["id"] for each in found] == ["schema.owner_differs"]
    said = found[0]["what"]
    assert re.fullmatch(
        rf"\d+ objects belong to {wrong}, not to {shop.owner} \(restored under the wrong owner\?\)", said
    )
    assert not any(LOCKS_OUT.search(line) for line in commands(found))
    assert found == shop.doctor.findings("--only", "grants", code=1)  # not hidden where it decides what is said
    monkeypatch.setenv("OCTOP_DSN", shop.database.url)
    shop.doctor.cure(found[0])
    assert shop.doctor.findings("--only", "schema,grants", code=0) == []
    with shop.database.connect() as connection:
        assert value(connection, "select rolsuper and rolcanlogin from pg_roles where rolname = 'octop'")
        assert value(connection, "select rolcanlogin from pg_roles where rolname = %s", shop.dba)


def test_a_table_of_a_person_is_nobodys_finding_whatever_its_name(shop, monkeypatch):
    monkeypatch.setenv("OCTOP_DSN", shop.database.url)
    app = shop.database.make_role(name="app")
    shop.database.psql(
        f"set search_path = shop; create table octop_invoices (a int); create function octop_bill() returns int language sql as 'select 1';"
        f"alter table octop_invoices set (autovacuum_enabled = off); grant insert on octop_invoices to {app}; grant usage on schema shop to {app}"
    )
    assert shop.doctor.findings("--only", "schema,grants,vacuum", "--strict", code=0) == []
    # nor does the cure of a restore give it to the owner's role, whose things are dropped by an uninstallation
    shop.give_all_to("octop")
    shop.database.psql(f"alter table shop.octop_invoices owner to {app}")
    (finding,) = shop.doctor.findings("--only", "schema", code=1)
    assert finding["id"] == "schema.owner_differs"
    shop.doctor.cure(finding)
    assert shop.doctor.findings("--only", "schema,grants", "--strict", code=0) == []
    with shop.database.connect() as connection:
        owners = "select array_agg(pg_get_userbyid(relowner)) from pg_class where relname = 'octop_invoices'"
        assert value(connection, owners) == [app]
        assert (
            value(connection, "select pg_get_userbyid(proowner) from pg_proc where proname = 'octop_bill'") == "octop"
        )


def test_an_owner_that_did_not_come_along_is_made(shop, monkeypatch):
    shop.give_all_to("octop")
    shop.database.psql(f"drop owned by {shop.owner}; drop role {shop.owner}")
    monkeypatch.setenv("OCTOP_DSN", shop.database.url)
    (finding,) = shop.doctor.findings("--only", "schema,grants,roles", code=1)
    assert finding["cure"][0]["run"].replace('"', "") == f"create role {shop.owner} nologin;"
    shop.doctor.cure(finding)
    assert shop.doctor.findings("--only", "schema,grants,roles", code=0) == []


def test_a_login_that_restored_a_bare_dump_is_no_prefix(shop, monkeypatch):
    """Without owners and without grants nothing names the prefix but roles that are there."""
    shop.give_all_to("octop")
    roles = ", ".join(f"{shop.prefix}{role}" for role in ("producer", "worker", "operator", "viewer"))
    shop.database.psql(
        f"revoke all on all tables in schema shop from {roles}; revoke all on all sequences in schema shop from {roles};"
        f"revoke all on all functions in schema shop from {roles}"
    )
    monkeypatch.setenv("OCTOP_DSN", shop.database.url)
    (finding,) = shop.doctor.findings("--only", "schema,grants,roles", code=1)
    assert finding["id"] == "schema.owner_differs"
    assert not any(LOCKS_OUT.search(line) for line in commands([finding]))


def test_no_command_takes_a_right_from_who_runs_the_doctor(shop):
    truly = " with inherit true" if shop.database.version >= 16 else ""  # before 16 a maker is no member
    shop.database.psql(
        f"grant {shop.prefix}worker to {shop.dba}{truly}; alter role {shop.dba} bypassrls;"
        f"grant update on shop.octop_tasks to {shop.dba}; alter schema shop owner to octop; grant create on schema shop to {shop.dba}"
    )
    found = shop.doctor.findings("--only", "grants,roles", code=1)
    assert {each["id"] for each in found} == {
        "grants.others_create", "grants.too_wide", "roles.member_of_owner", "roles.application_is_mighty",
    }  # fmt: skip
    assert commands(found) == []
    hints = {each["id"]: each["hint"].replace('"', "") for each in found}
    assert f"revoke {shop.owner} from {shop.dba};" in hints["roles.member_of_owner"]
    assert "by another login" in hints["grants.too_wide"]
    assert "a login of its own" in hints["roles.application_is_mighty"]


def test_the_owners_role_that_runs_the_doctor_keeps_its_rights(shop, monkeypatch):
    shop.database.psql(f"alter role {shop.owner} login superuser")
    monkeypatch.setenv("OCTOP_DSN", shop.database.url_as(shop.owner))
    found = shop.doctor.findings("--only", "roles", code=1)
    mighty = next(each for each in found if each["id"] == "roles.owner_is_mighty")
    assert mighty["cure"] == []
    assert "login of this very session" in mighty["hint"]
    assert all(each["what"] != f"{shop.owner} is a member of {shop.owner}" for each in found)


def test_whoever_works_by_a_role_that_was_renamed_goes_on_working(shop):
    """The next upgrade makes the role anew, and the one with the other name keeps its rights: each to be revoked, if that were all."""
    renamed = f"{shop.prefix}runner"
    shop.database.roles.append(renamed)
    login = shop.database.make_role(f"{shop.prefix}worker", name="login")
    shop.database.psql(f"alter role {shop.prefix}worker rename to {renamed}")
    assert entry.run(["migrate", "--again", "--role-prefix", shop.prefix]) == 0
    found = shop.doctor.findings("--only", "grants")
    assert found
    for each in found:
        assert each["what"].startswith(renamed)
        assert commands([each])[0] == f'grant "{shop.prefix}worker" to "{renamed}";'
        assert f'was that role renamed? Then better: drop role "{shop.prefix}worker";' in each["hint"]
        shop.doctor.cure(each)
    assert shop.doctor.findings("--only", "grants", code=0) == []
    with shop.database.connect() as connection:
        may = "select has_function_privilege(%s, p.oid, 'execute') from pg_proc p where proname = 'octop_exchange'"
        assert value(connection, may, login)
