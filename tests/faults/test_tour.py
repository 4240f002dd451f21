"""The tour, as it is printed, at any hour."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from lab.harness.nodes import until
from tests.faults.harness import FaultTestCase
from tests.support.runbooks import BIN

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "guide" / "tour.md"

NIGHT = 4 * 3600 + 120
"""Seconds of the day, two minutes into the hour of C{deleteWhen}."""

DAY = 13 * 3600


class TourTests(FaultTestCase):
    """Three terminals; the two nodes' are in the foreground.

    The page's ports and folder are others here: C{109xx} and C{98xx} are of C{self.ports}.
    """

    def setUp(self) -> None:
        """A hundred ports that are free."""
        super().setUp()
        self.ports = next(filter(_are_free, self.random.sample(range(150, 320), 100)))
        self.terminals: dict[int, subprocess.Popen[bytes]] = {}
        self.addCleanup(self._close)
        (self.folder / "home").mkdir()

    def _close(self) -> None:
        for terminal in self.terminals.values():
            terminal.kill()
            terminal.wait()
        names = self.folder / "tour" / "names.pid"
        if names.exists():  # a step failed: it is still there
            os.kill(int(names.read_text(encoding="ascii")), signal.SIGKILL)

    def test_at_night(self) -> None:
        """The files are of last year, and it is the hour in which old ones are deleted."""
        self.tour(NIGHT)

    def test_by_day(self) -> None:
        """It is one o'clock."""
        self.tour(DAY)

    def here(self, text: str) -> str:
        """What the page says, with this test's ports and folder."""
        text = re.sub(r"\b(?:109|98)(\d\d)\b", rf"{self.ports}\1", text)
        text = re.sub(r"rmqha status (?=[-# ])", f"rmqha status 127.0.0.1:{self.ports}14 ", text)
        text = text.replace("--role namesrv", f"--role namesrv --set listenPort={self.ports}76")
        return text.replace("/tmp/rmqha-tour", str(self.folder / "tour"))

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "COLUMNS": "400",
            "TZ": self.zone,
        }

    def foreground(self, number: int, command: str) -> Path:
        """Start a node in a terminal, and return what is seen there."""
        seen = self.folder / f"terminal-{number}-{time.monotonic_ns()}"
        with open(seen, "wb") as output:
            self.terminals[number] = subprocess.Popen(
                ["bash", "-c", f"exec {self.here(command)}"],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=CHECKOUT,
                env=self.environment(),
            )
        return seen

    def interrupt(self, number: int) -> None:
        self.terminals[number].send_signal(signal.SIGINT)
        self.terminals[number].wait(60)

    def do(self, commands: str) -> str:
        """In terminal 3: what is seen."""
        done = subprocess.run(
            ["bash", "-c", self.here(commands)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
            cwd=CHECKOUT,
            env=self.environment(),
        )
        sys.stdout.write(f"{commands}{done.stdout}\n")
        return done.stdout

    def state(self, ports: str, wanted: str) -> None:
        """Wait until a node's status says a word."""
        until(lambda: wanted in self.do(f"rmqha status 127.0.0.1:{ports}\n"), wanted, 60)

    def tour(self, second: int) -> None:
        """Each step of the page, and what it says that one sees, at a second of the local day."""
        zone = (time.time() - second) % 86_400
        self.zone = f"TOUR+{zone // 3600:02.0f}:{zone // 60 % 60:02.0f}"
        page = PAGE.read_text(encoding="utf-8").partition("## Read it with Spark")[0]
        steps = iter(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
        refusal, own = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
        self.assertIn("make setup", next(steps))
        self.do(next(steps))
        self.do(next(steps))
        master, slave = next(steps), next(steps)
        seen = self.foreground(1, master)
        self.until_said(seen, "bytes 0 to 2660709")
        self.foreground(2, slave)
        self.state("10924", "in-sync")
        self.send_and_consume(steps)
        self.assertIn("serving", self.do(next(steps)))
        self.do(next(steps))
        self.terminals[2].wait(60)
        self.foreground(2, slave)
        self.state("10924", "in-sync")
        compared = self.do(next(steps))
        for queue in range(3):
            self.assertIn(f"Tour/{queue}@0", compared)
        self.assertRegex(self.do(next(steps)), r"closedConnections.*ahead")
        loss = next(steps)
        self.lose_tail(loss)
        seen = self.foreground(1, master)
        self.until_said(seen, "Fetched 42975 bytes of the log's lost tail")
        self.state("10924", "in-sync")
        self.interrupt(2)
        self.lose_tail(loss)
        seen = self.foreground(1, master)
        self.assertNotEqual(0, self.terminals[1].wait(60))
        self.assertIn(self.here(refusal).strip(), seen.read_text(encoding="utf-8"))
        seen = self.foreground(1, f"{master.strip()} --repair")
        self.until_said(seen, "master is serving")
        self.foreground(2, slave)
        look = next(steps)
        until(lambda: self.here(own).strip() in " ".join(self.do(look).split()), "it has more", 60)
        self.assertRegex(self.do(next(steps)), r"130 records .*Tour: 3")
        self.interrupt(2)
        self.foreground(2, next(steps))
        self.state("10924", "in-sync")
        kept = self.do(next(steps))
        for queue in range(3):
            self.assertIn(f"Tour/{queue}@0", kept)
        self.interrupt(1)
        self.interrupt(2)
        self.do(next(steps))
        self.assertFalse((self.folder / "tour").exists())
        self.assertEqual([], list(steps))

    def send_and_consume(self, steps: Iterator[str]) -> None:
        """Three messages there and back."""
        self.assertEqual(3, self.do(next(steps)).count("OK"))
        said = self.do(next(steps))
        for body in ("one", "two", "three"):
            # Threads of the consumer print: the end of a line may come behind another's text.
            self.assertIn(body, said)

    def lose_tail(self, commands: str) -> None:
        """The master is killed, and its last file removed."""
        self.do(commands)
        self.terminals[1].wait(60)

    def until_said(self, seen: Path, text: str) -> None:
        """Wait for a line in a terminal."""
        until(lambda: text in seen.read_text(encoding="utf-8"), text, 60)


def _are_free(hundreds: int) -> bool:
    for number in (9, 10, 11, 12, 14, 19, 20, 21, 22, 24, 76, 79):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", hundreds * 100 + number)) == 0:
                return False
    return True
