"""What each answer of a master makes of a slave whose log it can be compared with."""

from __future__ import annotations

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.ha.slave.reconnect import NEXT_QUESTION
from tests.support.following import SIZE, ThreeFilesCase
from tests.support.ha_frames import encode_header
from tests.support.log_lines import log_lines
from tests.support.scripted_master import Connection


class EqualTests(ThreeFilesCase):
    def test_opening_heartbeat(self) -> None:
        """A heartbeat before any byte only repeats what we said."""
        connection = self.begun(self.copied(self.theirs))
        connection.heartbeat(connection.reports()[0])
        self.assertState("probing")
        connection.heartbeat(self.theirs.end)
        self.assertState("probing")

    def test_single_writes_keep_in_sync(self) -> None:
        """One record after the other, all of one size, is no falling behind."""
        mine = self.log()
        self.theirs = self.filled(200)
        connection = self.begun(mine, batch=32768)
        connection.feed(self.theirs, 0)
        connection.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        for _ in range(5):
            end = self.theirs.end
            self.grow(200)
            connection.feed(self.theirs, end)
            self.assertState("in-sync")

    def test_falls_behind(self) -> None:
        """Full frames without an end say that the master has more."""
        connection = self.in_sync(self.copied(self.theirs, 2 * SIZE))
        self.grow(3000, 3000)
        end = self.mine.end
        connection.feed(self.theirs, end, end + 2000)
        self.assertState("catching-up")

    def test_behind_for_moments(self) -> None:
        """Under load a slave is behind for moments all the time: only what lasts is logged."""
        self.clock.advance(1000)
        connection = self.begun(self.copied(self.theirs, 2 * SIZE), batch=100)
        connection.feed(self.theirs, connection.reports()[0], batch=100)
        connection.heartbeat(self.theirs.end)
        lines = log_lines(self)
        for _ in range(3):
            end = self.mine.end
            self.grow(500, 500)
            connection.feed(self.theirs, end, end + 100, batch=100)
            self.assertState("catching-up")
            connection.feed(self.theirs, end + 100, batch=100)
            connection.heartbeat(self.theirs.end)
            self.assertState("in-sync")
        end = self.mine.end
        self.grow(500, 500, 500)
        for at in (0, 100):
            connection.feed(self.theirs, end + at, end + at + 100, batch=100)
            self.assertEqual([line for line in lines if "catching-up" in line], [])
            self.clock.advance(0.5)
        connection.feed(self.theirs, end + 200, end + 300, batch=100)
        self.assertEqual(sum("in-sync -> catching-up" in line for line in lines), 1)
        connection.feed(self.theirs, end + 300, batch=100)
        connection.heartbeat(self.theirs.end)
        self.assertEqual(sum("catching-up -> in-sync" in line for line in lines), 1)

    def test_heartbeat_after_data(self) -> None:
        """A heartbeat after bytes is the master's end."""
        connection = self.begun(self.copied(self.theirs))
        start = connection.reports()[0]
        connection.feed(self.theirs, start, batch=self.theirs.end)
        connection.heartbeat(self.theirs.end)
        self.assertState("in-sync")


class DivergedTests(ThreeFilesCase):
    def test_any_chunking(self) -> None:
        """The verdict is the same a byte at a time."""
        connection = self.begun(self.changed(self.theirs, 2500))
        for offset in range(1, 3000, 7):
            body = bytes(self.theirs.read(offset, 7))
            for byte in encode_header(offset, len(body)) + body:
                connection.send(bytes([byte]))
        self.assertState("diverged")
        self.assertIn("byte 2500 of", self.follower.sync.reason)

    def test_behind_our_end_is_never_reached(self) -> None:
        """A frame that goes past our end does not append what follows a difference."""
        mine = self.changed(self.copied(self.theirs, 2 * SIZE + 700), 2 * SIZE + 600)
        self.begun(mine).feed(self.theirs, 1, batch=SIZE)
        self.assertState("diverged")
        self.assertEqual(mine.end, 2 * SIZE + 700)

    def test_stop_state_ends_in_sync(self) -> None:
        """When the master has what we have, the state is left."""
        mine = self.changed(self.theirs, 2500)
        connection = self.begun(mine)
        connection.feed(self.theirs, 1)
        file = mine.folder.at(2500)
        file.view[2500] ^= 0xFF
        connection = self.accept(within=31)
        connection.feed(self.theirs, 1)
        connection.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        self.assertIsNone(self.follower.sync.divergence)

    def test_survey_compares_only_what_came(self) -> None:
        """What a survey did not bring does not count as compared."""
        mine = self.changed(self.theirs, SIZE)
        self.begun(mine).close()  # from 1
        survey = self.accept(within=0.1)
        self.assertEqual(survey.reports(), [0])
        survey.feed(self.theirs, SIZE)
        self.assertState("diverged")
        divergence = self.follower.sync.divergence
        assert divergence is not None
        self.assertEqual((divergence.at, divergence.common_from), (SIZE, SIZE))


