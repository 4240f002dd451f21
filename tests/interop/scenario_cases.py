"""What tests of sets under load share: members, load, and what must hold after it."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, Broker, Row, Sends, Sent
from lab.stock.controllers import StockController, answered, asking
from rmqha.controller.coordinator import SetState
from rmqha.controller.group import ControllerGroup
from rmqha.controller.overview import look, members
from rmqha.errors import ControllerRefused, NoController
from tests.interop.member_cases import Member, MemberTestCase
from tests.support import client

AGAIN = 100
"""Acknowledged writes that show that a set works again."""

MOST_READ = 15_000
"""Acknowledged messages of a topic that is still read as a whole."""

GROUP = "readers"
"""Whose consumer offset must never be lower than it was."""


class ScenarioTestCase(MemberTestCase):
    """A set under load, and the seconds that it may take to be whole, or acknowledge, again."""

    patience = BOOT

    def setUp(self) -> None:
        """Nothing is acknowledged or read yet."""
        super().setUp()
        self.acked: list[Sent] = []
        self.seen: set[Row] = set()
        # What GROUP has committed, and what each member of ours was seen to have of that.
        self.committed = 0
        self.had: dict[str, int] = {}

    def set_of(self, count: int, **keys: Any) -> list[Node]:
        """Start a controller and members of ours, and wait until all are in the SyncStateSet."""
        self.decider = self.controller()
        nodes = [self.ours(f"ours-{number + 1}", self.decider, **keys) for number in range(count)]
        with self.scenario(f"{count} join"):
            for node in nodes:
                node.start()
            self.until_led(nodes)
            self.until_in_sync(self.led(nodes), count)
            self.assertEqual({"SEND_OK": 50}, self.tool.put(50, self.topic).wait())
        return nodes

    def group(self, *asked: StockController) -> ControllerGroup:
        """Asks controllers about our set."""
        group = asking(asked)
        client: Any = group.client
        self.addCleanup(client.close)
        return group

    def elect(self, group: ControllerGroup, number: int) -> SetState:
        """Make a member master, as soon as the controller lets it."""
        found: list[Any] = []

        def elected() -> bool:
            found.clear()
            with contextlib.suppress(ControllerRefused, NoController):
                group.elect(number, designated=True).addBoth(found.append)
                if hasattr(found[0], "raiseException"):
                    found[0].raiseException()
                return found[0].master is not None and found[0].master.id == number
            return False

        until(elected, f"{number} is elected", BOOT, tell=lambda: str(found), pause=0.2)
        state: SetState = found[0]
        return state

    def until_dead(self, group: ControllerGroup, number: int) -> None:
        """Wait until the controllers take a member for dead."""

        def dead() -> bool:
            seen = answered(look(group, [group.name]))
            found = seen and seen.sets.get(group.name)
            return bool(found) and any(
                each.broker_id == number and not each.alive for each in members(found)
            )

        until(dead, f"{number} is dead", BOOT, pause=0.2)

    def id_of(self, node: Node) -> int:
        return int(node.status()["controller"]["id"])

    # --- load --------------------------------------------------------------------------

    def load(self, threads: int = 4) -> Sends:
        """Write until told that it is enough."""
        load = self.tool.put(1_000_000, self.topic, threads=threads)
        self.until_some(load.sent, 200)
        self.commit()
        self.read()
        return load

    def read(self) -> None:
        """What readers are given now has to be in all logs in the end.  They read all of the topic,
        which the helper keeps until it is told: after many rounds it would be too much for it.
        """
        if len(self.acked) < MOST_READ:
            self.seen.update(self.tool.pull(self.topic))

    def until_again(self, load: Sends) -> None:
        wanted = len(load.acked) + AGAIN
        until(
            lambda: len(load.acked) > wanted,
            "acknowledged again",
            self.patience,
            tell=self.tool.tail,
        )

    def until_refused(self, load: Sends) -> None:
        """Wait until writes are answered without SEND_OK, of which there are none meanwhile."""
        for last in (False, True):
            before, acked = len(load.sent), len(load.acked)
            until(
                lambda before=before: any(
                    each.status != "SEND_OK" for each in list(load.sent)[before:]
                ),
                "answered otherwise",
                BOOT,
                tell=self.tool.tail,
            )
            if last:
                self.assertEqual(len(load.acked), acked, "acknowledged by the master alone")

    def end_of(self, member: Member) -> int:
        if isinstance(member, Broker):
            return member.max_offset()
        return int(member.status()["maxOffset"])

    def least_end(self, load: Sends) -> int:
        """What a log has to be longer than that has all that is acknowledged by now."""
        sent = (*self.acked, *load.acked)
        return max((place for each in sent for place in each.places), default=-1)

    def enough(self, load: Sends) -> None:
        self.tool.enough()
        load.wait()
        self.acked += load.acked

    def assert_never_leads(self, node: Node, seconds: float) -> None:
        """Look for a while: it does not lead."""
        until_then = time.monotonic() + seconds
        while time.monotonic() < until_then:
            state = self.state(node)
            self.assertNotIn(state, ("promoting", "leading"), node.tail())
            time.sleep(0.2)

    # --- consumer offsets ----------------------------------------------------------------

    def offset_of(self, node: Node) -> int:
        """What a member of ours has of the group's offset, which is no less than it had."""
        address = f"127.0.0.1:{node.port}"
        found = client.committed(address, GROUP, self.topic, 0) or 0
        had = self.had.get(node.name, 0)
        self.assertGreaterEqual(found, had, f"{node.name} had a higher consumer offset before")
        self.had[node.name] = found
        return found

    def commit(self) -> None:
        """The group is further, where a member of ours leads; the others of ours know it soon."""
        living = [each for each in self._processes if isinstance(each, Node) and each.running]
        master = self.leader(living)
        if master is None:
            return
        if not self.committed:
            client.make_group(f"127.0.0.1:{master.port}", GROUP)
        self.committed += 1
        client.commit(f"127.0.0.1:{master.port}", GROUP, self.topic, 0, self.committed)
        self.until_offset(living)

    def until_offset(self, nodes: list[Node]) -> None:
        """Wait until members of ours know what the group has committed."""
        for node in nodes:
            until(
                lambda node=node: self.offset_of(node) == self.committed,
                f"the consumer offset is {self.committed} at {node.name}",
                BOOT,
                tell=node.tail,
                pause=0.2,
            )

    # --- invariants ----------------------------------------------------------------------

    def assert_settled(self, nodes: list[Node], *others: Broker) -> None:
        """All members, ours and Java's, come to the same log; what was acknowledged is there, at
        its place,
        in each, nothing that was read is missing, and no consumer offset is lower than it was.
        """
        with self.scenario("byte-equal, every SEND_OK held, nothing read is missing"):
            self.until_led(nodes)
            master = self.led(nodes)
            self.until_in_sync(master, len(nodes) + len(others))
            last = self.tool.put(20, self.topic)
            self.assertEqual({"SEND_OK": 20}, last.wait())
            self.acked += last.acked
            self.read()
            for node in nodes:
                if node is not master:
                    self.until_same(master, node)
            end = master.status()["maxOffset"]
            for other in others:
                other.until_max(end)
            self.until_offset(nodes)
            for other in others:
                other.stop()
            for node in sorted(nodes, key=lambda node: node is master):
                node.term()
            for each in (*nodes, *others):
                self.assert_same_log(master, each)
                self.assert_holds(each, self.acked)
            for other in others:
                self.assert_derived(other, exact=False, index=False)
                self.assert_same_units(master, other)
            self.assertEqual(set(), self.seen - set(self.log_rows(master)))
            for node in nodes:
                self.assert_quiet(node)
                self.assert_derived(node, exact=True)
