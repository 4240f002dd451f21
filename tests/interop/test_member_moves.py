"""Stores that change the kind of node and back, and members that return to a changed set."""

from __future__ import annotations

from typing import Any

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote
from lab.harness.writer import Driver
from lab.stock.brokers import BOOT, Broker
from rmqha.store.tables import epoch_file
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.interop.member_cases import Member
from tests.interop.mixed_cases import KEPT, MixedTestCase
from tests.interop.scenario_cases import ScenarioTestCase

OURS_ALONE = {"controllerAloneAnswer": "ok"}
"""Writes are answered as a Java member alone answers them."""


class ClassicPairTests(ScenarioTestCase):
    """A pair of ours without controllers, and with them."""

    roles = "a pair of ours, then two members"
    full_only = ("test_over_and_back",)

    def classic(self, node: Node, master: Node | None = None) -> None:
        """Make a stopped member a node of a classic pair."""
        node.role = "master" if master is None else "slave"
        for key in ("enableControllerMode", "controllerAddr"):
            node.keys.pop(key, None)
        node.keys["brokerRole"] = "SYNC_MASTER" if master is None else "SLAVE"
        node.keys["brokerId"] = 0 if master is None else 1
        if master is not None:
            node.keys["haMasterAddress"] = f"127.0.0.1:{master.ha_port}"

    def member(self, node: Node) -> None:
        """Make a stopped node of a pair a member, as the guide says."""
        node.role = "member"
        node.keys.pop("haMasterAddress", None)
        node.keys["enableControllerMode"] = "true"
        node.keys["controllerAddr"] = self.decider.address

    def write(self, count: int = 50) -> None:
        sends = self.tool.put(count, self.topic)
        self.assertEqual({"SEND_OK": count}, sends.wait())
        self.acked += sends.acked

    def test_over_and_back(self) -> None:
        """A pair becomes a set, whose master is killed, and a pair again: the same bytes."""
        self.decider = self.controller()
        first, second = nodes = [self.ours(f"ours-{n}", self.decider) for n in (1, 2)]
        self.classic(first)
        self.classic(second, first)
        with self.scenario("a classic pair writes, and is stopped"):
            first.start()
            second.start().until_upstream("in-sync")
            self.write()
            self.until_same(first, second)
            second.term()
            first.term()
        with self.scenario("its former slave starts first, as a member: it waits for the other"):
            for node in nodes:
                self.member(node)
            second.launch()
            self.until_state(second, "waiting")
            first.start()
            self.until_state(first, "leading")
            self.until_in_sync(first, 2)
            self.write()
        with self.scenario("the master is killed (-9) under load"):
            load = self.load()
            first.kill9()
            self.until_state(second, "leading")
            first.start()
            self.until_in_sync(second, 2)
            self.until_again(load)
            self.enough(load)
            self.until_same(second, first)
        with self.scenario("it is a classic pair again"):
            first.term()
            second.term()
            self.classic(second)
            self.classic(first, second)
            second.start()
            first.start().until_upstream("in-sync")
            self.write()
            self.until_same(second, first)
            first.term()
            second.term()
            self.assert_same_log(second, first)
            for node in nodes:
                self.assertEqual([], node.cuts)
                self.assert_holds(node, self.acked)
                self.assert_quiet(node)
                self.assert_derived(node, exact=True)


class OneStoreTests(ScenarioTestCase):
    """One store, opened by a member of ours and by a Java member in turn."""

    roles = "a member of ours, then Java's with its store, and back"
    full_only = ("test_in_turn",)

    def write(self, count: int = 50) -> None:
        """Write until so many are acknowledged; a producer may ask for the master's place first."""
        wanted = len(self.acked) + count

        def written() -> bool:
            sends = self.tool.put(10, self.topic)
            sends.wait()
            self.acked += sends.acked
            return len(self.acked) >= wanted

        until(written, f"{count} acknowledged", BOOT, tell=self.tool.tail, pause=0.2)

    def test_in_turn(self) -> None:
        """Each is master with the one before's id, goes on behind its bytes, has its labels."""
        self.decider = self.controller()
        ours = self.ours("ours", self.decider, **OURS_ALONE)
        java = self.java("java", self.decider)
        java.root = ours.root
        java.keys["storePathRootDir"] = ours.root
        java.keys["storePathCommitLog"] = ours.root / "commitlog"
        for name in ("ours", "Java's", "ours", "Java's", "ours"):
            with self.scenario(f"{name} leads, with the store of the one before"):
                if name == "ours":
                    ours.start()
                    self.until_state(ours, "leading")
                    self.assertEqual(self.id_of(ours), 1)
                else:
                    java.start()
                self.write()
                self.assertEqual((ours.root / "brokerIdentity").read_text().split("#")[2], "1")
                if name == "ours":
                    end = ours.status()["maxOffset"]
                    self.assertEqual(ours.status()["controller"]["confirmOffset"], end)
                    ours.term()
                else:
                    java.stop()
        with self.scenario("all of it is there, under labels that ascend, for both"):
            labels = epoch_file.read(ours.root / "epochFileCheckpoint").labels or ()
            numbers = [each.label for each in labels]
            self.assertEqual(numbers, sorted(set(numbers)))
            self.assertGreaterEqual(len(numbers), 2)
            self.assertEqual([], ours.cuts)
            self.assert_holds(ours, self.acked)
            self.assert_derived(ours, exact=True)
            self.assert_opens_in_java(ours)


