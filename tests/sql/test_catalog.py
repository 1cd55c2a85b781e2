"""Rules that are read from the catalog and from the files: owners, paths, comments, grants, SQLSTATEs."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from octop.engine import script
from octop.model import errors
from tests.servers import HOUSE
from tests.sql.crew import column, rows
from tools.errors_page import PAGE, classes, page

OURS = "pronamespace = 'public'::regnamespace and proname ~ '^_?octop_'"
INLINED = {
    # small, SQL only, and without a name that a path could turn: pinning would cost 2-3 µs per row
    "_octop_by_hand(text)",
    "_octop_caller()",
    "_octop_counted_as(text)",
    "_octop_counted_on(text,timestamp with time zone,timestamp with time zone)",
    "_octop_has_control(text)",
    "_octop_lease()",
    "_octop_now()",
    "_octop_order_of(text,jsonb,jsonb,text)",
    "_octop_tags_problem(text[])",
    "_octop_unique_hold(text,text,text,text)",
    "octop_config_keys()",
    "octop_uuid7()",
    "octop_uuid_time(uuid)",
    "_octop_knows(text[],integer[],text,integer)",
    "_octop_is_counted(octop_queues)",
    "_octop_lane_gate(octop_queues,text,text,jsonb)",
    "_octop_pair(text,text)",
    "_octop_runs(text)",
    "_octop_schedule_called(text,text)",
    "_octop_schedule_defaults()",
    "_octop_schedule_values()",
    "_octop_slot_check_at(octop_schedules,timestamp with time zone)",
    "_octop_token_span(double precision)",
    "_octop_tokens(text,text,text,double precision,integer)",
    "_octop_parked_by(text,integer)",
    "_octop_in_force(timestamp with time zone)",
    "_octop_is_held(text[],text,text,text)",
}
INDEXES_OF_DAYS = r"^octop_tasks_done_(\d{8}|stray)"


def sql_files():
    for folder in ("migrations", "functions", "install", "uninstall"):
        for file in resources.files("octop.sql").joinpath(folder).iterdir():
            if file.name.endswith(".sql"):
                yield f"{folder}/{file.name}", file.read_text(encoding="utf-8")


def test_no_text_depends_on_whether_backslashes_escape_in_the_session():
    """Bodies are parsed at their first call, under standard_conforming_strings of whoever calls: a backslash stands in E'' alone."""
    for name, text in sql_files():
        plain = re.sub(r"--[^\n]*", "", text)
        literals = re.findall(r"(\w?)'((?:[^']|'')*)'", plain)
        assert [body for prefix, body in literals if "\\" in body and prefix not in {"E", "e"}] == [], name


# --- functions -------------------------------------------------------------------------------------------------------


def test_there_is_nothing_in_the_schema_but_ours(dba):
    assert (
        column(
            dba,
            f"select oid::regprocedure::text from pg_proc where pronamespace = 'public'::regnamespace and not ({OURS})",
        )
        == []
    )
    assert (
        column(
            dba,
            "select relname::text from pg_class where relnamespace = 'public'::regnamespace and relname !~ '^_?octop_'",
        )
        == []
    )


def test_every_function_pins_its_path_or_is_parsed_when_it_is_made(dba):
    free = rows(
        dba,
        "select oid::regprocedure::text, prosqlbody is not null, prosecdef from pg_proc where " + OURS
        + " and not exists (select from unnest(proconfig) c where c like 'search_path=%')",
    )  # fmt: skip
    assert {name for name, _, _ in free} == INLINED
    assert {(parsed, definer) for _, parsed, definer in free} == {(True, False)}


def test_the_pinned_path_ends_with_pg_temp_and_names_no_other_schema(dba):
    paths = column(dba, f"select distinct c from pg_proc, unnest(proconfig) c where {OURS} and c like 'search_path=%'")
    assert paths == ["search_path=public, pg_temp"]


def test_every_object_belongs_to_the_owner_role_who_is_no_superuser_and_cannot_log_in(dba):
    owners = column(
        dba,
        "select distinct o::regrole::text from (select proowner from pg_proc where pronamespace = 'public'::regnamespace"
        " union select relowner from pg_class where relnamespace = 'public'::regnamespace"
        " union select typowner from pg_type where typnamespace = 'public'::regnamespace) x (o)",
    )
    assert owners == ["octop_owner"]
    assert rows(
        dba,
        "select rolname::text, rolsuper, rolcanlogin, rolcreaterole, rolcreatedb, rolbypassrls,"
        " rolreplication from pg_roles where rolname ~ '^octop_(owner|producer|worker|operator|viewer)$' order by 1",
    ) == [(f"octop_{role}", *[False] * 6) for role in ("operator", "owner", "producer", "viewer", "worker")]
    assert (
        rows(
            dba,
            "select * from pg_auth_members where roleid::regrole::text like 'octop_%' and member::regrole::text like 'octop_%'",
        )
        == []
    )


def test_every_function_and_table_function_has_a_comment_that_is_a_sentence(dba):
    for name, text in rows(
        dba, f"select oid::regprocedure::text, obj_description(oid, 'pg_proc') from pg_proc where {OURS}"
    ):
        assert text, name
        assert len(text) > 15, name
        assert text.rstrip()[-1] in ".;)", name


def test_a_public_function_that_raises_names_its_sqlstates_in_its_comment(dba):
    known = {each.sqlstate for each in classes() if each.sqlstate}
    for name, source, text in rows(
        dba,
        f"select proname::text, prosrc, obj_description(oid, 'pg_proc') from pg_proc where {OURS} and"
        f" proname ~ '^octop_' and prorettype <> 'trigger'::regtype",
    ):
        raised = set(re.findall(r"OC\d{3}", source))
        assert raised <= known, name
        assert raised <= set(re.findall(r"OC\d{3}", text)), (name, raised)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_every_table_view_sequence_and_column_has_a_comment(dba):
    bare = column(
        dba,
        "select c.relname::text from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'S')"
        f" and obj_description(c.oid, 'pg_class') is null and c.relname !~ '{INDEXES_OF_DAYS}'"
        " and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'i')",
    )
    assert bare == []
    bare = column(
        dba,
        "select c.relname || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid ="
        " c.oid and a.attnum > 0 and not a.attisdropped"
        " where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition"
        " and not (c.relkind = 'v' and c.relname ~ '^_') and col_description(c.oid, a.attnum) is null",
    )
    assert bare == []


def test_every_check_and_every_index_of_ours_has_a_name_and_a_comment(dba):
    bare = column(
        dba,
        "select conrelid::regclass || ' ' || conname from pg_constraint where connamespace = 'public'::regnamespace and contype = 'c'"
        " and obj_description(oid, 'pg_constraint') is null",
    )
    assert bare == []
    bare = column(
        dba,
        "select c.relname::text from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = 'public'::regnamespace"
        f" and not i.indisprimary and c.relname !~ '{INDEXES_OF_DAYS}' and obj_description(c.oid, 'pg_class') is null",
    )
    assert bare == []
    assert (
        column(
            dba,
            "select conname::text from pg_constraint where connamespace = 'public'::regnamespace and"
            " contype = 'c' and conname ~ '_check\\d*$'",
        )
        == []
    )


def test_nothing_has_a_foreign_key_to_the_tasks(dba):
    assert (
        column(
            dba, "select conname::text from pg_constraint where connamespace = 'public'::regnamespace and contype = 'f'"
        )
        == []
    )


def test_the_hot_leaf_has_the_indexes_that_were_weighed_and_no_more(dba):
    found = column(dba, "select indexname::text from pg_indexes where tablename = 'octop_tasks_live' order by 1")
    assert found == [
        f"octop_tasks_live_{each}"
        for each in ("blocked", "cancel", "failed", "lanes", "one_per_unique_key", "pkey", "ready", "running")
    ]


def test_no_trigger_stands_on_a_leaf_but_the_refusals_of_strays_and_of_unknown_statuses(dba):
    found = rows(
        dba,
        "select t.tgrelid::regclass::text, t.tgname::text from pg_trigger t join pg_class c on c.oid"
        " = t.tgrelid where not t.tgisinternal and c.relispartition",
    )
    assert sorted(found) == [
        ("octop_tasks_done_stray", "octop_tasks_done_stray_refuse"),
        ("octop_tasks_unknown", "octop_tasks_unknown_refuse"),
    ]


# --- grants ----------------------------------------------------------------------------------------------------------


def test_public_has_no_right_on_anything_of_ours(dba):
    assert (
        column(
            dba,
            f"select oid::regprocedure::text from pg_proc where {OURS} and (proacl is null or exists"
            f" (select from aclexplode(proacl) a where a.grantee = 0))",
        )
        == []
    )
    assert (
        column(
            dba,
            "select relname::text from pg_class c, aclexplode(c.relacl) a where relnamespace = 'public'::regnamespace and a.grantee = 0",
        )
        == []
    )
    assert (
        column(
            dba,
            "select attname::text from pg_attribute t join pg_class c on c.oid = t.attrelid,"
            " aclexplode(t.attacl) a where relnamespace = 'public'::regnamespace and a.grantee = 0",
        )
        == []
    )


def test_there_is_no_grant_on_a_leaf_or_on_a_private_table_ever(dba):
    granted = rows(
        dba,
        "select c.relname::text, a.grantee::regrole::text, a.privilege_type from pg_class c, aclexplode(c.relacl) a"
        " where c.relnamespace = 'public'::regnamespace and a.grantee <> 'octop_owner'::regrole and (c.relispartition or c.relname ~ '^_')",
    )
    assert granted == []
    granted = rows(
        dba,
        "select c.relname::text, t.attname::text from pg_class c join pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a"
        " where c.relnamespace = 'public'::regnamespace and a.grantee <> 'octop_owner'::regrole and (c.relispartition or c.relname ~ '^_')",
    )
    assert granted == []


def test_each_role_has_exactly_these_rights_on_tables(dba):
    found = rows(
        dba,
        "select a.grantee::regrole::text, a.privilege_type, count(*) from pg_class c, aclexplode(c.relacl) a"
        " where c.relnamespace = 'public'::regnamespace and c.relkind <> 'S' and a.grantee <>"
        " 'octop_owner'::regrole group by 1, 2 order by 1, 2",
    )
    assert [row[:2] for row in found] == [
        ("octop_operator", "DELETE"),  # octop_config: back to the default; octop_queues, octop_task_types: a typo
        ("octop_operator", "INSERT"),
        ("octop_operator", "SELECT"),
        ("octop_operator", "UPDATE"),
        ("octop_producer", "SELECT"),
        ("octop_viewer", "SELECT"),
        ("octop_worker", "SELECT"),
    ]
    assert {row[:2]: row[2] for row in found}["octop_operator", "UPDATE"] == 1
    assert {row[:2]: row[2] for row in found}["octop_operator", "INSERT"] == 1
    assert {row[:2]: row[2] for row in found}[
        "octop_operator", "DELETE"
    ] == 4  # octop_config, octop_queues, octop_schedules, octop_task_types


def test_each_function_that_people_or_programs_may_call_is_theirs_on_purpose(dba):
    acts = {
        "octop_retry",
        "octop_retry_many",
        "octop_delete",
        "octop_delete_many",
        "octop_hold",
        "octop_lift",
        "octop_pause",
        "octop_resume",
        "octop_scale",
        "octop_set_queue",
        "octop_freeze",
        "octop_thaw",
        "octop_config_set",
        "octop_drop_days",
        "octop_put_schedule",
        "octop_drop_schedule",
        "octop_pause_schedule",
        "octop_resume_schedule",
        "octop_run_schedule",
        "octop_backfill_schedule",
        "octop_cancel_backfill",
    }
    work = {
        "octop_exchange",
        "octop_sweep",
        "octop_beat",
        "octop_register",
        "octop_deregister",
        "octop_drain",
        "octop_owned",
        "octop_sleep",
        "octop_control",
    }
    for role, forbidden in (
        ("producer", acts | work),
        ("worker", acts | {"octop_enqueue", "octop_cancel", "octop_cancel_many"}),
        ("viewer", acts | work),
        ("operator", work - {"octop_sweep"}),  # who repairs may do what a sweep would do
    ):
        callable_ = set(
            column(
                dba,
                f"select proname::text from pg_proc where {OURS} and has_function_privilege('octop_{role}', oid, 'execute')",
            )
        )
        assert callable_ & forbidden == set(), role
        assert all(not name.startswith("_octop") or name in {
            "_octop_now", "_octop_caller", "_octop_setting", "_octop_summary", "_octop_counted", "_octop_queue_counts",
            "_octop_queue_limits", "_octop_schedule_changes",
        } for name in callable_), role  # fmt: skip


def test_the_grants_script_changes_nothing_on_a_fresh_install(database, dba):
    every = (
        "select relname::text, relacl::text from pg_class where relnamespace ="
        " 'public'::regnamespace union all select oid::regprocedure::text, proacl::text from pg_proc"
        " where pronamespace = 'public'::regnamespace order by 1"
    )
    before = rows(dba, every)
    database.psql(script.grants_script(script.Place()))
    assert rows(dba, every) == before


# --- views and errors ------------------------------------------------------------------------------------------------


def test_every_view_that_is_granted_is_a_security_barrier(dba):
    bare = column(
        dba,
        "select relname::text from pg_class where relnamespace = 'public'::regnamespace and relkind = 'v' and relname ~ '^octop_'"
        " and not coalesce(reloptions && array['security_barrier=true', 'security_barrier'], false)",
    )
    assert bare == []


def test_every_sqlstate_in_the_sql_is_a_class_and_the_other_way_round():
    raised = {sqlstate for _, text in sql_files() for sqlstate in re.findall(r"'(OC\d{3})'", text)}
    ours = {each.sqlstate for each in classes() if each.sqlstate and each.sqlstate.startswith("OC")}
    assert raised == ours
    for each in classes():
        holders = [other for other in classes() if other.sqlstate and other.sqlstate == each.sqlstate]
        assert each.sqlstate is None or holders == [each], each


def test_every_raise_of_ours_has_a_sqlstate_and_a_hint():
    for name, text in sql_files():
        for statement in re.findall(r"raise exception.*?;(?:\s|$)", text, re.DOTALL):
            assert "errcode" in statement, (name, statement)
            assert "hint" in statement, (name, statement)


def test_the_tree_at_the_top_of_the_file_is_the_tree(dba):
    drawn = re.findall(r"(\w+Error)\b", (errors.__doc__ or "").partition("::")[2])
    assert drawn == [each.__name__ for each in classes()]
    for each in classes():
        if each.sqlstate and each.sqlstate.startswith("OC"):
            assert re.search(rf"{each.__name__}\s+{each.sqlstate}\n", errors.__doc__ or ""), each


def test_the_page_in_the_docs_is_that_of_the_classes():
    assert PAGE.read_text(encoding="utf-8") == page(), "python tools/errors_page.py writes it again"
    for each in classes():
        assert f"`{each.__name__}`" in page()


@pytest.mark.parametrize("part", ["functions", "migrations", "install", "uninstall"])
def test_sql_files_begin_with_a_header_and_stay_within_a_screenful_of_duties(part):
    for name, text in sql_files():
        if name.startswith(part):
            assert text.startswith("-- "), name
            assert len(text.splitlines()) < 500, name
            assert not re.search(r"\bTODO\b|\bFIXME\b", text), name


def test_every_call_in_python_has_the_name_of_a_function_in_the_database(dba):
    from octop.engine import calls

    ours = set(column(dba, f"select proname::text from pg_proc where {OURS}")) | {"octop_config_reset"}  # a DELETE
    assert set(calls.__all__) - ours == set()
    assert HOUSE.exists()
