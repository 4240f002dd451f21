"""The edges of a node's health in its log."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rmqha.admin.health_log import LOOK, HealthLog
from rmqha.health import HealthProbe, HealthReason


class HealthLogTests(SynchronousTestCase):
    """What is logged when reasons come, stay and go."""

    def setUp(self) -> None:
        """A node that is well, and is looked at."""
        self.clock = Clock()
        self.wrong: list[HealthReason] = []
        self.lines: list[tuple[str, str]] = []
        globalLogPublisher.addObserver(self.note)
        self.addCleanup(globalLogPublisher.removeObserver, self.note)
        self.log = HealthLog(lambda: self.wrong, self.clock)
        self.log.start()

    def note(self, event: LogEvent) -> None:
        line = formatEvent(event)
        if "ealthy" in line:
            self.lines.append((event["log_level"].name, line))

    def told(self, *wrong: HealthReason, looks: int = 1) -> list[tuple[str, str]]:
        """@return: What is logged while this is wrong."""
        self.wrong = list(wrong)
        self.lines = []
        for _ in range(looks):
            self.clock.advance(LOOK)
        return self.lines

    def test_edges(self) -> None:
        """A line when a reason begins and one when it is over, however its numbers change."""
        self.assertEqual(self.told(looks=3), [])
        self.assertEqual(
            self.told(HealthReason("no-master", "60 s")), [("warn", "Unhealthy: no-master: 60 s")]
        )
        for n in range(61, 100):
            self.assertEqual(self.told(HealthReason("no-master", f"{n} s")), [])
        self.assertEqual(self.told(), [("info", "Healthy again: no-master is over after 40 s")])
        self.assertEqual(self.told(looks=3), [])

    def test_several(self) -> None:
        """Each reason has its own lines."""
        twin = HealthReason("twin", "b")
        self.told(HealthReason("no-master", "a"))
        self.assertEqual(
            self.told(HealthReason("no-master", "a"), twin), [("warn", "Unhealthy: twin: b")]
        )
        self.assertEqual(self.told(twin), [("info", "Healthy again: no-master is over after 2 s")])

    def test_told_elsewhere(self) -> None:
        """What has lines of its own has none here, nor has what only other probes fail for."""
        told = HealthReason("failed", "a", told=True)
        unready = HealthReason("first-copy", "b", fails=HealthProbe.READY)
        self.assertEqual((self.told(told, unready, looks=2), self.told()), ([], []))

    def test_stopped(self) -> None:
        """A node that stops says nothing more."""
        self.log.stop()
        self.assertEqual(self.told(HealthReason("no-master", "a"), looks=3), [])
