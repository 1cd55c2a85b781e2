"""How others fare: the same kinds of faults as this harness has, with thin adapters for Octop and for its peers.

`python -m tests.system.faults.peers --seconds 60 --seed 1 [--only octop,procrastinate]`, or `make faults-peers`. By hand only. One duty in each file:

contenders.py  who takes part, by which settings, and where those come from
programs/      the adapters: one program for each, run by the Python of its own environment; they share book.py and program.py
brokers.py     the PostgreSQL or the Redis that is restarted
crews.py       workers that run until the end, started again as systemd would
stage.py       all of it together, with a proxy before each worker and before the producers
striking.py    what goes wrong, and when
judge.py       what came of it
run.py         one run from beginning to end
report.py      the table, and the page with everything

**The same for all.** Two workers with eight places each, on the same machine, one contender after the other. Two producers; each
transaction writes a row of the caller's own for each of its tasks, and one in five is rolled back. So it is certain afterwards which
tasks were committed, also where the answer to a COMMIT got lost: the caller's own table says it. A task notes in a file that it begins, sleeps
for 0 to 3 seconds, and notes that it ends; it never raises. The plan of faults is drawn from the seed alone: everybody gets the same one. A worker
whose main process ends is started again after a second, and what it left behind is ended first, as systemd does it. A contender has 150
seconds after the last fault to finish what is left.

**What is counted.** Of the tasks whose transaction was committed:

lost                 never ran to its end, and is not waiting or running any more
stuck                the contender still holds it as waiting or as running when its time is over
started again        began more than once
ran to the end twice did so twice or more
two at once          began while an earlier start was under way for certain. Where one of the two was on a worker that was stopped for
                     longer than the lease at that moment, it is counted apart: no queue can know

Of those whose transaction was rolled back: who *ran all the same*.

Who is started again, or runs to the end twice, breaks no promise: all contenders promise at least once, Octop too. How often it happens is worth knowing.

**A lease of 30 seconds.** How long a contender waits before it gives up a silent worker differs by default from 30 seconds to never. Here all are told the
same where they can be told: LEASE_SECONDS, and SWEEP_SECONDS between two looks. The longest task is shorter than that lease, because two of them
(oban, Celery on Redis) know no heartbeat: whatever runs for longer is started a second time, without any fault. One worker in each run is stopped for
longer than the lease; all others that are stopped, for less.

**Not equal, and not made equal.** Redis has no transaction with the caller's database: Celery's producer commits first, then sends, as its documentation
advises (`delay_on_commit`). So a task would be lost if the producer died between the two; here no producer dies. The other order would run tasks of transactions that
are rolled back. The caller's database is a SQLite file there, and no fault strikes it. Redis writes each command to its log (`appendonly yes`), and not,
as it comes, a snapshot now and then. Only processes die here, never the machine, so neither Redis nor PostgreSQL waits for a disk.
"""
