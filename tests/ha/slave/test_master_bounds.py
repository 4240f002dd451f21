"""What a slave learns from its master's client port, and what it does with it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.ha_settings import DivergencePolicy, HASettings
from rmqha.errors import RequestRefused
from rmqha.ha.master_epoch import EpochStart
from rmqha.ha.slave import probe
from rmqha.ha.slave.master_bounds import (
    ASK_TIMEOUT,
    PATIENCE,
    BrokerIdentity,
    MasterBounds,
    MasterClientPort,
    RuntimeInfoInvalid,
    ask,
)
from rmqha.ha.slave.probe import Search
from rmqha.ha.slave.reconnect import bounds_first
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.slave import EpochClaim
from tests.support.following import BATCH, SIZE, SIZES, FollowerCase
from tests.support.logs import STORED, content, encoded
from tests.support.scripted_master import PuppetEndpoint

#: What 4.9.7 says of itself, as far as we read it, and something of the rest.
RUNTIME = {
    "bootTimestamp": "1700000000000",
    "brokerVersionDesc": "V4_9_7",
    "commitLogMaxOffset": "7340032",
    "commitLogMinOffset": "1048576",
    "putMessageDistributeTime": "[<=0ms]:1 [0~10ms]:1 ",
}


def body(**more: object) -> bytes:
    """An answer's body; an entry that is C{None} is left out."""
    table = {key: value for key, value in (RUNTIME | more).items() if value is not None}
    return json.dumps({"table": table}).encode()


class ParseTests(SynchronousTestCase):
    def test_stock(self) -> None:
        """Numbers come as texts, among much else."""
        self.assertEqual(
            MasterBounds.of_runtime(body()), MasterBounds(1048576, 7340032, 1700000000000)
        )

    def test_ours(self) -> None:
        """A broker of ours tells who it is; what makes no sense is named."""
        told = {"brokerName": "broker-a", "brokerId": "0", "runId": "r"}
        told |= {"masterEpoch": "3", "epochStarts": "2-700,3-900"}
        self.assertEqual(
            MasterBounds.of_runtime(body(**told)).identity,
            BrokerIdentity(
                name="broker-a",
                id=0,
                run_id="r",
                epoch=3,
                starts=(EpochStart(2, 700), EpochStart(3, 900)),
            ),
        )
        self.assertEqual(MasterBounds.of_runtime(body()).identity, BrokerIdentity())
        for key, wrong in (
            ("masterEpoch", "x"),
            ("masterEpoch", "-1"),
            ("brokerId", ""),
            ("epochStarts", "3-900,2-700"),
        ):
            error = self.assertRaises(
                RuntimeInfoInvalid, MasterBounds.of_runtime, body(**(told | {key: wrong}))
            )
            self.assertEqual(error.key, key)

    def test_no_files(self) -> None:
        """A stock master without files says that its log begins at -1."""
        bounds = MasterBounds.of_runtime(body(commitLogMinOffset="-1", commitLogMaxOffset="0"))
        self.assertEqual((bounds.min_offset, bounds.max_offset), (0, 0))

    def test_bad(self) -> None:
        """What is missing or garbled is named, with what stands there."""
        key = "commitLogMaxOffset"
        for wrong, shown in (
            (None, "missing"),
            ("", ""),
            ("12x", "12x"),
            ("-1", "-1"),
            (str(1 << 63), str(1 << 63)),
            ("1048575", "1048575, below commitLogMinOffset 1048576"),
            (["1"], "['1']"),
            ("9" * 5000, "9" * 200 + "..."),
        ):
            error = self.assertRaises(
                RuntimeInfoInvalid, MasterBounds.of_runtime, body(commitLogMaxOffset=wrong)
            )
            self.assertEqual((error.key, error.text), (key, shown))
            self.assertIn(key, str(error))
        for text in (b"", b"{", b"[]", b"{}", b'{"table":[]}', b"\xff\x00", b'{"table":null}'):
            error = self.assertRaises(RuntimeInfoInvalid, MasterBounds.of_runtime, text)
            self.assertEqual(error.key, "table")

    @given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: body(bootTimestamp=text)))
    def test_any_bytes(self, text: bytes) -> None:
        """Whatever a port answers: bounds, or the one error."""
        try:
            MasterBounds.of_runtime(text)
        except RuntimeInfoInvalid as error:
            self.assertLess(len(str(error)), 400)


