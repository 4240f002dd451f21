"""The steps of a planned change of roles."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.broker_settings import BrokerRole
from rmqha.errors import RemotingUnreachable, RequestRefused, TableUnreadable
from rmqha.switchover.acts import Act, Hands
from rmqha.switchover.asked_broker import AskedBroker, BrokerState, BrokerTables, lower_offsets
from rmqha.switchover.errors import ActFailed, Interrupted, NotSeen, PairUnfit, SwitchoverError
from rmqha.switchover.journal import Phase, SwitchoverJournal, UnderWay
from rmqha.switchover.switchover import Switchover
from rmqha.switchover.waiting import Patience
from rmqha.wire.remoting.command import Command
from tests.support.commands import ended

MASTER = BrokerState(
    name="broker-a",
    cluster="shop",
    role=BrokerRole.SYNC_MASTER,
    permission=6,
    file_size="1048576",
    elected=False,
    end=1000,
    epoch=3,
    ours=True,
    name_servers=frozenset({"n:9876", "o:9876"}),
)
SLAVE = evolve(MASTER, role=BrokerRole.SLAVE)
TABLES = BrokerTables(
    topics=frozenset({"Orders"}),
    groups=frozenset({"billing"}),
    offsets={"Orders@billing": {0: 7, 1: 9}},
)


class KilledHere(BaseException):
    """In the place of a kill -9."""


class Nobody:
    """No connection goes anywhere."""

    def request(self, address: str, command: Command, timeout: float = 3.0) -> Deferred[Command]:
        raise AssertionError("nothing is asked")


class ToldBroker(AskedBroker):
    """A broker that a test makes; its state, C{None} while it does not run, and permissions."""

    def __init__(self, address: str, state: BrokerState | None) -> None:
        super().__init__(address, Nobody())
        self.state = state
        self.held = TABLES
        self.permitted: list[int] = []

    async def look(self) -> BrokerState:
        if self.state is None:
            raise RemotingUnreachable(self.address, "Connection refused")
        return self.state

    async def tables(self) -> BrokerTables:
        return self.held

    async def offsets(self) -> dict[str, dict[int, int]]:
        return self.held.offsets

    async def permit(self, permission: int) -> None:
        self.state = evolve(await self.look(), permission=permission)
        self.permitted.append(permission)


@define(eq=False)
class ToldHands:
    """Does what a test says."""

    does: dict[Act, Callable[[], None]]
    running: str = ""
    acts: list[Act] = field(factory=list)
    unnumbered: list[Act] = field(factory=list)
    told: list[str] = field(factory=list)
    numbers: set[int] = field(factory=set)

    @property
    def commands(self) -> dict[Act, Callable[[], None]]:
        return self.does

    def numbered(self, act: Act) -> bool:
        return act not in self.unnumbered

    def do(self, act: Act, what: str, number: int) -> Deferred[bool]:
        self.acts.append(act)
        self.told.append(what)
        self.numbers.add(number)
        return maybeDeferred(self.does.get(act, lambda: None)).addCallback(
            lambda _: act in self.does
        )

    async def busy(self) -> str:
        return self.running

    def leave(self) -> None:
        pass


class SwitchoverTests(SynchronousTestCase):
    def setUp(self) -> None:
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.journal = SwitchoverJournal(Path(folder.name) / "switchover.json")
        self.clock = Clock()
        self.old = ToldBroker("a:10911", MASTER)
        self.new = ToldBroker("b:10911", SLAVE)
        self.said: list[str] = []
        self.hands = ToldHands(
            {
                Act.STOP: lambda: self.become(self.old, None),
                Act.PROMOTE: lambda: self.become(self.new, MASTER),
                Act.FOLLOW: lambda: self.become(self.old, SLAVE),
                Act.RESTORE: self.restore,
            }
        )

    def restore(self) -> None:
        """The old master starts, with the number of the change, and the slave follows it."""
        self.become(self.old, evolve(MASTER, epoch=4))
        self.become(self.new, evolve(SLAVE, epoch=4))

    def become(self, broker: ToldBroker, state: BrokerState | None) -> None:
        """Stop or start one; its permission stays as with a stock broker, in its file."""
        permission = broker.permitted[-1] if broker.permitted else 6
        broker.state = None if state is None else evolve(state, permission=permission)

    def change(self) -> Switchover:
        return Switchover(
            old=self.old,
            new=self.new,
            journal=self.journal,
            hands=self.hands,  # type: ignore[arg-type]
            say=self.said.append,
            waiting=Patience(clock=self.clock, say=self.said.append, timeout=5.0),
            now_ms=lambda: int(self.clock.seconds() * 1000),
        )

    def done(self, what: Coroutine[Any, Any, None], seconds: float = 10.0) -> None:
        running = Deferred.fromCoroutine(what)
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)
        self.successResultOf(running)

    def fails(self, what: Coroutine[Any, Any, None], error: type[Exception]) -> str:
        """Run it until it fails, and return what it says."""
        running = Deferred.fromCoroutine(what)
        for _ in range(100):
            self.clock.advance(0.1)
        return self.failureResultOf(running, error).getErrorMessage()

    def assertChanged(self) -> None:
        """The roles are changed, both take writes as masters, and nothing is under way."""
        assert self.old.state is not None and self.new.state is not None
        self.assertEqual((False, 6), (self.old.state.is_master, self.old.state.permission))
        self.assertTrue(self.new.state.writable)
        self.assertIsNone(self.journal.read())

    def test_whole(self) -> None:
        """Writes are refused, the master stopped, the slave promoted, the master follows."""
        self.done(self.change().run())
        self.assertEqual([Act.STOP, Act.PROMOTE, Act.FOLLOW], self.hands.acts)
        self.assertEqual([4, 6], self.old.permitted)
        self.assertChanged()
        self.assertEqual(5, sum("to go back" in line for line in self.said))

    def test_repeated(self) -> None:
        """Run again after its end it finds nothing to do."""
        self.done(self.change().run())
        self.done(self.change().run())
        self.assertIn("nothing to do", self.said[-1])
        self.assertEqual(3, len(self.hands.acts))

    def test_check(self) -> None:
        """A check changes nothing."""
        self.done(self.change().check())
        self.assertEqual(([], []), (self.old.permitted, self.hands.acts))
        self.assertIsNone(self.journal.read())

    def test_unfit(self) -> None:
        """Other pairs are refused before anything is changed."""
        pairs: dict[str, tuple[BrokerState, BrokerState]] = {
            "the first has to be the master": (SLAVE, SLAVE),
            "the second its slave": (MASTER, MASTER),
            "shop/broker-a and shop/broker-b": (MASTER, evolve(SLAVE, name="broker-b")),
            "1048576 there and 2097152 here": (MASTER, evolve(SLAVE, file_size="2097152")),
            "the slave has 5 bytes more": (MASTER, evolve(SLAVE, end=1005)),
            "wait until it is near": (evolve(MASTER, end=1 << 30), SLAVE),
            "rmqha controller elect": (evolve(MASTER, elected=True), SLAVE),
        }
        for wanted, (old, new) in pairs.items():
            self.old.state, self.new.state = old, new
            self.assertIn(wanted, self.fails(self.change().run(), PairUnfit))
            self.assertEqual([], self.old.permitted)
            self.assertIsNone(self.journal.read())

    def test_waits_for_the_last_byte_and_offset(self) -> None:
        """The master is stopped only when the slave has its last byte, and its last offset."""
        self.new.state = evolve(SLAVE, end=900)
        self.new.held = evolve(TABLES, offsets={"Orders@billing": {0: 7, 1: 8}})
        running = Deferred.fromCoroutine(self.change().run())
        self.clock.advance(1)
        self.assertEqual([], self.hands.acts)
        self.new.state = SLAVE
        self.clock.advance(1)
        self.assertEqual([], self.hands.acts)
        self.new.held = TABLES
        for _ in range(20):
            self.clock.advance(0.2)
        self.successResultOf(running)
        self.assertChanged()

    def test_not_caught_up(self) -> None:
        """A slave not caught up in time is not promoted, and the master takes writes again."""
        self.new.held = evolve(TABLES, groups=frozenset())
        error = self.fails(self.change().run(), NotSeen)
        self.assertIn("1 rows are missing there, such as group billing", error)
        self.assertEqual(([4, 6], []), (self.old.permitted, self.hands.acts))
        self.assertIsNone(self.journal.read())

    def test_sticky_permission(self) -> None:
        """One that an earlier change has left read-only takes writes when it is master."""
        self.new.permitted.append(4)
        self.new.state = evolve(SLAVE, permission=4)
        self.done(self.change().run())
        self.assertChanged()

    def test_by_hand(self) -> None:
        """What no command does a person is told to do, and may take his time."""
        self.hands.does.clear()
        running = Deferred.fromCoroutine(self.change().run())
        steps = ((self.old, None), (self.new, MASTER), (self.old, SLAVE))
        for broker, state in steps:
            for _ in range(100):
                self.clock.advance(1)
            self.assertNoResult(running)
            self.become(broker, state)
        for _ in range(10):
            self.clock.advance(1)
        self.successResultOf(running)
        self.assertChanged()
        self.assertTrue(any(line.startswith("waiting until ") for line in self.said))

    def killed(self, act: Act) -> None:
        """The command is killed while something is being done; that is not done."""

        def die() -> None:
            raise KilledHere

        whole = dict(self.hands.does)
        self.hands.does[act] = die
        running = Deferred.fromCoroutine(self.change().run())
        for _ in range(10):
            self.clock.advance(0.2)
        self.failureResultOf(running, KilledHere)
        self.hands.does = whole

    def test_killed_and_on(self) -> None:
        """Killed at any act, the command goes on when it is run again."""
        for act in (Act.STOP, Act.PROMOTE, Act.FOLLOW):
            self.killed(act)
            self.done(self.change().run())
            self.assertChanged()
            self.become(self.old, MASTER)
            self.become(self.new, SLAVE)

    def test_killed_and_back(self) -> None:
        """Killed before the slave is a master, the command goes back."""
        for act in (Act.STOP, Act.PROMOTE):
            self.killed(act)
            self.done(self.change().back())
            self.assertEqual((True, True), self.mastered(self.old))
            self.assertIsNone(self.journal.read())
            self.assertEqual({4}, self.hands.numbers)
            self.become(self.old, MASTER)
            self.become(self.new, SLAVE)

    def test_unnumbered(self) -> None:
        """A command restores the old master only if a late promotion, and that command, were told
        the number of the change: nothing else makes a late new master refuse.  A person may.
        """
        for act, wanted in (
            (Act.PROMOTE, "that command does not name $RMQHA_EPOCH"),
            (Act.RESTORE, "to take that number from $RMQHA_EPOCH"),
        ):
            self.hands.unnumbered = [act]
            self.killed(Act.PROMOTE)
            self.hands.acts.clear()
            self.assertIn(wanted, self.fails(self.change().back(), PairUnfit))
            self.assertEqual([], self.hands.acts)
            self.assertIsNone(self.old.state)
            by_hand = Deferred.fromCoroutine(self.back_by_hand())
            self.clock.pump([1.0] * 200)
            self.assertNoResult(by_hand)
            self.assertIn("--epoch 4` on the store of a:10911", self.hands.told[-1])
            self.restore()
            self.clock.pump([0.2] * 10)
            self.successResultOf(by_hand)
            self.become(self.old, MASTER)
            self.become(self.new, SLAVE)

    async def back_by_hand(self) -> None:
        """Go back, and have a person start the old master."""
        does = self.hands.does
        self.hands.does = {act: do for act, do in does.items() if act is not Act.RESTORE}
        try:
            await self.change().back()
        finally:
            self.hands.does = does

    def test_number_is_not_known_later_on(self) -> None:
        """That a promotion was begun without the number stays known when one with it is begun."""
        self.hands.unnumbered = [Act.PROMOTE]
        self.killed(Act.PROMOTE)
        self.hands.unnumbered = []
        self.killed(Act.PROMOTE)
        self.assertIn("$RMQHA_EPOCH", self.fails(self.change().back(), PairUnfit))

    def test_nobody_would_refuse(self) -> None:
        """With a stock broker, or no common name server, no command restores the old master."""
        for other, wanted in (
            (evolve(SLAVE, ours=False), "a stock broker"),
            (evolve(SLAVE, name_servers=frozenset({"p:9876"})), "no name server in common"),
        ):
            self.new.state = other
            self.killed(Act.PROMOTE)
            self.assertIn(wanted, self.fails(self.change().back(), PairUnfit))
            self.assertIsNone(self.old.state)
            self.journal.remove()
            self.become(self.old, MASTER)

    def test_restored_without_the_number(self) -> None:
        """An old master back without the number takes no writes; what to run is told."""
        self.killed(Act.PROMOTE)
        self.hands.does[Act.RESTORE] = lambda: self.become(self.old, evolve(MASTER, permission=6))
        told = self.fails(self.change().back(), PairUnfit)
        self.assertIn("master epoch 3, and b:10911, which may still be promoted to 4", told)
        self.assertIn("`rmqha promote STORE --unverified --epoch 4`", told)
        self.assertEqual((True, False), self.mastered(self.old))

    def mastered(self, broker: ToldBroker) -> tuple[bool, bool]:
        """Whether a broker is a master, and whether that takes writes."""
        assert broker.state is not None
        return broker.state.is_master, broker.state.writable

    def test_on_after_half_a_way_back(self) -> None:
        """A slave that knows the number is promoted to a new one when the command goes on."""
        self.killed(Act.PROMOTE)
        self.restore()
        self.become(self.old, None)
        self.hands.numbers.clear()
        self.done(self.change().run())
        self.assertEqual({5}, self.hands.numbers)
        self.assertChanged()

    def test_waits_for_the_number(self) -> None:
        """The way back ends when the slave knows the number: before, it can be promoted."""
        self.killed(Act.PROMOTE)
        self.hands.does[Act.RESTORE] = lambda: self.become(self.old, evolve(MASTER, epoch=4))
        running = Deferred.fromCoroutine(self.change().back())
        self.clock.pump([1.0] * 300)
        self.assertNoResult(running)
        self.assertIn("it knows master epoch 3, and not yet 4", self.said[-1])
        self.become(self.new, evolve(SLAVE, epoch=4))
        self.clock.pump([0.2] * 10)
        self.successResultOf(running)

    def test_new_master_while_restored(self) -> None:
        """If the slave became master before the old one was restored, that takes no more writes."""
        self.killed(Act.PROMOTE)

        def late() -> None:
            self.become(self.new, MASTER)
            self.become(self.old, evolve(MASTER, epoch=4))
            self.old.permitted.append(6)

        self.hands.does[Act.RESTORE] = late
        told = self.fails(self.change().back(), PairUnfit)
        self.assertIn("two masters: a:10911 was made read-only, stop it; b:10911 became", told)
        self.assertEqual((True, False), self.mastered(self.old))

    def test_new_master_after_restored(self) -> None:
        """If it becomes master after the old one did, it takes no writes; the way back ends."""
        self.killed(Act.PROMOTE)
        self.hands.does[Act.RESTORE] = lambda: self.become(self.old, evolve(MASTER, epoch=4))
        running = Deferred.fromCoroutine(self.change().back())
        self.clock.pump([1.0] * 30)
        self.assertNoResult(running)
        self.old.state = evolve(MASTER, epoch=4)
        self.become(self.new, evolve(MASTER, epoch=4))
        self.clock.advance(0.2)
        told = self.failureResultOf(running, PairUnfit).getErrorMessage()
        self.assertIn("b:10911 was made read-only. Stop b:10911", told)
        self.assertEqual((True, True), self.mastered(self.old))
        self.assertEqual((True, False), self.mastered(self.new))
        self.assertIn("Stop b:10911", self.fails(self.change().back(), PairUnfit))
        self.assertEqual((True, True), self.mastered(self.old))

    def test_restored_in_vain(self) -> None:
        """If the old master could not be restored, the way on is named."""
        self.killed(Act.PROMOTE)

        def refuses() -> None:
            raise ActFailed("--restore", "process ended with exit code 78")

        self.hands.does[Act.RESTORE] = refuses
        told = self.fails(self.change().back(), PairUnfit)
        self.assertIn("exit code 78. a:10911 refuses to start beside b:10911", told)
        self.assertIn("run this command without --back, to its end", told)

    def test_no_way_back(self) -> None:
        """Once the slave is a master there is another way back, which is told."""
        self.killed(Act.FOLLOW)
        error = self.fails(self.change().back(), PairUnfit)
        self.assertIn("`rmqha switchover b:10911 a:10911`", error)
        self.assertIsNone(self.old.state)

    def test_no_way_back_from_a_lost_one(self) -> None:
        """Nor is there one when the new master is gone: it may have taken writes."""
        self.killed(Act.FOLLOW)
        self.become(self.new, None)
        self.assertIn("may have taken writes", self.fails(self.change().back(), PairUnfit))
        self.assertEqual(Act.FOLLOW, self.hands.acts[-1])

    def test_nothing_under_way(self) -> None:
        """There is no way back from nothing."""
        self.assertIn("no switchover", self.fails(self.change().back(), PairUnfit))

    def test_old_master_back_unbidden(self) -> None:
        """If the old master runs again as one, the slave is not promoted beside it."""
        self.killed(Act.PROMOTE)
        self.become(self.old, MASTER)
        self.assertIn("stop it", self.fails(self.change().run(), PairUnfit))
        self.assertEqual([Act.STOP, Act.PROMOTE], self.hands.acts)

    def test_written_to_meanwhile(self) -> None:
        """If the old master started before the stop was seen, the slave catches up again."""
        self.killed(Act.STOP)
        self.old.state = evolve(MASTER, end=2000)
        running = Deferred.fromCoroutine(self.change().run())
        self.clock.advance(1)
        self.assertEqual((4, [Act.STOP]), (self.old.permitted[-1], self.hands.acts))
        self.new.state = evolve(SLAVE, end=2000)
        self.hands.does[Act.PROMOTE] = lambda: self.become(self.new, evolve(MASTER, end=2000))
        self.hands.does[Act.FOLLOW] = lambda: self.become(self.old, evolve(SLAVE, end=2000))
        for _ in range(20):
            self.clock.advance(0.2)
        self.successResultOf(running)

    def test_command_of_before_runs(self) -> None:
        """Nothing is done before the command that was begun by another run has ended."""
        self.hands.running = "process 7 still runs"
        running = Deferred.fromCoroutine(self.change().run())
        for _ in range(50):
            self.clock.advance(1)
        self.assertEqual([], self.old.permitted)
        self.hands.running = ""
        for _ in range(20):
            self.clock.advance(0.2)
        self.successResultOf(running)

    def test_ahead(self) -> None:
        """An old master that had bytes of its own does not pass for one that follows."""
        self.hands.does[Act.FOLLOW] = lambda: self.become(self.old, evolve(SLAVE, end=1100))
        self.assertIn("see Ahead", self.fails(self.change().run(), NotSeen))

    def test_stands_still(self) -> None:
        """A log that stands still is none that follows when the master's comes to its byte."""
        self.hands.does[Act.FOLLOW] = lambda: self.become(self.old, evolve(SLAVE, end=1100))
        running = Deferred.fromCoroutine(self.change().run())
        for end in range(1000, 1300, 50):
            self.new.state = evolve(MASTER, end=end)
            self.clock.advance(0.2)
        self.assertNoResult(running)
        self.clock.advance(10)
        self.failureResultOf(running, NotSeen)

    def test_offsets_lowered(self) -> None:
        """Offsets that are lower in the end are told, though the pair is whole."""

        def forgetful() -> None:
            self.become(self.new, MASTER)
            self.new.held = evolve(TABLES, offsets={"Orders@billing": {0: 7}})

        self.hands.does[Act.PROMOTE] = forgetful
        error = self.fails(self.change().run(), SwitchoverError)
        self.assertIn("group billing in queue 1 of Orders: none, not 9", error)
        self.assertChanged()

    def test_refused(self) -> None:
        """If the master refuses the change of its permission, it is told, and nothing goes on."""

        async def refuse(permission: int) -> None:
            raise RequestRefused(16, "no", 25)

        self.old.permit = refuse  # type: ignore[method-assign]
        self.fails(self.change().run(), RequestRefused)
        self.assertEqual([], self.hands.acts)
        self.assertTrue(any("still read-only" in line for line in self.said))


