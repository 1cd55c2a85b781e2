"""What the engine warns of reaches who watches a log."""

from octop.engine import calls
from octop.engine.call import run
from octop.engine.connect import open_connection
from octop.model.ids import new_id


def test_a_chore_that_could_not_be_done_stands_in_the_log_with_its_cure(database, rows, caplog):
    database.clock.advance(days=9)  # a day is missing
    rows.execute("revoke create on schema public from octop_owner")
    with open_connection(database.url, application_name="test") as connection:
        connection.execute("do $$ begin raise notice 'octop: a notice'; raise warning 'not ours'; end $$")
        run(connection, calls.octop_sweep(new_id()))
    said = [record.getMessage() for record in caplog.records if record.name == "octop.engine.connect"]
    assert said == [
        "days of history could not be made: octop_owner may make no day in the schema public\n"
        "  hint: As the owner of the schema or a superuser: GRANT USAGE, CREATE ON SCHEMA public TO octop_owner;"
    ]
