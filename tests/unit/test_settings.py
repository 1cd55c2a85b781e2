import pytest

from octop.model.errors import ConfigurationError, InvalidSettingError, UnknownSettingError
from octop.model.settings import LIBPQ_DSN, load_settings, masked_dsn


@pytest.fixture
def folder(tmp_path):
    inner = tmp_path / "project" / "src"
    inner.mkdir(parents=True)
    return inner


def test_nothing_said_means_the_private_database_and_public(folder):
    found = load_settings(environment={}, folder=folder)
    assert (found.dsn, found.schema, found.app) == (None, "public", None)
    assert set(found.origins.values()) == {"default"}


def test_the_order_is_argument_environment_octop_toml_pyproject(folder):
    (folder.parent / "pyproject.toml").write_text('[tool.octop]\ndsn = "p"\nschema = "p"\napp = "p"\n')
    assert load_settings(environment={}, folder=folder).dsn == "p"
    (folder.parent / "octop.toml").write_text('dsn = "t"\nschema = "t"\n')
    environment = {"OCTOP_DSN": "e", "DATABASE_URL": "d"}
    found = load_settings(environment=environment, folder=folder)
    assert (found.dsn, found.schema, found.app) == ("e", "t", "p")
    assert found.origins == {
        "dsn": "OCTOP_DSN",
        "schema": str(folder.parent / "octop.toml"),
        "app": str(folder.parent / "pyproject.toml"),
    }
    assert load_settings(dsn="a", environment=environment, folder=folder).origins["dsn"] == "argument"
    assert load_settings(environment={"DATABASE_URL": "d"}, folder=folder).dsn == "d"


def test_libpq_variables_lead_to_libpq(folder):
    found = load_settings(environment={"PGHOST": "db", "PGDATABASE": "shop"}, folder=folder)
    assert (found.dsn, found.origins["dsn"]) == (LIBPQ_DSN, "PGHOST, PGDATABASE")
    assert load_settings(environment={"PGHOST": "db", "OCTOP_DSN": "e"}, folder=folder).dsn == "e"
    assert load_settings(environment={"PGPASSWORD": "x"}, folder=folder).dsn is None


def test_an_empty_variable_says_nothing(folder):
    assert load_settings(environment={"OCTOP_DSN": "", "DATABASE_URL": "d"}, folder=folder).dsn == "d"


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
def test_passwords_are_masked_in_both_forms(dsn, shown):
    assert masked_dsn(dsn) == shown
    assert "cret" not in repr(load_settings(dsn=dsn, environment={}))
