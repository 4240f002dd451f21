"""A slave that follows its master's consumer offsets as they change."""

from __future__ import annotations

from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionLost

from rmqha.broker.cluster.slave_sync import PAUSE, WAIT
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from tests.broker.cluster.test_slave_sync import MetadataTestCase
from tests.broker.metadata_master import PlayedMaster, group, offsets_body, topic


@define(eq=False)
class VersionedMaster(PlayedMaster):
    """A master of ours: its table of offsets has a version."""

    version: str = "one-1"
    questions: list[str] = field(factory=list)
    waiting: Deferred[Command] | None = None
    _command: Command | None = None

    def request(self, command: Command, timeout: float) -> Deferred[Command]:
        """Answer, but not who waits for a change."""
        if command.code != Code.GET_ALL_CONSUMER_OFFSET or command.code in self.answers:
            return super().request(command, timeout)
        since = command.ext["offsetsSince"]
        self.questions.append(since)
        if since != self.version:
            self.asked.append(command.code)
            answer = command.answer(body=self.body(command.code))
            answer.ext["offsetsVersion"] = self.version
            return succeed(answer)
        self.waiting, self._command = Deferred(), command
        return self.waiting

    def change(self, version: str, table: dict[str, dict[int, int]], **more: str) -> None:
        for key, queues in table.items():
            self.offsets.setdefault(key, {}).update(queues)
        self.version = version
        waiting, self.waiting = self.waiting, None
        assert waiting is not None and self._command is not None
        answer = self._command.answer(body=offsets_body(table))
        answer.ext = {"offsetsVersion": version, "changesOnly": "true", **more}
        waiting.callback(answer)

    def lose(self) -> None:
        """Lose the connection on which a slave waits."""
        waiting, self.waiting = self.waiting, None
        assert waiting is not None
        waiting.errback(ConnectionLost())


