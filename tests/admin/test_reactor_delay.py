"""How late the reactor is."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.admin.reactor_delay import LOOK, ReactorDelay


class ReactorDelayTests(SynchronousTestCase):
    def test_late(self) -> None:
        """A turn that took a second is seen as that, and the next look is at its time again."""
        clock = Clock()
        delay = ReactorDelay(clock)
        delay.start()
        clock.advance(LOOK)
        clock.advance(LOOK + 1.0)
        clock.advance(LOOK)
        self.assertEqual((delay.late.up_to((0.1, 1.0)), delay.late.longest), ([2, 3, 3], 1.0))

    def test_stopped(self) -> None:
        """A stop leaves nothing on the reactor, and stopping before a start is no error."""
        clock = Clock()
        delay = ReactorDelay(clock)
        delay.stop()
        delay.start()
        delay.stop()
        self.assertEqual(clock.getDelayedCalls(), [])
