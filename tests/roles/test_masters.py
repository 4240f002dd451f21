"""A slave between two masters of one name, and a master that starts beside another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, fail, succeed

from rmqha.broker.cluster.broker_members import Members
from rmqha.config.ha_settings import DivergencePolicy
from rmqha.errors import RemotingUnreachable, TwinMaster
from rmqha.ha.master_epoch import EpochJournal, HigherMaster
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds
from rmqha.ha.states import NodeState
from rmqha.health import HealthProbe, failing
from rmqha.roles.host.exit_codes import FOR_A_PERSON
from rmqha.roles.tap import Options, makeService
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer
from rmqha.wire.remoting.headers.slave import EpochClaim
from tests.roles.nodes import NodeReactor, PuppetSlave, settings
from tests.roles.test_metadata import PlainMaster
from tests.roles.test_slave import SlaveCase
from tests.support.ha_frames import append_frame
from tests.support.logs import LogTestCase, content
from tests.support.scripted_master import Connection

NEW, OLD = "10.0.0.6:10912", "10.0.0.5:10912"
NEW_CLIENT, OLD_CLIENT = "10.0.0.6:10911", "10.0.0.5:10911"


class TwoMastersCase(SlaveCase):
    """The promoted master's log, C{theirs}, and the old one's, which parts from it."""

    def setUp(self) -> None:
        """Both have what there was; then the old one has others."""
        super().setUp()
        common = self.theirs.end
        self.fork = self.log()
        self.fork_from(common)
        for size in (900, 800, 700):
            self.put(self.theirs, size)
        for size in (500, 600):
            self.put(self.fork, size, topic="Others")
        self.common = common
        self.epochs: dict[str, int] = {}
        self.claims: list[tuple[str, EpochClaim | None]] = []
        self.patch(master_bounds, "ask", self.ask)

    def fork_from(self, end: int) -> None:
        """Give the old master's log what both have."""
        self.fork.begin(0)
        append_frame(self.fork, 0, content(self.theirs, 0, end))
        self.fork.verify()

    def ask(
        self, client: object, address: str, claim: EpochClaim | None = None
    ) -> Deferred[MasterBounds]:
        """A client port is asked."""
        self.claims.append((address, claim))
        if address not in self.epochs:
            return fail(RemotingUnreachable(address, "refused"))
        log = self.theirs if address == NEW_CLIENT else self.fork
        identity = BrokerIdentity(name="broker-a", id=0, run_id=address, epoch=self.epochs[address])
        return succeed(MasterBounds(0, log.end, hash(address) % 1000, identity))

    def told(self, ha: str, client: str, epoch: int | None = None) -> None:
        """A name server names a master."""
        self.node.told(
            RegisterBrokerAnswer(ha_server_addr=ha, master_addr=client, master_epoch=epoch)
        )
        self.turn()

    def following(self, policy: str = "truncate", **keys: Any) -> Connection:
        """A slave that is in sync with the promoted master."""
        self.start(master=None, policy=DivergencePolicy(policy), **keys)
        self.told(NEW, NEW_CLIENT)
        connection = self.accept()
        connection.feed(self.theirs, 0)
        self.turn()
        self.assertEqual(self.upstream["state"], "in-sync")
        return connection

    def restarted(self, policy: str = "truncate", **keys: Any) -> PuppetSlave:
        """The same slave after a restart."""
        self.stop()
        return self.start(master=None, policy=DivergencePolicy(policy), **keys)

    def compare(self, log: CommitLog) -> None:
        """The master that it is connected to shows its log."""
        connection = self.accept(5.0)
        start = connection.reports()[0]
        connection.feed(log, start)
        connection.heartbeat(log.end)
        for _ in range(5):
            self.turn()

    def assertHeld(self) -> None:
        """All that was acknowledged is there."""
        log = self.node.store.log
        self.assertEqual(content(log), content(self.theirs))


