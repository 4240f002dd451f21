"""What SYNC writes of an elected master are answered."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed

from rmqha.config.controller_settings import AloneAnswer, ControllerSettings
from rmqha.errors import ControllerUnanswered, NotWritable, TooFewInSync
from rmqha.ha.master.master import GATHERING
from rmqha.ha.master.put_service import PutResult
from rmqha.ha.master.transfer import Done, PutStatus
from rmqha.store.log.record_run import RecordRun
from rmqha.wire.log.record import Message
from tests.ha.elected.cases import OWN, SLAVE, THIRD, SetCase, Told
from tests.support.health import unhealthy

OK, TIMEOUT = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT
ALONE = PutStatus.SLAVE_NOT_AVAILABLE


class AnswerTests(SetCase):
    def test_alone(self) -> None:
        """With nobody there a write is stored and answered so at once, and the node is not well."""
        self.assertEqual(self.successResultOf(self.put()), ALONE)
        self.assertIn("too-few-replicas", unhealthy(self.master))

    def test_alone_is_enough(self) -> None:
        """C{controllerAloneAnswer=ok} answers as stock masters do."""
        self.build(rules=ControllerSettings(alone=AloneAnswer.OK))
        self.assertEqual(self.successResultOf(self.put()), OK)

    def test_near(self) -> None:
        """A master alone in the set waits for a member that is near, and is answered by it."""
        self.coordinator.patient = True
        protocol, _ = self.fed()
        self.ack(protocol, 24_000)
        write = self.put()
        self.assertNoResult(write)
        self.ack(protocol)
        self.assertEqual((self.successResultOf(write), self.in_sync.state.in_sync), (OK, {OWN}))

    def test_far(self) -> None:
        """One that lacks C{haSlaveFallbehindMax} is not waited for."""
        self.build(fallbehind_max=1000)
        self.fed()
        self.assertEqual(self.successResultOf(self.put()), ALONE)

    def test_all_of_the_set(self) -> None:
        """Every member has to hold it."""
        first, _ = self.caught_up()
        second, _ = self.caught_up(THIRD)
        write = self.put()
        self.ack(first)
        self.ack(second, 25_299)
        self.assertNoResult(write)
        self.ack(second)
        self.assertEqual((self.successResultOf(write), unhealthy(self.master)), (OK, ""))

    def test_timeout(self) -> None:
        """A write that one of them does not acknowledge is answered after C{slaveTimeout}."""
        first, _ = self.caught_up()
        self.caught_up(THIRD)
        write = self.put()
        self.ack(first)
        self.clock.advance(2.9)
        self.assertNoResult(write)
        self.clock.advance(0.2)
        self.assertEqual(self.successResultOf(write), TIMEOUT)

    def test_while_one_enters(self) -> None:
        """While it is not known whether a member is in, its acknowledgement is needed too."""
        first, _ = self.caught_up()
        self.coordinator.patient = True
        second, _ = self.caught_up(THIRD)
        write = self.put()
        self.ack(first)
        self.assertNoResult(write)
        self.coordinator.refuse(ControllerUnanswered("c:1", 1001, "no answer"))
        self.assertNoResult(write)
        self.ack(second)
        self.assertEqual(self.successResultOf(write), OK)

    def test_while_one_leaves(self) -> None:
        """One that leaves is needed until the controller let it go; then others are enough."""
        first, _ = self.caught_up()
        second, _ = self.caught_up(THIRD)
        self.coordinator.patient = True
        write = self.put()
        self.ack(first)
        self.lose(second)
        self.assertNoResult(write)
        self.coordinator.answer()
        self.assertEqual(self.successResultOf(write), OK)

    def test_members_first(self) -> None:
        """A write that waits for the set is sent before it is stored for others; where none does,
        in C{ASYNC_MASTER}, answers leave first.
        """
        for awaited in (True, False):
            self.build(awaited=awaited)
            _, transport = self.caught_up()
            self.clock.advance(0)
            transport.clear()
            self.log.put(bytes(300))
            self.assertEqual(bool(transport.value()), awaited)
            self.clock.advance(GATHERING)
            self.assertEqual(bytes(Told(transport.value()).body), bytes(300))

    def test_shrink_alone(self) -> None:
        """A set that shrinks to its master acknowledges nothing so; a returning member does."""
        protocol, _ = self.caught_up()
        write, other = self.put(), self.put(301)
        self.lose(protocol)
        self.assertEqual(self.in_sync.state.in_sync, {OWN})
        self.assertNoResult(write)
        self.has(SLAVE, 25_300, *self.labels)
        self.fed(report=25_300)
        self.assertEqual(self.successResultOf(write), OK)
        self.assertNoResult(other)
        self.clock.advance(3.1)
        self.assertEqual(self.successResultOf(other), TIMEOUT)

    def test_unproven(self) -> None:
        """One whose log is not proven acknowledges nothing, nor does a learner."""
        self.coordinator.patient = True
        near, _ = self.caught_up()
        write = self.put()
        self.has(THIRD, 9000)
        doubted, _ = self.fed(THIRD, 9000)
        learner, _ = self.fed(-1, 0, host="10.0.0.3", learner=True)
        self.ack(doubted)
        self.ack(learner)
        self.assertNoResult(write)
        self.ack(near)
        self.assertEqual(self.successResultOf(write), OK)

    def test_too_few_while_waiting(self) -> None:
        """No write is acknowledged by a set smaller than C{minInSyncReplicas}, until it grows."""
        self.build(rules=ControllerSettings(min_in_sync=3))
        first, _ = self.caught_up()
        second, _ = self.caught_up(THIRD)
        write = self.put()
        self.lose(second)
        self.ack(first)
        self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE})
        self.assertNoResult(write)
        self.has(THIRD, 25_300, *self.labels)
        self.fed(THIRD, 25_300)
        self.assertEqual(self.successResultOf(write), OK)


class StoringWriter:
    """Takes all writes."""

    stored = 0

    def put(
        self, message: Message, *, batch: bool = False, wait: bool = True
    ) -> Deferred[PutResult]:
        self.stored += 1
        return succeed(PutResult(OK, None))  # type: ignore[arg-type]

    def put_run(self, run: RecordRun, born_host: bytes, done: Done) -> None:
        self.stored += 1
        done(OK)


class WaitingWriter(StoringWriter):
    """Stores them, and says later that they are held."""

    def __init__(self) -> None:
        self.waiting: list[Done] = []

    def put(
        self, message: Message, *, batch: bool = False, wait: bool = True
    ) -> Deferred[PutResult]:
        done: Deferred[PutResult] = Deferred()
        self.waiting.append(lambda status: done.callback(PutResult(status, None)))  # type: ignore[arg-type]
        return done

    def put_run(self, run: RecordRun, born_host: bytes, done: Done) -> None:
        self.waiting.append(done)

    def hold(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(OK)


class WriterTests(SetCase):
    def refused(self, error: type[Exception]) -> Exception:
        below = StoringWriter()
        writer = self.master.writer(below)
        raised = self.assertRaises(error, writer.put, None)
        self.assertRaises(error, writer.put_run, None, b"", lambda status: None)
        self.assertEqual(below.stored, 0)
        found: Exception = raised
        return found

    def test_taken(self) -> None:
        """As a rule all are."""
        below = StoringWriter()
        writer = self.master.writer(below)
        writer.put(None)  # type: ignore[arg-type]
        writer.put_run(None, b"", lambda status: None)  # type: ignore[arg-type]
        self.assertEqual(below.stored, 2)

    def test_too_few(self) -> None:
        """Below C{minInSyncReplicas} nothing is stored; a set that may be smaller is so."""
        self.build(rules=ControllerSettings(min_in_sync=2))
        error = self.refused(TooFewInSync)
        self.assertEqual((error.found, error.needed), (1, 2))  # type: ignore[attr-defined]
        self.coordinator.patient = True
        self.caught_up()
        self.refused(TooFewInSync)
        self.coordinator.answer()
        self.master.require()
        self.assertEqual(unhealthy(self.master), "")

    def test_fenced(self) -> None:
        """A master that cannot know whether it leads takes nothing, says why, goes on later."""
        self.master.fenced = "no controller has answered for 10 s"
        self.assertIn("no controller", str(self.refused(NotWritable)))
        self.master.fenced = ""
        self.master.require()

    def test_doubt(self) -> None:
        """What is taken while it is certain that it leads, and held when that is in doubt, is
        acknowledged to nobody; what comes then is not taken.
        """
        doubts = [""]
        self.master.doubt = lambda: doubts[0]
        below = WaitingWriter()
        writer = self.master.writer(below)
        told: list[PutStatus] = []

        def write() -> Deferred[PutResult]:
            writer.put_run(None, b"", told.append)  # type: ignore[arg-type]
            return writer.put(None)  # type: ignore[arg-type]

        written = write()
        below.hold()
        told.append(self.successResultOf(written).status)
        written = write()
        doubts[0] = "its lease may be over"
        below.hold()
        told.append(self.successResultOf(written).status)
        self.assertEqual(told, [OK, OK, TIMEOUT, TIMEOUT])
        self.assertIn("its lease may be over", str(self.refused(NotWritable)))

    def test_role_change(self) -> None:
        """With the epoch all waiting writes end, stored and not acknowledged, whatever is reported
        afterwards; others are not taken, and connections end.
        """
        protocol, transport = self.caught_up()
        write = self.put()
        gone = self.master.end()
        self.assertEqual(self.successResultOf(write), TIMEOUT)
        self.ack(protocol)
        self.refused(NotWritable)
        self.assertEqual(self.successResultOf(self.master.transfer.wait(1, 2)), TIMEOUT)
        self.assertTrue(transport.disconnecting)
        self.assertNoResult(gone)
        self.lose(protocol)
        self.successResultOf(gone)
        self.successResultOf(self.master.end())
        self.assertEqual((self.log.appended, self.clock.getDelayedCalls()), ([], []))
