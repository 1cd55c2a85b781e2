"""The worker: when to ask, how to run, what to send back."""

from octop.worker.embedded import run_embedded
from octop.worker.load import load_application
from octop.worker.options import WorkerOptions
from octop.worker.supervisor import run

__all__ = ["WorkerOptions", "load_application", "run", "run_embedded"]
