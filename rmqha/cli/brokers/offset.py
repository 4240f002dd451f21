"""C{rmqha offset}: how far consumer groups are, and where they go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from attrs import asdict, frozen
from twisted.internet.error import ConnectionClosed

from rmqha.cli.brokers.asking import BrokerSite, Way, addresses, ask, asks_brokers
from rmqha.cli.brokers.entries import GROUPS, TOPICS, lag_rows, members_at
from rmqha.cli.brokers.shown import moment, show
from rmqha.cli.common import Commands, Whole, flag, note
from rmqha.errors import RmqhaError
from rmqha.nodes.broker_admin import BrokerAdmin

EARLIEST, LATEST = "earliest", "latest"
BEGIN, END = 0, -1
"""The times that mean a queue's begin and end."""


@frozen
class ResetGoal:
    """Where a group is to go on in each queue.

    @ivar offset: At this queue offset; C{None} for a time.
    @ivar time: In milliseconds since 1970, or L{BEGIN} or L{END}.
    """

    offset: int | None = None
    time: int = END

    @classmethod
    def of(cls, context: click.Context, option: click.Parameter, text: str) -> ResetGoal:
        """Read what a person wrote."""
        if text.isascii() and text.isdigit() and len(text) <= 18:
            return cls(offset=int(text))
        if text in (EARLIEST, LATEST):
            return cls(time=BEGIN if text == EARLIEST else END)
        return cls(time=moment(text))

    async def place(self, broker: BrokerAdmin, topic: str, queue: int) -> int:
        """Where that is in a queue.

        @raise click.ClickException: If the queue does not reach there.
        """
        first, end = await broker.first(topic, queue), await broker.end(topic, queue)
        if self.offset is not None:
            if not first <= self.offset <= end:
                raise click.ClickException(
                    f"queue {queue} of {topic} at {broker.address} has offsets {first} to {end}, "
                    f"and {self.offset} is none of them; --queue names the queue that is meant"
                )
            return self.offset
        if self.time in (BEGIN, END):
            return first if self.time == BEGIN else end
        return min(max(first, await broker.at_time(topic, queue, self.time)), end)


@frozen
class QueueMove:
    """Where a group is in a queue, and where it goes on."""

    broker: BrokerAdmin
    queue: int
    before: int | None
    after: int

    def row(self) -> dict[str, Any]:
        return asdict(self, recurse=False) | {"broker": self.broker.address}


@click.group(cls=Commands)
def offset() -> None:
    """Show and move the offsets of consumer groups."""


@offset.command("show")
@click.argument("group")
@click.argument("topic", required=False)
@asks_brokers
def show_(way: Way, group: str, topic: str | None, as_json: bool) -> None:
    """Show how far GROUP is in each queue, of TOPIC or of all that it consumes."""

    async def run(site: BrokerSite) -> list[dict[str, Any]]:
        there = await GROUPS.at(await site.readable(), group)
        rows = await lag_rows(list(there), group, topic)
        if topic is not None and not rows:
            await TOPICS.at(there, topic)
        return rows

    rows = ask(way, run)
    if not rows:
        note(f"group {group} has committed nothing{f' in topic {topic}' if topic else ''}")
    show({"offsets": rows}, as_json=as_json)
    if not as_json and rows:
        click.echo(f"lag of all queues: {sum(row['lag'] for row in rows)}")


_QUEUE = click.option("--queue", type=Whole(0), metavar="N", help="Only this queue.")
_DRY_RUN = flag("--dry-run", "Print where the group is and would be; change nothing.")


@offset.command("set")
@click.argument("group")
@click.argument("topic")
@click.argument("queue", type=Whole(0))
@click.argument("number", metavar="OFFSET", type=Whole(0))
@_DRY_RUN
@asks_brokers
def set_(way: Way, queue: int, number: int, **given: Any) -> None:
    """Set the offset of GROUP in one QUEUE of TOPIC, while it has no member online."""
    _move(way, goal=ResetGoal(offset=number), queue=queue, **given)


