"""What every check may use: the connection, the names, and how its cures are to be typed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from octop.cli.findings import Step, psql, shell
from octop.cli.place import flags
from octop.engine.diagnosis import look, looking, picture, rights, server
from octop.engine.diagnosis.words import Difference, name, within
from octop.engine.install import Installed, status
from octop.engine.private_database import default_directory
from octop.model.settings import Settings

if TYPE_CHECKING:
    from octop.engine.call import Call
    from octop.engine.connect import EngineConnection
    from octop.engine.diagnosis.picture import Picture
    from octop.engine.rows import Row

R = TypeVar("R")


@dataclass
class Examination:
    """One run of the doctor on one database.

    Attributes:
        connection: To it.
        settings: What this process started with.
        longer_than: Transactions that are older hold back vacuum too long, in seconds.
        check_seconds: Time for one question.
    """

    connection: EngineConnection
    settings: Settings
    longer_than: float = 300.0
    check_seconds: float = 5.0

    def ask(self, call: Call[R], *, also: str | None = None) -> R:
        """Ask in a read-only transaction that is bounded in time; `also` is a schema that the call names beside ours."""
        return look(self.connection, call, seconds=self.check_seconds, also=also)

    @property
    def schema(self) -> str:
        """Return the name of the schema."""
        return self.settings.schema

    @cached_property
    def installed(self) -> Installed:
        """Return what is installed, beside what this package brings."""
        with looking(self.connection, seconds=self.check_seconds):
            return status(self.connection, self.schema)

    @cached_property
    def place(self) -> Row:
        """Return where we are."""
        return self.ask(server.place())

    @cached_property
    def picture(self) -> Picture:
        """Return the schema as it is now."""
        return picture.taken(self.connection, self.schema, seconds=self.check_seconds)

    @cached_property
    def installation(self) -> Row:
        """Return by which roles the installation was made, and what belongs to others."""
        return self.ask(rights.installation(self.schema))

    @property
    def owner(self) -> str:
        """Return the role that should own the installation."""
        return str(self.installation["owner"])

    @property
    def role_prefix(self) -> str:
        """Return what stands before the names of the roles."""
        return str(self.installation["role_prefix"])

    @cached_property
    def private(self) -> bool:
        """Tell whether this is the private development database: it has one login, a superuser, and settings of ours."""
        if self.settings.dsn is None:
            return True
        directory = self.place["data_directory"]
        return directory is not None and Path(directory).resolve() == (default_directory() / "data").resolve()

    @cached_property
    def logins(self) -> frozenset[str]:
        """Return who we are here: what takes a right from these takes it from ourselves."""
        return frozenset((self.place["login"], self.place["role"]))

    # --- cures ---

    def sql(self, text: str) -> str:
        """Return the qualified name of an object of ours, for a cure."""
        return within(self.schema, text)

    def octop(self, words: str) -> tuple[Step, ...]:
        """Return a step that runs `octop` on this database."""
        return shell(f"octop {words}{flags(self.settings)}")

    def again(self) -> tuple[Step, ...]:
        """Return the step that puts functions, views, triggers and grants in place again."""
        prefix = "" if self.role_prefix == "octop_" else f" --role-prefix {shlex.quote(self.role_prefix)}"
        return self.octop(f"migrate --again{prefix}")

    def steps(self, difference: Difference) -> tuple[Step, ...]:
        """Return what puts a difference right."""
        return psql(*difference.sql) + (self.again() if difference.again else ())

    def role(self, role: str) -> str:
        """Return the name of a role as SQL has it."""
        return name(role)

    def worker(self, words: str) -> tuple[Step, ...]:
        """Return a step that starts a worker of the application, as far as its name is known."""
        application = self.settings.app or "MODULE:ATTRIBUTE"
        return self.octop(f"worker -A {shlex.quote(application)}{words}")
