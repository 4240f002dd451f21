"""
The guard: what each answer of a master makes of a slave.
"""

from __future__ import annotations

import gc
import itertools
from pathlib import Path

from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.errors import DiskFull, FlushFailed, Refused
from rmqha.ha.slave import probe
from rmqha.ha.slave.reconnect import NEXT_QUESTION
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.log.encode import blank
from tests.support.following import SIZE, SIZES, FollowerCase
from tests.support.ha_frames import encode_header
from tests.support.logs import STORED, Disk, content, encoded
from tests.support.scripted_master import Connection, PuppetEndpoint, frames


class Guard(FollowerCase):
    """
    A master's log of three files and a bit.
    """

    def setUp(self) -> None:
        """
        Make it.
        """
        super().setUp()
        self.theirs = self.filled(*SIZES)
        self.assertGreater(self.theirs.end, 3 * SIZE)

    def grow(self, *sizes: int) -> None:
        """
        The master takes writes.
        """
        for size in sizes:
            self.theirs.put([encoded(size)], [0], STORED)

    def begun(self, mine: CommitLog, **more: object) -> Connection:
        """
        Follow with a log, and have the first connection accepted.
        """
        self.follow(mine, **more)
        return self.accept()

    def in_sync(self, mine: CommitLog, **more: object) -> Connection:
        """
        The same, compared to the end.
        """
        connection = self.begun(mine, **more)
        connection.feed(self.theirs, connection.reports()[0])
        connection.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        return connection


class EqualTests(Guard):
    """
    A log that is its master's.
    """

    def test_short_frame(self) -> None:
        """
        A last frame that is shorter than the largest proves the end at once.
        """
        connection = self.begun(self.copied(self.theirs))
        self.assertState("probing")
        connection.feed(self.theirs, connection.reports()[0])
        self.assertState("in-sync")
        self.assertEqual(connection.reports()[-1], self.theirs.end)

    def test_heartbeat_after_data(self) -> None:
        """
        A heartbeat after bytes is the master's end.
        """
        connection = self.begun(self.copied(self.theirs))
        start = connection.reports()[0]
        connection.feed(self.theirs, start, batch=self.theirs.end)
        connection.heartbeat(self.theirs.end)
        self.assertState("in-sync")

    def test_opening_heartbeat(self) -> None:
        """
        A heartbeat before any byte only repeats what we said.
        """
        connection = self.begun(self.copied(self.theirs))
        connection.heartbeat(connection.reports()[0])
        self.assertState("probing")
        connection.heartbeat(self.theirs.end)
        self.assertState("probing")

    def test_follows(self) -> None:
        """
        What comes behind our end is appended and reported.
        """
        mine = self.copied(self.theirs, 2 * SIZE + 700)
        connection = self.in_sync(mine)
        self.assertEqual(content(mine), content(self.theirs))
        end = mine.end
        self.grow(500)
        connection.feed(self.theirs, end)
        self.assertEqual(connection.reports()[-1], end + 500)
        self.assertState("in-sync")

    def test_single_writes_keep_in_sync(self) -> None:
        """
        One record after the other, all of one size, is no falling behind.
        """
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
        """
        Full frames without an end say that the master has more.
        """
        connection = self.in_sync(self.copied(self.theirs, 2 * SIZE))
        self.grow(3000, 3000)
        end = self.mine.end
        connection.feed(self.theirs, end, end + 2000)
        self.assertState("catching-up")

    def test_behind_for_moments(self) -> None:
        """
        Under load a slave is behind for moments all the time: only what lasts is logged.
        """
        connection = self.begun(self.copied(self.theirs, 2 * SIZE), batch=100)
        connection.feed(self.theirs, connection.reports()[0], batch=100)
        connection.heartbeat(self.theirs.end)
        lines: list[str] = []

        def note(event: LogEvent) -> None:
            lines.append(formatEvent(event))

        globalLogPublisher.addObserver(note)
        self.addCleanup(globalLogPublisher.removeObserver, note)
        for _ in range(3):
            end = self.mine.end
            self.grow(500, 500)
            connection.feed(self.theirs, end, end + 100, batch=100)
            self.assertState("catching-up")
            connection.feed(self.theirs, end + 100, batch=100)
            connection.heartbeat(self.theirs.end)
            self.assertState("in-sync")
        self.assertEqual([line for line in lines if "catching-up" in line], [])
        end = self.mine.end
        self.grow(500, 500, 500)
        connection.feed(self.theirs, end, end + 100, batch=100)
        self.clock.advance(1.1)
        connection.feed(self.theirs, end + 100, end + 200, batch=100)
        self.assertEqual(sum("in-sync -> catching-up" in line for line in lines), 1)
        connection.feed(self.theirs, end + 200, batch=100)
        connection.heartbeat(self.theirs.end)
        self.assertEqual(sum("catching-up -> in-sync" in line for line in lines), 1)

    def test_partial_record_is_fetched_again(self) -> None:
        """
        A record that did not arrive whole is dropped before the next question.
        """
        mine = self.copied(self.theirs, 2 * SIZE + 800)
        self.assertLess(mine.confirmed, mine.end)
        self.begun(mine)
        self.assertEqual(mine.end, mine.confirmed)

    def test_compared_again(self) -> None:
        """
        After a lost connection everything is compared before it is in sync again.
        """
        connection = self.in_sync(self.copied(self.theirs))
        connection.close()
        self.assertState("connecting")
        again = self.accept(within=1.3)
        self.assertState("probing")
        self.assertEqual(again.reports(), [1])
        again.feed(self.theirs, 1)
        self.assertState("in-sync")
        self.assertEqual(self.follower.sync.reconnects, 1)


