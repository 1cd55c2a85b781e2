# trace.py: the trace of a request goes on in the tasks that it enqueued, and in those that they enqueue
import logging
import secrets
from contextvars import ContextVar

from octop import Context, Octop

octop = Octop()
traceparent: ContextVar[str | None] = ContextVar("traceparent", default=None)  # W3C: 00-TRACE-SPAN-01


def new_span(parent: str | None) -> str:
    trace = parent.split("-")[1] if parent else secrets.token_hex(16)
    return f"00-{trace}-{secrets.token_hex(8)}-01"


@octop.on_enqueue
def carry_trace(task_type: str) -> dict[str, object] | None:
    # With OpenTelemetry: carrier = {}; propagate.inject(carrier); return carrier
    current = traceparent.get()
    return {"traceparent": current} if current else None


@octop.middleware
async def continue_trace(context: Context, call_next):
    # With OpenTelemetry: with tracer.start_as_current_span(context.task_type, context=propagate.extract(context.meta)): …
    parent = context.meta.get("traceparent")
    traceparent.set(new_span(parent if isinstance(parent, str) else None))
    logging.getLogger("trace").info("%s in %s, after %s", context.task_type, traceparent.get(), parent)
    return await call_next()


@octop.task
async def pack(order_id: int) -> str:
    await ship.enqueue(order_id)
    return traceparent.get() or ""


@octop.task
async def ship(order_id: int) -> str:
    return traceparent.get() or ""


if __name__ == "__main__":
    traceparent.set(new_span(None))  # in a web server: from the request's header
    pack.enqueue_sync(1)
    print(traceparent.get())
