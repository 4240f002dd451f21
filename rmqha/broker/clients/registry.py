"""Who is there: the producers and consumers that sent a heartbeat.

Each member of a group keeps its own subscriptions.  Stock brokers keep one table a group, which
the last heartbeat overwrites: members that differ then fail each other's pulls.

Source: docs/protocol/remoting.md, Clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from attrs import define, field

from rmqha.broker.clients.subscriptions import Subscription
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting.bodies.clients import ConsumeFromWhere, ConsumeType, MessageModel
from rmqha.wire.remoting.codes import LanguageCode, RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.clients import ConsumerGroupRequest

EXPIRY = 120.0
"""Seconds without a heartbeat after which a member is forgotten; clients send one every 30 s."""


@define(eq=False, kw_only=True)
class Member:
    """One client in one group, on one connection.

    @ivar client_id: By its own word; several connections may have the same.
    @ivar version: Of the client, see L{CURRENT_VERSION<rmqha.wire.remoting.codes.CURRENT_VERSION>}.
    @ivar seen: Its last heartbeat, in the clock's seconds.
    @ivar account: By which its last heartbeat was signed; empty for none.
    @ivar subscriptions: What it wants, by topic; a producer wants nothing.
    """

    connection: RemotingProtocol
    client_id: str
    language: LanguageCode
    version: int
    seen: float
    account: str = ""
    subscriptions: dict[str, Subscription] = field(factory=dict)


@define(eq=False)
class Group:
    """Members by connection."""

    name: str
    members: dict[RemotingProtocol, Member] = field(init=False, factory=dict)


@define(eq=False)
class ProducerGroup(Group):
    """The producers of a group."""

    def next(self, may: Callable[[Member], bool]) -> Member | None:
        """A member, each in its turn; C{None} if there is none.

        @param may: Whether it may be asked.
        """
        for connection, member in self.members.items():
            if connection.opened and may(member):
                # To the end of the line.
                self.members[connection] = self.members.pop(connection)
                return member
        return None


@define(eq=False)
class ConsumerGroup(Group):
    """The consumers of a group; its ways are those of the last heartbeat."""

    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    def subscriptions(self) -> dict[str, Subscription]:
        """What any member wants, the newest of each topic."""
        found: dict[str, Subscription] = {}
        for member in self.members.values():
            for topic, subscription in member.subscriptions.items():
                other = found.get(topic)
                if other is None or other.version < subscription.version:
                    found[topic] = subscription
        return found

    def subscription(self, topic: str, connection: RemotingProtocol) -> Subscription | None:
        """A member's subscription to a topic; if it has none, another member's."""
        member = self.members.get(connection)
        own = None if member is None else member.subscriptions.get(topic)
        return own or self.subscriptions().get(topic)

    def client_ids(self) -> tuple[str, ...]:
        """The members, each once: one that reconnects is there twice for a while."""
        return tuple(dict.fromkeys(member.client_id for member in self.members.values()))


G = TypeVar("G", bound=Group)


class _Groups(Generic[G]):
    """Groups that are there as long as they have members."""

    def __init__(self, cls: type[G]) -> None:
        self._cls = cls
        self._groups: dict[str, G] = {}
        # The groups of a connection, so that its end costs what it was in.
        self._of: dict[RemotingProtocol, set[str]] = {}

    def __iter__(self) -> Iterator[G]:
        return iter(tuple(self._groups.values()))

    def group(self, name: str) -> G | None:
        return self._groups.get(name)

    def connections(self) -> Iterable[RemotingProtocol]:
        return tuple(self._of)

    def names(self) -> Iterable[str]:
        return tuple(self._groups)

    def _join(self, name: str, member: Member) -> tuple[G, Member | None]:
        """@return: The group, and the member that was there on this connection before."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = self._cls(name)
        before = group.members.get(member.connection)
        group.members[member.connection] = member
        self._of.setdefault(member.connection, set()).add(name)
        return group, before

    def _leave(self, name: str, connection: RemotingProtocol) -> G | None:
        """@return: The group, if it has lost a member."""
        group = self._groups.get(name)
        if group is None or group.members.pop(connection, None) is None:
            return None
        if not group.members:
            del self._groups[name]
        names = self._of[connection]
        names.discard(name)
        if not names:
            del self._of[connection]
        return group

    def _expired(self, before: float) -> list[tuple[str, RemotingProtocol]]:
        return [
            (group.name, connection)
            for group in self
            for connection, member in group.members.items()
            if member.seen < before
        ]

    def _groups_of(self, connection: RemotingProtocol) -> tuple[str, ...]:
        return tuple(self._of.get(connection, ()))


