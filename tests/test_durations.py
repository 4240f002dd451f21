"""How long things take."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rmqha.durations import BOUNDS, CREATE_BOUNDS, FINISH_BOUNDS, RPC_BOUNDS, SPAN, Durations


class DurationsTests(SynchronousTestCase):
    def test_classes(self) -> None:
        """They are shown in stock brokers' classes, which end at their upper bound."""
        durations = Durations()
        for seconds in (0.0, 0.0005, 0.002, 0.010, 0.04, 0.3, 7.0, 60.0):
            durations.add(seconds)
        self.assertEqual(
            durations.distribution(),
            "[<=0ms]:2 [0~10ms]:2 [10~50ms]:1 [50~100ms]:0 [100~200ms]:0 [200~500ms]:1 "
            "[500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:1 [10s~]:1 ",
        )
        self.assertEqual(durations.longest, 60.0)

    def test_shares(self) -> None:
        """A share's bound is right to a fifth, and never above the longest."""
        durations = Durations()
        self.assertEqual(durations.below(0.99), 0.0)
        for n in range(1000):
            durations.add(0.001 if n < 990 else 0.1)
        self.assertTrue(0.001 <= durations.below(0.99) <= 0.0012, durations.below(0.99))
        self.assertEqual(durations.below(0.999), 0.1)

    def test_spans(self) -> None:
        """What is older than two spans is not shown any more; the longest stays."""
        durations = Durations()
        durations.tick(0.0)
        durations.add(0.5)
        durations.tick(SPAN)
        self.assertGreater(durations.below(0.99), 0.4)
        durations.tick(SPAN + 1)
        self.assertGreater(durations.below(0.99), 0.4)
        durations.tick(2 * SPAN)
        self.assertEqual((durations.below(0.99), durations.longest), (0.0, 0.5))

    def test_since_the_start(self) -> None:
        """Histograms never shrink: they have every span, and a bound is part of its class."""
        durations = Durations()
        for minute, seconds in enumerate((0.001, 0.0011, 0.5, 99.0)):
            durations.tick(minute * SPAN)
            durations.add(seconds, 2)
        self.assertEqual(durations.up_to((0.001, 0.1, 1.0)), [2, 4, 6, 8])
        self.assertEqual(durations.up_to((60.0, 600.0)), [6, 8, 8])
        self.assertAlmostEqual(durations.total, 2 * (0.001 + 0.0011 + 0.5 + 99.0))
        for bounds in (BOUNDS, RPC_BOUNDS, CREATE_BOUNDS, FINISH_BOUNDS):
            self.assertEqual(durations.up_to(bounds)[-1], 8)
