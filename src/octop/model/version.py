"""Which version of the package this is, and which of two is older."""

import math
import re
from importlib import import_module
from typing import Final

# As PyPI orders them: development, alpha, beta, candidate, release, post-release; what follows a plus is the packager's own.
_VERSION: Final = re.compile(
    r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?(?:\.post(\d+))?(?:\.dev(\d+))?(?:\+[a-z0-9.]+)?", re.IGNORECASE
)


def package_version() -> str:
    """Return the number that stands at the top of the package, such as ``0.1.0``."""
    return str(import_module("octop").__version__)


def is_older(version: str | None, than: str) -> bool:
    """Tell whether a version of this package is older than another; False if one of them is no version of ours.

    Args:
        version: Such as ``0.1.0``, or ``0.2.0.dev0``, which is older than ``0.2.0``.
        than: Likewise.

    Examples:
        >>> is_older("0.2.0", "0.10.0")
        True
        >>> is_older("0.2.0.dev0", "0.2.0")
        True
        >>> is_older("0.2.0", "0.2.0.dev0")
        False
        >>> is_older("0.2.0rc9", "0.2.0rc10")
        True
        >>> is_older("0.2.0", "0.2.0.post1")
        True
        >>> is_older("0.2.0+deb1", "0.2.0")
        False
    """
    first, second = (_VERSION.fullmatch(each or "") for each in (version, than))
    return first is not None and second is not None and _key(first) < _key(second)


def _key(found: re.Match[str]) -> tuple[int | float | str, ...]:
    major, minor, patch, stage, number, post, dev = found.groups()
    # of the same number: its development comes first, and a post-release last
    before = "z" if stage or dev is None or post is not None else ""
    return (
        int(major),
        int(minor),
        int(patch),
        stage.lower() if stage else before,
        int(number or 0),
        -1 if post is None else int(post),
        math.inf if dev is None else int(dev),
    )
