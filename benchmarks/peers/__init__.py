"""The peers: other task queues, each in an environment of its own, each set up as its documentation recommends for throughput.

**One rule for all.** A contender is a program under `programs/`. It gets JSON options (`dsn`, `redis`, `tasks`, `phases`, …) as its
only argument, and prints one line of JSON when it ends. Its phases:

- `setup` installs the schema in an empty database. Not measured.
- `enqueue` opens its connections, then hands in so many no-op tasks by the best bulk call of its API:
  `enqueue_seconds` is from the first call to the return of the last.
- `drain` starts a worker and lets it run them: `drain_seconds` is **from the start of the first task function to the moment when the
  contender's own tables (or Redis) say that nothing is left**, acknowledged included. So the start of a process, connecting, registering
  and importing are counted for nobody, and the last acknowledgement is counted for everybody.
- `share` is a drain by several processes of the program at once, which begin at the same moment, `begin_at`, connected.
- `latency` is from before the call that enqueues one task to the start of its function in an idle worker.

Each run has a fresh database; rounds are interleaved: every contender once, then every contender again; the median counts. A slow
contender gets fewer tasks, because a rate is what is compared. No contender's schema or code is changed. Each writes no log.
A contender runs one worker process, unless the question is about processes.

What is not equal, and is not made equal: graphile-worker and pgqueuer delete finished jobs (pgqueuer keeps a line of log per job);
Octop, oban, procrastinate, pg-boss and saq keep them; Celery and Dramatiq keep nothing, and lose what Redis has not written when it dies.
"""
