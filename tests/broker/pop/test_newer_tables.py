"""Messages that were handed out behind the end of a log that goes on with tables of later."""

from __future__ import annotations

import shutil

from attrs import evolve

from rmqha.config.store_settings import StoreSettings
from rmqha.ha.promotion import plan, promote
from rmqha.wire.remoting.bodies.request_modes import GroupMode, RequestMode
from tests.broker.pop.support import PopTestCase, bodies, handles


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
