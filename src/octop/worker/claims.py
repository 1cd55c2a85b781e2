"""What a worker may ask for, and where that goes which it gets."""

import math
import time
from collections.abc import Mapping, Sequence

from octop.model.task import Claimed, Exchanged, Outcome, OutcomeKind
from octop.worker.ending import PAUSED
from octop.worker.holdings import Holdings
from octop.worker.lease import Lease
from octop.worker.marks import Marks
from octop.worker.pool import Pool


class Claims:
    """The places of all queues, as the exchanges fill them.

    Attributes:
        pools: Places by queue.
        held_queues: Queues that are paused: not asked for.
        claiming: False = nothing is asked for.
        ended: What still comes is given back.
        lanes: By queue, the lane after which the next walk begins.
        more: Queues whose last batch came back full: there is probably more.
        marks: Where the next claim begins.
        delivered: How many tasks have come.
        tasks_max: How many may come before this process has served.
        retired: It has served for another reason.
    """

    def __init__(self, holdings: Holdings, pools: Mapping[str, Pool], lease: Lease) -> None:
        """Begin without having asked.

        Args:
            holdings: What we hold.
            pools: Places by queue.
            lease: Nothing is claimed while it is over or in doubt: it could not be started.
        """
        self.pools = pools
        self.held_queues: frozenset[str] = frozenset()
        self.claiming = True
        self.ended = False
        self.lanes: dict[str, str] = {}
        self.more: set[str] = set()
        self.marks = Marks()
        self.delivered = 0
        self.tasks_max = math.inf
        self.retired = False
        self._paused: frozenset[str] = frozenset()
        self._paused_at: dict[str, int] = {}
        self._holdings = holdings
        self._lease = lease
        holdings.is_roomy = self.is_roomy
        holdings.take_back = self._take_back
        holdings.on_ready = self._start_later

    def is_roomy(self) -> bool:
        """Tell whether half of the places are free in a queue that probably has more."""
        return any(pool.is_roomy and pool.free > 0 and name in self.more for name, pool in self.pools.items())

    def wanted(self) -> dict[str, int]:
        """Return how many tasks may be asked for, by queue: of a backlog at most half of the places, so that two exchanges share them."""
        if not self.claiming or self.is_spent or time.monotonic() >= self._lease.until:
            return {}
        wanted = {
            name: min(pool.free, pool.half) if name in self.marks.by_queue else pool.free
            for name, pool in self.pools.items()
            if name not in self.held_queues and pool.free > 0
        }
        return wanted if self.tasks_max == math.inf else self._capped(wanted)

    @property
    def is_spent(self) -> bool:
        """Tell whether this process has served: nothing more is asked for, and it ends when nothing is held."""
        return self.retired or self.delivered >= self.tasks_max

    def _capped(self, wanted: dict[str, int]) -> dict[str, int]:
        """Ask for no more than may still come. Each queue is asked for all of it: it may be the only one that has tasks."""
        left = int(self.tasks_max) - self.delivered - sum(pool.asked for pool in self.pools.values())
        return {name: min(count, left) for name, count in wanted.items()} if left > 0 else {}

    def wanted_besides(self) -> dict[str, int]:
        """Return what a second exchange may ask for while another is under way: of queues whose last batch came back full, behind its mark.

        So it makes no walk over lanes and no look from the front: two at once would bring no more than one.
        """
        return {
            name: count
            for name, count in self.wanted().items()
            if name in self.marks.by_queue and name in self.more and self.pools[name].is_roomy
        }

    def ask(self, wanted: Mapping[str, int]) -> None:
        """Keep the places free that an exchange asks for."""
        for name, count in wanted.items():
            self.pools[name].asked += count

    def answered(self, wanted: Mapping[str, int]) -> None:
        """Take note that this exchange is over."""
        for name, count in wanted.items():
            self.pools[name].asked -= count

    def deliver(self, answer: Exchanged, wanted: Mapping[str, int], generation: int, *, is_behind: bool = True) -> bool:
        """Give the tasks to their queues; True when a look behind marks found too little: there may be something before them.

        Args:
            answer: What came.
            wanted: What was asked for.
            generation: Of the marks when it was asked for.
            is_behind: It was claimed behind the marks; False = by a look from the front, or back.
        """
        self.lanes.update(answer.lanes)
        fresh = self._holdings.accept(answer.tasks)
        self.delivered += len(fresh)
        if self.ended:
            # told to stop while the answer was on its way
            self._give_back([*fresh, *self._holdings.withdraw_waiting()], "its worker stopped before the start")
            return False
        if self._paused_at:
            late = [each for each in fresh if generation < self._paused_at.get(each.queue, 0)]
            self._give_back(late, PAUSED)
            fresh = [each for each in fresh if each not in late]
        by_queue = dict.fromkeys(wanted, 0)
        for claimed in answer.tasks:
            by_queue[claimed.queue] = by_queue.get(claimed.queue, 0) + 1
        for name in by_queue:
            mine = [claimed for claimed in fresh if claimed.queue == name] if len(by_queue) > 1 else fresh
            if mine:
                self.pools[name].add(mine)
        short = False
        for name, count in wanted.items():
            if name in answer.lanes:
                self.marks.drop(name)
            if by_queue[name] >= count:
                self.more.add(name)
                if name not in answer.lanes and generation == self.marks.generation:
                    self.marks.claimed(name, [each for each in answer.tasks if each.queue == name])
            else:
                self.more.discard(name)
                mine = (
                    [each for each in answer.tasks if each.queue == name] if generation == self.marks.generation else []
                )
                short |= self.marks.short(name, mine, is_behind=is_behind)
        return short

    def pause(self, queues: frozenset[str]) -> frozenset[str]:
        """Give back what was claimed of queues that have been paused since, and has not begun; return which these are.

        Also what is on its way here: of an exchange that was asked for before the pause was known.

        Args:
            queues: All that are paused now.
        """
        newly, self._paused = queues - self._paused, queues
        if newly:
            self.marks.forget()
            self._paused_at.update(dict.fromkeys(newly, self.marks.generation))
            unstarted = self._holdings.withdraw_waiting(newly)
            for name in newly & self.pools.keys():
                unstarted += self.pools[name].take_back()
            self._give_back(unstarted, PAUSED)
        return newly

    def _give_back(self, unstarted: Sequence[Claimed], why: str) -> None:
        for claimed in unstarted:
            self._holdings.outcome(Outcome(claimed.fence, OutcomeKind.RELEASED, error_message=why))

    def _take_back(self, claimed: Claimed) -> bool:
        pool = self.pools.get(claimed.queue)
        return pool is not None and pool.remove(claimed)

    def _start_later(self, claimed: Claimed) -> None:
        self.pools[claimed.queue].add([claimed])