class DivergedTests(Guard):
    """
    A log that is not its master's.
    """

    def places(self) -> list[int]:
        """
        One of each kind.
        """
        return [1, 5, 300, 1000, 1001, 2001, SIZE - 1, SIZE, SIZE + 3, self.theirs.end - 1]

    def test_every_kind_of_place(self) -> None:
        """
        One byte that differs is found, named with its file, and nothing is appended.
        """
        for place in self.places():
            with self.subTest(place=place):
                mine = self.changed(self.theirs, place)
                connection = self.begun(mine)
                before = content(mine)
                connection.feed(self.theirs, 1)
                if place == 1:
                    # Nothing was compared: the survey tells the rest.
                    connection = self.accept(within=0.1)
                    self.assertEqual(connection.reports(), [0])
                    connection.feed(self.theirs, 0)
                self.assertState("diverged")
                self.assertFalse(connection.open)
                self.assertIn(f"byte {place} of ", self.follower.sync.reason)
                self.assertIn(f"{place - place % SIZE:020d}", self.follower.sync.reason)
                divergence = self.follower.sync.divergence
                assert divergence is not None
                self.assertEqual(divergence.at, place)
                self.assertEqual(content(mine), before)
                self.assertTrue(all(report <= place for report in connection.reports()))
                self.stop()

    def test_any_chunking(self) -> None:
        """
        The verdict is the same a byte at a time.
        """
        connection = self.begun(self.changed(self.theirs, 2500))
        for offset in range(1, 3000, 7):
            body = bytes(self.theirs.read(offset, 7))
            for byte in encode_header(offset, len(body)) + body:
                connection.send(bytes([byte]))
        self.assertState("diverged")
        self.assertIn("byte 2500 of", self.follower.sync.reason)

    def test_behind_our_end_is_never_reached(self) -> None:
        """
        A frame that goes past our end does not append what follows a difference.
        """
        mine = self.changed(self.copied(self.theirs, 2 * SIZE + 700), 2 * SIZE + 600)
        connection = self.begun(mine)
        connection.feed(self.theirs, 1, batch=SIZE)
        self.assertState("diverged")
        self.assertEqual(mine.end, 2 * SIZE + 700)

    def test_looks_again_slowly(self) -> None:
        """
        A stop state is looked at again after the longest delay, and not before.
        """
        connection = self.begun(self.changed(self.theirs, 2500))
        connection.feed(self.theirs, 1)
        self.assertIdleFor(29)
        self.accept(within=1.5)
        self.assertState("diverged")

    def test_stop_state_ends_in_sync(self) -> None:
        """
        When the master has what we have, the state is left.
        """
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
        """
        What a survey did not bring does not count as compared.
        """
        mine = self.changed(self.theirs, SIZE)
        self.begun(mine).close()  # from 1
        survey = self.accept(within=0.1)
        self.assertEqual(survey.reports(), [0])
        survey.feed(self.theirs, SIZE)
        self.assertState("diverged")
        divergence = self.follower.sync.divergence
        assert divergence is not None
        self.assertEqual((divergence.at, divergence.common_from), (SIZE, SIZE))


class AheadTests(Guard):
    """
    A master that has less than we.
    """

    def test_shorter(self) -> None:
        """
        A heartbeat after data below our end names how much more we have.
        """
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

    def test_waits_for_the_heartbeat(self) -> None:
        """
        A short frame alone does not put us ahead: more may be on its way.
        """
        connection = self.begun(self.copied(self.theirs))
        connection.feed(self.theirs, 1, self.theirs.end - 600)
        self.assertState("probing")

    def test_empty_master(self) -> None:
        """
        An empty master is never followed: not by any policy.
        """
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

    def test_stock_opening_of_a_survey(self) -> None:
        """
        A stock master opens with a heartbeat at 0 and goes on with bytes.
        """
        mine = self.copied(self.theirs)
        self.begun(mine).close()
        survey = self.accept(within=0.1)
        survey.heartbeat(0)
        survey.feed(self.theirs, 0)
        survey.heartbeat(self.theirs.end)
        self.assertState("in-sync")


