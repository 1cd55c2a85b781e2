"""The programs of the contenders; each runs under its own peer's Python or Node, from this folder."""
