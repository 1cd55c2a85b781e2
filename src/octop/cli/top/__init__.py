"""`octop top`: queues, workers, running tasks and failures, live, with keys that act."""