class RetentionTests(MixedTestCase):
    """The master deletes old files while a member is away."""

    roles = "two members, of ours and of Java's"
    full_only = ("test_away", "test_away_from_java", "test_java_away")

    def ours(self, *given: Any, **keys: Any) -> Any:
        """One whose clock can be told."""
        return super().ours(*given, kind=Driver, fileReservedTime=1, haRetentionGrace=100, **keys)

    def away(self, letters: str) -> None:
        """A member is away while the master's first files go, up to where its log goes on."""
        self.begin_as(letters)
        with self.scenario("a member is away while the master's first files are deleted"):
            end = self.end_of(self.last)
            self.stop(self.last)
            self.until_only(self.first)
            self.tool.put(800, self.topic, size=4000).wait()
            if isinstance(self.first, Broker):
                self.first.stop()
                for path in sorted(self.first.settings().commitlog.iterdir())[:-2]:
                    path.unlink()
                self.first.start()
                self.until_master(lambda master: master is self.first)
            else:
                self.expire(self.first, end)

    def end_of(self, member: Member) -> int:
        if isinstance(member, Broker):
            return member.max_offset()
        return int(member.status()["maxOffset"])

    def expire(self, master: Driver, end: int) -> None:
        """Have a master of ours delete what lies below C{end}, as it is two hours old."""
        master.do("clock", offset=2 * 3600.0)
        remote = Remote(master.port)
        self.addCleanup(remote.close)

        def deleted() -> bool:
            remote.ask(Command.request(RequestCode.DELETE_EXPIRED_COMMITLOG))
            return bool(master.status()["minOffset"] > end)

        until(deleted, f"bytes below {end} are deleted", BOOT, tell=master.tail, pause=0.5)
        master.do("clock", offset=0.0)

    def copied(self) -> None:
        """Both have the same bytes from where the first log begins, and what was acknowledged."""
        sends = self.tool.put(50, self.topic)
        self.assertEqual({KEPT: 50}, sends.wait())
        end = self.end_of(self.first)
        until(lambda: self.end_of(self.last) == end, "the same end", BOOT, tell=self.tell)
        for member in (self.last, self.first):
            self.stop(member)
        first = int(min(path.name for path in (self.first.root / "commitlog").iterdir()))
        self.assert_same_log(self.first, self.last, first=first)
        self.assert_holds(self.last, sends.acked)
        self.assert_quiet(*self.nodes)

    def back(self, letters: str) -> None:
        """A member of ours says that its log ends below the master's first byte and is no part of
        the set, until its configuration has it copy the whole log.
        """
        self.away(letters)
        other = self.nodes[-1]
        with self.scenario("it comes back: below-min, and not in sync"):
            other.start()
            other.until_upstream("below-min")
            self.assertIn("replication-below-min", other.reasons())
            self.until_only(self.first)
        with self.scenario("it is told to copy the whole log: in sync, the same bytes"):
            other.term()
            other.keys |= {"haDivergencePolicy": "rebootstrap", "controllerCutPolicy": "all"}
            other.start()
            self.until_whole()
            self.copied()

    def test_away(self) -> None:
        """From ours."""
        self.back("OO")

    def test_away_from_java(self) -> None:
        """From Java's."""
        self.back("JO")

    def test_java_away(self) -> None:
        """Java's, from ours."""
        self.away("OJ")
        with self.scenario("Java's comes back: closed as below-min, and not in sync"):
            self.last.start()
            until(
                lambda: self.first.status()["closedConnections"].get("below-min"),
                "closed",
                BOOT,
                tell=self.tell,
                pause=0.2,
            )
            self.until_only(self.first)
        with self.scenario("it is emptied, with its id: in sync, the same bytes"):
            self.last.stop()
            self.empty(self.last)
            self.last.start()
            self.until_whole()
            self.copied()
