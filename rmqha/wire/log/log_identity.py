"""Whose log it is.

All logs have the same offsets, and names are given twice.  So with the names goes the first record
that is there, by its fingerprint: every copy of a log has those bytes, and a log that was begun
anew under the same name has not.  Whoever keeps a place in a log keeps this beside it, and who
opens the log again compares what both know.

Source: docs/architecture.rst, Whose log it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from attrs import asdict, frozen


@frozen(kw_only=True)
class LogIdentity:
    """What is known of whose log it is.

    @ivar cluster: C{brokerClusterName} of its node, C{""} if unknown.
    @ivar broker: C{brokerName}, the same.
    @ivar first: Where the first record began that was there, a physical offset; -1 if unknown.
    @ivar sum: That record's fingerprint.
    """

    cluster: str = ""
    broker: str = ""
    first: int = -1
    sum: str = ""

    @property
    def name(self) -> str:
        where = f" of cluster {self.cluster}" if self.cluster else ""
        return f"{self.broker or '?'}{where}"

    def is_named_as(self, other: LogIdentity) -> bool:
        """Whether no name is another one, as far as both are known."""
        pairs = ((self.cluster, other.cluster), (self.broker, other.broker))
        return all(one == two or not (one and two) for one, two in pairs)

    def to_json(self) -> dict[str, Any]:
        """As a value of JSON, with its keys sorted: Spark compares positions as text."""
        return dict(sorted(asdict(self).items()))

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read what L{to_json} made; nothing is known of whose log it is where nobody said it.

        @raise ValueError: If it is something else.
        """
        kinds = {"cluster": str, "broker": str, "first": int, "sum": str}
        for key, value in dict(found).items():
            if type(value) is not kinds.get(key):
                raise ValueError(f"{key} of the identity of a log is {value!r}")
        return cls(**found)