class FakeClient:
    """Answers as it is told."""

    def __init__(self, answer: Command) -> None:
        self.answer = answer
        self.asked: list[tuple[str, int, float]] = []
        self.said: list[dict[str, str]] = []

    def request(self, address: str, command: Command, timeout: float = 3.0) -> Deferred[Command]:
        self.asked.append((address, command.code, timeout))
        self.said.append(command.ext)
        return succeed(self.answer)


class AskTests(SynchronousTestCase):
    def test_asks(self) -> None:
        """One request 28."""
        client = FakeClient(Command(code=0, flag=1, body=body()))
        bounds = self.successResultOf(ask(client, "10.0.0.1:10911"))
        self.assertEqual(bounds.max_offset, 7340032)
        self.assertEqual(client.asked, [("10.0.0.1:10911", 28, ASK_TIMEOUT)])
        self.assertEqual(client.said, [{}])

    def test_tells(self) -> None:
        """It tells of the master that is known, where there is one."""
        client = FakeClient(Command(code=0, flag=1, body=body()))
        claim = EpochClaim(broker_name="a", master_epoch=2, master_addr="10.0.0.6:10911")
        self.successResultOf(ask(client, "10.0.0.1:10911", claim))
        self.assertEqual(
            client.said, [{"brokerName": "a", "masterEpoch": "2", "masterAddr": "10.0.0.6:10911"}]
        )

    def test_refused(self) -> None:
        """An answer that is no success tells what the broker says."""
        client = FakeClient(Command(code=3, flag=1, remark=" request type 28 not supported"))
        error = self.failureResultOf(ask(client, "x:1"), RequestRefused).value
        self.assertIn("28 not supported", str(error))


