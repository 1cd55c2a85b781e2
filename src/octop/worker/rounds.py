"""The walk over the lanes of a queue is bounded: whether it has come round, only several looks together can tell."""

from collections.abc import Mapping


class Rounds:
    """Follows looks that brought nothing. The order of lanes is that of their bytes, which is also Python's order of texts."""

    def __init__(self) -> None:
        """Begin with no round under way."""
        self._under_way: dict[str, tuple[str, bool]] = {}

    def found(self) -> None:
        """Take note that a look brought something: the next round begins anew."""
        self._under_way.clear()

    def go_on(self, before: Mapping[str, str], lanes: Mapping[str, str]) -> bool:
        """Take note of a look that brought nothing.

        Args:
            before: By queue, the lane after which that look began.
            lanes: By queue, the lane at which it stopped; queues whose look stopped where it began are not in it.

        Returns:
            True when some lane has not been looked at since something was found.
        """
        was, self._under_way = self._under_way, {}
        for queue, lane in lanes.items():
            began = before.get(queue, "")
            start, wrapped = was.get(queue, (began, False))
            turned = lane <= began
            if (turned and wrapped) or (turned or wrapped) and lane >= start:
                continue
            self._under_way[queue] = (start, turned or wrapped)
        return bool(self._under_way)
