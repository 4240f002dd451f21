"""What is logged during a test."""

from __future__ import annotations

from typing import Any

from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase, TestCase


def log_events(case: SynchronousTestCase | TestCase) -> list[Any]:
    """The events from now on."""
    events: list[Any] = []
    globalLogPublisher.addObserver(events.append)
    case.addCleanup(globalLogPublisher.removeObserver, events.append)
    return events


def log_lines(
    case: SynchronousTestCase | TestCase, *, least: Any = LogLevel.debug, namespace: str = ""
) -> list[str]:
    """The lines from now on, of a level at least, and of all namespaces by default."""
    lines: list[str] = []

    def observe(event: Any) -> None:
        if event["log_level"] >= least and namespace in ("", event.get("log_namespace")):
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    case.addCleanup(globalLogPublisher.removeObserver, observe)
    return lines