class PortTests(SynchronousTestCase):
    """L{MasterClientPort}: what is known, and how long it is asked."""

    def setUp(self) -> None:
        """A port whose answers are given by hand."""
        self.clock = Clock()
        self.questions: list[Deferred[MasterBounds]] = []
        self.port = MasterClientPort(self.question, self.clock, "10.0.0.1:10912")

    def question(self) -> Deferred[MasterBounds]:
        self.questions.append(Deferred())
        return self.questions[-1]

    def reach(self, boot: int = 5) -> None:
        looked = self.port.look()
        self.questions[-1].callback(MasterBounds(0, 10, boot))
        self.successResultOf(looked)

    def test_answer(self) -> None:
        """The bounds are those of the last question."""
        self.assertEqual(self.port.state, "not asked yet")
        self.reach()
        self.assertEqual(self.port.bounds, MasterBounds(0, 10, 5))
        self.assertEqual(self.port.state, "reachable")
        self.port.look()
        self.assertIsNone(self.port.bounds)

    def test_never_reached(self) -> None:
        """A port that never answered is asked once, and the reason is kept and logged."""
        for times in (1, 2):
            looked = self.port.look()
            self.questions[-1].errback(ConnectionRefusedError("nobody there"))
            self.successResultOf(looked)
            self.assertEqual(len(self.questions), times)
        self.assertIsNone(self.port.bounds)
        self.assertIn("nobody there", self.port.state)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_patience(self) -> None:
        """A port that answered before is asked again: its master may be coming back."""
        self.reach()
        looked = self.port.look()
        while not self.clock.seconds() > PATIENCE / 2:
            self.questions[-1].errback(ConnectionRefusedError())
            self.assertNoResult(looked)
            self.clock.advance(0.5)
        self.questions[-1].callback(MasterBounds(0, 7, 6))
        self.successResultOf(looked)
        self.assertEqual(self.port.bounds, MasterBounds(0, 7, 6))

    def test_patience_ends(self) -> None:
        """Not for ever, nor for the next question."""
        self.reach()
        looked = self.port.look()
        while not looked.called:
            self.questions[-1].errback(ConnectionRefusedError())
            self.clock.advance(0.5)
        self.assertTrue(PATIENCE <= self.clock.seconds() <= PATIENCE + 1, self.clock.seconds())
        self.assertIsNone(self.port.bounds)
        looked = self.port.look()
        self.questions[-1].errback(ConnectionRefusedError())
        self.successResultOf(looked)

    def test_boots(self) -> None:
        """A master's new process is noticed, and the one before it remembered."""
        for boot, before in ((5, None), (5, None), (9, 5), (9, 5)):
            self.reach(boot)
            self.assertEqual((self.port.boot_timestamp, self.port.boot_before), (boot, before))

    def test_cancelled(self) -> None:
        """Nothing is left of a question that is given up."""
        looked = self.port.look()
        looked.cancel()
        self.failureResultOf(looked)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class Hearing(Protocol):
    """Keeps what happens."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def connectionMade(self) -> None:
        self.events.append("made")

    def dataReceived(self, data: bytes) -> None:
        self.events.append(data)

    def connectionLost(self, reason: object = None) -> None:
        self.events.append("lost")


class AskedFirstTests(SynchronousTestCase):
    """L{bounds_first}: nothing is said before the answer."""

    def setUp(self) -> None:
        """A connection on which something is being asked."""
        self.clock = Clock()
        self.inner = PuppetEndpoint(self.clock)
        self.asked: Deferred[None] = Deferred()
        self.hearing = Hearing()
        factory = Factory.forProtocol(lambda: self.hearing)
        self.result: Deferred[IProtocol] = bounds_first(self.inner, lambda: self.asked).connect(
            factory
        )

    def test_begins_with_the_answer(self) -> None:
        """The protocol is made when the answer is there, and hears everything then."""
        connection = self.inner.accept()
        self.assertNoResult(self.result)
        self.assertEqual(self.hearing.events, [])
        self.asked.callback(None)
        self.assertIs(self.successResultOf(self.result), self.hearing)
        connection.send(b"abc")
        connection.close()
        self.assertEqual(self.hearing.events, ["made", b"abc", "lost"])

    def test_lost_while_asking(self) -> None:
        """A connection that is lost meanwhile was no connection, and nobody is asked on."""
        cancelled: list[object] = []
        self.asked.addErrback(lambda failure: cancelled.append(failure) or failure)
        self.inner.accept().close()
        self.failureResultOf(self.result)
        self.assertEqual((len(cancelled), self.hearing.events), (1, []))

    def test_speaks_unasked(self) -> None:
        """Bytes before our first word end it."""
        connection = self.inner.accept()
        connection.send(b"HTTP/1.1 400")
        self.assertFalse(connection.open)
        self.clock.advance(0)
        self.failureResultOf(self.result)

    def test_given_up(self) -> None:
        """Whoever gives up closes the connection."""
        connection = self.inner.accept()
        self.result.cancel()
        self.failureResultOf(self.result)
        self.assertFalse(connection.open)
        self.clock.advance(0)
        self.assertEqual(self.hearing.events, [])

    def test_no_connection(self) -> None:
        """Nobody is asked without one."""
        self.inner.refuse()
        self.failureResultOf(self.result, ConnectionRefusedError)
        self.assertFalse(self.asked.called)


class StockMaster:
    """A master that plays by a stock broker's rules, with their holes: a first report is believed,
    and
    what is believed is never forgotten.

    @ivar acked: What its SYNC writes take for replicated.
    """

    def __init__(self, case: FollowerCase, log: CommitLog) -> None:
        self.case = case
        self.log = log
        self.end = log.end
        self.oldest = log.min_offset
        self.acked = 0
        self.reachable = True
        self.boot = 1

    def bounds(self) -> Deferred[MasterBounds]:
        """Its answer to request 28."""
        if not self.reachable:
            return fail(ConnectionRefusedError())
        return succeed(MasterBounds(self.oldest, self.end, self.boot))

    def answer(self) -> int:
        """Serve the slave's next connection to its end, or until all is sent: its first report."""
        connection = self.case.accept(within=31)
        first, *_ = connection.reports()
        start = first or self.end - self.end % SIZE
        connection.heartbeat(start)
        if self.oldest <= start < self.end:
            connection.feed(self.log, start, self.end)
        connection.heartbeat(max(start, self.end) if start < self.end else start)
        if connection.open and (start >= self.end or start < self.oldest):
            self.case.passes(6)
        self.acked = max(self.acked, *connection.reports())
        return first


