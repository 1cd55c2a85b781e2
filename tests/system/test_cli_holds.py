"""`octop holds` on a real database: what is held, by whom, until when, and what is refused."""


def test_each_kind_is_held_listed_and_lifted(octop):
    octop("enqueue", "greet", "--queue", "mail")
    for kind, name, *rest in (
        ("queue", "mail"),
        ("type", "greet"),
        ("tenant", "acme"),
        ("lane", "a", "--queue", "mail", "--tenant", "acme"),
    ):
        assert octop("holds", "add", kind, name, *rest, "--reason", "unpaid") == f"The {kind} {name} is held.\n"
        assert "was held already" in octop("holds", "add", kind, name, *rest)
    listed = octop.json("holds", "list")
    assert [(row["kind"], row["target"], row["queue"], row["tenant"], row["reason"]) for row in listed] == [
        ("queue", "mail", "", "", "unpaid"),
        ("task_type", "greet", "", "", "unpaid"),
        ("tenant", "acme", "", "", "unpaid"),
        ("lane", "a", "mail", "acme", "unpaid"),
    ]
    assert octop("holds", "list").splitlines()[4].split()[:3] == ["lane", "a", "mail/acme"]
    for kind, name, *rest in (
        ("queue", "mail"),
        ("type", "greet"),
        ("tenant", "acme"),
        ("lane", "a", "--queue", "mail"),
    ):
        more = ["--tenant", "acme"] if kind == "lane" else []
        assert octop("holds", "lift", kind, name, *rest, *more) == f"The {kind} {name} is held no more.\n"
        assert octop("holds", "lift", kind, name, *rest, *more) == f"The {kind} {name} was not held.\n"
    assert "Nothing is held." in octop("holds", "list") + octop.err


def test_a_hold_ends_by_itself_when_it_is_told_so(octop):
    octop("enqueue", "greet", "--queue", "mail")
    octop("queues", "pause", "mail", "--for", "2h")
    octop("types", "freeze", "greet", "--yes", "--until", "2100-01-31T09:00Z")
    octop("holds", "add", "tenant", "acme", "--for", "90m")
    ends = {row["target"]: row["ends_in_seconds"] for row in octop.json("holds", "list")}
    assert 7000 < ends["mail"] <= 7200
    assert 5000 < ends["acme"] <= 5400
    assert ends["greet"] > 2e9
    assert " until " in octop("queues", "show", "mail")
    assert " until 2100-01-31 09:00:00+00:00" in octop("types", "show", "greet")


def test_bad_holds_are_refused(octop):
    octop("holds", "add", "lane", "a", code=2)
    assert "named with its queue" in octop.err
    octop("holds", "add", "tenant", "acme", "--queue", "mail", code=2)
    octop("holds", "add", "tenant", "acme", "--for", "0", code=2)
    octop("holds", "add", "tenant", "acme", "--for", "1h", "--until", "2100-01-31T09:00Z", code=2)
    octop("holds", "add", "tenant", "acme", "--until", "2001-01-31T09:00Z", code=2)
    assert "has passed" in octop.err
    octop("holds", "add", "tenant", "x" * 201, code=2)
    assert octop.json("holds", "list") == []
