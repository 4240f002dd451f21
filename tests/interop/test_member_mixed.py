"""Sets of members of ours and Java members: who leads changes from one kind to the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT
from lab.stock.controllers import StockController
from rmqha.ha.master_epoch import EpochJournal
from rmqha.store.tables import epoch_file
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.store_layout import EPOCH_FILE_CHECKPOINT
from tests.interop.cases import rounds
from tests.interop.member_cases import Member
from tests.interop.mixed_cases import KEPT, MixedTestCase


class MixedPairTests(MixedTestCase):
    roles = "a member of ours, a Java member"
    long = True
    full_only = ("test_every_order", "test_every_order_after_java")

    def test_kills(self) -> None:
        """The master is killed: Java's, then ours."""
        self.begin(java_first=True)
        self.replaced("is killed (-9)", lambda master: master.kill9(), rounds(4, 40))

    def orders(self, *, java_first: bool) -> None:
        self.begin(java_first=java_first)
        for order in [*itertools.permutations(self.members)] * rounds(1, 1):
            names = ", ".join(member.name for member in order)
            with self.scenario(f"all are killed (-9) under load, and come as {names}"):
                load = self.load()
                for member in self.members:
                    member.kill9()
                least = self.least_end(load)
                for member in order:
                    member.launch()
                master = self.until_master(lambda master: True)
                self.assertGreater(self.end_of(master), least, f"{master.name} lacks what counts")
                self.until_whole()
                self.until_again(load)
                self.enough(load)
        self.end_with_ours()

    def test_every_order(self) -> None:
        """A member of ours was the first master."""
        self.orders(java_first=False)

    def test_every_order_after_java(self) -> None:
        """Java's was."""
        self.orders(java_first=True)


class MixedTripleTests(MixedTestCase):
    roles = "two members of ours, a Java member"
    long = True
    full_only = ("test_kills",)

    def test_switches_without_writes(self) -> None:
        """Two elections with no write between, in which the Java member is in the middle; then
        another one: no log has bytes of its own.
        """
        self.begin(ours=2)
        first, second = self.nodes
        for number in range(rounds(1, 3)):
            with self.scenario(f"ours, Java's and ours elected, no write between: {number + 1}"):
                self.enough(self.load())
                for member in (*self.javas, second):
                    self.elect(self.asked, self.number_of(member))
                    self.until_master(lambda master, wanted=member: master is wanted)
                    self.until_whole()
                load = self.load()
                self.elect(self.asked, self.number_of(first))
                self.until_state(first, "leading")
                self.until_whole()
                self.until_again(load)
                self.enough(load)
        self.end_with_ours()

    def test_kills(self) -> None:
        """Whoever is master is killed."""
        self.begin(ours=2)
        self.replaced("is killed (-9)", lambda master: master.kill9(), rounds(3, 9))


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "is torn": lambda text: text[: len(text) // 2],
    "has a wrong CRC": lambda text: text.replace(b"\n", b"1\n", 2),
    "is gone": lambda text: b"",
    "tells of bytes that are not there": lambda text: b"1\n0\n1-999999999\n",
}
"""What becomes of an epoch file's text."""


class EitherTests(MixedTestCase):
    roles = "two members, of ours and of Java's"
    full_only = (
        "test_damaged_epoch_files",
        "test_damaged_epoch_files_behind_java",
        "test_delays",
        "test_delays_then_java",
        "test_delays_of_java",
    )

    def damaged(self, letters: str) -> None:
        """A member's epoch file is torn, wrong, gone, or tells of bytes that are not there: it
        follows, and leads when it is elected.
        """
        self.begin_as(letters)
        for what, spoil in SPOILT.items():
            with self.scenario(f"a member comes back with an epoch file that {what}, and leads"):
                other = self.follower()
                load = self.load()
                other.term()
                path = other.root / EPOCH_FILE_CHECKPOINT
                spoilt = spoil(path.read_bytes())
                path.unlink()
                if spoilt:
                    path.write_bytes(spoilt)
                other.start()
                self.lead(other)
                self.until_again(load)
                self.enough(load)
        self.end_with_ours()

    def test_damaged_epoch_files(self) -> None:
        """Behind ours."""
        self.damaged("OO")

    def test_damaged_epoch_files_behind_java(self) -> None:
        """Behind Java's."""
        self.damaged("JO")

    def delays(self, letters: str) -> None:
        """Messages come due, and transactions are ended, on whoever leads then."""
        self.begin_as(letters)
        late, half, never = (f"{self.topic}-{name}" for name in ("late", "half", "never"))
        with self.scenario("delayed messages and transactions, the master is killed (-9)"):
            for topic in (late, half, never):
                self.tool.put(1, topic, wait=False).wait()
            self.until_known(late, half, never)
            kinds = ((late, "delay"), (half, "transaction"), (never, "transaction-rollback"))
            sends = [self.tool.put(40, topic, kind=kind) for topic, kind in kinds]
            for each in sends:
                self.assertEqual({KEPT: 40}, each.wait())
            self.first.kill9()
            self.until_master(lambda member: member is not self.first)
            self.first.start()
            self.until_whole()
            for topic, each in zip((late, half), sends, strict=False):
                wanted = {body for sent in each.acked for body in sent.bodies}
                until(
                    lambda topic=topic, wanted=wanted: (
                        wanted <= {row.body for row in self.tool.pull(topic)}
                    ),
                    f"all of {topic}",
                    BOOT,
                    pause=0.5,
                )
            rolled_back = {body for sent in sends[2].acked for body in sent.bodies}
            self.assertFalse(rolled_back & {row.body for row in self.tool.pull(never)})
        self.end_with_ours()

    def test_delays(self) -> None:
        """Ours, then ours."""
        self.delays("OO")

    def test_delays_then_java(self) -> None:
        """Ours, then Java's."""
        self.delays("OJ")

    def test_delays_of_java(self) -> None:
        """Java's, then ours."""
        self.delays("JO")