class FeedTests(MetadataTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.master: Any = VersionedMaster(self.clock)
        self.master.topics["Orders"] = topic("Orders")
        self.master.groups["g"] = group("g")
        self.master.offsets["Orders@g"] = {0: 12, 1: 3}
        self.broker_of = self.slave()
        self.offsets = self.broker_of.offsets
        self.assertEqual(["adopted"] * 5, self.states())

    def live(self) -> bool:
        found: bool = self.broker_of.metadata.status()["offsetFeed"]["live"]
        return found

    def change(self, version: str, table: dict[str, dict[int, int]], **more: str) -> None:
        """Something changes on the master, and the slave asks again."""
        self.master.change(version, table, **more)
        self.turns()
        self.turns(PAUSE)

    def test_changes(self) -> None:
        """What changes comes at once, in both directions; what did not stays."""
        self.assertTrue(self.live())
        self.change("one-2", {"Orders@g": {0: 20}})
        self.assertEqual(self.offsets.queues("g", "Orders"), {0: 20, 1: 3})
        self.change("one-3", {"Orders@g": {0: 7}, "Orders@h": {0: 1}})
        self.assertEqual(self.offsets.queues("g", "Orders"), {0: 7, 1: 3})
        self.assertEqual(self.offsets.queues("h", "Orders"), {0: 1})
        self.assertEqual(self.broker_of.metadata.status()["resets"], 1)
        self.assertEqual(self.master.questions, ["", "one-1", "one-2", "one-3"])
        self.assertEqual(self.broker_of.metadata.status()["offsetFeed"]["answers"], 2)

    def test_durable(self) -> None:
        """What changed is in the slave's journal a moment later, a reset too."""
        self.change("one-2", {"Orders@g": {0: 20, 1: 1}})
        self.turns(0.2)
        self.close_store(self.broker_of.store)
        again = self.broker(slave=True, id=1)
        self.assertEqual(again.offsets.queues("g", "Orders"), {0: 20, 1: 1})

    def test_rounds(self) -> None:
        """The rounds leave the offsets out as long as the slave follows; the other tables come."""
        del self.master.asked[:]
        self.round()
        self.assertNotIn(Code.GET_ALL_CONSUMER_OFFSET, self.master.asked)
        self.assertEqual(5, len(self.master.asked))
        self.assertTrue(self.live())

    def test_higher_here(self) -> None:
        """What was committed here stays, and goes to the master, where it lowers nothing."""
        self.offsets.commit("g", "Orders", 1, 9, "10.0.0.7:1")
        self.offsets.commit("g", "Orders", 0, 14, "10.0.0.7:1")
        self.patch(ConsumeQueues, "end", lambda *_: 100)
        self.change("one-2", {"Orders@g": {0: 15}})
        self.round()
        self.assertEqual([told["commitOffset"] for told in self.master.told], ["9"])
        self.assertEqual(self.offsets.queues("g", "Orders"), {0: 15, 1: 9})

    def test_lost(self) -> None:
        """When the connection ends, or changes are not told, a round fetches the whole table."""
        self.master.offsets["Orders@g"] = {0: 40, 1: 3}
        self.master.version = "one-9"
        self.master.lose()
        self.turns()
        self.assertFalse(self.live())
        self.turns(1.0)
        self.assertTrue(self.live())
        self.assertEqual(self.offsets.queues("g", "Orders"), {0: 40, 1: 3})
        self.assertEqual(self.master.questions[-1], "one-9")

    def test_another_life(self) -> None:
        """A master started anew that knows less lost something: offsets stay, it is followed."""
        self.master.boot += 1
        self.master.version = "two-1"
        self.master.offsets["Orders@g"] = {0: 2, 1: 3}
        self.master.lose()
        self.turns(1.0)
        self.assertTrue(self.live())
        self.assertEqual(self.offsets.queues("g", "Orders"), {0: 12, 1: 3})
        self.assertEqual(self.broker_of.metadata.status()["regressions"], 1)
        self.change("two-2", {"Orders@g": {0: 4}})
        self.assertEqual(self.offsets.queues("g", "Orders"), {0: 12, 1: 3})

    def test_back_to_what_was(self) -> None:
        """A table that is again what it was in the last round is no old news."""
        self.change("one-2", {"Orders@g": {0: 20}})
        self.master.offsets["Orders@g"] = {0: 12, 1: 3}
        self.master.version = "one-3"
        self.master.lose()
        self.turns(1.0)
        self.assertEqual(self.offsets.queues("g", "Orders"), {0: 12, 1: 3})

    def test_deleted(self) -> None:
        """A group that is deleted goes with a round, after the table of groups."""
        self.master.change_topics(topic("New"), gone=("Orders",))
        del self.master.offsets["Orders@g"]
        self.change("one-2", {"New@g": {0: 1}}, keysGone="true")
        self.turns(1.0)
        self.assertEqual(self.offsets.queues("g", "Orders"), {})
        self.assertTrue(self.live())

    def test_rubbish(self) -> None:
        """An answer that is no table changes nothing, and ends the following for this round."""
        answer = self.master._command.answer(body=b"{}")
        answer.ext = {"offsetsVersion": "one-2", "changesOnly": "true"}
        self.master.waiting.callback(answer)
        self.turns()
        self.assertFalse(self.live())
        self.assertEqual(self.offsets.queues("g", "Orders"), {0: 12, 1: 3})

    def test_silent(self) -> None:
        """A master that answers nothing is asked no more than once at a time."""
        self.turns(WAIT)
        self.assertEqual(self.master.questions.count("one-1"), 1)

    def test_stop(self) -> None:
        """A stop ends it."""
        stopped = self.broker_of.metadata.stop()
        self.turns(1.0)
        self.successResultOf(stopped)
        self.assertFalse(self.live())

    def test_moved(self) -> None:
        """Another address is another master: nothing more is heard of the first one."""
        waiting = self.master.waiting
        self.broker_of.metadata.follow("10.0.0.2:10911")
        self.turns()
        self.assertTrue(waiting.called)
        self.assertFalse(self.live())


class StockTests(MetadataTestCase):
    def test_rounds(self) -> None:
        """A master that names no version is asked in each round, as ever."""
        self.master.offsets["Orders@g"] = {0: 12}
        slave = self.slave()
        del self.master.asked[:]
        self.round()
        self.assertEqual(self.master.asked.count(Code.GET_ALL_CONSUMER_OFFSET), 1)
        self.assertFalse(slave.metadata.status()["offsetFeed"]["live"])