class BehindStock(FollowerCase):
    """A slave of a L{StockMaster}."""

    def setUp(self) -> None:
        """A master's log of three files and a bit."""
        super().setUp()
        self.theirs = self.filled(*SIZES)
        self.master = StockMaster(self, self.theirs)

    def follow_it(self, mine: CommitLog, **more: object) -> None:
        self.follow(mine, bounds=self.master.bounds, **more)

    def assertState(self, state: str) -> None:
        """The state, and that the master was never told more than it has."""
        super().assertState(state)
        self.assertLessEqual(self.master.acked, self.master.end)

    def starts(self) -> list[int]:
        return self.record_starts(self.theirs)

    def record_starts(self, log: CommitLog) -> list[int]:
        """Where a log's records and blanks start."""
        found, at = [], log.min_offset
        while at < log.end:
            size = int.from_bytes(bytes(log.read(at, 4)), "big")
            found.append(at)
            at += size
        return found


class LostTailTests(BehindStock):
    """A stock master that lost its log's tail: more of it than a slave compares blindly."""

    def setUp(self) -> None:
        """Make the window small, as the log is."""
        super().setUp()
        self.patch(probe, "PROBE_WINDOW", 500)

    def test_wherever_it_ends(self) -> None:
        """Wherever it ends, our reports never exceed that: we are ahead, with both ends named."""
        mine = self.copied(self.theirs)
        for end in self.starts()[1:]:
            with self.subTest(end=end):
                self.master.end, self.master.acked = end, 0
                self.follow_it(mine)
                self.master.answer()
                self.assertState("ahead")
                self.assertIn(f"ends at {end}, ours at {mine.end}", self.follower.sync.reason)
                self.assertEqual(self.follower.sync.probes, 1)
                divergence = self.follower.sync.divergence
                assert divergence is not None
                self.assertEqual(divergence.at, end)
                self.stop()

    def test_blind(self) -> None:
        """What remains of a stock master's hole: one that lost more, unasked, is told too much."""
        self.master.end, self.master.reachable = self.starts()[2], False
        self.follow_it(self.copied(self.theirs))
        self.master.answer()
        self.assertGreater(self.master.acked, self.master.end)

    def test_empty(self) -> None:
        """One that lost everything is not followed into that."""
        for policy in DivergencePolicy:
            self.master.end = self.master.acked = 0
            self.follow_it(self.copied(self.theirs), policy=policy)
            self.master.answer()
            self.assertState("ahead")
            self.assertEqual((self.repairs, self.master.acked), ([], 0))
            self.stop()

    def test_below_our_log(self) -> None:
        """One that ends before our log begins is asked for nothing of ours."""
        mine = self.copied(self.theirs, start=2 * SIZE)
        self.master.end = self.starts()[2]
        self.follow_it(mine)
        self.assertEqual(self.master.answer(), 0)
        self.assertState("ahead")
        self.assertIsNotNone(self.follower.sync.divergence)

    def test_regrown(self) -> None:
        """One that has gone on since is found out at the byte where it lost its tail."""
        mine = self.copied(self.theirs)
        lost = self.starts()[-1]
        other = self.copied(self.theirs, lost)
        other.put([encoded(500), encoded(700)], [0, 0], STORED + 1)
        self.master = StockMaster(self, other)
        self.follow_it(mine)
        self.master.answer()
        super().assertState("diverged")
        divergence = self.follower.sync.divergence
        assert divergence is not None
        self.assertGreaterEqual(divergence.at, lost)
        self.assertLessEqual(self.master.acked, divergence.at)

    def test_shrinks_while_we_search(self) -> None:
        """A search that rests on an end that is gone begins anew."""
        mine = self.copied(self.theirs)
        self.follow_it(mine)
        self.passes(0)
        first = self.accept()
        self.assertGreater(first.reports()[0], 2 * SIZE)
        first.close()
        self.master.end, self.master.boot = self.starts()[1], 2
        self.master.answer()
        self.assertState("ahead")
        self.assertEqual(self.follower.sync.status(0)["masterBootTimestamp"], 2)

    def test_restarts_while_it_is_asked(self) -> None:
        """A master that comes back opens its HA port first; the slave waits for the other."""
        mine = self.copied(self.theirs)
        self.follow_it(mine)
        self.master.answer()
        self.assertState("in-sync")
        self.master.end, self.master.reachable = self.starts()[1], False
        self.follower.sync.connection.drop()  # type: ignore[union-attr]
        connection = self.accept(within=2)
        self.passes(3)
        self.assertEqual(connection.reports(), [])
        self.master.reachable = True
        self.passes(0.5)
        self.assertLess(connection.reports()[0], self.master.end)

    def test_mended(self) -> None:
        """With C{truncate} the cut is exactly where it ends, and then they are equal."""
        mine = self.copied(self.theirs)
        self.master.end = end = self.starts()[-3]
        self.follow_it(mine, policy=DivergencePolicy.TRUNCATE)
        self.master.answer()
        self.turn()
        _, divergence, done = self.repairs[0]
        assert divergence is not None
        self.assertEqual(divergence.at, end)
        self.mine = self.copied(self.theirs, end)
        done.callback("cut")
        self.master.answer()
        self.assertState("in-sync")
        self.assertEqual(self.master.acked, end)


