"""How long writes were not acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from attrs import define, field

from lab.stock.brokers import Sent


@define
class AckTimes:
    """When acknowledgements came, as who looks now and then sees; others append to C{sent}."""

    sent: Sequence[Sent]
    now: Callable[[], float]
    times: list[float] = field(factory=list, init=False)
    count: int = field(default=0, init=False)
    _seen: int = field(default=0, init=False)

    def look(self) -> None:
        told = self.sent[self._seen :]
        self._seen += len(told)
        new = sum(one.status == "SEND_OK" for one in told)
        if new:
            self.count += new
            self.times.append(self.now())

    def longest(self, since: float) -> float:
        """The longest time without one, from C{since} on, though it may have begun before."""
        before = [each for each in self.times if each <= since]
        times = [*before[-1:], *(each for each in self.times if each > since)]
        return max((end - begin for begin, end in pairwise(times)), default=0.0)
