"""Who may connect, how fast bytes may pass, and how often we complain."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.allowed_peers import Allowed
from rmqha.net.rate_limit import LEAST_BURST, Speed, TokenBucket
from rmqha.net.rate_limited_log import MOST_PEERS, RateLimitedLog


class AllowedTests(SynchronousTestCase):
    def test_empty(self) -> None:
        """No list permits everybody, even who has no address."""
        for peer in ("10.0.0.1", "::1", "somebody"):
            self.assertTrue(Allowed(()).permits(peer))

    def test_networks(self) -> None:
        """Addresses and networks of both versions, IPv4 in IPv6 and zones included."""
        allowed = Allowed(map(ip_network, ("10.1.0.0/16", "192.0.2.7", "fe80::/10")))
        for peer in ("10.1.255.1", "192.0.2.7", "::ffff:10.1.0.1", "fe80::1%eth0"):
            self.assertTrue(allowed.permits(peer), peer)
        for peer in ("10.2.0.1", "192.0.2.8", "::ffff:10.2.0.1", "::1", "", "localhost"):
            self.assertFalse(allowed.permits(peer), peer)


class TokenBucketTests(SynchronousTestCase):
    def test_no_limit(self) -> None:
        """Rate 0 never waits."""
        self.assertEqual(TokenBucket(0, Clock()).take(1 << 40), 0.0)

    def test_burst(self) -> None:
        """After a rest a tenth of a second's bytes, at least 64 KiB, pass at once, never more."""
        for rate, burst in ((10_000_000, 1_000_000), (1000, LEAST_BURST)):
            clock = Clock()
            bucket = TokenBucket(rate, clock)
            for _ in range(2):
                self.assertEqual(bucket.take(burst), 0.0)
                self.assertAlmostEqual(bucket.take(rate), 1.0)
                clock.advance(1000.0)

    def test_partial_wait(self) -> None:
        """Taking nothing tells how long is still to wait."""
        clock = Clock()
        bucket = TokenBucket(1_000_000, clock)
        self.assertAlmostEqual(bucket.take(600_000), 0.5)
        clock.advance(0.2)
        self.assertAlmostEqual(bucket.take(0), 0.3)

    @given(
        st.integers(1, 1 << 30),
        st.lists(st.integers(0, 1 << 22), max_size=50),
        st.lists(st.floats(0, 10), max_size=50),
    )
    def test_average_holds(self, rate: int, counts: list[int], rests: list[float]) -> None:
        """Whoever waits as told never passes more than rate times time plus one burst, however it
        rests in between, plus what was taken last.
        """
        clock = Clock()
        bucket = TokenBucket(rate, clock)
        burst = max(rate / 10, LEAST_BURST)
        passed = 0.0
        for place, count in enumerate(counts):
            clock.advance(rests[place] if place < len(rests) else 0.0)
            self.assertLessEqual(passed, rate * clock.seconds() + burst + 1)
            passed += count
            clock.advance(bucket.take(count))


class SpeedTests(SynchronousTestCase):
    def test_last_second(self) -> None:
        """It is what passed in the last whole second, and nothing a second later."""
        clock = Clock()
        speed = Speed(clock)
        for size in (10, 20):
            speed.count(size)
            clock.advance(0.5)
        self.assertEqual(speed.last(), 30)
        speed.count(5)
        self.assertEqual(speed.last(), 30)
        clock.advance(1)
        self.assertEqual(speed.last(), 5)
        clock.advance(1)
        self.assertEqual(speed.last(), 0)

    def test_pause(self) -> None:
        """After a pause there is nothing of the time before it."""
        clock = Clock()
        speed = Speed(clock)
        speed.count(10)
        clock.advance(7)
        self.assertEqual(speed.last(), 0)
        speed.count(3)
        clock.advance(1)
        self.assertEqual(speed.last(), 3)


class QuietTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.events: list[Any] = []
        self.quiet = RateLimitedLog(Logger("test", observer=self.events.append), self.clock)

    def complain(self, cause: str = "garbage", peer: str = "10.0.0.1") -> bool:
        return self.quiet.warn(cause, peer, "Dropped {peer}: {error}", error="bad")

    def lines(self) -> list[str]:
        return [formatEvent(event) for event in self.events]

    def test_once_a_second(self) -> None:
        """Of many complaints one is written at once, one a second later with the rest's number."""
        self.assertTrue(self.complain())
        for _ in range(500):
            self.assertFalse(self.complain())
        self.clock.advance(1.0)
        self.assertTrue(self.complain())
        self.clock.advance(1.0)
        self.assertTrue(self.complain())
        plain = "Dropped 10.0.0.1: bad"
        self.assertEqual(self.lines(), [plain, plain + " (500 more like it were held back)", plain])

    def test_told_apart(self) -> None:
        """Another cause or another peer is another line."""
        for cause, peer in (("a", "1"), ("a", "2"), ("b", "1"), ("a", "1")):
            self.complain(cause, peer)
        self.assertEqual(len(self.events), 3)

    def test_sweep(self) -> None:
        """A sweep tells what was held back when nothing followed, and only once."""
        for _ in range(10_000):
            self.complain()
        self.quiet.sweep()
        self.assertEqual(len(self.events), 1)
        self.clock.advance(1.5)
        self.quiet.sweep()
        self.quiet.sweep()
        self.assertEqual(
            self.lines()[1:], ["Held back 9999 more log lines about 10.0.0.1: garbage"]
        )

    def test_flush(self) -> None:
        """At a stop everything is told at once."""
        self.complain()
        self.complain()
        self.quiet.flush()
        self.assertEqual(len(self.events), 2)

    def test_many_peers(self) -> None:
        """Memory and lines stay bounded: late peers share an entry, quiet ones are forgotten."""
        for number in range(3 * MOST_PEERS):
            self.complain(peer=f"peer {number}")
        self.assertLessEqual(len(self.events), MOST_PEERS + 1)
        self.clock.advance(2.0)
        self.assertTrue(self.complain(peer="peer 60000"))
        self.assertEqual(len(self.events), MOST_PEERS + 3)
        self.assertIn("Held back", self.lines()[-2])
