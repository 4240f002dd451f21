"""A running slave is asked to become the master: what is looked at, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, fail, succeed

from rmqha.config.broker_settings import BrokerRole
from rmqha.config.settings import Settings
from rmqha.errors import Refused, RemotingUnreachable
from rmqha.ha.master_epoch import HigherMaster
from rmqha.ha.promotion import replaced
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds
from rmqha.roles.live_promotion import LivePromotion
from rmqha.store.files.lock import is_locked
from tests.roles.test_slave import SlaveCase

CLIENT = "10.0.0.1:10911"


class Successor(Service):
    """What the slave becomes."""

    promotion: Any = None
    exit_with = print


class LivePromotionTests(SlaveCase):
    """A slave whose master is gone, or answers; the file as it is now, and the masters made."""

    def setUp(self) -> None:
        """Nobody answers at the master's client port."""
        super().setUp()
        self.answers = False
        self.patch(master_bounds, "ask", self.ask)
        self.made: list[Settings] = []

    def ask(self, client: object, address: str, claim: object = None) -> Deferred[MasterBounds]:
        """The master's client port is asked."""
        self.assertEqual(CLIENT, address)
        if not self.answers:
            return fail(RemotingUnreachable(address, "refused"))
        identity = BrokerIdentity(name="broker-a", id=0, run_id="theirs", epoch=0)
        return succeed(MasterBounds(0, self.theirs.end, 1, identity))

    def alone(self, **keys: Any) -> LivePromotion:
        """A slave that was in sync, and whose master has ended."""
        self.start(master_client=("10.0.0.1", 10911), **keys)
        connection = self.accept()
        connection.feed(self.theirs, 0)
        connection.heartbeat(self.theirs.end)
        self.reactor.pump([0.01] * 10)
        self.assertEqual("in-sync", self.state)
        connection.close()
        self.turn()
        self.read = self.node.settings
        return self.promotable()

    def promotable(self, conf: Path | None = Path("broker.conf"), keeps: str = "") -> LivePromotion:
        """What the node's process has for it."""
        found = self.promotion = self.node.promotion = LivePromotion(
            node=self.node,
            conf=conf,
            keeps=keeps,
            reread=lambda: self.read,
            successor=self.successor,
        )
        return found

    def successor(self, settings: Settings) -> Any:
        """The slave has ended, and its store is a master's."""
        self.made.append(settings)
        self.assertFalse(is_locked(self.root / "lock"))
        return Successor()

    def check(self, *, verify: bool = True, dry_run: bool = False) -> str:
        """Have it look, and return what it says at the end."""
        self.promotion.check(epoch=None, verify=verify, dry_run=dry_run)
        self.reactor.pump([0.5] * 6)
        status = self.node.status()["promotion"]
        self.assertEqual(self.promotion.state, status["state"])
        return str(status["said"][-1])

    def as_master(self) -> None:
        """The file becomes a master's."""
        broker = evolve(self.read.broker, role=BrokerRole.SYNC_MASTER, id=0)
        self.read = evolve(self.read, broker=broker)

    @property
    def noted(self) -> bool:
        """Whether the next start as a master would promote the store."""
        return (self.root / "rmqha" / "promotion.json").exists()

    def test_promoted(self) -> None:
        """Looked at, told to begin: the slave ends, is promoted, and another node follows."""
        promotion = self.alone()
        self.assertIsNone(self.node.status()["promotion"])
        self.assertIn("verified the whole log: ", self.check())
        self.assertEqual(("ready", True), (promotion.state, self.noted))
        self.assertEqual(CLIENT, replaced(self.root))
        self.as_master()
        process = MultiService()
        self.node.setServiceParent(process)
        process.running = 1
        promotion.begin()
        self.assertRaises(Refused, promotion.check, epoch=None, verify=True, dry_run=False)
        self.turn()
        self.assertEqual([self.read], self.made)
        self.assertFalse(self.node.running)
        self.assertFalse(self.noted)
        (found,) = process
        self.assertIsInstance(found, Successor)
        self.assertTrue(found.running)
        self.assertIs(promotion, found.promotion)
        self.assertIn("is the master already", str(self.assertRaises(Refused, promotion.begin)))
        self.assertEqual([], self.node.endpoint.waiting)

    def test_process_ends(self) -> None:
        """A process that ends before leaves it to the next start, and begins nothing."""
        promotion = self.alone()
        self.check()
        self.as_master()
        process = MultiService()
        self.node.setServiceParent(process)
        process.running = 1
        promotion.begin()
        stopped = process.stopService()
        self.turn()
        self.successResultOf(stopped)
        self.assertEqual(([], True), (self.made, self.noted))
        self.assertFalse(self.node.running)

    def test_cannot_start(self) -> None:
        """What keeps the master from starting ends the process, with the exit code of a start."""
        promotion = self.alone()
        self.check()
        self.as_master()
        process = MultiService()
        self.node.setServiceParent(process)
        process.running = 1
        log = self.root / "commitlog"
        log.rename(log.with_name("elsewhere"))
        promotion.begin()
        self.turn()
        self.assertEqual(([], True), (self.made, self.noted))
        self.assertEqual(([78], 1), (self.node.codes, self.reactor.stops))
        self.assertEqual([], list(process))

    def test_dry_run(self) -> None:
        """A dry run notes nothing, and cannot be gone on with."""
        promotion = self.alone()
        self.check(dry_run=True)
        self.assertEqual(("sound", False), (promotion.state, self.noted))
        self.as_master()
        self.assertIn("run rmqha failover again", str(self.assertRaises(Refused, promotion.begin)))

    def test_master_answers(self) -> None:
        """A master that answers clients is not replaced."""
        promotion = self.alone()
        self.answers = True
        self.assertIn("answers: `rmqha switchover`", self.check())
        self.assertEqual(("refused", False), (promotion.state, self.noted))

    def test_master_connected(self) -> None:
        """One that is connected is not replaced, also if it comes after the look."""
        promotion = self.alone()
        self.check()
        self.as_master()
        self.accept(2.0)
        self.assertIn("is connected", str(self.assertRaises(Refused, promotion.begin)))
        self.assertIn("is connected", self.check())

    def test_file(self) -> None:
        """A file that is a slave's still, or another store's, is refused."""
        promotion = self.alone()
        self.check()
        error = self.assertRaises(Refused, promotion.begin)
        self.assertIn("does not make a master of this node", str(error))
        self.as_master()
        self.read = evolve(self.read, store=evolve(self.read.store, root=self.folder()))
        self.assertIn("is for the store", str(self.assertRaises(Refused, promotion.begin)))

    def test_command_line(self) -> None:
        """What the next start would make a slave again is refused."""
        self.alone()
        for conf, keeps in ((None, ""), (Path("broker.conf"), "its command line says so")):
            self.promotable(conf, keeps)
            error = self.assertRaises(
                Refused, self.promotion.check, epoch=None, verify=True, dry_run=True
            )
            self.assertIn(keeps or "without a configuration file", str(error))
            self.assertIn("--stop COMMAND", str(error))

    def test_unfinished_copy(self) -> None:
        """A part of a log is no master's."""
        self.start(master_client=("10.0.0.1", 10911))
        connection = self.accept()
        connection.feed(self.theirs, 0, 1000)
        connection.close()
        self.turn()
        self.promotable()
        self.assertIn("its copy of the master's log is not complete", self.check())

    def test_fenced(self) -> None:
        """Where a later master is known, that one is to be followed."""
        self.alone()
        journal = self.node.epochs.journal.met(HigherMaster(9, "10.0.0.9:10911", "told by hand"))
        self.node.epochs.become(journal)
        self.assertIn("10.0.0.9:10911 is a master with epoch 9", self.check())

    def test_damaged(self) -> None:
        """A damaged log is found before anything is stopped; --unverified is told to bear it."""
        promotion = self.alone()
        path = min((self.root / "commitlog").iterdir())
        with open(path, "r+b") as file:
            file.seek(300)
            file.write(b"\xff\xfe")
        self.assertIn("`rmqha repair", self.check() + "`rmqha repair")
        self.assertEqual(("refused", False), (promotion.state, self.noted))
        self.assertTrue(self.node.running)
        self.check(verify=False)
        self.assertEqual("ready", promotion.state)

    def test_forgotten(self) -> None:
        """A slave that is started again is a slave, whatever was noted."""
        self.alone()
        self.check()
        self.assertTrue(self.noted)
        self.stop()
        self.start()
        self.assertFalse(self.noted)
