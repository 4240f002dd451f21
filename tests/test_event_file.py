"""The file with what happened lately."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rmqha.event_file import LONGEST, MOST_BYTES, Event, append, event_path, note, read


class EventFileTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        self.path = event_path(self.root)

    def test_kept(self) -> None:
        """What was written is read again, in any alphabet, over several writes."""
        events = [Event(n, "state", f"サービス {n}\nmore") for n in range(3)]
        self.assertEqual(read(self.path), [])
        append(self.path, events[:2])
        append(self.path, events[2:])
        self.assertEqual(read(self.path), events)

    def test_bounded(self) -> None:
        """However much happens, the file stays small and has the latest."""
        for n in range(40):
            append(self.path, [Event(n, "state", "x" * LONGEST * 2) for _ in range(10)])
            self.assertLess(self.path.stat().st_size, MOST_BYTES + 11 * LONGEST)
        kept = read(self.path)
        self.assertEqual(kept[-1].time, 39)
        self.assertGreater(len(kept), 50)
        self.assertEqual(len(kept[0].text), LONGEST)

    def test_torn(self) -> None:
        """Lines that are no events are left out, and so is a half one at the end."""
        append(self.path, [Event(1, "state", "first")])
        with open(self.path, "ab") as file:
            file.write(b'[]\n{"time": "x", "kind": "a", "text": "b"}\n\xff\n{"time": 2, "kin')
        self.assertEqual(read(self.path), [Event(1, "state", "first")])

    def test_after_a_torn_line(self) -> None:
        """What comes after a line that a crash tore is not lost with it."""
        append(self.path, [Event(1, "state", "first")])
        with open(self.path, "ab") as file:
            file.write(b'{"time": 2, "kin')
        append(self.path, [Event(3, "state", "third")])
        self.assertEqual([event.time for event in read(self.path)], [1, 3])

    def test_note(self) -> None:
        """What a command did is noted with the time; that it cannot be is no error."""
        note(self.root, "promotion", "done")
        (event,) = read(self.path)
        self.assertEqual((event.kind, event.text), ("promotion", "done"))
        self.assertGreater(event.time, 1_700_000_000_000)
        blocked = Path(self.mktemp())
        blocked.write_text("no folder")
        note(blocked, "promotion", "done")
