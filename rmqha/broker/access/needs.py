"""What a request needs of the account that sends it: topics and groups, or an administrator's.

The parts of the broker state it with these words beside their handlers.  Under access control a
request of which nothing is stated is refused.

Stock brokers look into nine kinds of requests and let any account send all others, so that one
that may not send to a topic can do so with a batch, or with a reply.

Source: docs/protocol/remoting.md, Access control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import evolve, frozen

from rmqha.broker.access.accounts import Grant
from rmqha.net.remoting.handlers import Handler
from rmqha.net.remoting.needs import Need
from rmqha.wire.names import RETRY_PREFIX
from rmqha.wire.remoting.command import Command

Wanted = tuple[str, Grant]
"""A topic, or a group under the name of its retry topic, with what is wanted of it.  Without a name
it stands for all of them: the default permission decides."""

PUB, SUB, EITHER = Grant.PUB, Grant.SUB, Grant.EITHER


@frozen(kw_only=True)
class AccountNeed(Need):
    """What is needed where there are accounts.

    @ivar wants: Gives what a request wants of topics and groups; C{None} where nobody has stated
        it.  It may raise what says that the request is none of its kind.
    @ivar master: Whether a slave leaves it to its master.
    """

    wants: Callable[[Command], Iterable[Wanted]] | None = None
    administrator: bool = False
    master: bool = False


Stated = tuple[AccountNeed, Handler]
"""A handler, and what its requests need."""


def of(said: str, wants: Callable[[Command], Iterable[Wanted]]) -> AccountNeed:
    """Something of some topics and groups."""
    return AccountNeed(said=said, wants=wants, listed=False)


def nothing(command: Command) -> Iterable[Wanted]:
    """No topic and no group."""
    return ()


ANY_ACCOUNT = of("any account", nothing)
"""What nodes ask each other, and tells of nothing that accounts have permissions for."""

TELLS_ALL = evolve(ANY_ACCOUNT, said="administrator", administrator=True)
"""What reads any message, or tells of all clients and groups."""

READS = evolve(TELLS_ALL, said="administrator, `adminAllowedPeers`", listed=True)
"""What reads the configuration or reaches into clients, and changes nothing."""

CHANGES = evolve(READS, audited=True)
"""What changes the broker."""

CHANGES_BY_TEXT = evolve(CHANGES, text=True)
"""The same by lines of its body."""

CHANGES_TABLES = evolve(CHANGES, master=True)
"""What a slave gets from its master alone."""


def in_group(name: str) -> Wanted:
    """To consume in a group."""
    return RETRY_PREFIX + name, SUB


def sent(topic: str) -> Wanted:
    """To send to a topic: who sends to a retry topic acts for the group."""
    return topic, SUB if topic.startswith(RETRY_PREFIX) else PUB


def sends(field: str) -> AccountNeed:
    """A message.

    @param field: Where its topic stands.
    """
    return of("PUB: topic", lambda command: [sent(command.ext.get(field, ""))])


def reads(*, groups: str = "", topics: str = "", topic_needs: Grant = SUB) -> AccountNeed:
    """A group, a topic or both, named by fields.

    @param groups: The field of the group; a request without it has none.
    @param topics: The field of the topic, which each request has.
    """

    def wants(command: Command) -> Iterable[Wanted]:
        if groups and groups in command.ext:
            yield in_group(command.ext[groups])
        if topics:
            yield command.ext.get(topics, ""), topic_needs

    words = [word for word, named in (("topic", topics), ("group", groups)) if named]
    return of(f"{'PUB or SUB' if topic_needs is EITHER else 'SUB'}: {', '.join(words)}", wants)


CONSUMES = reads(topics="topic", groups="consumerGroup")
"""What a group's consumers do with a topic."""

KNOWS = reads(topics="topic", topic_needs=EITHER)
"""What a topic's producers may know too."""


def reads_all(*, topics: bool = False, groups: bool = False) -> AccountNeed:
    """What is told of all topics, all groups or both."""
    wanted = [("", SUB)] * topics + [in_group("")] * groups
    words = ["all topics"] * topics + ["all groups"] * groups
    return of(f"SUB: {', '.join(words)}", lambda command: wanted)
