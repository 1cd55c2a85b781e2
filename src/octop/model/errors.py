"""The tree of errors.

Each class names a situation, carries the SQLSTATE of the engine's own errors (where the engine raises it), the exit code of the
command, and says what the reader should do::

    OctopError
    ├── ConfigurationError            a setting, option or file is wrong
    │   ├── UnknownSettingError       OC201
    │   ├── InvalidSettingError       OC202
    │   └── SettingsDisagreeError     OC203
    ├── InvalidTaskError              what was enqueued or registered cannot be
    │   ├── InvalidNameError          OC110
    │   ├── InvalidPayloadError       OC111
    │   ├── PayloadTooLargeError      OC112
    │   ├── ResultTooLargeError       OC115
    │   ├── InvalidOptionError        OC113
    │   ├── InvalidTimeError          OC114
    │   ├── InvalidArgumentsError     the arguments do not fit the function
    │   ├── NotJsonError              a value has no JSON form
    │   └── ForeignConnectionError    connection= got something without a transaction
    ├── UnknownTaskTypeError          no such task type here
    ├── UnknownQueueError             no such queue
    ├── InvalidFilterError            a word of a filter is no condition
    ├── InvalidScheduleError          what was given cannot be a schedule
    │   ├── InvalidCronError          OC128
    │   ├── NeverFiresError           OC129
    │   ├── UnknownTimeZoneError      OC130
    │   ├── InvalidCountError         OC131
    │   ├── InvalidScheduleValueError OC141
    │   └── InvalidBackfillError      OC142
    ├── ScheduleNotFoundError         OC140
    ├── ScheduleExistsError           a schedule of this name is there already
    ├── OutsideTaskError              octop.current() where no task runs
    ├── TransactionEndedError         a transactional task committed, or rolled back, by itself
    ├── TransactionAbortedError       a transactional task ended well in a transaction that can keep nothing
    ├── TransitionError               a status may not change like that
    │   ├── IllegalBirthError         OC101
    │   └── IllegalTransitionError    OC102
    ├── TaskNotFoundError             OC103
    ├── TaskStatusError               OC104
    ├── TaskExistsError               OC116
    ├── TaskFailedError               handle.result() of a task that did not succeed
    ├── WaitTimeoutError              it is not finished yet
    ├── DrainLimitError               octop.testing: a drain came to its limit, and something is left
    ├── ApplicationError              the task module does not import
    ├── DatabaseError                 the database said no
    │   ├── DatabaseUnreachableError
    │   ├── NotPermittedError         42501
    │   ├── IsolationLevelError       OC301
    │   ├── InvalidExchangeError      OC302
    │   ├── TryAgainError             55P03, 40001, 40P01 …
    │   │   └── OpenTransactionError  OC303
    │   └── UnexpectedDatabaseError
    ├── SchemaError                   the schema does not fit this version
    │   ├── SchemaMissingError
    │   ├── SchemaVersionError
    │   ├── PublicMayCreateError      OC501
    │   ├── RoleMissingError          OC502
    │   ├── OwnerIsSuperuserError     OC503
    │   ├── MigrationChangedError     OC504
    │   ├── NewerSchemaError          OC506
    │   ├── ServerTooOldError         OC505
    │   └── WorkersLiveError          OC507
    ├── PrivateDatabaseError          the private PostgreSQL does not start
    └── WouldOverwriteError           a file is there already
"""

from typing import ClassVar


