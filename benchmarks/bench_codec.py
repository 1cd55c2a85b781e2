"""How long does it take to write and read a payload, compared with `json` alone?

    python benchmarks/bench_codec.py

Prints the best of five rounds in microseconds per payload, and the ratio to `json.dumps` and `json.loads` in the same run.
"""

import json
import timeit
from typing import Any

from octop.model import codec

VALUE = {"user_id": 42, "mail": "a@b.example"}
NUMBER = 20_000


def best(call: Any) -> float:
    return min(timeit.repeat(call, number=NUMBER, repeat=5)) / NUMBER * 1e6


def main() -> None:
    text = json.dumps(VALUE)
    pairs = {
        "write": (lambda: codec.encode(VALUE, dict[str, Any]), lambda: json.dumps(VALUE)),
        "read": (lambda: codec.decode(text, dict[str, Any]), lambda: json.loads(text)),
    }
    for name, (ours, plain) in pairs.items():
        mine, theirs = best(ours), best(plain)
        print(f"{name:<6} {mine:6.2f} µs   json alone {theirs:6.2f} µs   ratio {mine / theirs:.2f}")


if __name__ == "__main__":
    main()