@offset.command()
@click.argument("group")
@click.argument("topic")
@click.option(
    "--to",
    "goal",
    required=True,
    callback=ResetGoal.of,
    metavar="earliest|latest|TIME|OFFSET",
    help="Go on there: a time such as 2026-01-31T12:00:00Z, or a whole number, an offset that "
    "each queue has.",
)
@_QUEUE
@_DRY_RUN
@asks_brokers
def reset(way: Way, **given: Any) -> None:
    """Have GROUP go on elsewhere in TOPIC.

    Without members online its offsets are set.  Members that are online are told the time by
    their broker; then an offset, or one queue alone, is refused.  A group must be there.
    """
    _move(way, **given)


def _move(
    way: Way,
    *,
    group: str,
    topic: str,
    goal: ResetGoal,
    queue: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:

    async def run(site: BrokerSite) -> list[dict[str, Any]]:
        brokers = await site.readable() if dry_run else list(await site.masters())
        there = list(await GROUPS.at(brokers, group))
        if len(there) < len(brokers):
            rest = addresses(each for each in brokers if each not in there)
            note(f"group {group} is not at {rest}, and is not moved there")
        moves = await _moves(there, group, topic, goal, queue)
        online = {each: await members_at(each, group) for each in there}
        members = sorted({member for ids in online.values() for member in ids})
        if members and (goal.offset is not None or queue is not None):
            raise click.ClickException(
                f"group {group} has members online ({', '.join(members)}) that would commit over "
                "it: stop them, or move all queues with `rmqha offset reset --to` earliest, "
                "latest or a time"
            )
        if not dry_run:
            moves = await _done(moves, group, topic, goal, online)
        return [move.row() for move in moves]

    rows = ask(way, run)
    show({"dryRun" if dry_run else "moved": rows}, as_json=as_json)
    if dry_run:
        note("nothing was changed: leave --dry-run out to do it")


async def _moves(
    brokers: list[BrokerAdmin], group: str, topic: str, goal: ResetGoal, queue: int | None
) -> list[QueueMove]:
    """Where a group is in each queue of a topic, and where it would go on.

    @raise click.ClickException: If topic or queue are not there.
    """
    counts = {
        each: max(config.read_queue_nums, config.write_queue_nums)
        for each, config in (await TOPICS.at(brokers, topic)).items()
    }
    chosen: Callable[[int], bool] = lambda number: queue in (None, number)  # noqa: E731
    moves = [
        QueueMove(
            broker,
            number,
            await broker.committed(group, topic, number),
            await goal.place(broker, topic, number),
        )
        for broker, count in counts.items()
        for number in filter(chosen, range(count))
    ]
    if not moves:
        told = ", ".join(f"{count} at {each.address}" for each, count in counts.items())
        raise click.ClickException(
            f"topic {topic} has no queue {queue}: it has {told}; `rmqha topic show {topic}` "
            "lists them"
        )
    return moves


async def _done(
    moves: list[QueueMove],
    group: str,
    topic: str,
    goal: ResetGoal,
    online: dict[BrokerAdmin, list[str]],
) -> list[QueueMove]:
    """Move it: by its members where it has some, else by committing for it.

    @return: What came of it, as the brokers say.
    """
    told: dict[BrokerAdmin, dict[int, int]] = {}
    found: list[QueueMove] = []
    for move in moves:
        broker, queue, after = move.broker, move.queue, move.after
        try:
            if not online[broker]:
                after = await _commit(broker, group, topic, queue, after)
            else:
                if broker not in told:
                    told[broker] = await broker.reset(group, topic, goal.time)
                after = told[broker].get(queue, after)
        except (RmqhaError, ConnectionClosed) as error:
            if not found:
                raise
            raise click.ClickException(
                f"{error}; {len(found)} of {len(moves)} queues are moved: give the command again"
            ) from error
        if after != move.after and not online[broker]:
            raise click.ClickException(
                f"{broker.address} took offset {move.after} for queue {queue} of {topic} and has "
                f"{after}: a member of {group} commits; stop it and give the command again"
            )
        found.append(QueueMove(broker, queue, move.before, after))
    return found


async def _commit(broker: BrokerAdmin, group: str, topic: str, queue: int, offset: int) -> int:
    """Commit for a group.  5.x takes no notice between a reset and the group's next pull, and has
    to be told by another reset.

    @return: What is committed then.
    """
    await broker.commit(group, topic, queue, offset)
    found = await broker.committed(group, topic, queue)
    if found != offset and (await broker.release()).startswith("V5"):
        await broker.reset(group, topic, END, queue, offset)
        found = await broker.committed(group, topic, queue)
    return -1 if found is None else found
