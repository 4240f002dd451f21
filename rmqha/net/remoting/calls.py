"""What the requests to a port came to: how long answers took, and what nothing here serves.

Those who serve what comes in runs measure it; acks and what is given back are told here.

Source: docs/guide/metrics.rst.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from rmqha.durations import Durations
from rmqha.errors import RequestRefused
from rmqha.wire.remoting.answers import Answer, code_of
from rmqha.wire.remoting.codes import ControllerRequestCode, RequestCode, ResponseCode

MOST_REFUSED = 200
"""Pairs of code and client that are counted apart: both are what others send."""

HELD = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
"""Requests whose answers may wait for messages to come."""

OTHERS = "others"
"""The client of what is counted together beyond that."""

Kind = tuple[int, int, bool]
"""Code of a request, code of its answer, and whether it was held until there were messages."""


@define(eq=False)
class Calls:
    """How long requests took until they were answered.

    @ivar seconds: A clock's, which must not jump.
    """

    seconds: Callable[[], float] = time.monotonic
    took: dict[Kind, Durations] = field(factory=dict, init=False)

    def add(
        self, code: int, answer: int, begun: float, *, held: bool = False, count: int = 1
    ) -> None:
        """A request was answered, or several that came together.

        @param answer: The code of the answer.
        @param begun: When it came, in the clock's seconds.
        @param held: Whether it was held until there were messages.
        """
        kind = code, answer, held
        took = self.took.get(kind)
        if took is None:
            took = self.took[kind] = Durations()
        took.add(self.seconds() - begun, count)

    def failed(self, code: int, begun: float, error: BaseException) -> None:
        """A handler raised."""
        self.add(code, _code_for(error), begun)

    def later(self, code: int, begun: float, answer: Deferred[Answer]) -> Deferred[Answer]:
        """A handler gives its answer later.  What its client did not wait for is not counted."""

        def told(result: Any) -> Any:
            if isinstance(result, Failure) and result.check(CancelledError):
                return result
            how = _code_for(result.value) if isinstance(result, Failure) else code_of(result)
            self.add(code, how, begun, held=code in HELD)
            return result

        return answer.addBoth(told)


@define(eq=False)
class RefusedRequests:
    """Requests that nothing here serves: which feature a client misses.

    @ivar counts: How many, by code and the client's host.
    """

    counts: Counter[tuple[int, str]] = field(factory=Counter, init=False)

    def add(self, code: int, host: str) -> None:
        key = code, host
        if len(self.counts) >= MOST_REFUSED and key not in self.counts:
            key = -1, OTHERS
        self.counts[key] += 1


def refused_rows(counts: Counter[tuple[int, str]]) -> list[dict[str, Any]]:
    """C{refusedRequests} of C{/status}, the commonest first."""
    return [
        {"code": code, "name": name_of(code), "client": host, "count": count}
        for (code, host), count in counts.most_common()
    ]


def name_of(code: int) -> str:
    """What a request code is called; its number, where it has no name here."""
    for codes in (RequestCode, ControllerRequestCode):
        if code in codes.__members__.values():
            return codes(code).name
    return str(code)


def _code_for(error: BaseException | None) -> int:
    return int(error.code) if isinstance(error, RequestRefused) else ResponseCode.SYSTEM_ERROR
