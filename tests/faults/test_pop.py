"""F53: messages that are handed out and acknowledged, while their master is killed, or replaced by
its slave.
"""

from __future__ import annotations

from tests.faults.harness import FaultTestCase
from tests.support.pop_load import Books, PopLoad


class PopTests(FaultTestCase):
    """Brokers under C{twistd}, and clients that keep their own books."""

    def assertAll(self, books: Books) -> None:
        """Each message was handed out, and none that was done with."""
        self.tell(str(books))
        self.assertEqual(books.wrong, [], "done with, and handed out again")
        self.assertEqual(books.lost, set(), "never handed out, or not done with")

    def test_killed(self) -> None:
        """A master that is killed again and again hands out each message, and none that is done
        with.
        """
        master = self.node("master", "master").start()
        load = PopLoad(random=self.random)
        with load.on(master.port) as books:
            self.killed_often(master, 4, 1.0, 4.0)
        load.drain(master.port)
        self.assertGreater(len(books.done), 100)
        self.assertAll(books)
        self.assertEqual([], master.complaints())

    def test_promoted(self) -> None:
        """So does a slave that takes over."""
        master = self.node("master", "master", brokerRole="SYNC_MASTER").start()
        slave = self.follower(master)
        load = PopLoad(random=self.random)
        with load.on(master.port) as books:
            self.passes(self.random.uniform(5.0, 8.0))
            master.kill9()
        heir = self.heir(slave)
        load.drain(heir.port)
        self.assertAll(books)
        for node in (slave, heir):
            self.assertEqual([], node.complaints())
