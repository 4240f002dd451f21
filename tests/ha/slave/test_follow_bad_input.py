"""What a slave makes of a master that sends what it should not, and of a disk that fails."""

from __future__ import annotations

from pathlib import Path

from rmqha.config.ha_settings import BadRecordPolicy
from rmqha.errors import DiskFull, FlushFailed
from rmqha.store.files.mapped import LogFolder
from tests.support.following import SIZE, SIZES, ThreeFilesCase
from tests.support.logs import Disk, content
from tests.support.scripted_master import Connection, PuppetEndpoint


class BadInputTests(ThreeFilesCase):
    """What a hostile or broken master sends."""

    def caught_up(self, **more: object) -> tuple[Connection, bytes]:
        """A slave in sync, and its bytes."""
        return self.in_sync(self.copied(self.theirs), **more), content(self.mine)

    def gaps(self, connection: Connection) -> None:
        """No less than three streams in a row break, before the state says so."""
        for left in (2, 1, 0):
            connection.frame(self.mine.end + 1, b"x")
            self.turn()
            if left:
                self.assertState("connecting")
                connection = self.accept(within=31)
                connection.feed(self.theirs, 1, self.mine.end)
        self.assertState("gap")

    def test_another_master(self) -> None:
        """What one master sent is not held against another: neither gaps, nor a bad record."""
        connection, _ = self.caught_up()
        for _ in range(2):
            connection.frame(self.mine.end + 1, b"x")
            connection = self.accept(within=31)
            connection.feed(self.theirs, 1)
        self.bad_record()
        connection.frame(self.mine.end, b"\1" * 300)
        self.assertState("diverged")
        self.endpoint = PuppetEndpoint(self.clock)
        self.follower.dial(self.endpoint, "10.0.0.2:10912", None)
        self.mine.folder.at(2500).view[2500] ^= 0xFF
        self.accept().feed(self.theirs, 1)
        self.assertState("diverged")
        self.assertIdleFor(29)
        self.mine.folder.at(2500).view[2500] ^= 0xFF
        connection = self.accept(within=2)
        connection.feed(self.theirs, 1, self.mine.end)
        self.gaps(connection)

    def test_first_frame_elsewhere(self) -> None:
        """An answer from another place than asked is no answer."""
        connection = self.begun(self.copied(self.theirs))
        connection.frame(2, b"x" * 10)
        self.assertFalse(connection.open)

    def test_negative_start(self) -> None:
        """Nothing begins before 0, not even at a multiple of the file size."""
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
        folder = self.mine.folder.path
        return list(folder.iterdir()) if folder.is_dir() else []

    def bad_record(self) -> bytes:
        """A whole record whose body is not what its CRC says."""
        self.grow(700)
        good = content(self.theirs, self.mine.end)
        return good[:-60] + bytes([good[-60] ^ 1]) + good[-59:]

    def test_bad_record_again_and_again(self) -> None:
        """A master with only a bad record, and no policy to copy it, is asked ever more slowly."""
        mine = self.copied(self.theirs)
        end = mine.end
        self.grow(700)
        self.theirs.folder.at(end).view[end % SIZE + 600] ^= 1
        connection = self.begun(mine, bad_record=BadRecordPolicy.STOP)
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
        """What was whole before it stays."""
        connection, _ = self.caught_up()
        end = self.mine.end
        self.grow(300)
        good = content(self.theirs, end)
        self.assertEqual(len(good), 300)
        connection.frame(end, good + b"\0\0\1\0" + b"nonsense" * 30)
        self.assertState("diverged")
        self.assertEqual((self.mine.end, connection.reports()[-1]), (end + 300, end))

    def test_other_file_size(self) -> None:
        """A record across a file end of ours, or a blank that ends elsewhere, is file-size."""
        other = self.filled(*SIZES, file_size=SIZE * 2)
        self.begun(self.log()).feed(other, 0)
        self.assertState("file-size")
        self.assertIn(str(SIZE), self.follower.sync.reason)
        self.assertIdleFor(25)

    def test_smaller_file_size(self) -> None:
        """The blank of a smaller file ends where no file of ours does."""
        other = self.filled(*SIZES, file_size=SIZE // 2)
        self.begun(self.log()).feed(other, 0)
        self.assertState("file-size")

    def test_unaligned_start(self) -> None:
        """A log that starts inside a file of ours cannot be copied."""
        self.begun(self.log(), first_sync="last-file").frame(SIZE // 2, b"x" * 10)
        self.assertState("file-size")
        self.assertIn(f"starts at {SIZE // 2}", self.follower.sync.reason)


class DiskTests(ThreeFilesCase):
    def test_full(self) -> None:
        """A full disk is a state; nothing of the frame stays; it goes on by itself."""
        disk = Disk().install(self)
        mine = self.copied(self.theirs, 2 * SIZE)
        connection = self.begun(mine)
        disk.full = True
        connection.feed(self.theirs, 1)
        self.assertState("disk-full")
        self.assertEqual(mine.end, 2 * SIZE)
        self.assertFalse(connection.open)
        for _ in range(3):
            self.turn()
            self.assertIdleFor(4.75)
            connection = self.accept(within=0.3)
            connection.feed(self.theirs, 1)
            self.assertState("disk-full")
        disk.full = False
        connection = self.accept(within=5.1)
        connection.feed(self.theirs, 1)
        self.assertState("in-sync")
        self.assertEqual(content(mine), content(self.theirs))

    def test_full_before_a_copy(self) -> None:
        """If not even the marker fits, no connection is used."""
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
        """After a failed fsync nobody connects again."""
        mine = self.copied(self.theirs, 2 * SIZE)
        connection = self.begun(mine)

        def fails(self: LogFolder, offset: int) -> object:
            raise FlushFailed("commitlog", "Input/output error")

        self.patch(LogFolder, "create_next", fails)
        connection.feed(self.theirs, 1)
        self.assertState("failed")
        self.assertIdleFor(100)
