import pytest

from octop.engine import admission
from octop.engine.admission import admit
from octop.model.errors import ConfigurationError


@pytest.fixture
def shop_alone(monkeypatch):
    """A run of tests that may use databases whose names begin with shop_test, and no other."""
    for name in ("PGDATABASE", "PGUSER", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(admission, "runs_of_tests", [["shop_test*"]])


@pytest.mark.parametrize(
    ("dsn", "variables"),
    [
        ("postgresql://ann@db/shop_test?sslmode=disable", {}),
        ("host=db dbname=shop_test_gw1", {}),
        ("host=db", {"PGDATABASE": "shop_test"}),
        ("fallback_application_name=octop", {"PGDATABASE": "shop_test"}),
        ("user=shop_test", {}),
        ("", {"PGUSER": "shop_test"}),
        ("postgresql:///octop_test_1", {}),
        ("postgresql:///octop_kept_1", {}),
    ],
)
def test_the_name_is_the_one_that_libpq_will_use(shop_alone, monkeypatch, dsn, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    admit(dsn)


@pytest.mark.parametrize(
    ("dsn", "variables"),
    [
        (None, {"PGDATABASE": "shop_test"}),
        ("postgresql://ann@db/shop", {"PGDATABASE": "shop_test"}),
        ("postgresql://shop_test@db/shop", {}),
        ("service=shop user=shop_test", {}),
        ("host=db user=ann", {"PGUSER": "shop_test"}),
        ("what=ever dbname=shop_test", {}),
    ],
)
def test_every_other_database_is_refused(shop_alone, monkeypatch, dsn, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match="none of their databases is in use"):
        admit(dsn)


def test_a_star_allows_all_the_innermost_run_counts_and_without_one_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(admission, "runs_of_tests", [[], ["*"]])
    admit(None)
    admit("service=shop")
    admission.runs_of_tests.reverse()
    with pytest.raises(ConfigurationError, match="the private development database"):
        admit(None)
    admission.runs_of_tests.clear()
    admit(None)


def test_the_message_shows_no_password(shop_alone):
    with pytest.raises(ConfigurationError) as caught:
        admit("postgresql://ann:secret@db/shop")
    assert "postgresql://ann:***@db/shop" in str(caught.value)
    assert "secret" not in str(caught.value)