class JournalTests(SynchronousTestCase):
    def setUp(self) -> None:
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "switchover.json"
        self.journal = SwitchoverJournal(self.path)

    def test_round_trip(self) -> None:
        """It reads what it wrote, and nothing after it was removed."""
        row = UnderWay(
            master="a:10911",
            slave="b:10911",
            phase=Phase.STOPPING,
            permission=6,
            closed=1,
            epoch=2,
            end=77,
            offsets=TABLES.offsets,
        )
        self.assertIsNone(self.journal.read())
        self.journal.write(row)
        self.journal.write(row)
        self.assertEqual(row, self.journal.read())
        self.journal.remove()
        self.assertIsNone(self.journal.read())
        self.assertEqual([], list(self.path.parent.iterdir()))

    def test_not_a_switchovers(self) -> None:
        """A file that is something else is refused."""
        for text in ('{"phase": 9}', "{}", '{"phase": 1}', "[]"):
            self.path.write_text(text, encoding="utf-8")
            self.assertRaises(TableUnreadable, self.journal.read)


class ToldReactor:
    """Starts no process, and tells which one it was to start."""

    def spawnProcess(
        self,
        protocol: ProcessProtocol,
        executable: str,
        arguments: list[str],
        env: dict[str, str],
        childFDs: dict[int, int],
    ) -> None:
        self.protocol, self.arguments, self.environment = protocol, arguments, env


