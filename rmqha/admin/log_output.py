"""Where a node's log goes, and how its lines look: for people, or an object of JSON each.

Twisted's own lines have the class that logs; here they have the level and the node, for who reads
the logs of several.  A file is turned over when it is full, and so many old ones are kept.

Source: docs/status.rst, Log.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from typing import IO, Any

from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    Logger,
    LogLevel,
    LogLevelFilterPredicate,
    eventAsText,
    formatTime,
)
from twisted.python.logfile import LogFile

from rmqha.config.settings import LogFormat, LogLevelName, LogSettings

OURS = "rmqha."
LEGACY = "log_legacy"
"""Where events are from that Twisted writes in its old way."""


class LogThreshold:
    """C{logLevel} as it is now: below it nothing is logged.

    @ivar node: Who logs, if it is another one than at the start.
    """

    _log = Logger()
    node = ""

    def __init__(self, level: LogLevelName) -> None:
        self._level = level
        self.predicate = LogLevelFilterPredicate(LogLevel.lookupByName(level.value))

    def set(self, level: LogLevelName) -> None:
        """Log from another level on.  Of one that hides more this tells before: what tells who has
        changed it may be hidden already.
        """
        if level is self._level:
            return
        self._log.info("The log has what is {least} and above from here on", least=level.value)
        self._level = level
        self.predicate.setLogLevelForNamespace("", LogLevel.lookupByName(level.value))


def observer(
    settings: LogSettings, node: str, path: str, threshold: LogThreshold | None = None
) -> ILogObserver:
    """What twistd is to log with.

    @param node: Who logs.
    @param path: The file, C{--logfile}; empty or C{-} is stdout.
    @param threshold: For a level that may change.
    """
    out: Any = sys.stdout if path in ("", "-") else log_file(settings, path)
    return written_to(out, settings, node, threshold)


def written_to(
    out: IO[str], settings: LogSettings, node: str, threshold: LogThreshold | None = None
) -> ILogObserver:
    """Write what is logged somewhere."""
    form: Callable[[LogEvent, str], str] = _json if settings.format is LogFormat.JSON else _text
    known = threshold = threshold or LogThreshold(settings.level)
    plain = FileLogObserver(out, lambda event: form(event, known.node or node))
    filtered: ILogObserver = FilteringLogObserver(plain, [threshold.predicate])
    return filtered


class NodeLogFile(LogFile):
    """A file that is turned over when it is full, and before the next line when somebody wants
    that.
    """

    wanted = False

    def write(self, data: str) -> None:
        if self.wanted:
            self.wanted = False
            self.rotate()  # type: ignore[no-untyped-call]
        super().write(data)  # type: ignore[no-untyped-call]

    def turn_over(self, *_: object) -> None:
        """What C{SIGUSR1} does, as with a file of twistd's own."""
        self.wanted = True


def log_file(settings: LogSettings, path: str) -> NodeLogFile:
    """The file of a node."""
    file: NodeLogFile = NodeLogFile.fromFullPath(  # type: ignore[no-untyped-call]
        path, rotateLength=settings.file_size, maxRotatedFiles=settings.old_files
    )
    if not signal.getsignal(signal.SIGUSR1):
        signal.signal(signal.SIGUSR1, file.turn_over)
    return file


def topic_of(event: LogEvent) -> str:
    """What an event is about: the module that logs, without its class."""
    namespace = str(event.get("log_namespace") or "-").removeprefix(OURS)
    if namespace == LEGACY:
        return "twisted"
    return ".".join(part for part in namespace.split(".") if not part[:1].isupper())


def _said(event: LogEvent) -> tuple[str, str, str]:
    level = event.get("log_level")
    text = eventAsText(event, includeTimestamp=False, includeSystem=False)
    return formatTime(event.get("log_time")), level.name if level else "info", text


def _text(event: LogEvent, node: str) -> str:
    when, level, text = _said(event)
    lines = text.replace("\n", "\n\t")
    return f"{when} {level:<8} {node} [{topic_of(event)}] {lines}\n" if text else ""


def _json(event: LogEvent, node: str) -> str:
    when, level, text = _said(event)
    row = {"time": when, "level": level, "node": node, "topic": topic_of(event), "text": text}
    return json.dumps(row, ensure_ascii=False) + "\n" if text else ""
