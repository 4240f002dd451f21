"""Bodies of real peers that nothing of ours reads: a broker passes them on, or refuses."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from rmqha.wire.remoting.bodies.clients import SubscriptionData
from rmqha.wire.remoting.bodies.common import MessageQueue


@frozen(kw_only=True)
class RunningInfo:
    """Answers code 307 (each queue as the client knows it); a broker passes it on as it is."""

    properties: dict[str, str] = field(factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, dict[str, Any]] = field(factory=dict)
    status_table: dict[str, dict[str, Any]] = field(factory=dict)
    jstack: str | None = None
    extra: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class ConsumeDirectlyResult:
    """Answers code 309: C{CR_SUCCESS}, C{CR_LATER}, C{CR_ROLLBACK}, C{CR_COMMIT},
    C{CR_THROW_EXCEPTION}
    or C{CR_RETURN_NULL}.
    """

    consume_result: str
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    spent_time_mills: int = 0
