"""What can go wrong between the workers, or the producers, and the database."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from typing import NamedTuple

from tests.system.faults.database_faults import restart_fast
from tests.system.faults.plan import Step
from tests.system.faults.proxy import Proxy, Struck
from tests.system.faults.settings import LEASE_SECONDS
from tests.system.faults.stage import PRODUCERS, Stage, picked
from tests.system.faults.striking import awaited, lasted, times

EXCHANGE = "octop worker exchange"
LISTEN = "octop worker listen"
PURPOSES = ("", "", "", "octop worker heart", EXCHANGE, EXCHANGE, "octop worker control", LISTEN)
"""Which connections of a machine are struck, by the beginning of their application_name; "" = all, which comes most often."""

REQUESTS = (
    (EXCHANGE, b"octop_exchange"),
    (EXCHANGE, b"octop_exchange"),
    ("", b"octop_"),
    ("octop worker heart", b"octop_beat"),
    ("octop worker control", b"octop_"),
)
"""Whose requests lose their answers, and what these contain. The exchange, which claims and completes, comes most often."""

LATE_PART = 0.95
"""Which part of a lease the slower machine is late: less than one."""

COMMIT = b"commit\0"
DELAYS = (0.02, 0.2, 0.7)


class Target(NamedTuple):
    """Connections that are struck together."""

    name: str
    proxies: tuple[Proxy, ...]
    purpose: str


def targeted(stage: Stage, pick: float) -> Target:
    """Choose what is struck: mostly some connections of one machine, at times all machines."""
    everybody = Target("everybody", tuple(stage.networks.values()), "")
    purposes = [each for each in PURPOSES if each != LISTEN or stage.pooler is None]  # behind a pooler nobody listens
    machines = [
        Target(f"{name} {purpose}".rstrip(), (proxy,), purpose)
        for name, proxy in stage.networks.items()
        for purpose in (purposes if name != PRODUCERS else [""])
    ]
    target: Target = picked([everybody, everybody, *machines], pick)
    return target


def reset(stage: Stage, step: Step) -> str:
    """Cut connections by a reset."""
    target = targeted(stage, step.pick)
    cut = awaited(lambda: sum(proxy.reset(target.purpose) for proxy in target.proxies))
    return times(cut, f"connections of {target.name}")


def delay(stage: Stage, step: Step) -> str:
    """Hold back each packet of all connections."""
    seconds = picked(DELAYS, step.pick)
    with contextlib.ExitStack() as stack:
        struck = [stack.enter_context(proxy.delay(seconds)) for proxy in stage.networks.values()]
        packets = _felt(step.seconds, struck)
    return times(packets, f"packets, by {seconds} s each")


def hole_then_reset(stage: Stage, step: Step) -> str:
    """Forward nothing for a while, and cut the connections in the end: what was under way never arrives."""
    return _hole(stage, step, reset=True)


def hole_then_late(stage: Stage, step: Step) -> str:
    """Forward nothing for a while, and deliver it all in the end, also what the sender has given up long ago."""
    return _hole(stage, step, reset=False)


def _hole(stage: Stage, step: Step, *, reset: bool) -> str:
    target = targeted(stage, step.pick)
    with contextlib.ExitStack() as stack:
        struck = [stack.enter_context(proxy.hole(target.purpose, reset=reset)) for proxy in target.proxies]
        connections = _felt(step.seconds, struck)
    return times(connections, f"connections of {target.name}")


def half_open(stage: Stage, step: Step) -> str:
    """Let the connections that are open now lead nowhere, as after a firewall has forgotten them; new ones work."""
    target = targeted(stage, step.pick)

    def frozen() -> int:
        with contextlib.ExitStack() as stack:
            struck = [stack.enter_context(proxy.half_open(target.purpose)) for proxy in target.proxies]
            if any(each.count for each in struck):
                time.sleep(step.seconds)
            return sum(each.count for each in struck)

    return times(awaited(frozen), f"connections of {target.name}")


def _felt(seconds: float, struck: Sequence[Struck]) -> int:
    return lasted(seconds, lambda: sum(each.count for each in struck))


def outage_and_hole(stage: Stage, step: Step) -> str:
    """Stop the database for longer than a lease, and let one machine find it again later than the other: the other must not judge it."""
    name = picked([each.name for each in stage.supervisors], step.pick)
    with stage.networks[name].hole("", reset=True):
        restart_fast(stage, step)
        time.sleep(LEASE_SECONDS * LATE_PART)
    return str(name)


def lose_answers(stage: Stage, step: Step) -> str:
    """Let requests of the workers through, and cut their connections before the answer: it is done, and they do not know."""
    purpose, marker = picked(REQUESTS, step.pick)
    with contextlib.ExitStack() as stack:
        proxies = [proxy for name, proxy in stage.networks.items() if name != PRODUCERS]
        struck = [stack.enter_context(proxy.loss(purpose, marker)) for proxy in proxies]
        answers = _felt(step.seconds, struck)
    return times(answers, f"answers to {marker.decode()} of {purpose or 'any'}")


def lose_commits(stage: Stage, step: Step) -> str:
    """The same for the commits of the producers."""
    with stage.networks[PRODUCERS].loss("producer", COMMIT) as struck:
        answers = _felt(step.seconds, [struck])
    return times(answers, "commits")


def restart_pooler(stage: Stage, step: Step) -> str:
    """End pgbouncer at once, or as a crash does, and start it again."""
    if stage.pooler is None:
        return ""
    number = picked((signal.SIGTERM, signal.SIGKILL), step.pick)
    stage.pooler.stop(number)
    time.sleep(step.seconds)
    stage.pooler.start()
    return str(number.name)
