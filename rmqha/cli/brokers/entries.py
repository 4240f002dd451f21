"""What topics and groups have in common: an entry of a broker's table, alike at all masters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

import click
from attrs import evolve, frozen

from rmqha.cli.brokers.asking import BrokerSite, addresses, at_each
from rmqha.cli.common import note
from rmqha.nodes.broker_admin import BrokerAdmin

E = TypeVar("E", bound=Any)

Put = Callable[[BrokerAdmin, E], Awaitable[None]]
"""Writes one."""


def alike(rows: Iterable[tuple[dict[str, Any], str]]) -> list[dict[str, Any]]:
    """One row for brokers that say the same, with their addresses."""
    found: dict[str, dict[str, Any]] = {}
    for each, address in rows:
        found.setdefault(repr(each), {**each, "brokers": []})["brokers"].append(address)
    return [found[key] for key in sorted(found)]


@frozen(kw_only=True)
class EntryKind(Generic[E]):
    """One kind of them.

    @ivar noun: What a person calls it, and the command.
    @ivar table: Asks a broker for all of them.
    @ivar row: What is shown of one.
    """

    noun: str
    table: Callable[[BrokerAdmin], Awaitable[dict[str, E]]]
    row: Callable[[E], dict[str, Any]]

    def absent(self, name: str, brokers: Iterable[BrokerAdmin]) -> click.ClickException:
        """Says that one is not there."""
        return click.ClickException(
            f"{self.noun} {name} is not at {addresses(brokers)}; `rmqha {self.noun} list` names "
            f"those that are, `rmqha {self.noun} create {name}` makes it"
        )

    async def at(self, brokers: Iterable[BrokerAdmin], name: str) -> dict[BrokerAdmin, E]:
        """One as the brokers have it that do.

        @raise click.ClickException: If none has it.
        """
        found = {broker: (await self.table(broker)).get(name) for broker in brokers}
        there = {broker: entry for broker, entry in found.items() if entry is not None}
        if not there:
            raise self.absent(name, found)
        return there

    def rows(self, there: dict[BrokerAdmin, E]) -> list[dict[str, Any]]:
        """What is shown of one, a row for brokers where it is the same."""
        return alike((self.row(entry), broker.address) for broker, entry in there.items())

    async def create(
        self,
        site: BrokerSite,
        name: str,
        entry: E,
        put: Callable[[BrokerAdmin, E], Awaitable[None]],
    ) -> list[dict[str, Any]]:
        """Make one where it is not.

        @return: What is shown of it then.
        """
        masters = await site.masters()
        lack = [each for each in masters if name not in await self.table(each)]
        has = [each for each in masters if each not in lack]
        if not lack:
            raise click.ClickException(
                f"{self.noun} {name} is already at {addresses(has)}; "
                f"`rmqha {self.noun} change {name}` changes it"
            )
        if has:
            note(f"{addresses(has)} had {self.noun} {name} before; it was not changed there")
        await at_each(lack, lambda broker: put(broker, entry), f"{name} is made")
        return self.rows(await self.at(lack, name))

    async def change(
        self, site: BrokerSite, name: str, changes: dict[str, Any], put: Put[E]
    ) -> list[dict[str, Any]]:
        """Change one where it is: it is read, and written whole.

        @return: What is shown of it then.
        """
        there = await self.at(await site.masters(), name)
        await at_each(
            list(there),
            lambda broker: put(broker, evolve(there[broker], **changes)),
            f"{name} is changed",
        )
        return self.rows(await self.at(there, name))
