"""A master that starts beside another one of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, succeed

from rmqha.broker.cluster.broker_members import Members
from rmqha.errors import TwinMaster
from rmqha.ha.master_epoch import EpochJournal, HigherMaster
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds
from rmqha.ha.states import NodeState
from rmqha.roles.host.exit_codes import FOR_A_PERSON
from rmqha.roles.tap import Options, makeService
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer
from tests.roles.nodes import NodeReactor, settings
from tests.roles.test_metadata import PlainMaster
from tests.support.logs import LogTestCase

THERE = "10.0.0.6:10911"
FROZEN = "10.0.0.8:9876"
SERVERS = f"{FROZEN};10.0.0.9:9876"


class StartTests(LogTestCase):
    """A store with master epoch 1, whose name server knows another master."""

    def setUp(self) -> None:
        self.root: Path = self.folder() / "store"
        EpochJournal().raised(0).write(self.root)
        self.identity = BrokerIdentity(name="broker-a", id=0, run_id="other", epoch=1)
        self.answers: dict[str, Deferred[Any]] = {}
        self.members: Deferred[Any] = succeed({0: THERE})
        self.patch(Members, "ask", lambda _, server, __: self.answers.get(server, self.members))
        self.patch(master_bounds, "ask", lambda *_: succeed(self.bounds()))

    def bounds(self) -> MasterBounds:
        """What the other one says."""
        return MasterBounds(0, 9, 1, self.identity)

    def start(self, **how: Any) -> PlainMaster:
        self.reactor = NodeReactor()
        given = settings(self.root, role="master", master=None)
        given = evolve(given, broker=evolve(given.broker, namesrv=SERVERS, name="broker-a"))
        node = PlainMaster(given, self.reactor, **how)
        self.codes: list[int] = []
        node.exit_with = self.codes.append  # type: ignore[method-assign, assignment]
        self.errors: list[Any] = []
        node.ready.addErrback(lambda failure: self.errors.append(failure.value))
        node.startService()
        self.addCleanup(self.stop, node)
        return node

    def stop(self, node: PlainMaster) -> None:
        stopped = node.stopService()
        for _ in range(3):
            self.reactor.advance(5.0)
        self.successResultOf(stopped)

    def test_refused(self) -> None:
        """Beside one whose epoch is equal or higher it does not start, and says all numbers."""
        for epoch in (1, 2):
            self.identity = evolve(self.identity, epoch=epoch)
            node = self.start()
            (error,) = self.errors
            self.assertIsInstance(error, TwinMaster)
            self.assertEqual(
                (error.name, error.epoch, error.other, error.other_epoch),
                ("broker-a", 1, THERE, epoch),
            )
            self.assertIn(f"{THERE} is a live master of broker-a with master epoch", str(error))
            self.assertEqual((self.codes, self.reactor.stops), ([FOR_A_PERSON], 1))
            self.assertIsNone(node.writer)
            self.stop(node)

    def test_refused_at_once(self) -> None:
        """R4: what one name server knows is enough to refuse; another may stand still."""
        self.answers[FROZEN] = Deferred()
        self.start()
        self.assertEqual([TwinMaster], [type(error) for error in self.errors])

    def test_lower(self) -> None:
        """The promoted one starts beside the old one."""
        self.identity = evolve(self.identity, epoch=0)
        node = self.start()
        self.successResultOf(node.ready)
        self.assertEqual(node.state, NodeState.SERVING)

    def test_waits(self) -> None:
        """It is recovering, and serves nothing, until it knows; a stopped one never does."""
        self.members = Deferred()
        node = self.start()
        self.assertEqual(node.state, NodeState.RECOVERING)
        self.assertNoResult(node.ready)
        self.assertIsNone(node.serving.factory)
        self.stop(node)
        self.assertEqual((node.writer, self.codes), (None, []))

    def test_forced(self) -> None:
        """An operator can start it all the same, though it was fenced; what is met then counts."""
        higher = HigherMaster(4, THERE, "told by a name server")
        EpochJournal.read(self.root).met(higher).write(self.root)
        node = self.start(force=True)
        self.successResultOf(node.ready)
        self.reactor.advance(5.0)
        self.assertEqual(node.state, NodeState.SERVING)
        self.assertIsNone(EpochJournal.read(self.root).higher)
        node.told(RegisterBrokerAnswer(master_addr=THERE, master_epoch=4))
        self.assertEqual(node.state, NodeState.FENCED)

    def test_fenced_before(self) -> None:
        """One that was fenced starts fenced when the other does not answer: reads go on."""
        higher = HigherMaster(4, THERE, "told by a name server")
        EpochJournal.read(self.root).met(higher).write(self.root)
        self.members = succeed({})
        node = self.start()
        self.successResultOf(node.ready)
        self.assertEqual(node.state, NodeState.FENCED)
        status = node.status()
        self.assertEqual((status["masterEpoch"], status["fencedBy"]["epoch"]), (1, 4))
        self.assertIn("fenced", [reason.name for reason in node.health()])

    def test_told(self) -> None:
        """A name server's answer with a higher epoch fences, other answers do not."""
        self.members = succeed({})
        node = self.start()
        self.reactor.advance(5.0)
        for answer in (
            RegisterBrokerAnswer(),
            RegisterBrokerAnswer(master_addr=THERE, ha_server_addr=THERE),
            RegisterBrokerAnswer(master_addr=THERE, master_epoch=1),
        ):
            node.told(answer)
            self.assertEqual(node.state, NodeState.SERVING)
        node.told(RegisterBrokerAnswer(master_addr=THERE, master_epoch=2))
        self.assertEqual(node.state, NodeState.FENCED)


class OptionTests(LogTestCase):
    def test_option(self) -> None:
        """It is a master's, and refused with any other role."""
        options = Options()
        more = ["--set", "listenPort=0", "--set", f"storePathRootDir={self.folder()}"]
        options.parseOptions(["--role", "master", "--force", *more])
        node: Any = makeService(options, NodeReactor())
        self.assertTrue(node.force)
        for role in ("slave", "namesrv"):
            with self.assertRaisesRegex(Exception, "--force is for a master"):
                Options().parseOptions(["--role", role, "--force"])
