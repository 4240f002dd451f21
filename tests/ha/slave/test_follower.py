"""A follower's life, and what it says of itself."""

from __future__ import annotations

import gc
import itertools

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.errors import Refused
from rmqha.ha.slave import probe
from rmqha.store.log.commit_log import CommitLog
from tests.support.following import SIZE, SIZES, ThreeFilesCase
from tests.support.ha_frames import encode_header
from tests.support.logs import content
from tests.support.scripted_master import PuppetEndpoint, frames


class LifeTests(ThreeFilesCase):
    def test_another_master(self) -> None:
        """A master said to be elsewhere is followed there, from the whole probe on."""
        self.patch(probe, "PROBE_WINDOW", 500)
        theirs = self.filled(*SIZES)
        mine = self.copied(theirs)
        self.follow(mine)
        old = self.accept()
        first = old.reports()[0]
        old.feed(theirs, first)
        old.heartbeat(theirs.end)
        self.assertState("in-sync")
        before, self.endpoint = self.endpoint, PuppetEndpoint(self.clock)
        self.follower.dial(self.endpoint, "10.0.0.2:10912", None)
        self.follower.dial(self.endpoint, "10.0.0.2:10912", None)
        self.assertState("connecting")
        self.assertIn("10.0.0.2:10912", self.follower.sync.reason)
        new = self.accept()
        self.assertFalse(old.open)
        self.assertEqual(new.reports(), [first])
        new.feed(theirs, first)
        new.heartbeat(theirs.end)
        self.assertState("in-sync")
        self.assertEqual((before.waiting, self.endpoint.waiting), ([], []))
        self.assertEqual(self.follower.sync.status(0)["address"], "10.0.0.2:10912")

    def test_another_master_before_a_repair(self) -> None:
        """What a master was compared for is not done for another one: its log is not known."""
        for policy in (DivergencePolicy.TRUNCATE, DivergencePolicy.REBOOTSTRAP):
            theirs = self.filled(*SIZES)
            self.follow(self.changed(theirs, 2500), policy=policy)
            self.accept().feed(theirs, 1)
            self.assertState("diverged")
            self.endpoint = PuppetEndpoint(self.clock)
            self.follower.dial(self.endpoint, "10.0.0.2:10912", None)
            self.accept(within=0.1)
            self.assertEqual(self.repairs, [])
            self.stop()

    def test_failed_before_a_repair(self) -> None:
        """A store that takes nothing more is not cut."""
        theirs = self.filled(*SIZES)
        self.follow(self.changed(theirs, 2500), policy=DivergencePolicy.TRUNCATE)
        self.accept().feed(theirs, 1)
        self.assertState("diverged")
        self.follower.sync.fail("fsync of x failed")
        self.assertIdleFor(60)
        self.assertState("failed")
        self.assertEqual(self.repairs, [])

    def test_another_master_while_repairing(self) -> None:
        """The log is closed under a repair: the new master is called when it is over."""
        theirs = self.filled(*SIZES)
        self.follow(self.changed(theirs, 2500), policy=DivergencePolicy.TRUNCATE)
        self.accept().feed(theirs, 1)
        self.assertState("diverged")
        self.turn()
        self.endpoint = PuppetEndpoint(self.clock)
        self.follower.dial(self.endpoint, "10.0.0.2:10912", None)
        self.assertIdleFor(40)
        self.mine = self.copied(theirs, 2200)
        self.repairs[0][2].callback("cut the log")
        self.accept(within=0.1).feed(theirs, 1)
        self.assertState("in-sync")

    def test_no_address(self) -> None:
        """Without a master's address a slave waits, and says for what."""
        self.follow(self.log())
        self.stop()
        self.follower.sync.port.endpoint = None
        self.follower.startService()
        self.assertState("connecting")
        self.assertIn("no master address: ", self.follower.sync.reason)

    def test_refused_connections(self) -> None:
        """Delays grow from 1 to 30 s, never outside, and the reason is told."""
        self.follow(self.log())
        delays = []
        for _ in range(12):
            self.turn()
            self.endpoint.refuse()
            waited = 0.0
            while not self.endpoint.waiting:
                self.clock.advance(0.01)
                waited += 0.01
            delays.append(waited)
        self.assertIn("refused", self.follower.sync.reason.lower())
        self.assertTrue(all(0.99 <= delay <= 30.02 for delay in delays), delays)
        for earlier, later in itertools.pairwise(delays[:5]):
            self.assertGreater(later, earlier * 1.5)
        self.assertGreater(min(delays[-4:]), 23)
        self.assertGreater(len({round(delay, 2) for delay in delays[-5:]}), 1, "no jitter")

    def wait(self) -> float:
        """Seconds until the next attempt."""
        waited = 0.0
        while not self.endpoint.waiting:
            self.clock.advance(0.05)
            waited += 0.05
        return waited

    def test_accept_and_close(self) -> None:
        """A master that only accepts is asked ever more slowly."""
        self.follow(self.log())
        delays = []
        for _ in range(5):
            self.accept().close()
            delays.append(self.wait())
        self.assertGreater(delays[-1], 15)

    def test_verified_bytes_reset(self) -> None:
        """Verified bytes, and only they, make the delay short again."""
        mine = self.log()
        self.follow(mine)
        for _ in range(4):
            self.accept().close()
            self.wait()
        connection = self.accept()
        connection.feed(self.theirs, 0, 100)
        connection.close()
        self.assertGreater(self.wait(), 5)
        connection = self.accept()
        connection.feed(self.theirs, connection.reports()[0], 2500)
        connection.close()
        self.assertLess(self.wait(), 1.4)

    def test_stop_while_connecting(self) -> None:
        """An attempt is given up."""
        self.follow(self.log())
        self.turn()
        self.stop()
        self.assertEqual(self.endpoint.cancelled, 1)
        self.assertState("stopped")

    def test_stop_while_waiting(self) -> None:
        """So is a delay."""
        self.follow(self.log())
        self.turn()
        self.endpoint.refuse()
        self.stop()
        self.assertState("stopped")

    def test_stop_while_probing(self) -> None:
        """A connection is closed before the stop is over."""
        connection = self.begun(self.copied(self.theirs))
        connection.feed(self.theirs, 1, 2000)
        stopped = self.follower.stopService()
        self.assertNoResult(stopped)
        self.turn()
        self.successResultOf(stopped)
        self.assertFalse(connection.open)
        self.assertState("stopped")

    def test_stop_in_the_middle_of_a_frame(self) -> None:
        """What came of it leaves no trace."""
        mine = self.copied(self.theirs, 2 * SIZE)
        connection = self.begun(mine)
        connection.feed(self.theirs, 1, 2 * SIZE)
        body = content(self.theirs, 2 * SIZE, 2 * SIZE + 900)
        connection.send(encode_header(2 * SIZE, 900) + body[:500])
        self.assertEqual(bytes(mine.folder.files[-1].view[:500]), body[:500])
        self.stop()
        self.assertEqual(mine.end, 2 * SIZE)
        self.assertFalse(any(mine.folder.files[-1].view))

    def test_stop_between_questions(self) -> None:
        """Between two questions there is nothing to close."""
        self.begun(self.copied(self.theirs)).close()
        self.stop()

    def test_stop_while_repairing(self) -> None:
        """The stop waits for the repair, which changes nothing any more."""
        connection = self.begun(self.changed(self.theirs, 2500), policy=DivergencePolicy.TRUNCATE)
        connection.feed(self.theirs, 1)
        self.turn()
        stopped = self.follower.stopService()
        self.turn()
        self.assertNoResult(stopped)
        self.repairs[0][2].callback("done")
        self.successResultOf(stopped)
        self.assertState("stopped")
        self.assertIdleFor(40)

    def test_stop_before_the_repair(self) -> None:
        """A repair that has not begun does not begin."""
        connection = self.begun(self.changed(self.theirs, 2500), policy=DivergencePolicy.TRUNCATE)
        connection.feed(self.theirs, 1)
        stopped = self.follower.stopService()
        self.turn()
        self.successResultOf(stopped)
        self.assertEqual(self.repairs, [])
        self.assertState("stopped")

    def test_stop_after_a_refused_repair(self) -> None:
        """The delay before the next look is cancelled."""
        connection = self.begun(self.changed(self.theirs, 2500), policy=DivergencePolicy.TRUNCATE)
        connection.feed(self.theirs, 1)
        self.turn()
        self.repairs[0][2].errback(Refused("truncate", "no"))
        self.stop()

    def test_stop_twice(self) -> None:
        """A second stop is over at once."""
        self.begun(self.log())
        self.stop()
        self.successResultOf(self.follower.stopService())

    def test_programming_errors_are_told(self) -> None:
        """A log that is not there is logged with its traceback, and tried again."""
        follower = self.follow(self.log())
        self.turn()

        def broken() -> CommitLog:
            raise AttributeError("no log")

        follower.sync.current_log = broken
        factory, done = self.endpoint.waiting.pop(0)
        try:
            factory.buildProtocol(None)
        except AttributeError:
            done.errback()
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
        follower.sync.current_log = lambda: self.mine
        self.accept(within=1.3)

    def test_no_unhandled_errors(self) -> None:
        """No Deferred is left with a failure."""
        self.test_refused_connections()
        gc.collect()
        self.assertEqual(self.flushLoggedErrors(), [])


