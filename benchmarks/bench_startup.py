"""How long do `octop --help` and the help of a command take, compared with a Python that does nothing?

    python benchmarks/bench_startup.py

Prints the median and the best of 20 runs, in milliseconds: wall, as a person waits; CPU, which a busy machine changes less.
What is loaded is guarded by tests/unit/test_cli_entry.py.
"""

import resource
import statistics
import subprocess
import sys
import time

RUNS = 20
COMMANDS = ("tasks", "tasks retry", "queues set", "failures", "db stop")
"""Those whose help loads most."""


def measured(command: list[str]) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * wall, 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "octop --help": [sys.executable, "-m", "octop", "--help"],
        **{f"octop {each} --help": [sys.executable, "-m", "octop", *each.split(), "--help"] for each in COMMANDS},
    }
    for name, command in commands.items():
        walls, cpus = zip(*(measured(command) for _ in range(RUNS)), strict=True)
        print(
            f"{name:<25} wall {statistics.median(walls):6.1f} ms (best {min(walls):6.1f})"
            f"   CPU {statistics.median(cpus):6.1f} ms (best {min(cpus):6.1f})"
        )


if __name__ == "__main__":
    main()