class NamedTests(TwoMastersCase):
    """A name server names the old master again."""

    def test_stays_with_a_live_one(self) -> None:
        """By a stock name server, and an old master that is mute: the slave stays, and says why."""
        connection = self.following()
        self.told(OLD, OLD_CLIENT)
        self.assertTrue(connection.open)
        self.assertEqual(self.upstream["address"], NEW)
        self.assertIn(OLD, self.upstream["named"])
        self.assertEqual(self.asked_for_tables(), NEW_CLIENT)
        self.assertHeld()

    def asked_for_tables(self) -> str:
        """The client port that its tables come from."""
        found: str = self.node.status()["metadata"]["master"]
        return found

    def test_refuses_a_lower_one(self) -> None:
        """One of a lower epoch is never followed, and is told of the other."""
        self.epochs = {NEW_CLIENT: 1, OLD_CLIENT: 0}
        connection = self.following()
        self.assertEqual(self.node.status()["masterEpoch"], 1)
        for epoch in (None, 0):
            self.told(OLD, OLD_CLIENT, epoch)
            self.assertTrue(connection.open)
            self.assertIn("is not followed", self.upstream["named"])
        claim = EpochClaim(broker_name="broker-a", master_epoch=1, master_addr=NEW_CLIENT)
        self.assertEqual(self.claims[-1][0], OLD_CLIENT)
        said = self.claims[-1][1]
        assert said is not None
        self.assertEqual(
            (said.master_epoch, said.master_addr), (claim.master_epoch, claim.master_addr)
        )
        connection.close()
        self.reactor.advance(100)
        self.told(OLD, OLD_CLIENT, 0)
        self.assertEqual(self.upstream["address"], NEW)
        self.restarted()
        self.told(OLD, OLD_CLIENT, 0)
        self.assertEqual(self.upstream["address"], "")
        self.assertHeld()

    def test_follows_a_higher_one(self) -> None:
        """One with a higher epoch is followed at once, and what it does not have is cut."""
        self.epochs = {NEW_CLIENT: 1, OLD_CLIENT: 2}
        self.following()
        self.told(OLD, OLD_CLIENT)
        self.assertEqual(self.upstream["address"], OLD)
        self.compare(self.fork)
        self.compare(self.fork)
        self.assertEqual(self.upstream["state"], "in-sync")
        self.assertEqual(content(self.node.store.log), content(self.fork))
        self.assertEqual(EpochJournal.read(self.root).number, 2)

    def test_silent(self) -> None:
        """When its master was silent for haHousekeepingInterval it follows the other; then what was
        held for the first is not cut, and the reason names both.
        """
        connection = self.following()
        self.told(OLD, OLD_CLIENT)
        connection.close()
        self.turn()
        self.reactor.advance(19)
        self.assertEqual(self.upstream["address"], NEW)
        self.reactor.advance(2)
        self.assertEqual(self.upstream["address"], OLD)
        self.compare(self.fork)
        self.assertEqual(self.upstream["state"], "diverged")
        for part in (NEW, OLD, "truncate refused", f"haTrustMaster={OLD}"):
            self.assertIn(part, self.upstream["reason"])
        self.assertHeld()
        failed = failing(self.node.health(), HealthProbe.HEALTH)
        self.assertIn("replication-diverged", [reason.name for reason in failed])


class ConfiguredTests(TwoMastersCase):
    def pointed(self, policy: str = "truncate", **keys: Any) -> None:
        """A slave that followed the promoted one starts with the old one."""
        self.following()
        self.stop()
        self.start(
            master=("10.0.0.5", 10912),
            master_client=("10.0.0.5", 10911),
            policy=DivergencePolicy(policy),
            **keys,
        )

    def test_lower(self) -> None:
        """One with a lower epoch is not followed: a stop state names both; the log serves."""
        self.epochs = {NEW_CLIENT: 1, OLD_CLIENT: 0}
        self.pointed()
        self.turn()
        self.node.endpoint.accept()
        self.turn()
        self.assertEqual(self.upstream["state"], "lower-epoch")
        for part in (OLD, NEW, "master epoch 0", "follows 1", f"haTrustMaster={OLD}"):
            self.assertIn(part, self.upstream["reason"])
        self.assertHeld()

    def test_not_cut(self) -> None:
        """Where no epoch tells, the bytes that were acknowledged are kept."""
        self.not_cut("truncate")

    def test_not_set_aside(self) -> None:
        """Nor is the whole log put aside."""
        self.not_cut("rebootstrap")

    def not_cut(self, policy: str) -> None:
        """A policy is not carried out."""
        self.pointed(policy)
        self.compare(self.fork)
        self.assertEqual(self.upstream["state"], "diverged")
        self.assertIn(f"{policy} refused: bytes", self.upstream["reason"])
        self.assertHeld()

    def test_trusted(self) -> None:
        """The operator names the old one: what it does not have goes to quarantine."""
        self.epochs = {NEW_CLIENT: 1, OLD_CLIENT: 0}
        self.pointed(trust_master=("10.0.0.5", 10912))
        self.compare(self.fork)
        self.compare(self.fork)
        self.assertEqual(self.upstream["state"], "in-sync")
        self.assertEqual(content(self.node.store.log), content(self.fork))
        self.assertEqual(EpochJournal.read(self.root).number, 0)
        name = f"{self.common:020d}-{self.theirs.end:020d}.log"
        kept = self.root / "rmqha" / "quarantine" / name
        self.assertEqual(kept.read_bytes(), content(self.theirs, self.common, self.theirs.end))
        self.assertEqual(self.node.status()["truncatedBytes"], self.theirs.end - self.common)

    def test_own_master(self) -> None:
        """A master that lost its own tail is the same one: the policy decides, as ever."""
        self.following()
        lost = self.theirs.end
        self.stop()
        self.start(master=None, policy=DivergencePolicy.TRUNCATE)
        self.told(NEW, NEW_CLIENT)
        self.compare(self.fork)
        self.compare(self.fork)
        self.assertEqual(content(self.node.store.log), content(self.fork))
        self.assertNotEqual(self.node.store.log.end, lost)


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
