"""How people write a rate: 100/m."""

import re
from typing import Final

from octop.model.errors import InvalidOptionError

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RATE_MIN: Final = 0.000_000_3
RATE_MAX: Final = 10_000.0


def rate_per_second(text: str | float) -> float:
    """Return starts per second.

    Args:
        text: A number of starts per second, or N/s, N/m, N/h, N/d; also with a number before the unit: 5/10s.

    Raises:
        InvalidOptionError: It is neither, or outside of 0.0000003 (one in 38 days) to 10,000 per second.

    Examples:
        >>> rate_per_second("90/m"), rate_per_second("5/10s"), rate_per_second(2)
        (1.5, 0.5, 2.0)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:/\s*(\d+(?:\.\d+)?)?\s*([smhd]))?\s*", str(text))
    span = _SECONDS[found[3]] * float(found[2] or 1) if found and found[3] else 1.0
    rate = float(found[1]) / span if found and span else 0.0
    if not RATE_MIN <= rate <= RATE_MAX:
        message = f"{text!r} is no rate"
        raise InvalidOptionError(
            message, hint="Such as 100/m: N/s, N/m, N/h, N/d or N/10s, from one in 38 days to 10,000 per second."
        )
    return rate


def spoken_rate(rate: float) -> str:
    """Return a rate for people: in the smallest unit in which it is a whole number, else in which it is at least 1.

    Args:
        rate: Starts per second.

    Examples:
        >>> spoken_rate(2), spoken_rate(100 / 60), spoken_rate(1 / 3600), spoken_rate(1 / 7)
        ('2/s', '100/m', '1/h', '8.5714/m')
    """
    counts = [(rate * seconds, unit) for unit, seconds in _SECONDS.items()]
    for count, unit in counts:
        if count > 0.5 and abs(count - round(count)) < 1e-6 * count:
            return f"{round(count)}/{unit}"
    count, unit = next(((count, unit) for count, unit in counts if count >= 1), counts[-1])
    return f"{count:.5g}/{unit}"
