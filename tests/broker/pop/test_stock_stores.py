"""Stores with messages that were handed out: a stock 5.3.3 broker's, and newer tables."""

from __future__ import annotations

import shutil
from pathlib import Path

from attrs import evolve

from lab.harness import golden
from rmqha.config.broker_settings import BrokerSettings
from rmqha.config.store_settings import StoreSettings
from rmqha.ha.promotion import plan, promote
from rmqha.wire.remoting.bodies.request_modes import GroupMode, RequestMode
from tests.broker.pop.support import PopTestCase, bodies, handles, records
from tests.broker.support import NOW
from tests.broker.timer.test_acceptance import SIZES

FOLDER = Path(__file__).resolve().parents[2] / "data" / "pop"

KILLED = 1_795_581_586_626


class StockStoreTests(PopTestCase):
    """What is not done with comes again, and nothing else."""

    broker_settings = BrokerSettings(name="BN", cluster="C", ip1="10.0.0.9", ip2="10.0.0.9")

    def open(self, name: str, at: int) -> None:
        """Go on with one at a time."""
        golden.unpack(FOLDER / f"store-{name}.tar.xz", self.root.parent)
        self.jump = at - NOW
        self.begin(sizes=SIZES)
        self.who = self.client()

    def all_of(self, group: str, topic: str) -> dict[str, int]:
        """What a group is handed until nothing comes: bodies, and how often they came before."""
        found: dict[str, int] = {}
        for _ in range(20):
            answer = self.pop(
                consumerGroup=group, topic=topic, queueId=-1, invisibleTime=99_000_000
            )
            for record in records(answer) if not answer.code else ():
                assert record.body.decode() not in found, record.body
                found[record.body.decode()] = record.reconsume_times
        return found

    def test_killed(self) -> None:
        """Killed with messages done with, open, changed and in the retry topic."""
        self.open("killed", KILLED)
        self.skips(1)
        new = self.all_of("G", "T")
        self.assertEqual(new, {"t11": 0, "t13": 0, "t15": 0})
        self.stop()
        self.jump += 200_000
        self.begin(sizes=SIZES)
        self.who = self.client()
        self.skips(2)
        again = dict.fromkeys(("t6", "t8", "t10", "t12", "t14", "t9"), 1)
        self.assertEqual(self.all_of("G", "T"), again | {"t3": 2})

    def test_in_order(self) -> None:
        """What was handed out in order and not acknowledged is handed out again: a stock broker
        that is killed has not written who had it.
        """
        self.open("killed", KILLED)
        self.skips(1)
        place = {"consumerGroup": "GO", "topic": "O", "queueId": -1, "order": "true"}
        self.assertEqual(
            bodies(self.pop(**place, attemptId="x")), [b"o1", b"o2", b"o3", b"o4", b"o5"]
        )

    def test_long_ago(self) -> None:
        """All times are over when it starts."""
        self.open("killed", KILLED + 400_000)
        self.skips(2)
        again = dict.fromkeys(("t6", "t8", "t10", "t12", "t14", "t9"), 1)
        self.assertEqual(self.all_of("G", "T"), again | {"t11": 0, "t13": 0, "t15": 0} | {"t3": 2})

    def test_stopped(self) -> None:
        """All was done with."""
        self.open("stopped", KILLED + 1_000_000)
        self.skips(2)
        self.assertEqual(self.all_of("G", "T"), {})

    def test_slave(self) -> None:
        """A slave's store, promoted."""
        self.open("slave-stopped", KILLED + 10_000_000)
        self.skips(2)
        self.assertEqual(
            self.all_of("G", "T"),
            dict.fromkeys(("m7", "m8", "m9"), 0) | dict.fromkeys(("m5", "m6", "m1", "m2"), 1),
        )
        self.assertEqual(
            sorted(self.got("TT")), [b"timer110", b"timer150", b"timer170", b"timer190", b"timer30"]
        )


