"""The application of `paying`, in a worker that is not told what it has lost: only the fence is left."""

from octop.worker.recall import Recall
from tests.system.apps.paying import octop as octop

Recall.lost = lambda *_: None  # type: ignore[method-assign]
