"""What a consumer wants of a topic: everything, messages with certain tags, or those that an SQL92
filter lets by.

Only the hashes of tags are compared here, which lets a few foreign messages through; clients
compare the tags themselves.  The hashes clients send are not used: those of some are wrong
outside ASCII.

Source: docs/protocol/remoting.md, Pulling and Filters.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.errors import ExpressionInvalid, RequestRefused
from rmqha.wire.log.hashing import tags_code
from rmqha.wire.remoting.bodies.clients import SubscriptionData
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.sql92.filter import SQL92, read_filter

TAG = "TAG"
"""The kind of expression that names tags; absent and empty mean it too."""

ALL = "*"
"""The expression for everything; an empty one means it too."""


@frozen(kw_only=True)
class Subscription:
    """A consumer's wish, ready to be compared with queue units.

    @ivar version: The client's; it grows with every change.
    @ivar codes: The tags codes of what is wanted; C{None} is everything.
    @ivar kind: The kind of expression.
    @ivar passing: With L{SQL92}, the text of the filter that lets messages by.  What is made of it
        is some fifty times as large, and kept for some filters only.
    @ivar fault: With L{SQL92}, why there is no such filter.
    @ivar data: As the client said it, for those who ask.
    """

    topic: str
    version: int
    codes: frozenset[int] | None
    kind: str = TAG
    passing: str | None = None
    fault: ExpressionInvalid | None = None
    data: SubscriptionData

    @property
    def is_all(self) -> bool:
        """Whether it is everything that is wanted."""
        return self.kind == TAG and self.codes is None


def subscribe(data: SubscriptionData) -> Subscription:
    """Understand a subscription.

    @raise RequestRefused: If its expression names no tag.
    """
    kind = data.expression_type or TAG
    if kind == SQL92:
        return _filtering(data)
    if kind != TAG or data.class_filter_mode or data.sub_string == ALL:
        codes = None
    elif data.sub_string:
        codes = _codes(data.sub_string)
    else:
        codes = frozenset(map(tags_code, data.tags_set)) or None
    return Subscription(
        topic=data.topic, version=data.sub_version, codes=codes, kind=kind, data=data
    )


def parse(topic: str, expression: str | None, kind: str | None, version: int = 0) -> Subscription:
    """Understand what came with a pull.

    @raise RequestRefused: If the expression names no tag.
    """
    return subscribe(
        SubscriptionData(
            topic=topic,
            sub_string=expression or ("" if kind == SQL92 else ALL),
            sub_version=version,
            expression_type=kind or TAG,
        )
    )


def require_understood(
    subscription: Subscription,
    *,
    filters: bool,
    code: ResponseCode = ResponseCode.SUBSCRIPTION_PARSE_FAILED,
) -> None:
    """Refuse what cannot be applied: to send everything instead would be wrong, as the client
    does not look at such messages again.

    @param filters: Whether consumers may filter by properties.
    @param code: What is answered to a filter that is none.
    @raise RequestRefused: Saying so.
    """
    kind, fault = subscription.kind, subscription.fault
    if kind == TAG:
        return
    if kind != SQL92 or not filters:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {kind[:64]}",
        )
    if fault is not None:
        raise RequestRefused(code, f"parse the consumer's subscription failed: {fault}")


def _filtering(data: SubscriptionData) -> Subscription:
    """A subscription with a filter, which may be none: a heartbeat is not refused for it, and who
    pulls is told.
    """
    fault = None
    try:
        read_filter(data.sub_string)
    except ExpressionInvalid as error:
        fault = error
    return Subscription(
        topic=data.topic,
        version=data.sub_version,
        codes=None,
        kind=SQL92,
        passing=data.sub_string,
        fault=fault,
        data=data,
    )


def _codes(expression: str) -> frozenset[int]:
    tags = [tag for part in expression.split("||") if (tag := part.strip())]
    if not tags:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {expression[:64]!r} names no tag",
        )
    return frozenset(map(tags_code, tags))
