"""The script that makes pg_cron tick and clean up: printed for a DBA by ``octop sql pg_cron``, never run by Octop itself."""

from dataclasses import dataclass

from octop.engine.script import Place, filled_file

FOLDER = "pg_cron"


@dataclass(frozen=True, slots=True)
class CronJobs:
    """Whose jobs, and where they run.

    Attributes:
        place: Schema of Octop.
        database: Where Octop is installed; None = in the database of pg_cron itself.
        role: As whom the jobs run; None = as whoever runs the script.
        seconds: Between two ticks, 1 to 59.
    """

    place: Place
    database: str | None = None
    role: str | None = None
    seconds: int = 5

    def part(self, name: str) -> str:
        """Return one file of the script with the names filled in."""
        # another job for each database and schema
        where = f"{self.database}.{self.place.schema}" if self.database else self.place.schema
        return filled_file(
            FOLDER,
            name,
            {
                "schema": self.place.schema,
                "database": self.database or "",
                "role": self.role or "",
                "seconds": f"{self.seconds} seconds",
                **{what: f"octop {what} {where}" for what in ("tick", "upkeep", "runs")},
            },
        )


def pg_cron_script(jobs: CronJobs, version: str) -> str:
    """Return the script that makes the jobs, in place of those of the same names, for ``psql`` in the database of pg_cron.

    Args:
        jobs: Which.
        version: Of this package, for the first line.
    """
    grants = ""
    if jobs.role is not None:
        elsewhere = "-- In the database of Octop, once: octop sql pg_cron --role ... --grants\n"
        grants = jobs.part("grants") if jobs.database is None else elsewhere
    # who only has the rights on the schema cron may not call the form that names a database
    here = jobs.role is None and jobs.database is None
    return (
        f"-- Octop {version}: jobs of pg_cron that fire schedules and clean up history, also while no worker lives.\n"
        "-- Run it where pg_cron is installed (cron.database_name); harmless to repeat. octop sql pg_cron --remove takes them away.\n"
        "\\set ON_ERROR_STOP on\n"
        "begin;\n"
        + grants
        + "".join(jobs.part(name) for name in ("remove", "here" if here else "placed", "runs"))
        + "commit;\n"
    )


def removal_script(jobs: CronJobs, version: str) -> str:
    """Return the script that takes the jobs away; what the role was granted stays.

    Args:
        jobs: Which.
        version: Of this package, for the first line.
    """
    return (
        f"-- Octop {version}: takes the jobs of pg_cron away. Run it where pg_cron is installed; harmless to repeat.\n"
        "\\set ON_ERROR_STOP on\n" + jobs.part("remove")
    )


def grants_script(jobs: CronJobs) -> str:
    """Return what the role of the jobs needs, for ``psql`` in the database of Octop.

    Args:
        jobs: With a role.
    """
    return jobs.part("grants")
