"""Floor 2: one Python function per SQL function. The only floor that knows a database driver."""