class HandsTests(SynchronousTestCase):
    def setUp(self) -> None:
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.pid_file = Path(folder.name) / "switchover.pid"

    def test_busy(self) -> None:
        """A command is known by its process id and the file's name, while it runs."""
        hands = Hands({}, self.pid_file, None, lambda text: None)

        def busy() -> str:
            return self.successResultOf(Deferred.fromCoroutine(hands.busy()))

        self.assertEqual("", busy())
        with subprocess.Popen(
            [sys.executable, "-c", "print('up', flush=True); input()", str(self.pid_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            self.assertEqual(b"up\n", process.stdout.readline())
            self.pid_file.write_text(f"{process.pid}\n", encoding="ascii")
            self.assertEqual(f"process {process.pid} still runs", busy())
            process.communicate(b"\n")
        self.assertEqual("", busy())
        self.pid_file.write_text(f"{os.getpid()}\n", encoding="ascii")
        self.assertEqual("", busy(), "another process has the id")
        hands.leave()
        self.assertFalse(self.pid_file.exists())

    def test_command(self) -> None:
        """A command runs in a session of its own, so that what ends ours does not reach it, knows
        the number of the change and leaves its process id.
        """
        reactor = ToldReactor()
        tell = "cut -d' ' -f6 /proc/self/stat; echo $RMQHA_EPOCH"
        hands = Hands({Act.STOP: tell}, self.pid_file, reactor, lambda text: None)
        hands.do(Act.STOP, "stop it", 7)
        done = ended(*reactor.arguments, env=reactor.environment, check=True)
        pid = self.pid_file.read_text(encoding="ascii").strip()
        self.assertEqual([pid, "7"], done.stdout.split())

    def test_numbered(self) -> None:
        """A command is told the number if it names it, and a person always is."""
        hands = Hands(
            {Act.STOP: "ssh a stop", Act.PROMOTE: "ssh b promote $RMQHA_EPOCH"},
            self.pid_file,
            None,
            lambda text: None,
        )
        told = [hands.numbered(act) for act in (Act.STOP, Act.PROMOTE, Act.RESTORE)]
        self.assertEqual([False, True, True], told)

    def test_interrupt(self) -> None:
        """The first Ctrl-C waits for a command and says so; the second leaves it running."""
        said: list[str] = []
        reactor = ToldReactor()
        hands = Hands({Act.PROMOTE: "become-master"}, self.pid_file, reactor, said.append)
        self.assertTrue(hands.interrupt(), "nothing runs")
        running = hands.do(Act.PROMOTE, "promote it", 4)
        self.assertFalse(hands.interrupt())
        self.assertIn("waiting for the end of become-master; Ctrl-C again", said[-1])
        self.assertTrue(hands.interrupt())
        self.assertEqual("left running: become-master", said[-1])
        self.assertNoResult(running)
        reactor.protocol.processEnded(Failure(ProcessDone(0)))
        told = self.failureResultOf(running, Interrupted).getErrorMessage()
        self.assertIn("run this again to go on, or with --back", told)

    def test_ended_badly(self) -> None:
        """A command that fails is told by its option, also one that a Ctrl-C waited for."""
        for interrupted in (False, True):
            reactor = ToldReactor()
            hands = Hands({Act.STOP: "stop"}, self.pid_file, reactor, lambda text: None)
            running = hands.do(Act.STOP, "stop it", 4)
            if interrupted:
                hands.interrupt()
            reactor.protocol.processEnded(Failure(ProcessTerminated(3)))
            self.assertIn("--stop failed", self.failureResultOf(running).getErrorMessage())

    def test_lower(self) -> None:
        """Higher offsets are no loss, lower and missing ones are."""
        there = {"T@g": {0: 5, 1: 5}, "T@h": {0: 1}}
        self.assertEqual([], lower_offsets({"T@g": {0: 5, 1: 6}, "T@h": {0: 1}}, there))
        self.assertEqual(
            ["group g in queue 1 of T: 4, not 5", "group h in queue 0 of T: none, not 1"],
            lower_offsets({"T@g": {0: 9, 1: 4}}, there),
        )

    def test_failure(self) -> None:
        """What is said of a command that failed names its option."""
        error = ActFailed("--promote", "exit code 1")
        self.assertEqual("the command of --promote failed: exit code 1", str(error))
