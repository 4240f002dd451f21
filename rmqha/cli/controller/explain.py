"""C{rmqha controller explain}: who may be elected in a set, why others cannot, and the ways out
where nobody can, with what each loses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import click
from attrs import frozen
from rich.table import Table

from rmqha.cli.common import FAILED, JSON, TLS, stdout
from rmqha.cli.controller.asking import ADDRESSES, addresses_of, ask
from rmqha.controller.group import ControllerGroup
from rmqha.controller.other_members import ends_of
from rmqha.controller.overview import members
from rmqha.net.tls.tool_tls import ToolTls
from rmqha.wire.remoting.bodies.controller import ReplicasInfo, SetMember


@frozen(kw_only=True)
class Explanation:
    """One set, and what its members say.

    @ivar name: Its C{brokerName}.
    @ivar found: What the controllers know of it.
    @ivar ends: Where logs end, of members that answer, by controller id.
    """

    name: str
    found: ReplicasInfo
    ends: Mapping[int, int]

    @property
    def in_sync(self) -> list[int]:
        """From whom a master may be elected."""
        return sorted(each.broker_id for each in self.found.in_sync_replicas)

    @property
    def master(self) -> SetMember | None:
        """Who leads, and is alive."""
        known = (each for each in members(self.found) if each.alive)
        return next((each for each in known if each.broker_id == self.found.master_broker_id), None)

    def verdict(self, member: SetMember) -> str:
        """Whether a member may be elected, or why not."""
        if member.broker_id not in self.in_sync:
            return "no: it is not in sync, and may lack what was acknowledged"
        return "yes" if member.alive else "no: it is in sync, and not alive"

    def summary(self) -> str:
        """How the set is, in one sentence."""
        master = self.master
        able = [each.broker_id for each in members(self.found) if self.verdict(each) == "yes"]
        if master is not None:
            others = [number for number in able if number != master.broker_id]
            if others:
                return f"id {master.broker_id} is master; if it dies one of {others} is elected"
            return f"id {master.broker_id} is master; no other member can be elected"
        if able:
            return f"there is no master; the controllers elect one of {able} within seconds"
        return f"no member can be elected: only {self.in_sync} may be, and none of them is alive"

    def ways_out(self) -> Iterator[str]:
        """What can be done where nobody can be elected, the one that loses nothing first."""
        if self.master is not None:
            return
        dead = [each for each in self.found.in_sync_replicas if not each.alive]
        if len(dead) < len(self.in_sync):
            return
        where = ", ".join(f"id {each.broker_id} at {each.broker_address}" for each in dead)
        yield f"loses nothing: start {where or 'who was in sync'}, with its disk as it was"
        living = {each.broker_id for each in members(self.found) if each.alive}
        ends = {number: end for number, end in self.ends.items() if number in living}
        if not ends:
            yield "no other member is alive and says where its log ends: start those there are"
            return
        best = max(ends, key=lambda number: (ends[number], -number))
        yield (
            f"loses all that {self.in_sync} alone have, acknowledged messages among it, for good: "
            f"of the others id {best} has the longest log, up to byte {ends[best]}. Set "
            "enableElectUncleanMaster=true in the files of all controllers, restart them one after "
            "the other, wait until `rmqha controller status` shows a master, set it back to false, "
            "and restart them again"
        )


async def explained(group: ControllerGroup) -> Explanation:
    """Ask the controllers about a set, and its members where their logs end.

    @raise click.ClickException: If the controllers know no such set.
    @raise NoController: If nobody leads; and what else L{ControllerGroup.sets} raises.
    """
    found = (await group.sets((group.name,))).get(group.name)
    if found is None:
        raise click.ClickException(f"the controllers know no set {group.name}")
    everybody = [each.broker_id for each in members(found)]
    ends = await ends_of(group, group.client, group.name, everybody)
    return Explanation(name=group.name, found=found, ends=ends)


def show(seen: Explanation, *, as_json: bool) -> int:
    """Print it.

    @return: The exit code.
    """
    rows = members(seen.found)
    if as_json:
        found = {
            "set": seen.name,
            "masterId": None if seen.master is None else seen.master.broker_id,
            "summary": seen.summary(),
            "members": [
                {
                    "id": each.broker_id,
                    "address": each.broker_address,
                    "logEnd": seen.ends.get(each.broker_id),
                    "mayBeElected": seen.verdict(each),
                }
                for each in rows
            ],
            "waysOut": list(seen.ways_out()),
        }
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        table = Table("id", "address", "log ends at", "may be elected", box=None, pad_edge=False)
        for each in rows:
            end = seen.ends.get(each.broker_id)
            table.add_row(
                str(each.broker_id),
                each.broker_address,
                "?" if end is None else str(end),
                seen.verdict(each),
            )
        stdout().print(table, markup=False)
        click.echo(f"\nset {seen.name}: {seen.summary()}")
        for number, way in enumerate(seen.ways_out()):
            click.echo(f"{number + 1}. {way}")
    return 0 if seen.master is not None else FAILED


@click.command()
@ADDRESSES
@click.option("--set", "name", required=True, metavar="NAME", help="The set's brokerName.")
@TLS
@JSON
def explain(addresses: tuple[str, ...], name: str, tls: ToolTls, as_json: bool) -> int:
    """Say who may be elected master of a set, and what to do where nobody can be.

    Asks the controllers at ADDRESSES, and the members where their logs end.  For each way out it
    says what is lost by it.  Exit code 1 if the set has no living master.
    """
    seen = ask(addresses_of(addresses), explained, name=name, tls=tls.requests)
    return show(seen, as_json=as_json)