class OctopError(Exception):
    """Say what was wrong, where, and what to do.

    Attributes:
        message: One sentence, without a full stop where it ends in a value.
        hint: What to do now; may be empty.
        detail: Where exactly; may be empty.
        sqlstate: The engine's five characters, or None for errors that only Python raises.
        exit_code: What the command ends with (0 to 255).
    """

    sqlstate: ClassVar[str | None] = None
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", detail: str = "") -> None:
        """Keep the message with its hint and detail."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail

    def __str__(self) -> str:
        """Return message, detail and hint, a line each."""
        return "\n".join(part for part in (self.message, self.detail, self.hint and f"hint: {self.hint}") if part)


DSN_HINT = "Write postgresql://user@host:5432/database, or host=/run/postgresql dbname=shop."


class ConfigurationError(OctopError):
    """A setting, an option or a settings file is wrong: correct it where the message says."""

    exit_code = 2


class UnknownSettingError(ConfigurationError):
    """There is no such key: ``octop config list`` shows all."""

    sqlstate = "OC201"


class InvalidSettingError(ConfigurationError):
    """The value has the wrong type or is out of bounds: the message names both."""

    sqlstate = "OC202"


class SettingsDisagreeError(ConfigurationError):
    """Settings that must agree do not: change them in one transaction."""

    sqlstate = "OC203"


class InvalidTaskError(OctopError):
    """What was to be enqueued or registered cannot be a task; nothing was written."""

    exit_code = 2


class InvalidNameError(InvalidTaskError):
    """A task type, queue, lane or tenant is empty, too long or holds control characters."""

    sqlstate = "OC110"


class InvalidPayloadError(InvalidTaskError):
    """The payload is not a JSON object that PostgreSQL can keep."""

    sqlstate = "OC111"


class PayloadTooLargeError(InvalidTaskError):
    """The payload is over ``task.payload_bytes_max``: pass a reference to the data instead."""

    sqlstate = "OC112"


class ResultTooLargeError(InvalidTaskError):
    """What the task returned is over ``task.result_bytes_max``: return a reference to the data instead."""

    sqlstate = "OC115"


class InvalidOptionError(InvalidTaskError):
    """Priority, retries, time limit, delay, tags or retry policy are out of bounds."""

    sqlstate = "OC113"


class InvalidTimeError(InvalidTaskError):
    """A moment is naive, infinite or absurd: give an aware datetime between 2000 and 3000."""

    sqlstate = "OC114"


class InvalidArgumentsError(InvalidTaskError):
    """The arguments do not fit the names or the annotated types of the task's function: pass what the hint says."""


class NotJsonError(InvalidTaskError):
    """A value has no JSON form (NaN, NUL, a lone surrogate, an unknown class): the message holds its path."""


class ForeignConnectionError(InvalidTaskError, TypeError):
    """What was given as ``connection=`` has no transaction that a task can join, or must be awaited where nothing awaits."""


class UnknownTaskTypeError(OctopError):
    """No function is registered under this name in this application."""

    exit_code = 3


class UnknownQueueError(OctopError):
    """No task, worker, task type or operator has ever named this queue: ``octop queues list`` shows all."""

    exit_code = 3


class InvalidFilterError(OctopError):
    """A word of a filter is no condition: ``octop help filters`` lists keys and values."""

    exit_code = 2


class InvalidScheduleError(OctopError):
    """What was given cannot be a schedule; nothing was written."""

    exit_code = 2


class InvalidCronError(InvalidScheduleError):
    """A cron expression cannot be read: the message names the field, the value and what is allowed."""

    sqlstate = "OC128"


class NeverFiresError(InvalidScheduleError):
    """A cron expression names days that no year has: for the last day of a month write ``L``."""

    sqlstate = "OC129"


class UnknownTimeZoneError(InvalidScheduleError):
    """A time zone is not one of the server's names: write a place (``Europe/Berlin``) or ``UTC``, no abbreviation."""

    sqlstate = "OC130"


class InvalidCountError(InvalidScheduleError):
    """Fewer than 1 or more than 1,000 times of a schedule were asked for at once: ask again after the last one."""

    sqlstate = "OC131"


class InvalidScheduleValueError(InvalidScheduleError):
    """A value of a schedule is out of bounds, or its payload names what no slot has: the message names the column."""

    sqlstate = "OC141"


class InvalidBackfillError(InvalidScheduleError):
    """A backfill has a range without slots, with more than 100,000, or one that is not past: order another range."""

    sqlstate = "OC142"


class ScheduleNotFoundError(OctopError):
    """There is no schedule of this name for this tenant: ``octop schedules list`` shows all."""

    sqlstate = "OC140"
    exit_code = 3


class ScheduleExistsError(OctopError):
    """A schedule of this name is there already: change it with ``octop schedules set``, or give the new one another name."""

    exit_code = 8


class OutsideTaskError(OctopError):
    """``octop.current()`` was called where no task runs: call it inside the task's function."""


class TransactionEndedError(OctopError):
    """A transactional task committed, or rolled back, by itself: leave both to its worker."""


class TransactionAbortedError(OctopError):
    """A transactional task ended well in a transaction that can keep nothing: let the error out, or give the statement a savepoint."""


class TransitionError(OctopError):
    """A status may not change like that."""

    exit_code = 8


class IllegalBirthError(TransitionError):
    """A task is born pending, as its caller's and without a past: leave out of the INSERT what the engine sets."""

    sqlstate = "OC101"


