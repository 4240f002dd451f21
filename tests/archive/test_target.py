"""What a person writes to say until when."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rmqha.archive.errors import shown_time
from rmqha.archive.target import RestoreTarget


class ParseTests(SynchronousTestCase):
    def test_offset(self) -> None:
        """A number alone is an offset, whatever its size."""
        for text, offset in (("0", 0), ("4096", 4096), ("1769860800000", 1769860800000)):
            self.assertEqual(RestoreTarget.parse(text), RestoreTarget(offset=offset))
            self.assertEqual(str(RestoreTarget.parse(text)), f"byte {offset}")

    def test_time(self) -> None:
        """A time has a zone, or is milliseconds that say so."""
        wanted = RestoreTarget(time=1769860800000)
        for text in (
            "1769860800000ms",
            "2026-01-31T12:00:00Z",
            "2026-01-31T14:00:00+02:00",
            "2026-01-31 12:00:00.000Z",
        ):
            self.assertEqual(RestoreTarget.parse(text), wanted)
        self.assertEqual(str(wanted), "2026-01-31T12:00:00.000Z")
        self.assertEqual(RestoreTarget.parse(str(wanted)), wanted)
        self.assertEqual(RestoreTarget.parse("2026-01-31T12:00:00.123Z").time, 1769860800123)

    def test_neither(self) -> None:
        """What is neither is refused, with what is allowed."""
        for text in ("", "-1", "١", "1h", "1769860800000MS", "yesterday", "9" * 19, "1.5"):
            with self.assertRaises(ValueError) as caught:
                RestoreTarget.parse(text)
            self.assertIn("milliseconds since 1970", str(caught.exception))
        with self.assertRaises(ValueError) as caught:
            RestoreTarget.parse("2026-01-31T12:00:00")
        self.assertIn("has no time zone", str(caught.exception))

    def test_shown(self) -> None:
        """A moment that no calendar has is shown as it is."""
        self.assertEqual(shown_time(0), "1970-01-01T00:00:00.000Z")
        self.assertEqual(shown_time(1 << 60), f"{1 << 60}ms")
        self.assertEqual(str(RestoreTarget()), "the end")