class AheadTests(ThreeFilesCase):
    """A master that has less than we."""

    def test_waits_for_the_heartbeat(self) -> None:
        """A short frame alone does not put us ahead: more may be on its way."""
        self.begun(self.copied(self.theirs)).feed(self.theirs, 1, self.theirs.end - 600)
        self.assertState("probing")

    def test_shorter(self) -> None:
        """A heartbeat after data below our end names how much more we have."""
        mine = self.copied(self.theirs)
        for less in (1, 600, SIZE + 50):
            with self.subTest(less=less):
                connection = self.begun(mine)
                end = mine.end - less
                connection.feed(self.theirs, 1, end)
                connection.heartbeat(end)
                self.assertState("ahead")
                self.assertIn(f"{less} bytes more", self.follower.sync.reason)
                self.assertFalse(connection.open)
                self.assertLessEqual(max(connection.reports()), end)
                self.stop()

    def test_empty_master(self) -> None:
        """An empty master is never followed: not by any policy."""
        for policy in DivergencePolicy:
            with self.subTest(policy=policy):
                self.begun(self.copied(self.theirs), policy=policy).close()
                survey = self.accept(within=0.1)
                self.assertEqual(survey.reports(), [0])
                survey.heartbeat(0)
                self.passes(7)
                self.assertState("ahead")
                self.assertIn("the master ends at 0", self.follower.sync.reason)
                self.assertEqual(self.repairs, [])
                self.stop()


class SilenceTests(ThreeFilesCase):
    def test_six_seconds(self) -> None:
        """No bytes for six seconds, heartbeats or not, and the next question is asked at once."""
        connection = self.begun(self.copied(self.theirs))
        self.passes(3)
        connection.heartbeat(1)
        self.passes(2.75)
        self.assertTrue(connection.open)
        self.passes(0.25)
        self.assertFalse(connection.open)
        self.clock.advance(NEXT_QUESTION)
        self.assertEqual(self.accept().reports(), [0])

    def test_unproven(self) -> None:
        """When nothing was answered the state says so, and the master is left alone."""
        self.begun(self.copied(self.theirs))
        self.passes(6)
        survey = self.accept(within=0.1)
        self.passes(6)
        self.assertFalse(survey.open)
        self.assertState("unproven")
        self.assertIdleFor(29)

    def test_closed_is_an_answer(self) -> None:
        """A close before any bytes counts like silence, only faster."""
        self.begun(self.copied(self.theirs)).close()
        self.assertState("probing")
        survey = self.accept(within=0.1)
        survey.feed(self.theirs, 0)
        survey.heartbeat(self.theirs.end)
        self.assertState("in-sync")

    def test_everything_closed(self) -> None:
        """A master that closes whatever is asked is not serving: that proves nothing."""
        self.begun(self.copied(self.theirs))
        delays = []
        connection: Connection | None = None
        for _ in range(6):
            if connection is None:
                connection = self.accept_first()
            connection.close()
            self.accept(within=0.1).close()
            self.assertState("connecting")
            waited = 0.0
            while not self.endpoint.waiting:
                self.clock.advance(0.05)
                waited += 0.05
            delays.append(waited)
            connection = self.accept()
        self.assertGreater(delays[3], delays[1])
        self.assertTrue(all(0.9 < delay <= 30.1 for delay in delays), delays)

    def accept_first(self) -> Connection:
        current = self.follower.sync.connection
        assert current is not None
        connection = Connection.__new__(Connection)
        connection.protocol = current
        connection.transport = current.transport  # type: ignore[assignment]
        return connection

    def test_accepted_unproven(self) -> None:
        """haAcceptUnproven goes on where we end, if told to."""
        mine = self.copied(self.theirs)
        self.begun(mine, accept_unproven=True)
        self.passes(6)
        self.accept(within=0.1)
        self.passes(6)
        trusting = self.accept(within=0.1)
        self.assertEqual(trusting.reports(), [mine.end])
        self.passes(7)
        self.assertTrue(trusting.open)
        end = mine.end
        self.grow(700)
        trusting.feed(self.theirs, end)
        trusting.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        self.assertEqual(mine.end, end + 700)

    def test_below_min(self) -> None:
        """A master that begins behind our end has nothing in common with us."""
        mine = self.copied(self.theirs, SIZE + 700)
        self.begun(mine)
        self.passes(6)
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        self.assertEqual(self.accept(within=0.1).reports(), [SIZE])
        self.passes(6)
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        self.assertState("below-min")
        self.assertIn(f"below our end {SIZE + 700}", self.follower.sync.reason)
        self.assertIn(f"begin at {2 * SIZE}", self.follower.sync.reason)
        self.assertEqual(mine.end, SIZE + 700)

    def test_only_our_last_file_left(self) -> None:
        """A stock master that deleted our older files and has our last one still: it
        answers a report of 0 from behind our end, and has bytes where our last file starts.
        """
        mine = self.copied(self.theirs, SIZE + 700)
        self.begun(mine)
        self.passes(6)
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        last = self.accept(within=0.1)
        self.assertEqual(last.reports(), [SIZE])
        last.feed(self.theirs, SIZE)
        last.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        self.assertEqual(mine.end, self.theirs.end)

    def surveyed(self) -> None:
        """A search goes on to its end: the master answers a report of 0 from behind our
        end, closes when asked for our last file, and answers the same again.
        """
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        last = self.accept(within=0.1)
        self.assertEqual(last.reports(), [SIZE])
        last.close()
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)

    def test_below_min_by_closes(self) -> None:
        """A conclusion that rests on closed connections has to be reached twice."""
        mine = self.copied(self.theirs, SIZE + 700)
        self.begun(mine).close()
        self.surveyed()
        self.assertState("probing")
        self.accept(within=0.1).close()
        self.surveyed()
        self.assertState("below-min")

    def test_below_min_by_a_restart(self) -> None:
        """If the master was only being restarted the second search finds common ground."""
        mine = self.copied(self.theirs, SIZE + 700)
        self.begun(mine).close()
        self.surveyed()
        again = self.accept(within=0.1)
        again.feed(self.theirs, again.reports()[0])
        again.heartbeat(self.theirs.end)
        self.assertState("in-sync")
