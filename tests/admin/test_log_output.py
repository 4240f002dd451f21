"""How the lines of the log look."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from pathlib import Path

from twisted.logger import ILogObserver, Logger
from twisted.trial.unittest import SynchronousTestCase

from rmqha.admin.log_output import LogThreshold, log_file, observer, written_to
from rmqha.config.settings import LogFormat, LogLevelName, LogSettings


class LogOutputTests(SynchronousTestCase):
    def lines(self, **settings: object) -> list[str]:
        """What four events come to."""
        out = io.StringIO()
        to: ILogObserver = written_to(out, LogSettings(**settings), "broker-a/0")
        log = Logger("rmqha.roles.node.MasterNode", observer=to)
        log.debug("every detail")
        log.info("{role} is {state}", role="master", state="serving")
        log.warn("two\nlines")
        try:
            raise ValueError("a bug")
        except ValueError:
            log.failure("it failed")
        Logger("twisted.application", observer=to).info("Server Shut Down.")
        return out.getvalue().splitlines()

    def test_threshold(self) -> None:
        """Another level is in force at once; a change to a quieter one is told before it."""
        out = io.StringIO()
        threshold = LogThreshold(LogLevelName.INFO)
        to = written_to(out, LogSettings(), "broker-a/0", threshold)
        self.patch(LogThreshold, "_log", Logger("rmqha.admin.log_output", observer=to))
        log = Logger("rmqha.roles.node", observer=to)
        for level in (LogLevelName.INFO, LogLevelName.WARN, LogLevelName.DEBUG):
            threshold.set(level)
            log.debug("detail at {least}", least=level.value)
            log.info("info at {least}", least=level.value)
            log.warn("warning at {least}", least=level.value)
        self.assertEqual(
            [
                "info at info",
                "warning at info",
                "The log has what is warn and above from here on",
                "warning at warn",
                "detail at debug",
                "info at debug",
                "warning at debug",
            ],
            [line.partition("] ")[2] for line in out.getvalue().splitlines()],
        )

    def test_text(self) -> None:
        """A line says when, how bad, on which node and about what; further ones are indented."""
        first, second, rest, *trace, last = self.lines()
        self.assertTrue(
            re.fullmatch(
                r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+0000 info     broker-a/0 \[roles\.node\] "
                "master is serving",
                first,
            ),
            first,
        )
        self.assertTrue(second.endswith("warn     broker-a/0 [roles.node] two"))
        self.assertEqual(rest, "\tlines")
        self.assertIn("critical broker-a/0 [roles.node] it failed", trace[0])
        self.assertIn("\tbuiltins.ValueError: a bug", trace)
        self.assertIn("[twisted.application] Server Shut Down.", last)

    def test_json(self) -> None:
        """For programs each event is one object, a traceback with it."""
        rows = [json.loads(line) for line in self.lines(format=LogFormat.JSON)]
        self.assertEqual(
            [(row["level"], row["topic"]) for row in rows],
            [
                ("info", "roles.node"),
                ("warn", "roles.node"),
                ("critical", "roles.node"),
                ("info", "twisted.application"),
            ],
        )
        self.assertEqual({row["node"] for row in rows}, {"broker-a/0"})
        self.assertEqual(rows[1]["text"], "two\nlines")
        self.assertIn("ValueError: a bug", rows[2]["text"])

    def test_level(self) -> None:
        """Below the level nothing is written."""
        self.assertEqual(len(self.lines(level=LogLevelName.DEBUG, format=LogFormat.JSON)), 5)
        self.assertEqual(len(self.lines(level=LogLevelName.WARN, format=LogFormat.JSON)), 2)
        self.assertEqual(len(self.lines(level=LogLevelName.CRITICAL, format=LogFormat.JSON)), 1)

    def test_bounded(self) -> None:
        """A file is turned over when it is full, and only so many old ones stay."""
        folder = Path(self.mktemp())
        folder.mkdir()
        settings = LogSettings(file_size=1000, old_files=2)
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
        file = log_file(settings, str(folder / "node.log"))
        self.addCleanup(file.close)
        log = Logger("rmqha.x", observer=written_to(file, settings, "a/0"))
        for n in range(100):
            log.info("line {n}", n=n)
        names = sorted(path.name for path in folder.iterdir())
        self.assertEqual(names, ["node.log", "node.log.1", "node.log.2"])
        self.assertLess(sum(path.stat().st_size for path in folder.iterdir()), 3300)

    def test_signal(self) -> None:
        """C{SIGUSR1} turns the file over before its next line."""
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        path = Path(self.mktemp())
        file = log_file(LogSettings(), str(path))
        self.addCleanup(file.close)
        file.write("one\n")
        os.kill(os.getpid(), signal.SIGUSR1)
        file.write("two\n")
        self.assertEqual(path.read_text(), "two\n")
        self.assertEqual(path.with_name(path.name + ".1").read_text(), "one\n")

    def test_to_a_file(self) -> None:
        """The file is the one that twistd was given."""
        path = Path(self.mktemp())
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
        Logger("rmqha.x", observer=observer(LogSettings(), "a/0", str(path))).info("hello")
        self.assertIn("a/0 [x] hello", path.read_text())
