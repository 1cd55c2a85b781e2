"""`octop tasks export`."""

import csv
import io
import json

import pytest

from octop.model.errors import DatabaseUnreachableError
from tests.system.by_hand import add_frozen, enqueue, fill_shop


@pytest.fixture
def shop(octop, database):
    return fill_shop(octop, database)


def test_all_columns_are_exported_line_by_line(octop, rows, shop):
    lines = [json.loads(line) for line in octop("tasks", "export").splitlines()]
    assert {each["id"] for each in lines} == set(shop.values())
    columns = {
        name
        for (name,) in rows.execute(
            "select column_name::text from information_schema.columns where table_name = 'octop_tasks'"
        )
    }
    assert all(set(each) == columns for each in lines)
    (failed,) = (each for each in lines if each["status"] == "failed")
    assert failed["payload"] == {"user": {"id": 42, "name": "Ann Lee"}, "n": 2.5}
    assert [
        json.loads(line)["id"] for line in octop("tasks", "export", "status:failed", "--queue", "default").splitlines()
    ] == [shop["failed"]]
    assert octop("tasks", "export", "queue:nothing") == ""
    assert "No such task" in octop.err


def test_pages_leave_no_task_out_and_show_none_twice(octop, rows):
    add_frozen(rows, 2500)
    ids = [json.loads(line)["id"] for line in octop("tasks", "export").splitlines()]
    assert len(set(ids)) == len(ids) == 2500
    assert ids == sorted(ids, reverse=True)
    for limit in (1, 1000, 1500, 2000):
        assert [
            json.loads(line)["id"] for line in octop("tasks", "export", "--limit", limit, "-o", "-").splitlines()
        ] == ids[:limit]


def test_a_csv_is_exact_and_safe_for_spreadsheets(octop, rows):
    payload = '{"n": 12345678901234567890.12345678901234567890, "text": "a,\\"b\\"\\n=1"}'
    enqueue(octop, "send", payload, "--tenant", "=1+1", "--lane", "-2", "--queue", "@mail", "--tag", "x,y")
    text = octop("tasks", "export", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (row["tenant"], row["lane"], row["queue"]) == ("'=1+1", "'-2", "'@mail")
    assert "12345678901234567890.12345678901234567890" in row["payload"]
    assert json.loads(row["payload"])["text"] == 'a,"b"\n=1'
    assert (row["tags"], row["priority"], row["completed_at"], row["result"]) == ('["x,y"]', "5", "", "")
    assert text.startswith("id,task_type,status,queue,")


def test_a_file_appears_when_it_is_complete(octop, rows, tmp_path, monkeypatch):
    add_frozen(rows, 3)
    target = tmp_path / "out.jsonl"
    target.write_text("old")
    octop("tasks", "export", "-o", target)
    assert len(target.read_text().splitlines()) == 3
    assert octop.err == f"3 tasks in {target}\n"

    def breaks(connection, selection, **options):
        yield "{}"
        message = "gone"
        raise DatabaseUnreachableError(message)

    monkeypatch.setattr("octop.engine.filtered.stream_tasks", breaks)
    octop("tasks", "export", "-o", target, code=4)
    assert len(target.read_text().splitlines()) == 3
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]
    octop("tasks", "export", "-o", tmp_path / "no" / "x", code=1)
    assert "No such file" in octop.err
