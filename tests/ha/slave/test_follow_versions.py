"""What a slave does with the master's version of a place where the logs differ."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.ha.slave.compare_bytes import PATIENCE
from rmqha.store.log.commit_log import CommitLog
from tests.support.following import SIZE, ThreeFilesCase
from tests.support.ha_frames import encode_header
from tests.support.logs import content
from tests.support.scripted_master import Connection

AT = 2500


class VersionCase(ThreeFilesCase):
    """A slave one byte of whose log is not the master's, and which has its difference judged."""

    def setUp(self) -> None:
        super().setUp()
        self.judging: list[tuple[CommitLog, int, bytes, Deferred[str]]] = []
        self.lines: list[str] = []
        globalLogPublisher.addObserver(self.note)
        self.addCleanup(globalLogPublisher.removeObserver, self.note)

    def note(self, event: LogEvent) -> None:
        """Keep what the log says."""
        self.lines.append(formatEvent(event))

    def judge(self, log: CommitLog, at: int, theirs: bytes) -> Deferred[str]:
        done: Deferred[str] = Deferred()
        self.judging.append((log, at, theirs, done))
        return done

    def differing(self, at: int = AT, **more: object) -> Connection:
        return self.begun(self.changed(self.theirs, at), judge=self.judge, **more)

    def judged(self) -> bytes:
        ((log, at, theirs, _),) = self.judging
        self.assertIs(log, self.mine)
        self.assertEqual(theirs, content(self.theirs, at, at + len(theirs)))
        return theirs

    def say(self, text: str) -> None:
        self.judging[-1][-1].callback(text)
        self.turn()


class SeenTests(VersionCase):
    def test_record(self) -> None:
        """The state is named at once; the connection goes when the master's record is whole."""
        connection = self.differing()
        for offset in range(1, 3900, 50):
            connection.send(encode_header(offset, 50) + content(self.theirs, offset, offset + 50))
            if offset <= AT - 50:
                self.assertState("probing")
            else:
                self.assertState("diverged")
                self.assertIn(f"byte {AT} of ", self.follower.sync.reason)
            if not connection.open:
                break
        self.assertGreater(len(self.judged()), 500)
        self.assertFalse(connection.open)
        self.assertTrue(all(report <= AT for report in connection.reports()))

    def test_at_once(self) -> None:
        """Where one frame has all of it nothing is waited for."""
        connection = self.differing()
        connection.send(encode_header(1, 3900) + content(self.theirs, 1, 3901))
        self.assertFalse(connection.open)
        self.judged()

    def test_master_pauses(self) -> None:
        """A master that has no more says so with a heartbeat."""
        at = self.theirs.end - 10
        connection = self.differing(at)
        connection.feed(self.theirs, 1)
        self.assertTrue(connection.open)
        self.assertState("diverged")
        connection.heartbeat(self.theirs.end)
        self.assertFalse(connection.open)
        self.assertEqual(len(self.judged()), 10)

    def test_silent(self) -> None:
        """One that says nothing is not waited for."""
        connection = self.differing(self.theirs.end - 10)
        connection.feed(self.theirs, 1)
        self.passes(PATIENCE + 0.1, 0.1)
        self.assertFalse(connection.open)
        self.judged()

    def test_closed(self) -> None:
        """One that leaves has given what it gave."""
        connection = self.differing(self.theirs.end - 10)
        connection.feed(self.theirs, 1)
        connection.close()
        self.judged()

    def test_end_of_file(self) -> None:
        """No record goes beyond its file."""
        connection = self.differing(SIZE - 20)
        connection.feed(self.theirs, 1)
        self.assertFalse(connection.open)
        self.assertEqual(len(self.judged()), 20)

    def test_others(self) -> None:
        """A frame that does not continue is a fault of its own, and so is what ends the node."""
        connection = self.differing(self.theirs.end - 10)
        connection.feed(self.theirs, 1, self.theirs.end - 5)
        connection.send(encode_header(7, 3) + b"abc")
        self.assertFalse(connection.open)
        self.assertEqual(self.judging, [])
        connection = self.accept(within=31)
        connection.feed(self.theirs, 1, self.theirs.end - 5)
        self.stop()
        self.assertEqual(self.judging, [])


