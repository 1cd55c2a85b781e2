"""Nothing lost, nothing doubled, nothing stuck: real workers, a real PostgreSQL, a seeded plan of faults, and a checker.

`python -m tests.system.faults --seconds 60 --seed 1`, or `make faults SECONDS=60 SEED=1`. One duty in each file:

plan.py       what will go wrong, and when: drawn from the seed alone
faults.py     what can go wrong, by name; those of the database in database_faults.py, of the network in network_faults.py
stage.py      what it happens to: the database, the proxies before it, the workers; by which rules they live: settings.py
pooler.py     pgbouncer between them, if it is asked for (--pooled)
bodies.py     the tasks that run meanwhile
ledger.py     what they write down, on a server of its own that no fault touches
producers.py  who enqueues, commits, rolls back and cancels, and writes down what was meant
history.py    all that was recorded, read at the end by reading.py
checker.py    the rules; each names what breaks it
mutants.py    the engine without one of its guards, to see that the rules notice
run.py        one run from beginning to end
"""