class NewerTablesTests(PopTestCase):
    """A slave, or a restored store, whose log ends before some messages were handed out."""

    def test_handed_out_behind_the_end(self) -> None:
        """What the tables of the old master alone call handed out is handed out: nobody would ever
        do it again; what was done with before stays so.
        """
        self.serve()
        self.put(b"one", b"two", b"three")
        self.assertEqual(self.popped(maxMsgNums=1), [b"one"])
        self.skips(2)
        settings, shorter = self.serving.store.settings, self.folder() / "store"
        self.stop()
        shutil.copytree(self.root, shorter)
        self.serve()
        self.assertEqual(bodies(self.pop()), [b"two", b"three"])
        self.skips(2)
        self.stop()
        old, self.root = self.root, shorter
        mine = evolve(settings, root=shorter, commitlog=shorter / "commitlog")
        planned = plan(mine, tables=old)
        done = promote(mine, tables=old)
        self.assertEqual(planned.consumers, done.consumers)
        self.assertEqual(
            [(one.who, one.topic, one.queue_id, one.before, one.after) for one in done.consumers],
            [("group G", "T", 0, 3, 1)],
        )
        self.assertIn("offset 3 is now 1: 2 handed-out messages wait again", str(done.consumers[0]))
        self.skips(20)
        self.serve()
        self.assertEqual(self.popped(), [b"two", b"three"])
        self.skips(20)
        self.assertEqual(self.popped(), [])

    def test_power_cut(self) -> None:
        """What was handed out by a check point that the disk did not get is handed out again: no
        position is on the disk before it, though positions are written at once.
        """
        self.serve()
        self.put(b"one", b"two", b"three")
        self.skips(20)
        self.assertEqual(self.popped(maxMsgNums=1), [b"one"])
        self.skips(20)
        self.assertEqual(bodies(self.pop()), [b"two", b"three"])
        log, shorter = self.serving.store.log, self.folder() / "store"
        self.passes(0.3)
        self.assertLess(log.flushed, log.end)
        shutil.copytree(self.root, shorter)
        with (shorter / "commitlog" / f"{0:020}").open("r+b") as file:
            file.seek(log.flushed)
            file.write(bytes(log.end - log.flushed))
        self.skips(1)
        self.assertEqual(self.serving.offsets.get("G", "T", 0), 3)
        self.stop()
        self.root = shorter
        self.serve()
        self.assertEqual(self.popped(), [b"two", b"three"])
        self.skips(20)
        self.assertEqual(self.popped(), [])

    def handed_out_later(self) -> StoreSettings:
        """Messages are handed out for the first time behind the end of the log of a copy.

        @return: Of the copy.
        """
        self.skips(2)
        settings, shorter = self.serving.store.settings, self.folder() / "store"
        self.stop()
        shutil.copytree(self.root, shorter)
        self.serve()
        self.assertEqual(sorted(bodies(self.pop(queueId=-1))), [b"three", b"two"])
        self.skips(2)
        self.stop()
        self.older, self.root = self.root, shorter
        return evolve(settings, root=shorter, commitlog=shorter / "commitlog")

    def moved(self, settings: StoreSettings) -> list[tuple[int, int, int]]:
        """Promote it with the other one's tables: which queue moved, from where to where."""
        return [
            (one.queue_id, one.before, one.after)
            for one in promote(settings, tables=self.older).consumers
        ]

    def test_first_of_a_queue(self) -> None:
        """A group that was handed nothing of a queue that this log knows of, but of another one,
        begins there anew.
        """
        self.serve()
        self.put(b"one")
        self.assertEqual(self.popped(), [b"one"])
        self.put(b"two", b"three", queue_id=1)
        self.assertEqual(self.moved(self.handed_out_later()), [(1, 2, 0)])
        self.serve()
        self.assertEqual(self.popped(queueId=-1), [b"two", b"three"])

    def test_first_of_all(self) -> None:
        """So does one that was told to pop, and was handed nothing that the log knows of."""
        self.serve()
        self.put(b"two", b"three")
        self.serving.modes.put(GroupMode(topic="T", consumer_group="G", mode=RequestMode.POP))
        self.assertEqual(self.moved(self.handed_out_later()), [(0, 2, 0)])

    def test_first_that_came_again(self) -> None:
        """So does one that was handed what had come again: it goes to no other."""
        self.serve()
        self.put(b"two", b"three")
        self.pop()
        self.skips(11)
        self.assertEqual(self.got("%RETRY%G_T"), [b"two", b"three"])
        settings = self.handed_out_later()
        found = promote(settings, tables=self.older).consumers
        self.assertEqual(
            [(one.topic, one.before, one.after) for one in found], [("%RETRY%G_T", 2, 0)]
        )

    def test_in_order(self) -> None:
        """What a group acknowledged that pops in order does not come again: no check point says of
        it.
        """
        self.serve()
        self.put(b"one", b"two")
        self.serving.modes.put(GroupMode(topic="T", consumer_group="G", mode=RequestMode.POP))
        for named in handles(self.pop(order="true")):
            self.assertEqual(self.ack(named), 0)
        self.skips(2)
        settings = self.serving.store.settings
        self.stop()
        self.assertEqual((), promote(settings).consumers)

    def test_told_to_pull_since(self) -> None:
        """A group that was told to pull goes on where it has come to by that."""
        self.serve()
        self.put(b"one", b"two", b"three")
        self.assertEqual(self.popped(maxMsgNums=1), [b"one"])
        self.serving.modes.put(GroupMode(topic="T", consumer_group="G", mode=RequestMode.PULL))
        self.serving.offsets.commit("G", "T", 0, 3, "10.0.0.1:1")
        self.skips(2)
        settings = self.serving.store.settings
        self.stop()
        self.assertEqual((), promote(settings).consumers)
