"""Messages that were handed out behind the end of a log that goes on with tables of later."""

from __future__ import annotations

import shutil

from attrs import evolve

from rmqha.ha.promotion import plan, promote
from rmqha.wire.remoting.bodies.request_modes import GroupMode, RequestMode
from tests.broker.pop.support import PopTestCase, bodies


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