class ForgottenLabelTests(MixedTestCase):
    """Java slaves whose way to our master breaks around a new label."""

    roles = "a member of ours, Java slaves"
    full_only = ("test_two_slaves", "test_first_record_in_part")

    def labels(self, member: Member) -> tuple[EpochLabel, ...]:
        return tuple(epoch_file.read(member.root / EPOCH_FILE_CHECKPOINT).labels or ())

    def ours(self, name: str, controller: StockController, **keys: Any) -> Node:
        node = super().ours(name, controller, **keys)
        self.link = self.proxy(node.address)
        self.announce(node, self.link)
        return node

    def cut(self, least: int = 0) -> None:
        """Break all connections to our HA port; no Java member may have less than C{least} ever."""
        before = self.link.stats()["connections"]
        self.link.cut()

        def back() -> bool:
            for java in self.javas:
                self.assertGreaterEqual(java.max_offset(), least, f"{java.name} cut its log")
            # Of several one may stray, which takes a restart.
            alone, state = len(self.javas) == 1, self.decision()
            whole = state is not None and state.in_sync == {*map(self.known, self.members)}
            connected = self.link.stats()["connections"] >= before + len(self.javas)
            return connected and (whole or not alone)

        until(back, "they are back", self.patience, tell=self.tell, pause=0.1)
        self.until_whole()

    def elected_without_writes(self) -> None:
        """Java's is elected, and ours again, with no write between: a new label."""
        (ours,) = self.nodes
        self.elect(self.asked, self.number_of(self.javas[0]))
        self.until_master(lambda master: master is self.javas[0])
        self.until_whole()
        self.elect(self.asked, self.number_of(ours))
        self.until_state(ours, "leading")
        self.until_whole()

    def assert_kept(self) -> None:
        """Java members cut nothing, however often connections break, and have our labels."""
        (ours,) = self.nodes
        end = ours.status()["maxOffset"]
        for java in self.javas:
            java.until_max(end)
        for _ in range(2):
            self.cut(least=end)
            for java in self.javas:
                self.assertEqual(self.labels(ours), self.labels(java))

    def broken(self, count: int) -> None:
        """A new label, no write, the connections break; writes, they break again: Java slaves cut
        nothing that they acknowledged, and have the label.
        """
        self.begin(javas=count)
        (ours,) = self.nodes
        for number in range(rounds(1, 3)):
            with self.scenario(f"a new label, connections broken before and after: {number + 1}"):
                self.enough(self.load())
                self.until_whole()
                epoch = self.state_epoch(ours)
                self.elected_without_writes()
                self.assertGreater(self.state_epoch(ours), epoch)
                end = ours.status()["maxOffset"]
                for _ in range(2):
                    self.cut(least=end)
                self.enough(self.load())
                self.assert_kept()
        self.end_with_ours()

    def state_epoch(self, node: Node) -> int:
        """A member's newest master epoch."""
        return EpochJournal.read(node.root).number

    def test_one_slave(self) -> None:
        """One."""
        self.broken(1)

    def test_two_slaves(self) -> None:
        """Two."""
        self.broken(2)

    def test_first_record_in_part(self) -> None:
        """The first record under a new label has come in part when the connection breaks: the Java
        slave cuts off that part with the label, and takes the label over when it is told again.
        """
        self.begin()
        (ours,), (java,) = self.nodes, self.javas
        with self.scenario("a new label, the connection breaks within the first record under it"):
            self.elected_without_writes()
            start = ours.status()["maxOffset"]
            self.link.set("down", rate=50_000)
            # Name servers tell of the new master a little later.
            until(
                lambda: (
                    "FLUSH_SLAVE_TIMEOUT"
                    in self.tool.put(1, f"{self.topic}-big", kind="big", size=400_000).wait()
                ),
                "a write waits",
                BOOT,
                tell=self.tool.tail,
                pause=0.2,
            )
            self.assertTrue(start < java.max_offset() < ours.status()["maxOffset"])
            self.link.set("down")
            self.cut(least=start)
            self.enough(self.load())
            self.assert_kept()
        self.end_with_ours()
