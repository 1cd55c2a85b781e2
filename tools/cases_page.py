"""Write `docs/explanation/failures.md` from the table below and from the names of the tests. A test compares.

A test shows that a failure is survived when its name carries the number: `test_c012_…`.

python tools/cases_page.py
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).resolve().parent.parent
PAGE: Final = HOUSE / "docs" / "explanation" / "failures.md"

HEAD: Final = """# What goes wrong, and what then

Each of these failures has been seen in the wild, in a queue, a scheduler or a cron library. Each is told with what happens here, and with the tests that make it happen: real workers, a real PostgreSQL, real
signals. The number is part of the tests' names. [Guarantees](guarantees.md) says the same as promises.

This page is generated from its table and from the names of the tests by `tools/cases_page.py`. It can not name a test that does not exist, and no failure stands here without one.
"""

TAIL: Final = """
## Of parts that are not there yet

Failures of workflows ({workflow}) and of the dashboard ({web}) are told here when these parts are.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One failure.

    Attributes:
        number: In the names of its tests.
        kind: What it is about.
        wrong: What goes wrong elsewhere.
        here: What happens here instead.
    """

    number: str
    kind: str
    wrong: str
    here: str


CASES: Final = (
    Case("001", "A task is lost", "A worker is killed while it runs a task that was acknowledged when it was taken.", "A claim ends nothing: the row stays until an outcome is committed, and another worker starts it again after the lease."),
    Case("003", "A task is lost", "A bulk enqueue breaks the limit of parameters of a statement, and a part of it is lost.", "Any number is enqueued in one transaction, all or nothing; each task has its id in the answer, in order."),
    Case("004", "A task runs twice", "Rescue goes by a task's age: a long one is given away while it runs.", "Rescue looks at heartbeats alone. A task whose worker lives runs as long as it likes."),
    Case("005", "A task runs twice", "Heartbeats come about as often as the limit after which a worker counts as dead.", "A heartbeat over a third of the lease is refused, whoever sets which of the two first."),
    Case("007", "A task runs twice", "A worker that was taken for dead wakes up, and overwrites what its successor did.", "Each write names task, attempt, claim and worker, and changes nothing if one of them is another one now."),
    Case("008", "A task stays running for ever", "The row of the dead worker is deleted, and whoever looks for its tasks joins with that row.", "A task whose worker has no row is found too, and its lease begins then."),
    Case("009", "A task stays running for ever", "A new process has the name of the dead one, and its heartbeats vouch for the other's tasks.", "A worker is known by an id of its own, made at its start; names are labels."),
    Case("011", "A task stays running for ever", "Rescue reads a batch of a fixed size, and those that need none fill it.", "What needs rescue is found by a condition, and each round goes on until nothing is left."),
    Case("137", "A task stays running for ever", "Recovery waits for the task's own time limit, or ends the task instead of starting it again.", "It is started again within the lease plus one sweep, and `lost` stands among its attempts."),
    Case("012", "Retries are counted wrongly", "A task that kills its worker is started again without end, for nobody lives to count.", "The claim itself counts. After `max_retries + 1` starts it is frozen. What was given back at a shutdown does not count."),
    Case("013", "Retries are counted wrongly", "The counter ends one below its limit, and the hook for giving up is never called.", "`max_retries` N means N + 1 starts; the hook is called once, and sees the last attempt's number."),
    Case("015", "Retries are counted wrongly", "Zero is taken for nothing said.", "0, null and nothing said differ everywhere: retries, delay, priority. A time limit of 0 is refused."),
    Case("016", "The same thing is enqueued twice", "Two callers look, find nothing, and both insert; or one is told `exists already` of a row that is rolled back then.", "An id of the caller's own names one task. So does a unique key. Who comes second waits for the first one's commit, or takes over when that is rolled back."),
    Case("017", "The same thing is enqueued twice", "A task comes back, meets its twin at a unique index, and takes a whole batch with it, again and again.", "A claim gives the unique key back for good, so nothing that comes back can meet its twin; by hand, the one that can not come back says why, and all others go on."),
    Case("136", "Due tasks", "Whoever makes scheduled tasks ready loses its lock in the middle, and a second one does the same work.", "Nothing makes tasks ready: due is a condition of the claim. Any number of workers start each of many tasks of one instant once."),
    Case("020", "Cron expressions", "Where the clocks change, the next time is not later than the moment asked from, and the scheduler spins.", "It is later, always and everywhere, as an instant."),
    Case("021", "Cron expressions", "A day of 23 hours makes a weekly job miss its day, or the search run off by months.", "Days are found in the calendar and not by adding hours. Only a time that does not exist follows a rule of its own."),
    Case("022", "Cron expressions", "A daily job runs twice in autumn and not at all in spring.", "A wall time fires once: the first time, or right after the gap. With a star for minute or hour it follows elapsed time."),
    Case("023", "Cron expressions", "February 29 has no next date, or one that never comes is accepted and fails at run time.", "Leap years are found, also over 2100. What can never fire is refused when it is checked."),
    Case("024", "Cron expressions", "0 is Monday or Sunday, 7 is refused, and FRI-MON never runs.", "0, 7 and SUN are Sunday, names have any case, and a range of names may go over the end of the week."),
    Case("026", "Cron expressions", "`*/7` is taken for an interval, `2/2` adds a Sunday, and `*/0` or `5-1` are accepted.", "Steps begin anew with their field, and are told so in words; `@every 7m` is the interval. Nonsense is refused with field, value and what is allowed."),
    Case("029", "Schedules", "The slot falls into the gap between two processes, or all were down for it.", "The next slot is stored; whatever is due and was not fired is fired or recorded by the schedule's `catch_up`."),
    Case("030", "Schedules", "After a long outage each missed slot becomes a task.", "By default one; `catch_up = 'all'` makes at most `catch_up_max`, in short transactions, and an alert says what was skipped."),
    Case("032", "Schedules", "Several processes believe that they are the leader, and fire one slot twice, or none does.", "There is no leader: schedule and slot are a key, written in the transaction that makes the task."),
    Case("036", "Times without a zone", "A moment without a zone means one thing where it is written and another where it is read.", "It is refused, with what to do. What is stored is an instant, whatever the zones of process, session and server."),
    Case("102", "Times without a zone", "What is shown is shifted twice, or the wrong way.", "Moments are shown with their offset, after one conversion."),
    Case("039", "Payloads", "The payload rides in a notification, which holds 7,999 bytes.", "A notification names a queue. Neither size nor alphabet of a payload matters to it."),
    Case("040", "Payloads", "What is too large stops the write of an outcome, and the task runs again and again.", "A payload over the limit is refused at the door; a result over it fails its task once, with the reason."),
    Case("041", "Payloads", "`\\u0000` passes the encoder, and the database refuses it; or a clean-up damages text that only looks like it.", "It is refused with its path. The six characters go round unchanged."),
    Case("042", "Payloads", "The text of an error can not be written down, so that the failure can not be recorded.", "Text is made fit to be kept first; recording a failure can not fail."),
    Case("043", "Payloads", "NaN and infinity pass the encoder, are refused, and are sent for ever.", "They are refused with their path. A number that only SQL can hold fails its task, and no more."),
    Case("047", "Exceptions", "An exception can not be printed, compared or rebuilt, and takes the worker with it.", "It is an ordinary failure, and says as much as can be said."),
    Case("048", "Exceptions", "`sys.exit`, `KeyboardInterrupt` or a bare `BaseException` end the worker, or hold its place.", "They are failures of the task. A process that ends without a word is replaced, and its attempt is lost."),
    Case("049", "Exceptions", "A cancellation is nobody's exception: the task is neither ended nor released.", "Time limit, a person's cancel, shutdown and a lost lease are told apart, and each is written down as what it is."),
    Case("051", "Code that never pauses", "A blocking call on the event loop silences the heartbeat, and the task is started elsewhere.", "The supervisor beats, another process. The task is named in the log."),
    Case("052", "Code that never pauses", "The same with code that computes, or keeps the interpreter's lock.", "The same holds, on the loop and in threads."),
    Case("054", "Shutdown", "The heartbeat stops first, and what is still running is given away.", "The heartbeat is the last thing to end."),
    Case("055", "Shutdown", "A task that ignores its cancellation keeps the worker from stopping, or is left behind as running.", "After the grace time it is given back without using a try, and the process is gone."),
    Case("056", "Shutdown", "The second Ctrl-C is ignored, or leaves tasks behind.", "The first lets tasks end, the second gives them back at once, and further ones change nothing. The processes of a worker stand out of the terminal's reach."),
    Case("059", "The database goes away", "The worker is alive and never asks again, or floods the log.", "It waits longer and longer, comes back by itself, and is red to its probes meanwhile."),
    Case("060", "The database goes away", "After a failover the server only reads, and connections stay where they are.", "Such a connection is given up. All ends, nothing twice, nothing restarted."),
    Case("061", "The database goes away", "The outcome of a task that has ended is written once, in vain.", "It is kept and sent again until it is taken or fenced off, and counts once."),
    Case("062", "The database goes away", "A transaction is open while a task runs, and a time-out of idle transactions ends both.", "None is open between claim and outcome, unless a task asks for one."),
    Case("065", "The database goes away", "A connection is open, and nothing comes through it any more.", "Every wait has an end; what is silent is replaced, and polling goes on."),
    Case("067", "The database goes away", "A pooler in transaction mode forgets prepared statements, session locks and LISTEN.", "Nothing but LISTEN needs a session. Worker and doctor notice the pooler, and say what to do."),
    Case("069", "Locks", "Bulk acts, upkeep and workers lock in different orders.", "Rows are locked in the order of their ids, or passed by; an exchange gives way after 50 ms. Where tasks move meanwhile and a circle closes all the same, the act begins anew, and nobody is told."),
    Case("072", "Dead rows", "A transaction that somebody left open keeps dead rows, and each claim walks over them.", "A claim begins where the last one ended. The doctor names the session, the prepared transaction or the slot that keeps them."),
    Case("075", "Priorities", "Urgent tasks never end, and the others never begin.", "Priority is strict, within a lane by due time, unless the queue has `ageing_seconds`: then each such span of waiting is worth a step. How long the oldest waits is in `octop_queue_summary`."),
    Case("078", "Pauses", "Each waiting worker takes one more task after the pause.", "From the commit of the pause on, no claim gives a task of that queue. What runs ends."),
    Case("081", "Limits", "A bucket that begins full and is refilled lets half as many again through in its first minute.", "In any span of t seconds at most rate times t and the burst start, over all workers, whatever their clocks and the order of their commits."),
    Case("084", "Limits", "What runs is counted in the snapshot of the claim: two workers at once see one place, and both take it.", "A lock is taken first, and the count is a statement of its own, with a younger snapshot. Who finds the lock taken comes back."),
    Case("085", "Limits", "A place is a counter: a killed worker, a cancel or a lost lease never gives it back, and the view says 0 in use.", "Places are counted from the rows that run. Rescue frees them in its own commit, and what is shown comes from the gate itself."),
    Case("087", "Limits", "Tasks that wait for a retry fill the limit; or workers of two versions limit differently.", "Only what runs takes a place. The limit is one value in one row, for all."),
    Case("093", "Leaks", "The traceback of a failed task keeps all that the task held.", "Nothing of a task can be reached when its outcome is written."),
    Case("096", "Leaks", "An event loop per task, and none is closed.", "Descriptors, threads and connections do not grow over many thousand tasks."),
    Case("106", "Installation and upgrades", "Many processes migrate at once, and collide.", "One installs, the others wait, look again and go on, through a pooler too."),
    Case("107", "Installation and upgrades", "Code and schema are of different versions, and each worker fails in its own way.", "An older schema is refused with what to do; a newer one is worked with, by workers, and refused by the installer."),
    Case("108", "Names", "A name with a quote, a dash or a space breaks a statement, at times only the second one.", "Whatever is a name works everywhere, twice; what is none is refused before any SQL."),
    Case("109", "Names", "A name of the settings runs as SQL.", "Names are quoted as names, in Python and in the printed scripts."),
    Case("112", "What is open to the network", "A page is open to the whole network, and can be steered by whoever finds it.", "The port for probes is opened to this machine alone, unless a host is named. There is nothing to steer."),
    Case("113", "What is open to the network", "The password of the DSN is in a log, a page or the list of processes.", "It is masked in every output, and no process has it on its command line."),
    Case("115", "Enqueue in a transaction", "The task is enqueued on another connection, and stays when the caller rolls back.", "It is a row of the caller's transaction, with every driver: both or neither."),
    Case("117", "Enqueue in a transaction", "The process dies between its commit and its enqueue.", "There is no between. An enqueue that is refused fails the transaction."),
    Case("118", "Enqueue in a transaction", "The task starts before the data that it is about are committed.", "It can not be seen before. One that commits late is found all the same."),
    Case("120", "Enqueue in a transaction", "Callers of one key wait for each other, and all others with them.", "Only callers of the same id or unique key wait, as long as their `lock_timeout` says."),
    Case("121", "Code that does not load", "A module that fails to import is skipped, and its tasks are thrown away.", "The worker ends, names the module and the cause, and touches no task."),
    Case("123", "Code that does not load", "A decoder raises, and is taken for the death of a worker.", "The task fails with the decoder's own words; the worker stays up."),
    Case("124", "Code of another version", "An old worker meets a task that it does not know, and throws it away or fails it.", "The task is set aside without using a try, and comes back with a worker that knows it. The doctor says which."),
    Case("125", "Code of another version", "Upkeep by a worker that does not know a type ends its tasks.", "Upkeep looks at rows alone, and needs no code."),
    Case("127", "Code of another version", "A task type is renamed while tasks wait under the old name.", "An alias runs them. Without one they wait, and `octop check` lists them before the deploy."),
    Case("129", "Code of another version", "A task that can not be loaded stays at the head of its queue.", "It is set aside in one step; those behind it start."),
    Case("130", "Code of another version", "A parameter is inserted, and waiting arguments bind to the wrong names.", "Arguments are stored by name. What does not bind fails before the body, with its name."),
    Case("133", "Code of another version", "Old workers win the new tasks, and fail them.", "A version of a task type keeps them from it; nothing is stranded when they have gone."),
)  # fmt: skip

LATER: Final = {
    "workflow": ("088", "089", "090", "091"),
    "web": ("111",),
}


def numbers_in(name: str) -> list[str]:
    """Return the numbers of the failures that the name of a test carries."""
    return re.findall(r"(?<=_)[cC](\d{3})(?=_)", name)


def named_tests() -> dict[str, list[str]]:
    """Return the tests of each number, as pytest names them, in order."""
    found: dict[str, list[str]] = {}
    for file in sorted((HOUSE / "tests").rglob("test_*.py")):
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            for number in numbers_in(name):
                found.setdefault(number, []).append(f"{file.relative_to(HOUSE)}::{name}")
    return found


def page() -> str:
    """Return the whole page."""
    tests = named_tests()
    parts = [HEAD]
    for kind, cases in groupby(CASES, key=lambda case: case.kind):
        parts.append(f"\n## {kind}\n")
        for case in cases:
            parts.append(f"\n**C{case.number}.** {case.wrong}\n\n{case.here}\n\n")
            parts += [f"- `{each}`\n" for each in tests.get(case.number, ())]
    parts.append(TAIL.format(**{part: ", ".join(f"C{each}" for each in numbers) for part, numbers in LATER.items()}))
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