class IllegalTransitionError(TransitionError):
    """By hand only repairs are allowed; the message lists them."""

    sqlstate = "OC102"


class TaskNotFoundError(OctopError):
    """No task has this id, or it is not yours, or its day has been dropped."""

    sqlstate = "OC103"
    exit_code = 3


class TaskStatusError(OctopError):
    """The task is in a status in which this act means nothing."""

    sqlstate = "OC104"
    exit_code = 8


class TaskExistsError(OctopError):
    """Another task holds the unique key, and on_conflict="raise" was asked for: wait for that one, or ask for keep, replace or move.

    Attributes:
        id: The task that holds the key, as text; empty where PostgreSQL itself refused a repair by hand.
    """

    sqlstate = "OC116"
    exit_code = 8

    @property
    def id(self) -> str:
        """Return the id that the detail names."""
        return self.detail.removeprefix("task ")


class TaskFailedError(OctopError):
    """The task whose result was asked for ended frozen or cancelled.

    Attributes:
        status: ``frozen`` or ``cancelled``.
    """

    def __init__(self, message: str, *, status: str, hint: str = "", detail: str = "") -> None:
        """Keep the final status beside the message."""
        super().__init__(message, hint=hint, detail=detail)
        self.status = status


class WaitTimeoutError(OctopError):
    """The task is not finished yet: wait longer, or look at it with ``octop tasks show``."""

    exit_code = 7


class DrainLimitError(OctopError):
    """A drain of ``octop.testing`` came to its limit and something is left: the message names the tasks that enqueue each
    other for ever, or the one that does not end.
    """


class ApplicationError(OctopError):
    """The application (``-A module:attribute``) does not import or is not an Octop."""


class DatabaseError(OctopError):
    """The database refused; the message is PostgreSQL's."""


class DatabaseUnreachableError(DatabaseError):
    """No database answers: check the DSN and that the server runs."""

    exit_code = 4


class NotPermittedError(DatabaseError):
    """The role lacks a right: ``octop sql grants`` prints what each role needs."""

    sqlstate = "42501"
    exit_code = 6


class IsolationLevelError(DatabaseError):
    """The exchange was called in REPEATABLE READ or SERIALIZABLE: it needs READ COMMITTED."""

    sqlstate = "OC301"


class InvalidExchangeError(DatabaseError):
    """Arrays handed to the exchange differ in length: a fault of the caller."""

    sqlstate = "OC302"


class TryAgainError(DatabaseError):
    """A lock, a deadlock or a conflict stood in the way: the same call again will do."""


class OpenTransactionError(TryAgainError):
    """A transaction that somebody left open has changed what must be written: it is tried again; end that transaction."""

    sqlstate = "OC303"


class UnexpectedDatabaseError(DatabaseError):
    """PostgreSQL raised something that the engine does not raise; the message holds its SQLSTATE."""


class SchemaError(OctopError):
    """The schema in the database does not fit this version of the package."""

    exit_code = 5


class SchemaMissingError(SchemaError):
    """Octop is not installed in this schema: ``octop migrate``."""


class SchemaVersionError(SchemaError):
    """The schema is older than this package: ``octop migrate``."""


class PublicMayCreateError(SchemaError):
    """Others may create objects in the schema, or have left functions there: a pinned search path protects nobody."""

    sqlstate = "OC501"


class RoleMissingError(SchemaError):
    """A role is missing and this login may not create it: the message holds the statement."""

    sqlstate = "OC502"


class OwnerIsSuperuserError(SchemaError):
    """The owner of the objects would be a superuser."""

    sqlstate = "OC503"


class MigrationChangedError(SchemaError):
    """An installed migration differs from the one in this package: they never change once released."""

    sqlstate = "OC504"


class NewerSchemaError(SchemaError):
    """The schema was installed by a newer version: upgrade the package."""

    sqlstate = "OC506"


class ServerTooOldError(SchemaError):
    """The PostgreSQL server is older than 14."""

    sqlstate = "OC505"


class WorkersLiveError(SchemaError):
    """The schema was to be removed while workers live: stop them first, or print the script with ``--force``."""

    sqlstate = "OC507"


class PrivateDatabaseError(OctopError):
    """The private PostgreSQL could not be found, made or started."""

    exit_code = 4


class WouldOverwriteError(OctopError):
    """A file that was to be written is there already; nothing was written."""

    exit_code = 8