class Producers(_Groups[ProducerGroup]):
    """The producers, by group and by client."""

    def __init__(self) -> None:
        super().__init__(ProducerGroup)
        self._clients: dict[str, Member] = {}

    def client(self, client_id: str) -> Member | None:
        """A client, as it was last heard of."""
        return self._clients.get(client_id)

    def heard(self, name: str, member: Member) -> None:
        """A producer said that it is there.  A client id that another account's open connection has
        stays with that.
        """
        _, before = self._join(name, member)
        if before is not None and before.client_id != member.client_id:
            self._forget(before)
        holder = self._clients.get(member.client_id)
        if holder is None or holder.account == member.account or not holder.connection.opened:
            self._clients[member.client_id] = member

    def leave(self, name: str, connection: RemotingProtocol) -> None:
        """A producer leaves a group."""
        group = self.group(name)
        member = None if group is None else group.members.get(connection)
        self._leave(name, connection)
        if member is not None and not self._groups_of(connection):
            self._forget(member)

    def lost(self, connection: RemotingProtocol) -> None:
        """Forget a connection that has ended, in all groups."""
        for name in self._groups_of(connection):
            self.leave(name, connection)

    def expire(self, now: float) -> None:
        """Forget who has not been heard of for long."""
        for name, connection in self._expired(now - EXPIRY):
            self.leave(name, connection)

    def _forget(self, member: Member) -> None:
        holder = self._clients.get(member.client_id)
        if holder is not None and holder.connection is member.connection:
            del self._clients[member.client_id]


class Consumers(_Groups[ConsumerGroup]):
    """Consumer groups: members, subscriptions, and how they consume."""

    def __init__(self) -> None:
        super().__init__(ConsumerGroup)

    def broadcasts(self, name: str) -> bool:
        """Whether each member of a group gets all messages, so that no broker knows how far they
        are.
        """
        group = self.group(name)
        return group is not None and group.message_model is MessageModel.BROADCASTING

    def heard(self, name: str, member: Member) -> tuple[ConsumerGroup, bool]:
        """A consumer said that it is there, and what it wants.

        @return: Its group, and whether that is not as it was: a member is new, or topics are.
        """
        group, before = self._join(name, member)
        if before is None:
            return group, True
        return group, before.subscriptions.keys() != member.subscriptions.keys()

    def leave(self, name: str, connection: RemotingProtocol) -> ConsumerGroup | None:
        """A consumer leaves a group.

        @return: The group, if it has lost a member.
        """
        return self._leave(name, connection)

    def lost(self, connection: RemotingProtocol) -> list[ConsumerGroup]:
        """A connection has ended.

        @return: The groups that have lost a member.
        """
        left = (self.leave(name, connection) for name in self._groups_of(connection))
        return [group for group in left if group is not None]

    def expire(self, now: float) -> list[ConsumerGroup]:
        """Forget who has not been heard of for long.

        @return: The groups that have lost a member.
        """
        left = (self.leave(*place) for place in self._expired(now - EXPIRY))
        return list({id(group): group for group in left if group is not None}.values())

    def notify(self, name: str) -> None:
        """Tell all members of a group that it has changed, so that they share its queues anew."""
        group = self.group(name)
        for connection in () if group is None else tuple(group.members):
            connection.oneway(
                Command.request(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    ConsumerGroupRequest(consumer_group=name),
                )
            )


@define(eq=False)
class ClientRegistry:
    """All who are there.  They stay when a slave's repair makes a new broker: they say what they
    want every half minute, and would get nothing meanwhile.
    """

    producers: Producers = field(factory=Producers)
    consumers: Consumers = field(factory=Consumers)
