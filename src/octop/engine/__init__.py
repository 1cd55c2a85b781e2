"""Floor 2: one Python function per SQL function. The only floor that knows a database driver."""

from octop.engine.install import Installed, install, require, status

__all__ = ["Installed", "install", "require", "status"]
