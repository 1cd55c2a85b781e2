"""`octop alerts`, and the options for watermarks and types that freeze, on a real database."""


def alert(rows, subject):
    rows.execute("select _octop_alert('type_frozen', %s, 'error', 'It is frozen.', '{}')", (subject,))


def test_alerts_are_listed_and_acknowledged(octop, rows):
    assert "No alert is open." in octop("alerts", "list") + octop.err
    for subject in ("send", "charge", "charge"):
        alert(rows, subject)
    found = octop.json("alerts", "list")
    assert [(each["subject"], each["count"], each["deliveries"]) for each in found] == [
        ("charge", 2, {}),
        ("send", 1, {}),
    ]
    assert "It is frozen." in octop("alerts", "list")
    assert octop("alerts", "ack", found[0]["id"]) == "1 acknowledged.\n"
    assert octop("alerts", "ack", found[0]["id"]) == "None of them was open.\n"
    assert [each["subject"] for each in octop.json("alerts", "list")] == ["send"]
    assert len(octop.json("alerts", "list", "--all")) == 2
    assert octop.json("alerts", "ack", "--all") == {"acknowledged": 1}
    octop("alerts", "ack", code=2)
    octop("alerts", "ack", 1, "--all", code=2)


def test_a_viewer_reads_alerts_and_may_not_acknowledge_them(octop, database, rows):
    alert(rows, "send")
    dsn = database.url_as(database.make_role("octop_viewer"))
    assert len(octop.json("--dsn", dsn, "alerts", "list")) == 1
    octop("--dsn", dsn, "alerts", "ack", "--all", code=6)


def test_watermarks_are_set_shown_and_reset(octop):
    octop("queues", "set", "mail", "--watermark", 10000, "--watermark-low", 2000, "--yes")
    octop("queues", "set", "report", "--critical", "no", "--yes")
    text = octop("queues", "show", "mail")
    assert "watermark" in text
    assert "10000" in text
    assert octop.json("queues", "show", "report")["critical"] is False
    octop("queues", "set", "mail", "--watermark-low", 10000, code=2)
    assert "watermark_low must be 0 to watermark_high - 1 (9999), not 10000" in octop.err
    octop("queues", "set", "mail", "--watermark", "default", "--watermark-low", "default")
    assert octop.json("queues", "show", "mail")["watermark_high"] is None


def test_a_type_is_told_to_freeze_with_its_task(octop, rows):
    rows.execute('select octop_declare_task_types(\'[{"name": "charge"}]\')')
    octop("types", "set", "charge", "--freeze-type-on-exhaustion", "yes")
    assert octop.json("types", "show", "charge")["freeze_type_on_exhaustion"] is True
    octop("types", "reset", "charge")
    assert octop.json("types", "show", "charge")["freeze_type_on_exhaustion"] is None
