"""Tests for L{rmqha.wire.log.delay_levels}."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import BadValue
from rmqha.wire.log.delay_levels import DelayLevels, delay_level

STOCK = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class DelayLevelsTests(SynchronousTestCase):
    def test_stock_levels(self) -> None:
        """The stock configuration has 18 levels from a second to two hours."""
        levels = DelayLevels.parse(STOCK)
        self.assertEqual((levels.count, levels.deliver_time(1, 0)), (18, 1000))
        self.assertEqual(levels.deliver_time(18, 5), 7_200_005)

    def test_stock_record(self) -> None:
        """The stock record of level 3 is due ten seconds after it was stored."""
        self.assertEqual(DelayLevels.parse(STOCK).deliver_time(3, 0x1A1F880ED25), 0x1A1F8811435)

    def test_days(self) -> None:
        """A day is a unit too."""
        self.assertEqual(DelayLevels.parse("2d").deliver_time(1, 0), 172_800_000)

    def test_too_high_a_level(self) -> None:
        """A level above the highest one is the highest."""
        levels = DelayLevels.parse("1s 1m")
        self.assertEqual((levels.deliver_time(99, 0), levels.level(b"99")), (60_000, 2))

    def test_no_level(self) -> None:
        """What is no level counts as a second, and asks for no delay."""
        levels = DelayLevels.parse("5s")
        self.assertEqual(levels.deliver_time(0, 7), 1007)
        for text in (None, b"", b"0", b"-3", b"x", b"1_0", b" 1", b"9" * 30):
            self.assertEqual(levels.level(text), 0)

    def test_number(self) -> None:
        """A level is a decimal number with or without a sign."""
        self.assertEqual([delay_level(text) for text in (b"3", b"+3", b"-3")], [3, 3, -3])

    def test_bad_levels(self) -> None:
        """Anything but numbers with a unit, separated by single blanks, is refused."""
        for text in ("", "1", "s", "1s  2s", "1x", "1.5s", "-1s", " 1s", "1s ", "²s"):
            with self.assertRaises(BadValue) as caught:
                DelayLevels.parse(text)
            self.assertEqual(caught.exception.key, "messageDelayLevel")
