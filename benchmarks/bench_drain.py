"""How fast does a worker drain its queue, compared with the same statements inside the database?

    python benchmarks/bench_drain.py --tasks 100000 --processes 1 --json

The measuring itself is `octop bench`, so that users can repeat it anywhere; here it is run five times.
"""

import json
import statistics
import subprocess
import sys

RUNS = 5


def main() -> None:
    answers = []
    for _ in range(RUNS):
        command = [
            sys.executable,
            "-m",
            "octop",
            "bench",
            "--json",
            *(each for each in sys.argv[1:] if each != "--json"),
        ]
        answers.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    medians = {name: statistics.median(each[name] for each in answers) for name in answers[0] if name != "postgres"}
    print(json.dumps({"postgres": answers[0]["postgres"], "runs": RUNS, "median": medians}, indent=2))


if __name__ == "__main__":
    main()