class ToldTests(BehindStock):
    """What else a master that tells its bounds makes easier."""

    def test_in_sync(self) -> None:
        """A master that has what we have, or more, is followed as ever."""
        for end in (self.starts()[-1], self.theirs.end):
            self.follow_it(self.copied(self.theirs, end))
            self.master.answer()
            self.assertState("in-sync")
            self.assertEqual(content(self.mine), content(self.theirs))
            self.stop()

    def test_below_min(self) -> None:
        """A master whose log begins behind our end is not asked at all."""
        mine = self.copied(self.theirs, SIZE + 700)
        self.master.oldest = 2 * SIZE
        self.follow_it(mine)
        self.refused()
        self.assertState("below-min")
        self.assertEqual(
            self.follower.sync.reason,
            f"the master's log begins at {2 * SIZE}, ours ends at {SIZE + 700}: the {SIZE - 700} "
            "bytes between were deleted there",
        )
        self.assertEqual(self.master.acked, 0)
        self.assertIdleFor(29)

    def refused(self) -> None:
        """The next connection is made and left without a word."""
        self.assertEqual(self.accept(within=1).reports(), [])
        self.turn()

    def test_below_min_starts_over(self) -> None:
        """An unfinished copy starts over by itself."""
        self.master.oldest = 2 * SIZE
        self.follow_it(self.copied(self.theirs, SIZE + 700), is_bootstrapping=True)
        self.refused()
        self.assertIs(self.repairs[0][0], DivergencePolicy.REBOOTSTRAP)

    def test_begins_where_we_end(self) -> None:
        """One whose log begins exactly where ours ends has nothing to compare."""
        self.master.oldest = 2 * SIZE
        self.follow_it(self.copied(self.theirs, 2 * SIZE))
        self.refused()
        self.assertState("unproven")

    def test_begins_where_we_end_and_is_trusted(self) -> None:
        """It is followed if that is allowed."""
        self.master.oldest = 2 * SIZE
        self.follow_it(self.copied(self.theirs, 2 * SIZE), accept_unproven=True)
        self.refused()
        self.assertEqual(self.master.answer(), 2 * SIZE)
        self.assertState("in-sync")

    def test_only_our_last_file_left(self) -> None:
        """A master that still has our last file is asked there, with the first question."""
        self.master.oldest = SIZE
        self.follow_it(self.copied(self.theirs, SIZE + 700))
        self.assertEqual(self.master.answer(), SIZE)
        self.assertState("in-sync")

    def test_copy_under_load(self) -> None:
        """A first copy is whole when it has what the master had, though more never stops coming."""
        # Frames that are full and no more: none says that the master ends there.
        half, more = SIZE + 2 * BATCH, SIZE + 3 * BATCH
        self.master.end = max(start for start in self.starts() if start <= more)
        self.assertGreater(self.master.end, half)
        self.follow_it(self.log())
        connection = self.accept(within=1)
        connection.feed(self.theirs, 0, half)
        self.assertState("bootstrapping")
        self.assertEqual(self.marks, [True])
        connection.feed(self.theirs, half, more)
        self.assertEqual(self.marks, [True, False])
        super().assertState("catching-up")

    def test_copy_of_an_empty_master(self) -> None:
        """Half of the first record is no copy, though the master had nothing when it was asked."""
        self.master.end = 0
        self.follow_it(self.log())
        connection = self.accept()
        connection.feed(self.theirs, 0, 600, batch=100)
        self.assertEqual(self.marks, [True])
        connection.feed(self.theirs, 600, 700, batch=100)
        self.assertEqual(self.marks, [True, False])

    def test_empty_slave(self) -> None:
        """An empty slave that is answered from the last file knows where to go."""
        for oldest in (0, SIZE, 2 * SIZE):
            self.master.oldest = oldest
            self.follow_it(self.log())
            self.assertEqual((self.master.answer(), self.master.answer()), (0, oldest or 1))
            self.assertState("in-sync")
            self.assertEqual(content(self.mine), content(self.theirs, oldest))
            self.stop()

    def test_empty_slave_of_one_file(self) -> None:
        """When the answer starts at 0 that was all."""
        self.master.end = self.starts()[2]
        self.follow_it(self.log())
        self.assertEqual(self.master.answer(), 0)
        self.assertState("in-sync")


