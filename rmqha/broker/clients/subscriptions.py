"""
What a consumer wants of a topic: everything, or messages with certain tags.

Only the hashes of tags are compared here, which lets a few foreign messages through; clients
compare the tags themselves.  The hashes clients send are not used: those of some are wrong
outside ASCII.

Source: docs/protocol/remoting.md, Pulling.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.errors import RequestRefused
from rmqha.wire.log.hashing import tags_code
from rmqha.wire.remoting.bodies.clients import SubscriptionData
from rmqha.wire.remoting.codes import ResponseCode

TAG = "TAG"
"""The kind of expression that is understood; absent and empty mean it too."""

ALL = "*"
"""The expression for everything; an empty one means it too."""


@frozen(kw_only=True)
class Subscription:
    """
    A consumer's wish, ready to be compared with queue units.

    @ivar topic: Of which topic.
    @ivar version: The client's; it grows with every change.
    @ivar codes: The tags codes of what is wanted; C{None} is everything.
    @ivar kind: The kind of expression, C{TAG} if it is understood.
    @ivar data: As the client said it, for those who ask.
    """

    topic: str
    version: int
    codes: frozenset[int] | None
    kind: str = TAG
    data: SubscriptionData

    @property
    def understood(self) -> bool:
        """
        Whether it can be applied.
        """
        return self.kind == TAG


def subscribe(data: SubscriptionData) -> Subscription:
    """
    Understand a subscription.

    @raise RequestRefused: If its expression names no tag.
    """
    kind = data.expression_type or TAG
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
    """
    Understand what came with a pull.

    @raise RequestRefused: If the expression names no tag.
    """
    return subscribe(
        SubscriptionData(
            topic=topic,
            sub_string=expression or ALL,
            sub_version=version,
            expression_type=kind or TAG,
        )
    )


def require_understood(subscription: Subscription) -> None:
    """
    Refuse what cannot be applied: to send everything instead would be wrong, as the client
    does not look at such messages again.

    @raise RequestRefused: Saying so.
    """
    if not subscription.understood:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {subscription.kind[:64]}",
        )


def _codes(expression: str) -> frozenset[int]:
    tags = [tag for part in expression.split("||") if (tag := part.strip())]
    if not tags:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {expression[:64]!r} names no tag",
        )
    return frozenset(map(tags_code, tags))
