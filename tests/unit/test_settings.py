import pytest

from octop import Octop
from octop.engine.connect import open_connection
from octop.model.errors import ConfigurationError, InvalidSettingError, UnknownSettingError
from octop.model.settings import LIBPQ_DSN, Settings, load_settings, masked_dsn, unknown_variables


@pytest.fixture
def folder(tmp_path):
    inner = tmp_path / "project" / "src"
    inner.mkdir(parents=True)
    return inner


def test_nothing_said_means_the_private_database_and_public(folder):
    found = load_settings(environment={}, folder=folder)
    assert (found.dsn, found.schema, found.app) == (None, "public", None)
    assert set(found.origins.values()) == {"default"}


def of(name):
    return f"dbname={name}"


def test_the_order_is_argument_environment_octop_toml_pyproject(folder):
    (folder.parent / "pyproject.toml").write_text('[tool.octop]\ndsn = "dbname=p"\nschema = "p"\napp = "p"\n')
    assert load_settings(environment={}, folder=folder).dsn == of("p")
    (folder.parent / "octop.toml").write_text('dsn = "dbname=t"\nschema = "t"\n')
    environment = {"OCTOP_DSN": of("e"), "DATABASE_URL": of("d")}
    found = load_settings(environment=environment, folder=folder)
    assert (found.dsn, found.schema, found.app) == (of("e"), "t", "p")
    assert found.origins == {
        "dsn": "OCTOP_DSN",
        "schema": f"{folder.parent / 'octop.toml'}:2",
        "app": f"{folder.parent / 'pyproject.toml'}:4",
    }
    assert load_settings(dsn=of("a"), environment=environment, folder=folder).origins["dsn"] == "argument"
    assert load_settings(environment={"DATABASE_URL": of("d")}, folder=folder).dsn == of("d")


def test_libpq_variables_lead_to_libpq(folder):
    found = load_settings(environment={"PGHOST": "db", "PGDATABASE": "shop"}, folder=folder)
    assert (found.dsn, found.origins["dsn"]) == (LIBPQ_DSN, "PGHOST, PGDATABASE")
    assert load_settings(environment={"PGHOST": "db", "OCTOP_DSN": of("e")}, folder=folder).dsn == of("e")
    assert load_settings(environment={"PGPASSWORD": "x"}, folder=folder).dsn is None


def test_an_empty_variable_says_nothing(folder):
    assert load_settings(environment={"OCTOP_DSN": "", "DATABASE_URL": of("d")}, folder=folder).dsn == of("d")


@pytest.mark.parametrize(
    "dsn", ["", "postgresql://db/shop", "postgres:///shop", "host=db", " dbname = 'a b'", "service=shop"]
)
def test_a_url_of_postgresql_and_words_are_dsns(dsn, folder):
    assert load_settings(dsn=dsn, environment={}, folder=folder).dsn == dsn


@pytest.mark.parametrize(
    "dsn",
    ["foo", "mysql://ann:s3cret@db/shop", "ann:s3cret@db/shop", "sqlite:///shop.db", "postgresql+psycopg://db/shop"],
)
def test_a_dsn_that_is_none_is_refused_with_its_origin_and_without_secrets(dsn, folder):
    with pytest.raises(
        ConfigurationError, match=r"\(from DATABASE_URL\) is not a PostgreSQL URL or key=value"
    ) as caught:
        load_settings(environment={"DATABASE_URL": dsn}, folder=folder)
    assert "cret" not in str(caught.value)
    assert "postgresql://user@host:5432/database" in caught.value.hint
    assert caught.value.exit_code == 2


def test_an_application_refuses_a_dsn_that_is_none():
    with pytest.raises(ConfigurationError, match="the DSN 'foo' is not a PostgreSQL URL"):
        Octop(dsn="foo").enqueue_sync("add", {"n": 1})


@pytest.mark.parametrize("dsn", ["host=db and s3cret words", "dbname=shop pasword=s3cret", "postgresql://db/%zz"])
def test_a_dsn_that_only_libpq_can_refuse_is_refused_in_the_same_words(dsn):
    with pytest.raises(ConfigurationError, match="the DSN is not a PostgreSQL URL or key=value words") as caught:
        open_connection(dsn, application_name="test")
    assert "cret" not in str(caught.value)


def test_variables_that_mean_nothing_are_found_with_the_nearest_name():
    environment = {
        "OCTOP_DNS": "x",
        "OCTOP_SCHEMAS": "x",
        "OCTOP_COLOUR_OF_THE_SEA": "x",
        "OCTOP_DSN": "x",
        "OCTOP_TEST_POSTGRES": "18",
        "_OCTOP_COMPLETE": "x",
        "HOME": "/",
    }
    assert unknown_variables(environment) == {
        "OCTOP_COLOUR_OF_THE_SEA": None,
        "OCTOP_DNS": "OCTOP_DSN",
        "OCTOP_SCHEMAS": "OCTOP_SCHEMA",
    }
    assert unknown_variables({}) == {}


def test_an_unknown_key_is_refused_with_file_and_key(folder):
    (folder / "octop.toml").write_text('dns = "postgresql://ann:secret@db"\n')
    with pytest.raises(UnknownSettingError, match=r"octop\.toml holds an unknown key 'dns'") as caught:
        load_settings(environment={}, folder=folder)
    assert "secret" not in str(caught.value)


def test_a_value_that_is_no_text_is_refused(folder):
    (folder / "octop.toml").write_text("schema = 5\n")
    with pytest.raises(InvalidSettingError, match="schema"):
        load_settings(environment={}, folder=folder)


def test_a_broken_octop_toml_is_refused_and_a_broken_pyproject_is_not_ours(folder):
    (folder / "pyproject.toml").write_text("[[[")
    assert load_settings(environment={}, folder=folder).dsn is None
    (folder / "octop.toml").write_text("[[[")
    with pytest.raises(ConfigurationError, match=r"octop\.toml can not be read"):
        load_settings(environment={}, folder=folder)


def test_a_pyproject_without_our_table_does_not_hide_one_above(folder):
    (folder / "pyproject.toml").write_text("[project]\n")
    (folder.parent / "pyproject.toml").write_text('[tool.octop]\nschema = "jobs"\n')
    assert load_settings(environment={}, folder=folder).schema == "jobs"


@pytest.mark.parametrize("schema", ["", "x" * 64, "a\nb"])
def test_a_schema_that_is_no_name_is_refused(schema, folder):
    with pytest.raises(InvalidSettingError):
        load_settings(schema=schema, environment={}, folder=folder)


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://ann:s3cret@db:5432/shop", "postgresql://ann:***@db:5432/shop"),
        ("postgresql+psycopg://ann:s3c%40ret@db/shop", "postgresql+psycopg://ann:***@db/shop"),
        ("postgresql://ann:s3@cret@db/shop", "postgresql://ann:***@db/shop"),
        (
            "postgresql://ann@db/shop?password=s3cret&sslmode=require",
            "postgresql://ann@db/shop?password=***&sslmode=require",
        ),
        ("host=db password=s3cret dbname=shop", "host=db password=*** dbname=shop"),
        (r"host=db password = 's3 c\'ret' dbname=shop", "host=db password = *** dbname=shop"),
        ("postgresql:///shop", "postgresql:///shop"),
    ],
)
def test_c113_passwords_are_masked_in_both_forms(dsn, shown):
    assert masked_dsn(dsn) == shown
    assert "cret" not in repr(Settings(dsn, "public", None))