class SilenceTests(Guard):
    """
    A master that answers nothing.
    """

    def test_six_seconds(self) -> None:
        """
        No bytes for six seconds, heartbeats or not, and the next question is asked at once.
        """
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
        """
        When nothing was answered the state says so, and the master is left alone.
        """
        self.begun(self.copied(self.theirs))
        self.passes(6)
        survey = self.accept(within=0.1)
        self.passes(6)
        self.assertFalse(survey.open)
        self.assertState("unproven")
        self.assertIdleFor(29)

    def test_closed_is_an_answer(self) -> None:
        """
        A close before any bytes counts like silence, only faster.
        """
        self.begun(self.copied(self.theirs)).close()
        self.assertState("probing")
        survey = self.accept(within=0.1)
        survey.feed(self.theirs, 0)
        survey.heartbeat(self.theirs.end)
        self.assertState("in-sync")

    def test_everything_closed(self) -> None:
        """
        A master that closes whatever is asked is not serving: that proves nothing.
        """
        self.begun(self.copied(self.theirs))
        delays = []
        connection: Connection | None = None
        for _ in range(6):
            if connection is None:
                connection = self.accept_first()
            connection.close()
            survey = self.accept(within=0.1)
            survey.close()
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
        """
        The connection there is.
        """
        current = self.follower.sync.connection
        assert current is not None
        connection = Connection.__new__(Connection)
        connection.protocol = current
        connection.transport = current.transport  # type: ignore[assignment]
        return connection

    def test_accepted_unproven(self) -> None:
        """
        haAcceptUnproven goes on where we end, if told to.
        """
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
        """
        A master that begins behind our end has nothing in common with us.
        """
        mine = self.copied(self.theirs, SIZE + 700)
        self.begun(mine)
        self.passes(6)
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        last = self.accept(within=0.1)
        self.assertEqual(last.reports(), [SIZE])
        self.passes(6)
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        self.assertState("below-min")
        self.assertIn(f"below our end {SIZE + 700}", self.follower.sync.reason)
        self.assertIn(f"begin at {2 * SIZE}", self.follower.sync.reason)
        self.assertEqual(mine.end, SIZE + 700)

    def test_only_our_last_file_left(self) -> None:
        """
        A stock master that deleted our older files and has our last one still: it
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
        """
        A search goes on to its end: the master answers a report of 0 from behind our
        end, closes when asked for our last file, and answers the same again.
        """
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        last = self.accept(within=0.1)
        self.assertEqual(last.reports(), [SIZE])
        last.close()
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)

    def test_below_min_by_closes(self) -> None:
        """
        A conclusion that rests on closed connections has to be reached twice.
        """
        mine = self.copied(self.theirs, SIZE + 700)
        self.begun(mine).close()
        self.surveyed()
        self.assertState("probing")
        self.accept(within=0.1).close()
        self.surveyed()
        self.assertState("below-min")

    def test_below_min_by_a_restart(self) -> None:
        """
        If the master was only being restarted the second search finds common ground.
        """
        mine = self.copied(self.theirs, SIZE + 700)
        self.begun(mine).close()
        self.surveyed()
        again = self.accept(within=0.1)
        again.feed(self.theirs, again.reports()[0])
        again.heartbeat(self.theirs.end)
        self.assertState("in-sync")


class BadInputTests(Guard):
    """
    What a hostile or broken master sends.
    """

    def caught_up(self, **more: object) -> tuple[Connection, bytes]:
        """
        A slave in sync, and its bytes.
        """
        connection = self.in_sync(self.copied(self.theirs), **more)
        return connection, content(self.mine)

    def test_sizes(self) -> None:
        """
        Impossible sizes end the connection; nothing is appended.
        """
        for size in (-1, -20, -(2**31), 2**31 - 1, 4 * 1024 * 1024, 4 * 1024 * 1024 - 11):
            with self.subTest(size=size):
                connection, before = self.caught_up()
                header = self.mine.end.to_bytes(8, "big") + size.to_bytes(4, "big", signed=True)
                connection.send(header + b"x" * 100)
                self.assertFalse(connection.open)
                self.turn()
                self.assertState("connecting")
                self.assertIn(f"frame of {size} bytes", self.follower.sync.reason)
                self.assertEqual(content(self.mine), before)
                self.stop()

    def test_offsets(self) -> None:
        """
        Three streams in a row with a gap or an overlap are a state of their own.
        """
        for wrong in (1, -1, SIZE, -SIZE, -(1 << 62), 1 << 62):
            with self.subTest(wrong=wrong):
                connection, before = self.caught_up()
                for left in (2, 1, 0):
                    end = self.mine.end
                    connection.frame(end + wrong, b"x" * 100)
                    self.assertFalse(connection.open)
                    self.turn()
                    self.assertEqual(content(self.mine), before)
                    if left:
                        self.assertState("connecting")
                        connection = self.accept(within=3)
                        connection.feed(self.theirs, 1)
                        self.assertState("in-sync")
                self.assertState("gap")
                self.assertIn(f"expected {end}", self.follower.sync.reason)
                self.assertIdleFor(29)
                self.stop()

    def test_gap_in_a_heartbeat(self) -> None:
        """
        A heartbeat that is not at the cursor is a gap too.
        """
        connection, before = self.caught_up()
        connection.heartbeat(self.mine.end + 5)
        self.assertFalse(connection.open)
        self.assertEqual(content(self.mine), before)

    def test_progress_forgives_gaps(self) -> None:
        """
        Only gaps without progress between them count.
        """
        connection, _ = self.caught_up()
        for _ in range(5):
            end = self.theirs.end
            self.grow(3000)
            connection.feed(self.theirs, end)
            connection.frame(0, b"x")
            self.turn()
            self.assertState("connecting")
            connection = self.accept(within=3)
            connection.feed(self.theirs, connection.reports()[0])

    def test_first_frame_elsewhere(self) -> None:
        """
        An answer from another place than asked is no answer.
        """
        connection = self.begun(self.copied(self.theirs))
        connection.frame(2, b"x" * 10)
        self.assertFalse(connection.open)

    def test_negative_start(self) -> None:
        """
        Nothing begins before 0, not even at a multiple of the file size.
        """
        for ask in (self.log(), self.copied(self.theirs)):
            connection = self.begun(ask)
            if ask.end:
                connection.close()
                connection = self.accept(within=0.1)
            connection.frame(-SIZE, b"x" * 10)
            self.assertFalse(connection.open)
            self.assertGreaterEqual(self.mine.end, 0)
            self.assertEqual([path.name for path in self.names() if path.name[0] == "-"], [])
            self.stop()

    def names(self) -> list[Path]:
        """
        Files of our log.
        """
        folder = self.mine.folder.path
        return list(folder.iterdir()) if folder.is_dir() else []

    def bad_record(self) -> bytes:
        """
        A whole record whose body is not what its CRC says.
        """
        self.grow(700)
        good = content(self.theirs, self.mine.end)
        return good[:-60] + bytes([good[-60] ^ 1]) + good[-59:]

    def test_bad_record(self) -> None:
        """
        Nothing of a bad record is kept, the state says so, and it is fetched again.
        """
        connection, before = self.caught_up()
        end = self.mine.end
        connection.frame(end, self.bad_record()[:400])
        self.assertEqual(self.mine.end, end + 400)
        connection.frame(end + 400, self.bad_record()[400:700])
        self.assertState("diverged")
        self.assertIn("bad record", self.follower.sync.reason)
        self.assertIn(f"byte {end}", self.follower.sync.reason)
        self.assertEqual(content(self.mine), before)
        self.assertLessEqual(max(connection.reports()), end)
        self.turn()
        self.assertFalse(any(self.mine.folder.at(end).view[end % SIZE :]))
        again = self.accept(within=2)
        again.feed(self.theirs, 1)
        again.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        self.assertEqual(content(self.mine), content(self.theirs))

    def test_bad_record_again_and_again(self) -> None:
        """
        A master that has only a bad record is asked ever more slowly, in one state.
        """
        mine = self.copied(self.theirs)
        end = mine.end
        self.grow(700)
        self.theirs.folder.at(end).view[end % SIZE + 600] ^= 1
        connection = self.begun(mine)
        delays = []
        for _ in range(6):
            connection.feed(self.theirs, 1)
            self.assertState("diverged")
            self.assertEqual(mine.end, end)
            waited = 0.0
            while not self.endpoint.waiting:
                self.clock.advance(0.05)
                waited += 0.05
            delays.append(waited)
            connection = self.accept()
            self.assertState("diverged")
        self.assertGreater(delays[-1], 10)
        self.assertEqual(self.repairs, [])

    def test_good_frames_before_a_bad_record_are_kept(self) -> None:
        """
        What was whole before it stays.
        """
        connection, _ = self.caught_up()
        end = self.mine.end
        self.grow(300)
        good = content(self.theirs, end)
        self.assertEqual(len(good), 300)
        connection.frame(end, good + b"\0\0\1\0" + b"nonsense" * 30)
        self.assertState("diverged")
        self.assertEqual(self.mine.end, end + 300)
        self.assertEqual(connection.reports()[-1], end)

    def test_other_file_size(self) -> None:
        """
        A record across a file end of ours, or a blank that ends elsewhere, is file-size.
        """
        other = self.filled(*SIZES, file_size=SIZE * 2)
        connection = self.begun(self.log())
        connection.feed(other, 0)
        self.assertState("file-size")
        self.assertIn(str(SIZE), self.follower.sync.reason)
        self.assertIdleFor(25)

    def test_smaller_file_size(self) -> None:
        """
        The blank of a smaller file ends where no file of ours does.
        """
        other = self.filled(*SIZES, file_size=SIZE // 2)
        self.begun(self.log()).feed(other, 0)
        self.assertState("file-size")

    def test_unaligned_start(self) -> None:
        """
        A log that starts inside a file of ours cannot be copied.
        """
        connection = self.begun(self.log(), first_sync="last-file")
        connection.frame(SIZE // 2, b"x" * 10)
        self.assertState("file-size")
        self.assertIn(f"starts at {SIZE // 2}", self.follower.sync.reason)


class DiskTests(Guard):
    """
    Our own disk.
    """

    def test_full(self) -> None:
        """
        A full disk is a state; nothing of the frame stays; it goes on by itself.
        """
        disk = Disk().install(self)
        mine = self.copied(self.theirs, 2 * SIZE)
        connection = self.begun(mine)
        disk.full = True
        connection.feed(self.theirs, 1)
        self.assertState("disk-full")
        self.assertEqual(mine.end, 2 * SIZE)
        self.assertFalse(connection.open)
        for _ in range(3):
            connection = self.accept(within=5.1)
            connection.feed(self.theirs, 1)
            self.assertState("disk-full")
        disk.full = False
        connection = self.accept(within=5.1)
        connection.feed(self.theirs, 1)
        self.assertState("in-sync")
        self.assertEqual(content(mine), content(self.theirs))

    def test_full_before_a_copy(self) -> None:
        """
        If not even the marker fits, no connection is used.
        """
        follower = self.follow(self.log())
        full = DiskFull("marker", 10)

        def mark(on: bool) -> None:
            raise full

        follower.sync.bootstrapping = mark
        self.turn()
        factory, done = self.endpoint.waiting.pop(0)
        self.assertIsNone(factory.buildProtocol(None))
        done.errback(full)
        self.assertState("disk-full")
        follower.sync.bootstrapping = self.marks.append
        self.flushLoggedErrors(DiskFull)
        self.accept(within=5.1).feed(self.theirs, 0)
        self.assertEqual(self.marks[0], True)
        self.assertState("in-sync")

    def test_failed_flush_is_final(self) -> None:
        """
        After a failed fsync nobody connects again.
        """
        mine = self.copied(self.theirs, 2 * SIZE)
        connection = self.begun(mine)

        def fails(self: LogFolder, offset: int) -> object:
            raise FlushFailed("commitlog", "Input/output error")

        self.patch(LogFolder, "create_next", fails)
        connection.feed(self.theirs, 1)
        self.assertState("failed")
        self.assertIdleFor(100)

    def test_told_to_fail(self) -> None:
        """
        The store's own failure ends replication too.
        """
        connection = self.in_sync(self.copied(self.theirs))
        self.follower.sync.fail("fsync of x failed")
        self.assertState("failed")
        self.assertFalse(connection.open)
        self.assertIdleFor(100)
        self.follower.sync.fail("again")
        self.assertEqual(self.follower.sync.reason, "fsync of x failed")


class BootstrapTests(Guard):
    """
    An empty slave.
    """

    def test_from_zero(self) -> None:
        """
        A master that begins at 0 is simply followed; the marker goes when it is in sync.
        """
        mine = self.log()
        connection = self.begun(mine)
        self.assertState("bootstrapping")
        self.assertEqual(connection.reports(), [0])
        self.assertEqual(self.marks, [True])
        connection.feed(self.theirs, 0, 2000)
        self.assertState("bootstrapping")
        connection.feed(self.theirs, 2000)
        self.assertState("in-sync")
        self.assertEqual(self.marks, [True, False])
        self.assertEqual(content(mine), content(self.theirs))

    def test_resumed(self) -> None:
        """
        A copy that was cut goes on where it stopped, and is still a copy.
        """
        mine = self.log()
        connection = self.begun(mine)
        connection.feed(self.theirs, 0, SIZE + 1000)
        connection.close()
        connection = self.accept(within=1.3)
        self.assertEqual(connection.reports(), [1])
        connection.feed(self.theirs, 1, 2 * SIZE)
        self.assertState("bootstrapping")
        self.assertEqual(self.marks, [True])
        connection.feed(self.theirs, 2 * SIZE)
        self.assertEqual(self.marks, [True, False])
        self.assertEqual(content(mine), content(self.theirs))

    def stock(self, *, answers: bool = True) -> Connection:
        """
        A stock master answers an empty slave from its last file.
        """
        connection = self.accept(within=0.1)
        self.assertEqual(connection.reports(), [0])
        last = self.theirs.end - self.theirs.end % SIZE
        connection.heartbeat(last)
        connection.feed(self.theirs, last)
        self.assertFalse(connection.open)
        return connection

    def test_stock_whole(self) -> None:
        """
        Its first byte is computed when everything from 1 on is there.
        """
        mine = self.log()
        self.follow(mine)
        self.stock()
        connection = self.accept(within=0.1)
        self.assertEqual(connection.reports(), [1])
        connection.heartbeat(1)
        connection.feed(self.theirs, 1, batch=50)
        self.assertEqual(content(mine), content(self.theirs))
        connection.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        self.assertEqual(connection.reports()[-1], self.theirs.end)

    def test_stock_blank_first(self) -> None:
        """
        A first file that is all blank gives its size as first bytes.
        """
        self.theirs = self.log(self.blank_first())
        self.theirs.end = self.theirs.confirmed = SIZE
        self.grow(700)
        mine = self.log()
        self.follow(mine)
        self.stock()
        self.accept(within=0.1).feed(self.theirs, 1)
        self.assertEqual(content(mine), content(self.theirs))

    def blank_first(self) -> Path:
        """
        A folder with one file that is a blank.
        """
        folder = self.folder()
        (folder / f"{0:020d}").write_bytes(blank(SIZE).ljust(SIZE, b"\0"))
        return folder

    def test_stock_expired(self) -> None:
        """
        A stock master's oldest file is found by halving.
        """
        self.theirs = self.filled(*SIZES * 4)
        self.assertGreater(self.theirs.end, 12 * SIZE)
        mine = self.log()
        minimum = 5 * SIZE
        self.follow(mine)
        self.stock()
        asked = []
        for _ in range(10):
            connection = self.accept(within=6.1)
            start = connection.reports()[0]
            asked.append(start)
            if start < minimum:
                self.passes(6)
                self.assertFalse(connection.open)
                continue
            connection.feed(self.theirs, start)
            if connection.open:
                break
        self.assertEqual(start, minimum)
        self.assertEqual(mine.min_offset, minimum)
        self.assertEqual(content(mine), content(self.theirs, minimum))
        self.assertLessEqual(len(asked), 7)

    def test_rmqha_expired(self) -> None:
        """
        An rmqha master answers from its min and closes what is below it; the search that
        rests on closes is done twice.
        """
        mine = self.log()
        self.follow(mine)
        first = []
        for _ in range(20):
            connection = self.accept(within=0.1)
            start = connection.reports()[0]
            first.append(start)
            if start == 0:
                connection.feed(self.theirs, 2 * SIZE)
            elif start < 2 * SIZE:
                connection.close()
            else:
                connection.feed(self.theirs, start)
                connection.heartbeat(self.theirs.end)
            if connection.open:
                break
        self.assertEqual(first.count(0), 2)
        self.assertState("in-sync")
        self.assertEqual(content(mine), content(self.theirs, 2 * SIZE))

    def test_restart_in_the_middle_of_the_search(self) -> None:
        """
        A master that goes away between two questions does not make us skip its oldest.
        """
        mine = self.log()
        self.follow(mine)
        self.stock()
        for _ in range(4):  # being stopped, and not open yet
            connection = self.accept(within=31)
            connection.close()
        for _ in range(10):
            connection = self.accept(within=31)
            start = connection.reports()[0]
            last = self.theirs.end - self.theirs.end % SIZE
            connection.feed(self.theirs, start or last)
            if connection.open:
                break
        self.assertEqual(content(mine), content(self.theirs))

    def test_master_that_closes_everything(self) -> None:
        """
        It is not asked in a hot loop, wherever the search stands.
        """
        self.follow(self.log())
        self.stock()
        for _ in range(30):
            if not self.endpoint.waiting:
                self.clock.advance(0.06)
            if self.endpoint.waiting:
                self.endpoint.accept().close()
        made = self.follower.sync.reconnects
        self.passes(20)
        for _ in range(100):
            self.clock.advance(0.06)
            if self.endpoint.waiting:
                self.endpoint.accept().close()
        self.assertLess(self.follower.sync.reconnects - made, 30)

    def test_silent_where_it_had_bytes(self) -> None:
        """
        A settled start that falls silent is looked for again.
        """
        mine = self.log()
        self.follow(mine)
        self.stock()
        self.accept(within=0.1).feed(self.theirs, 1, 1 + 50)
        self.assertEqual(self.follower.sync._search.question(mine).report, 1)

    def test_last_file(self) -> None:
        """
        haFirstSync=last-file takes what a stock master gives.
        """
        mine = self.log()
        connection = self.begun(mine, first_sync="last-file")
        last = self.theirs.end - self.theirs.end % SIZE
        connection.feed(self.theirs, last)
        connection.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        self.assertEqual(content(mine), content(self.theirs, last))

    def test_empty_master(self) -> None:
        """
        Nothing to copy is in sync, and the first write is followed.
        """
        mine = self.log()
        connection = self.begun(mine)
        connection.heartbeat(0)
        self.assertState("bootstrapping")
        self.passes(1)
        self.assertState("in-sync")
        self.assertEqual(self.marks, [True])
        self.theirs = self.filled(200)
        connection.feed(self.theirs, 0)
        connection.heartbeat(200)
        self.assertState("in-sync")
        self.assertEqual(self.marks, [True, False])
        self.assertEqual(content(mine), content(self.theirs))

    def test_opening_heartbeat_of_a_full_master(self) -> None:
        """
        A stock master's opening heartbeat at 0 does not make us in sync with nothing.
        """
        connection = self.begun(self.log())
        connection.heartbeat(0)
        connection.feed(self.theirs, 0, 2000)
        self.assertState("bootstrapping")
        self.passes(2)
        self.assertState("bootstrapping")

    def test_below_min_starts_over(self) -> None:
        """
        A copy whose continuation is deleted starts over by itself, whatever the policy.
        """
        mine = self.copied(self.theirs, SIZE + 700)
        self.begun(mine, is_bootstrapping=True)
        self.passes(6)
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        self.accept(within=0.1)
        self.passes(6)
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        self.assertState("below-min")
        self.turn()
        policy, divergence, done = self.repairs[0]
        self.assertIs(policy, DivergencePolicy.REBOOTSTRAP)
        self.assertIsNone(divergence)
        self.mine = self.log()
        done.callback("starts over")
        self.assertEqual(self.accept(within=0.1).reports(), [0])


class PolicyTests(Guard):
    """
    C{haDivergencePolicy}.
    """

    def diverge(self, **more: object) -> None:
        """
        A difference at byte 2500, found.
        """
        connection = self.begun(self.changed(self.theirs, 2500), **more)
        connection.feed(self.theirs, 1)
        self.assertState("diverged")
        self.turn()

    def test_stop(self) -> None:
        """
        The default touches nothing.
        """
        self.diverge()
        self.assertEqual(self.repairs, [])

    def test_truncate(self) -> None:
        """
        The owner is asked to cut, and the new log is followed at once.
        """
        self.diverge(policy=DivergencePolicy.TRUNCATE)
        policy, divergence, done = self.repairs[0]
        assert divergence is not None
        self.assertIs(policy, DivergencePolicy.TRUNCATE)
        self.assertEqual((divergence.at, divergence.common_from), (2500, 1))
        self.assertIdleFor(40)
        self.assertState("diverged")
        self.mine = self.copied(self.theirs, 2200)
        done.callback("cut the log")
        connection = self.accept(within=0.1)
        connection.feed(self.theirs, 1)
        self.assertState("in-sync")
        self.assertIs(connection.protocol.log, self.mine)  # type: ignore[attr-defined]
        self.assertEqual(len(self.repairs), 1)

    def test_rebootstrap(self) -> None:
        """
        The same for a new copy.
        """
        self.diverge(policy=DivergencePolicy.REBOOTSTRAP)
        policy, _, done = self.repairs[0]
        self.assertIs(policy, DivergencePolicy.REBOOTSTRAP)
        self.mine = self.log()
        done.callback("set aside")
        self.assertEqual(self.accept(within=0.1).reports(), [0])

    def test_ahead(self) -> None:
        """
        Being ahead is repaired too.
        """
        connection = self.begun(self.copied(self.theirs), policy=DivergencePolicy.TRUNCATE)
        connection.feed(self.theirs, 1, 3000)
        connection.heartbeat(3000)
        self.turn()
        divergence = self.repairs[0][1]
        assert divergence is not None
        self.assertEqual(divergence.at, 3000)

    def test_refused(self) -> None:
        """
        A repair that is refused keeps the state, says why, and is not tried in a loop.
        """
        self.diverge(policy=DivergencePolicy.TRUNCATE)
        self.repairs[0][2].errback(Refused("truncate", "too much"))
        self.assertState("diverged")
        self.assertIn("byte 2500 of", self.follower.sync.reason)
        self.assertTrue(self.follower.sync.reason.endswith("truncate refused: too much"))
        self.assertIdleFor(29)
        reason = self.follower.sync.reason
        self.accept(within=1.1).feed(self.theirs, 1)
        self.turn()
        self.repairs[1][2].errback(Refused("truncate", "too much"))
        self.assertEqual(self.follower.sync.reason, reason)

    def test_one_at_a_time(self) -> None:
        """
        While a repair runs there is no connection and no second one.
        """
        self.diverge(policy=DivergencePolicy.TRUNCATE)
        self.follower.bad_record(Refused("x", "y"))
        self.assertIdleFor(100)
        self.assertEqual(len(self.repairs), 1)

    def test_bad_record_is_not_cut(self) -> None:
        """
        A bad record is dropped and fetched again; no policy is needed.
        """
        mine = self.copied(self.theirs, 2 * SIZE)
        connection = self.begun(mine, policy=DivergencePolicy.REBOOTSTRAP)
        connection.feed(self.theirs, 1, 2 * SIZE)
        connection.frame(2 * SIZE, b"\1" * 300)
        self.assertState("diverged")
        self.turn()
        self.assertEqual(self.repairs, [])

    def test_store_fails_while_repairing(self) -> None:
        """
        A store that cannot be opened again ends replication.
        """
        self.diverge(policy=DivergencePolicy.TRUNCATE)
        self.follower.sync.fail("cannot open")
        self.repairs[0][2].errback(Refused("x", "cannot open"))
        self.assertState("failed")
        self.assertIdleFor(100)

    def test_fsync_fails_while_repairing(self) -> None:
        """
        A failed fsync is final, even if the repair it happened in came to its end.
        """
        self.diverge(policy=DivergencePolicy.TRUNCATE)
        self.follower.sync.fail("fsync of x failed")
        self.mine = self.copied(self.theirs, 2200)
        self.repairs[0][2].callback("cut the log")
        self.assertState("failed")
        self.assertEqual(self.follower.sync.reason, "fsync of x failed")
        self.assertIdleFor(100)


class LifeTests(Guard):
    """
    Start, delays, stop.
    """

    def test_another_master(self) -> None:
        """
        A master that is said to be elsewhere is followed there, from the whole probe on, as
        nothing was ever compared with it.
        """
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

    def test_another_master_while_repairing(self) -> None:
        """
        The log is closed under a repair: the new master is called when it is over.
        """
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
        """
        Without a master's address a slave waits, and says for what.
        """
        self.follow(self.log())
        self.stop()
        self.follower.endpoint = None
        self.follower.startService()
        self.assertState("connecting")
        self.assertIn("no master address: ", self.follower.sync.reason)

    def test_refused_connections(self) -> None:
        """
        Delays grow from 1 to 30 s, never outside, and the reason is told.
        """
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
        """
        Seconds until the next attempt.
        """
        waited = 0.0
        while not self.endpoint.waiting:
            self.clock.advance(0.05)
            waited += 0.05
        return waited

    def test_accept_and_close(self) -> None:
        """
        A master that only accepts is asked ever more slowly.
        """
        self.follow(self.log())
        delays = []
        for _ in range(5):
            self.accept().close()
            delays.append(self.wait())
        self.assertGreater(delays[-1], 15)

    def test_verified_bytes_reset(self) -> None:
        """
        Verified bytes, and only they, make the delay short again.
        """
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
        """
        An attempt is given up.
        """
        self.follow(self.log())
        self.turn()
        self.stop()
        self.assertEqual(self.endpoint.cancelled, 1)
        self.assertState("stopped")

    def test_stop_while_waiting(self) -> None:
        """
        So is a delay.
        """
        self.follow(self.log())
        self.turn()
        self.endpoint.refuse()
        self.stop()
        self.assertState("stopped")

    def test_stop_while_probing(self) -> None:
        """
        A connection is closed before the stop is over.
        """
        connection = self.begun(self.copied(self.theirs))
        connection.feed(self.theirs, 1, 2000)
        stopped = self.follower.stopService()
        self.assertNoResult(stopped)
        self.turn()
        self.successResultOf(stopped)
        self.assertFalse(connection.open)
        self.assertState("stopped")

    def test_stop_in_the_middle_of_a_frame(self) -> None:
        """
        What came of it leaves no trace.
        """
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
        """
        Between two questions there is nothing to close.
        """
        self.begun(self.copied(self.theirs)).close()
        self.stop()

    def test_stop_while_repairing(self) -> None:
        """
        The stop waits for the repair, which changes nothing any more.
        """
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
        """
        A repair that has not begun does not begin.
        """
        connection = self.begun(self.changed(self.theirs, 2500), policy=DivergencePolicy.TRUNCATE)
        connection.feed(self.theirs, 1)
        stopped = self.follower.stopService()
        self.turn()
        self.successResultOf(stopped)
        self.assertEqual(self.repairs, [])
        self.assertState("stopped")

    def test_stop_after_a_refused_repair(self) -> None:
        """
        The delay before the next look is cancelled.
        """
        connection = self.begun(self.changed(self.theirs, 2500), policy=DivergencePolicy.TRUNCATE)
        connection.feed(self.theirs, 1)
        self.turn()
        self.repairs[0][2].errback(Refused("truncate", "no"))
        self.stop()

    def test_stop_twice(self) -> None:
        """
        A second stop is over at once.
        """
        self.begun(self.log())
        self.stop()
        self.successResultOf(self.follower.stopService())

    def test_programming_errors_are_told(self) -> None:
        """
        A log that is not there is logged with its traceback, and tried again.
        """
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
        """
        No Deferred is left with a failure.
        """
        self.test_refused_connections()
        gc.collect()
        self.assertEqual(self.flushLoggedErrors(), [])


class StatusTests(Guard):
    """
    C{upstream} of C{/status}.
    """

    def test_fields(self) -> None:
        """
        The names that are relied on, whatever the state.
        """
        self.follow(self.log())
        status = self.follower.sync.status(0)
        names = {"address", "state", "received", "lagBytes", "lagSeconds", "probes", "reconnects"}
        self.assertLessEqual(names, set(status))
        self.assertEqual(status["address"], "10.0.0.1:10912")
        self.assertIsNone(status["lagBytes"])
        self.assertIsNone(status["lagSeconds"])

    def test_in_sync(self) -> None:
        """
        In sync there is no lag.
        """
        self.in_sync(self.copied(self.theirs))
        status = self.follower.sync.status(1)
        self.assertEqual((status["lagBytes"], status["lagSeconds"]), (0, 0.0))
        self.assertEqual(status["received"], self.theirs.end - 1)
        self.assertEqual(status["probes"], 1)

    def test_behind(self) -> None:
        """
        Otherwise it is the age of the last record.
        """
        self.begun(self.log())
        status = self.follower.sync.status(1)
        self.assertGreater(status["lagSeconds"], 1e9)

    def test_states_change_once(self) -> None:
        """
        A whole life goes through each state once: none flickers.
        """
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
