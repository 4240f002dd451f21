"""Tests for L{rmqha.store.log.two_versions}: whose version of a record is right."""

from __future__ import annotations

from rmqha.logfiles.raw_log import RawLog
from rmqha.store.log.two_versions import judge_versions, keep_versions
from rmqha.wire.log.record_crc import crc_property
from tests.support.logs import FILE_SIZE, PROPERTIES, STORED, LogTestCase, encoded

SIZE = 300


class TwoVersionsTestCase(LogTestCase):
    """A log of two files with records of 300 bytes, 13 in the first, and a master's copy of it."""

    def setUp(self) -> None:
        self.root = self.folder() / "store"
        (self.root / "commitlog").mkdir(parents=True)
        self.ours = self.filled(*[SIZE] * 20, folder=self.root / "commitlog")
        self.theirs = bytearray(self.ours.folder.files[0].view)

    def harm(self, data: bytearray | memoryview, record: int, place: int, value: int = 0xEE) -> int:
        """Change a byte of a record, and return where."""
        data[record * SIZE + place] ^= value
        return record * SIZE + place

    def told(self, start: int, size: int = FILE_SIZE) -> str:
        """The verdict on what both have from a record on."""
        ours = self.ours.read(start, size)
        theirs = self.theirs[start : start + len(ours)]
        return judge_versions(ours, theirs, start, FILE_SIZE, FILE_SIZE).sentence()


class VerdictTests(TwoVersionsTestCase):
    def test_body(self) -> None:
        """A bit of a body is on the side that its checksum says."""
        self.harm(self.ours.folder.files[0].view, 4, 100)
        self.assertEqual(
            self.told(4 * SIZE), "8 of 9 records decode on both sides, 1 only on the master's"
        )
        self.setUp()
        self.harm(self.theirs, 4, 100)
        self.assertEqual(self.told(4 * SIZE), "8 of 9 records decode on both sides, 1 only on ours")

    def test_properties(self) -> None:
        """A bit of the properties is on nobody's."""
        self.harm(self.theirs, 4, SIZE - 2, 1)
        self.assertEqual(
            self.told(4 * SIZE),
            "9 of 9 records decode on both sides; no checksum tells which version of the first is "
            "right",
        )

    def test_whole_crc(self) -> None:
        """Where each record has a CRC of all of it, that of the properties too."""
        log = self.log(self.folder() / "other")
        for number in range(3):
            log.put([encoded(SIZE, properties=PROPERTIES + bytes(20))], [number], STORED)
        view = log.folder.files[0].view
        for start in range(0, 3 * SIZE, SIZE):
            view[start + SIZE - 20 : start + SIZE] = crc_property(view[start : start + SIZE - 20])
        theirs = bytearray(view[: 3 * SIZE])
        self.harm(theirs, 0, SIZE - 30, 1)
        found = judge_versions(log.read(0, 3 * SIZE), theirs, 0, FILE_SIZE, FILE_SIZE)
        self.assertEqual(found.sentence(), "2 of 3 records decode on both sides, 1 only on ours")

    def test_sizes_and_holes(self) -> None:
        """Where the chain breaks on one side, it is followed on the other."""
        for place, value in ((3, 0xFF), (0, 0x7F), (1, 1), (4, 1), (35, 1)):
            self.setUp()
            self.harm(self.theirs, 2, place, value)
            self.assertEqual(
                self.told(2 * SIZE), "10 of 11 records decode on both sides, 1 only on ours"
            )
        self.setUp()
        self.ours.folder.files[0].view[2 * SIZE : 5 * SIZE] = bytes(3 * SIZE)
        self.assertEqual(
            self.told(2 * SIZE), "8 of 11 records decode on both sides, 3 only on the master's"
        )

    def test_two_histories(self) -> None:
        """Two logs that each went on by themselves are both right."""
        other = self.filled(*[SIZE] * 2, *[200] * 8)
        self.theirs[: 9 * SIZE] = other.read(0, 9 * SIZE).tobytes().ljust(9 * SIZE, b"\0")
        self.assertIn(" only on ours, ", self.told(2 * SIZE, 5 * SIZE))
        self.assertIn(" only on the master's", self.told(2 * SIZE, 5 * SIZE))

    def test_both_bad(self) -> None:
        """A record may be bad on both sides, and too little may be at hand to say."""
        self.harm(self.theirs, 4, 100)
        self.harm(self.ours.folder.files[0].view, 4, 120)
        self.assertEqual(
            self.told(4 * SIZE, 310), "0 of 1 records decode on both sides, 1 on neither"
        )
        self.assertEqual(
            self.told(4 * SIZE, 200), "no whole record could be compared from byte 1200 on"
        )


class KeptTests(TwoVersionsTestCase):
    def kept(self) -> dict[str, bytes]:
        folder = self.root / "rmqha" / "quarantine"
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    def test_both(self) -> None:
        """Both versions of the record, each once, and readable by the offline tools."""
        at = self.harm(self.theirs, 4, 100)
        for _ in range(2):
            found, where = keep_versions(self.root, self.ours, at, bytes(self.theirs[at:2000]))
            self.assertEqual((found.start, found.ours), (1200, 1))
            kept = self.kept()
            self.assertEqual(
                list(kept), [f"{1200:020d}-{1500:020d}.{side}.log" for side in ("master", "ours")]
            )
            self.assertEqual(
                list(kept.values()), [self.theirs[1200:1500], self.ours.read(1200, 300)]
            )
            for name in kept:
                self.assertIn(f"rmqha/quarantine/{name}", where)
        for name in kept:
            raw = RawLog.open(self.root / "rmqha" / "quarantine" / name, FILE_SIZE)
            self.assertEqual((raw.min_offset, bytes(raw.read(1200, 300))), (1200, kept[name]))
            raw.close()

    def test_another_version(self) -> None:
        """Another version of the same record is kept beside the first."""
        at = self.harm(self.theirs, 4, 100)
        keep_versions(self.root, self.ours, at, bytes(self.theirs[at:2000]))
        self.harm(self.theirs, 4, 100, 3)
        keep_versions(self.root, self.ours, at, bytes(self.theirs[at:2000]))
        self.assertEqual(
            [name.split(".", 1)[1] for name in self.kept()],
            ["master.2.log", "master.log", "ours.log"],
        )

    def test_far_into_a_file(self) -> None:
        """The record's start is found in any file, at any of its bytes."""
        for at in (0, 299, 300, 3899, FILE_SIZE, FILE_SIZE + 301):
            theirs = bytearray(self.ours.read(at, 800))
            theirs[0] ^= 1
            found, _ = keep_versions(self.root, self.ours, at, bytes(theirs))
            inside = at % FILE_SIZE
            self.assertEqual(found.start, at - inside + inside // SIZE * SIZE, at)

    def test_blank(self) -> None:
        """A difference in the blank that ends a file is told too."""
        found, where = keep_versions(self.root, self.ours, 13 * SIZE + 6, b"\1" + bytes(100))
        self.assertEqual(found.start, 13 * SIZE)
        self.assertIn("kept", where)
