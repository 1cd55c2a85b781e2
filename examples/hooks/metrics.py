# metrics.py: counts and durations for statsd, over UDP: nobody waits for an answer
import os
import socket
import time

from octop import Context, Octop, Snooze

octop = Octop()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setblocking(False)
host, _, port = os.environ.get("STATSD", "127.0.0.1:8125").partition(":")


def send(metric: str) -> None:
    try:
        udp.sendto(f"octop.{metric}".encode(), (host, int(port)))
    except OSError:
        pass  # a metric that is lost must not cost a task


@octop.middleware
async def measure(context: Context, call_next):
    started = time.monotonic()
    try:
        return await call_next()
    finally:
        milliseconds = (time.monotonic() - started) * 1000
        send(f"duration.{context.task_type}:{milliseconds:.1f}|ms")


@octop.on_success
def count_success(context: Context, result: object) -> None:
    send(f"success.{context.task_type}:1|c")


@octop.on_failure
def count_failure(context: Context, error: BaseException) -> None:
    send(f"failure.{context.task_type}:1|c")


@octop.on_freeze
def count_frozen(context: Context, error: BaseException) -> None:
    send(f"frozen.{context.task_type}:1|c")


@octop.task(max_retries=1, retry=[0.05])
async def fetch(url: str) -> int | Snooze:
    if url.startswith("http:"):
        raise ValueError("https only")
    return len(url)
