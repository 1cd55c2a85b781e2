# request_id.py: every line that is logged for a request says so, also those of the tasks that it enqueued
import logging
from contextvars import ContextVar

from octop import Context, Octop

octop = Octop()
request_id: ContextVar[str] = ContextVar("request_id", default="-")
make_record = logging.getLogRecordFactory()


def record_with_request(*args, **kwargs) -> logging.LogRecord:
    record = make_record(*args, **kwargs)
    record.request_id = request_id.get()  # a field of its own with `octop worker --log-format json`
    return record


logging.setLogRecordFactory(record_with_request)


@octop.on_enqueue
def carry_request(task_type: str) -> dict[str, object]:
    return {"request_id": request_id.get()}


@octop.middleware
async def restore_request(context: Context, call_next):
    request_id.set(str(context.meta.get("request_id", "-")))
    return await call_next()


@octop.task
def resize(picture: str) -> None:  # in a thread: context variables go along
    logging.getLogger("shop").info("resizing %s", picture)


if __name__ == "__main__":
    request_id.set("req-7f3a")  # in a web server: a middleware that reads X-Request-ID
    resize.enqueue_sync("cat.jpg")
