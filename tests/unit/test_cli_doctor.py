"""The parts of the doctor that need no database: its table, its rules, what it sees of this machine."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from pathlib import Path

import pytest

import octop
from octop.cli.check import kinds as check_kinds
from octop.cli.doctor import package
from octop.cli.doctor.checks import CHECKS, LOCAL
from octop.cli.doctor.kinds import BY_ID, KINDS, RANK, chosen
from octop.cli.doctor.settings import RULES, seconds
from octop.cli.doctor.work import _number
from octop.engine.diagnosis.words import name, within
from octop.model.settings import load_settings
from tests.servers import HOUSE
from tests.system.provoked import PROVOKED, provokes, saw

# --- the table --------------------------------------------------------------------------------------------------------


def test_ids_are_unique_and_every_kind_belongs_to_exactly_one_check():
    assert len(BY_ID) == len(KINDS)
    ids = [kind_id for check in (*LOCAL, *CHECKS) for kind_id in check.ids]
    assert len(ids) == len(set(ids))
    assert set(ids) | {"doctor.not_looked_at", "doctor.failed"} == set(BY_ID)


def test_every_kind_of_finding_is_provoked_by_a_test():
    """A test says with `provokes` what it provokes, and is held to it: a new kind needs one."""
    for folder in ("system", "unit"):
        for file in sorted((HOUSE / "tests" / folder).glob("test_c*.py")):
            if "import provokes" in file.read_text():
                importlib.import_module(f"tests.{folder}.{file.stem}")
    assert not set(BY_ID) & set(check_kinds.BY_ID)
    assert {*BY_ID, *check_kinds.BY_ID} == PROVOKED


def test_every_row_is_whole():
    for kind in (*KINDS, *check_kinds.KINDS):
        assert kind.id.count(".") == 1
        assert kind.why.endswith(".")
        assert not kind.title.endswith(".")
        assert kind.cure
        assert "|" not in kind.title + kind.why + kind.cure


def test_what_functions_need_is_cured_before_the_functions():
    code = RANK["schema.code_differs"]
    assert all(RANK[kind.id] < code for kind in KINDS if kind.id in {"schema.table_missing", "schema.table_differs"})


def test_words_name_ids_or_subjects():
    assert chosen(("clocks", "schema.older")) == {
        "clocks.zones_differ",
        "clocks.skew",
        "clocks.far_apart",
        "schema.older",
    }
    with pytest.raises(LookupError, match="did you mean grants.too_wide"):
        chosen(("grants.to_wide",))


# --- rules for settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "fine", "hurts"),
    [
        ("autovacuum", ["on", "true"], ["off", "0"]),
        ("fsync", ["on"], ["off"]),
        ("synchronous_commit", ["on", "local", "remote_write"], ["off"]),
        ("jit", ["off"], ["on"]),
        ("idle_session_timeout", ["0"], ["600000", "1h"]),
        ("idle_in_transaction_session_timeout", ["0", "10min", "1min"], ["30s", "59999", "100"]),
        ("session_replication_role", ["origin"], ["replica", "local"]),
        ("transaction_timeout", ["0", "5min", "60000"], ["30s", "59999"]),
        ("default_transaction_isolation", ["read committed"], ["repeatable read", "serializable"]),
        ("default_transaction_read_only", ["off"], ["on"]),
        ("statement_timeout", ["0", "120s", "10000"], ["2s", "9999", "500ms"]),
        ("lock_timeout", ["0", "-1"], ["1s"]),
    ],
)
def test_each_rule_tells_what_hurts(setting, fine, hurts):
    assert [value for value in fine if RULES[setting].hurts(value)] == []
    assert [value for value in hurts if not RULES[setting].hurts(value)] == []


def test_lengths_of_time_are_read_as_postgresql_writes_them():
    assert [seconds(each) for each in ("500", "5s", "2min", "1h", "1d", "0", "-1", "nonsense", "250ms")] == [
        0.5, 5, 120, 3600, 86400, 0, 0, 0, 0.25,
    ]  # fmt: skip


def test_versions_are_compared_as_numbers():
    assert sorted(["0.10.0", "0.9.1", "1.0", ""], key=_number) == ["", "0.9.1", "0.10.0", "1.0"]


def test_names_are_quoted_where_need_be():
    assert [name(each) for each in ("public", "octop_tasks", "_octop_now", "user", 'a"b', "octop_É")] == [
        "public", "octop_tasks", "_octop_now", '"user"', '"a""b"', '"octop_É"',
    ]  # fmt: skip
    assert within("public", "octop_cancel(id uuid)") == "public.octop_cancel(id uuid)"


# --- the package ------------------------------------------------------------------------------------------------------


def install(folder, distribution, version="1.0", *, direct_url=None, package_too=False):
    """Lay down what an installer leaves behind."""
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    if direct_url:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    if package_too:
        (folder / "octop").mkdir()
        (folder / "octop" / "__init__.py").touch()
    return info


def ids(findings):
    found = [each.kind.id for each in findings]
    saw(found)
    return found


def only(findings):
    (finding,) = findings
    saw([finding.kind.id])
    return finding


def here():
    """Return where octop is imported from, as an editable install names it."""
    return {"url": (Path(octop.__file__).resolve().parents[2]).as_uri(), "dir_info": {"editable": True}}


@provokes("package.clash")
def test_the_unrelated_distribution_of_our_import_name_is_found(tmp_path):
    install(tmp_path / "a", "octop-scheduler", direct_url=here())
    assert ids(package.distributions([str(tmp_path / "a")])) == []
    other = install(tmp_path / "b", "Octop", "7.1")
    finding = only(package.distributions([str(tmp_path / "a"), str(tmp_path / "b")]))
    assert finding.kind.id == "package.clash"
    assert "octop 7.1 is installed in" in finding.what
    first, second = (step.text for step in finding.cure)
    assert first.endswith("-m pip uninstall -y octop")
    assert second.endswith("-m pip install --force-reinstall octop-scheduler")
    (other / "METADATA").unlink()
    other.rmdir()  # what the first line does
    assert ids(package.distributions([str(tmp_path / "a"), str(tmp_path / "b")])) == []


def test_distributions_whose_names_only_begin_like_ours_are_left_alone(tmp_path):
    install(tmp_path, "octop-scheduler", direct_url=here())
    install(tmp_path, "octop-extras")
    assert ids(package.distributions([str(tmp_path), str(tmp_path)])) == []


@provokes("package.twice")
def test_a_second_copy_on_the_path_is_found_and_removed(tmp_path):
    install(tmp_path / "a", "octop-scheduler", "2.0", direct_url=here())
    install(tmp_path / "b", "octop_scheduler", "1.0")
    path = [str(tmp_path / "a"), str(tmp_path / "b")]
    finding = only(package.distributions(path))
    assert finding.kind.id == "package.twice"
    assert [line.partition(" ")[0] for line in finding.detail] == ["2.0", "1.0"]
    for step in finding.cure:
        subprocess.run(["/bin/sh", "-c", step.text], check=True)
    assert ids(package.distributions(path)) == []


@provokes("package.elsewhere")
def test_a_package_that_hides_the_installed_one_is_found(tmp_path):
    install(tmp_path, "octop-scheduler", "2.0", package_too=True)
    finding = only(package.distributions([str(tmp_path)]))
    assert finding.kind.id == "package.elsewhere"
    assert f"but octop-scheduler 2.0 is installed in {tmp_path.resolve()}" in finding.what


def test_a_package_that_lies_where_it_was_installed_is_in_order(tmp_path, monkeypatch):
    install(tmp_path, "octop-scheduler", "2.0", package_too=True)
    monkeypatch.setattr(octop, "__file__", str(tmp_path / "octop" / "__init__.py"))
    assert ids(package.distributions([str(tmp_path)])) == []


# --- the environment --------------------------------------------------------------------------------------------------


@provokes("environment.unknown_variable")
def test_a_variable_that_means_nothing_is_named_with_the_one_that_may_be_meant():
    finding = only(package.variables({"OCTOP_DNS": "x", "OCTOP_DSN": "postgresql://db/shop"}))
    assert finding.what == "the variable OCTOP_DNS means nothing to Octop; did you mean OCTOP_DSN?"
    assert [step.text for step in finding.cure] == ["unset OCTOP_DNS"]


@pytest.mark.parametrize(("name", "text"), [("octop.toml", "{}"), ("pyproject.toml", "[tool.octop]\n{}")])
@provokes("environment.readable_password")
def test_a_password_that_lies_open_is_shut_away(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text.format('dsn = "postgresql://ann:S3cret@db/shop"'))
    file.chmod(0o644)
    settings = load_settings(environment={}, folder=tmp_path)
    finding = only(package.passwords(settings))
    assert finding.what == f"{file} holds a password and can be read by others (mode 644)"
    assert "S3cret" not in json.dumps(finding.as_json())
    subprocess.run(["/bin/sh", "-c", finding.cure[0].text], check=True)
    assert ids(package.passwords(settings)) == []


def test_a_dsn_without_a_password_or_from_elsewhere_may_be_read(tmp_path):
    (tmp_path / "octop.toml").write_text('dsn = "postgresql://ann@db/shop"')
    assert ids(package.passwords(load_settings(environment={}, folder=tmp_path))) == []
    environment = {"OCTOP_DSN": "postgresql://ann:S3cret@db/shop"}
    assert ids(package.passwords(load_settings(environment=environment, folder=tmp_path))) == []
    assert os.access(tmp_path / "octop.toml", os.R_OK)
