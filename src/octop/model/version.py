"""Which version of the package this is."""

from importlib import import_module


def package_version() -> str:
    """Return the number that stands at the top of the package, such as ``0.1.0``."""
    return str(import_module("octop").__version__)
