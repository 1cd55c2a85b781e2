"""Nothing lost, nothing doubled, nothing stuck: real workers, a real PostgreSQL, a seeded plan of faults, and a checker.

`python -m tests.system.faults --seconds 60 --seed 1`, or `make faults SECONDS=60 SEED=1`. One duty in each file:

plan.py       what will go wrong, and when: drawn from the seed alone
faults.py     what can go wrong, by name. How it is done: process_faults.py (workers, their children, their host's clock),
              database_faults.py (restarts, crashes, cut sessions; server_return.py: what comes after), timeout_faults.py,
              network_faults.py (by proxy.py), size_faults.py and disk_faults.py (no room), failover_faults.py
striking.py   a fault waits until it has struck somebody
stage.py      what it happens to: the database, the proxies before it, the workers; by which rules they live: settings.py
variants.py   what there may be beside (--variant): pgbouncer (pooler.py), a streaming standby (standby.py), a small disk
              (small_disk.py), libfaketime
bodies.py     the tasks that run meanwhile
ledger.py     what they write down, on a server of its own that no fault touches
producers.py  who enqueues, commits, rolls back and cancels, and writes down what was meant
history.py    all that was recorded, read at the end by reading.py
checker.py    the rules; each names what breaks it
limit_rules.py  those of limits and order
excuses.py    what may be doubled, and what may be lost
mutants.py    the engine without one of its guards, to see that the rules notice (--mutants)
run.py        one run from beginning to end
report.py     what came of it: a table, the evidence, and a page that can be kept (--result)
peers/        Octop's peers under faults of the same kinds, by hand only (`make faults-peers`)
"""
