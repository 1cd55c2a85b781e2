"""Benchmarks: one script per question. Each measures all contenders in one run, on one PostgreSQL, interleaved.

    python -m benchmarks            # everything in a short form; --full for all of it
    python -m benchmarks.bench_drain --only octop,graphile-worker

What is compared with what, and by which rule, stands in `benchmarks/peers/__init__.py`.
"""