class UnprovenTests(BehindStock):
    """C{haAcceptUnproven} and a master that is idle."""

    def trusted(self, bounds: bool) -> None:
        """Follow unproven a master that answers nothing, until it is trusted."""
        mine = self.copied(self.theirs)
        if bounds:
            self.follow_it(mine, accept_unproven=True)
        else:
            self.follow(mine, accept_unproven=True)
        self.accept()
        self.passes(6)
        self.accept(within=0.1)
        self.passes(6)
        self.connection = self.accept(within=0.1)
        self.assertEqual(self.connection.reports(), [mine.end])
        super().assertState("probing")
        self.passes(6)

    def goes_on(self) -> None:
        """The first write is taken, and the word about trust is gone."""
        end = self.theirs.end
        self.theirs.put([encoded(700)], [0], STORED)
        self.connection.feed(self.theirs, end)
        self.connection.heartbeat(self.theirs.end)
        super().assertState("in-sync")
        self.assertEqual(self.follower.sync.reason, "")
        self.assertEqual(content(self.mine), content(self.theirs))

    def test_told(self) -> None:
        """One that says it ends where we end is in sync, as far as we are told."""
        self.trusted(True)
        super().assertState("in-sync")
        self.assertIn("following unproven", self.follower.sync.reason)
        self.goes_on()

    def test_blind(self) -> None:
        """One whose end nobody knows is being caught up with."""
        self.trusted(False)
        super().assertState("catching-up")
        self.assertIn(f"waiting for the master's byte {self.mine.end}", self.follower.sync.reason)
        self.goes_on()

    def test_never_above_its_end(self) -> None:
        """Trust does not go as far as to report more than the master has."""
        self.master.end = self.starts()[3]
        mine = self.changed(self.theirs, 1)
        self.follow_it(mine, accept_unproven=True)
        for _ in range(3):
            if self.endpoint.waiting or not self.follower.sync.state.is_stop:
                self.master.answer()
        self.assertLessEqual(self.master.acked, self.master.end)
        self.assertTrue(self.follower.sync.state.is_stop, self.follower.sync.state)

    def test_unflushed_tail(self) -> None:
        """Nor does it overlook a tail that is not on our disk yet: with it we are ahead."""
        log = self.filled(700, 900)
        log.now_flushed(700)
        search = Search(HASettings(accept_unproven=True))
        search.trusting = True
        self.assertLess(search.question(log, log.flushed, MasterBounds(0, 700, 1)).report, 700)
        self.assertTrue(search.beyond)
        self.assertFalse(search.trusting)


class StatusTests(BehindStock):
    """What C{/status} says of the client port."""

    def test_states(self) -> None:
        """Reachable, why not, or off."""
        self.follow_it(self.copied(self.theirs))
        self.assertEqual(self.follower.sync.status(0)["clientPort"], "not asked yet")
        self.master.answer()
        status = self.follower.sync.status(0)
        self.assertEqual((status["clientPort"], status["masterBootTimestamp"]), ("reachable", 1))
        self.stop()
        self.master.reachable = False
        self.follow_it(self.copied(self.theirs))
        self.master.answer()
        self.assertIn("refused", self.follower.sync.status(0)["clientPort"])
        self.assertState("in-sync")
        self.stop()
        self.follow(self.copied(self.theirs))
        status = self.follower.sync.status(0)
        self.assertEqual((status["clientPort"], status["masterBootTimestamp"]), ("off", None))