class StatusTests(ThreeFilesCase):
    def test_fields(self) -> None:
        """The names that are relied on, whatever the state."""
        self.follow(self.log())
        status = self.follower.sync.status(0)
        names = {"address", "state", "received", "lagBytes", "lagSeconds", "probes", "reconnects"}
        self.assertLessEqual(names, set(status))
        self.assertEqual(status["address"], "10.0.0.1:10912")
        self.assertIsNone(status["lagBytes"])
        self.assertIsNone(status["lagSeconds"])

    def test_in_sync(self) -> None:
        """In sync there is no lag."""
        self.in_sync(self.copied(self.theirs))
        status = self.follower.sync.status(1)
        self.assertEqual((status["lagBytes"], status["lagSeconds"]), (0, 0.0))
        self.assertEqual((status["received"], status["probes"]), (self.theirs.end - 1, 1))

    def test_behind(self) -> None:
        """Otherwise it is the age of the last record."""
        self.begun(self.log())
        self.assertGreater(self.follower.sync.status(1)["lagSeconds"], 1e9)

    def test_states_change_once(self) -> None:
        """A whole life goes through each state once: none flickers."""
        seen = ["connecting"]
        mine = self.log()
        self.follow(mine)

        def look() -> None:
            if seen[-1] != self.follower.sync.state.value:
                seen.append(self.follower.sync.state.value)

        connection = self.accept()
        for piece in frames(self.theirs, 0):
            look()
            connection.send(piece)
        look()
        connection.heartbeat(self.theirs.end)
        look()
        self.assertEqual(seen, ["connecting", "bootstrapping", "in-sync"])