class VerdictTests(VersionCase):
    def test_told_once(self) -> None:
        """It is added to the reason, with one line in the log; the same difference is not judged
        again at each connection, and the state goes on to be told.
        """
        self.differing().feed(self.theirs, 1)
        self.say("8 of 9 records decode on both sides, 1 only on ours")
        self.assertState("diverged")
        reason = self.follower.sync.reason
        self.assertTrue(reason.endswith("; 8 of 9 records decode on both sides, 1 only on ours"))
        for _ in range(2):
            connection = self.accept(within=31)
            connection.feed(self.theirs, 1)
            self.assertFalse(connection.open)
            self.assertEqual(self.follower.sync.reason, reason)
        self.assertEqual(len(self.judging), 1)
        self.assertEqual(sum("only on ours" in line for line in self.lines), 1)

    def test_another_place(self) -> None:
        """A difference at another place is told at once, and a verdict on the first is too late."""
        self.differing().feed(self.theirs, 1)
        self.mine.folder.at(1000).view[1000] ^= 0xFF
        self.accept(within=31).feed(self.theirs, 1)
        self.assertIn("byte 1000 of ", self.follower.sync.reason)
        reason = self.follower.sync.reason
        self.judging[0][-1].callback("late")
        self.assertEqual(self.follower.sync.reason, reason)
        self.say("in time")
        self.assertEqual(self.follower.sync.reason, f"{reason}; in time")

    def interrupted(self) -> None:
        """The next connection shows a difference ten bytes before the end, and then nonsense."""
        connection = self.accept(within=31)
        connection.feed(self.theirs, 1, self.theirs.end - 5)
        self.assertState("diverged")
        connection.frame(7, b"abc")
        self.assertFalse(connection.open)

    def test_not_seen(self) -> None:
        """Nothing is cut before the master's version has come, however often it is asked for."""
        mine = self.changed(self.theirs, self.theirs.end - 10)
        self.follow(mine, judge=self.judge, policy=DivergencePolicy.TRUNCATE)
        for _ in range(2):
            self.interrupted()
        connection = self.accept(within=31)
        connection.feed(self.theirs, 1)
        connection.heartbeat(self.theirs.end)
        self.turn()
        self.assertEqual((len(self.judged()), self.repairs), (10, []))

    def test_another_master(self) -> None:
        """A verdict on one master's version is none on another's."""
        self.differing(self.theirs.end - 10).feed(self.theirs, 1)
        self.passes(PATIENCE + 0.1, 0.1)
        self.say("judged")
        self.follower.dial(self.endpoint, "10.0.0.2:10912", None)
        self.interrupted()
        connection = self.accept(within=31)
        connection.feed(self.theirs, 1)
        connection.heartbeat(self.theirs.end)
        self.assertEqual(len(self.judging), 2)

    def test_before_a_cut(self) -> None:
        """A policy is carried out when both versions were judged and kept, not before."""
        self.differing(policy=DivergencePolicy.TRUNCATE).feed(self.theirs, 1)
        self.turn()
        self.assertEqual(self.repairs, [])
        self.say("judged")
        ((policy, divergence, _),) = self.repairs
        assert divergence is not None
        self.assertEqual((policy, divergence.at), (DivergencePolicy.TRUNCATE, AT))

    def test_not_judged(self) -> None:
        """Where that fails the state is the same, and the policy is carried out."""
        self.differing(policy=DivergencePolicy.TRUNCATE).feed(self.theirs, 1)
        self.judging[0][-1].errback(Failure(OSError("no disk")))
        self.turn()
        self.assertEqual(len(self.repairs), 1)
        self.assertIn("which version is right is not known: no disk", self.follower.sync.reason)
        self.flushLoggedErrors(OSError)

    def test_too_late(self) -> None:
        """A verdict on what is in sync again is dropped."""
        self.differing().feed(self.theirs, 1)
        self.mine.folder.at(AT).view[AT] ^= 0xFF
        connection = self.accept(within=31)
        connection.feed(self.theirs, 1)
        connection.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        self.say("late")
        self.assertState("in-sync")

    def test_after_a_failure(self) -> None:
        """Nor does one bring a slave back whose store has failed."""
        self.differing().feed(self.theirs, 1)
        self.follower.sync.fail("fsync of x failed")
        self.say("late")
        self.assertState("failed")
        self.assertEqual(self.follower.sync.reason, "fsync of x failed")


class DoubtTests(VersionCase):
    def follower_of(self, at: int):  # type: ignore[no-untyped-def]
        """What is known when a byte differs."""
        connection = self.differing(at)
        sync = self.follower.sync
        self.assertEqual(sync.doubt(1 << 40), "")
        connection.feed(self.theirs, 1)
        return sync

    def test_bad_record(self) -> None:
        """A bad record of the master's says nothing against what is held."""
        mine = self.copied(self.theirs, 2 * SIZE + 700)
        self.in_sync(mine).send(encode_header(mine.end, 200) + b"\xff" * 200)
        self.assertState("diverged")
        self.assertEqual(self.follower.sync.doubt(1 << 40), "")

    def test_unknown(self) -> None:
        """Where it is not known since where, nothing is served."""
        sync = self.follower_of(AT)
        sync.divergence = None
        self.assertTrue(sync.doubt(1).startswith("diverged: "))
