"""Pages of docs/runbooks, followed as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lab.harness.nodes import Node, until
from tests.support.commands import BIN

PAGES = Path(__file__).parents[2] / "docs" / "runbooks"

SYSTEMCTL = """#!/bin/sh
stop() {{
    pid=$(cat {pid}); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done
}}
start() {{
    setsid {python} {opt}/bin/twistd -n --pidfile {pid} rmqha --conf {conf} {ports} >>{log} 2>&1 &
}}
case "$1" in
    restart) stop; start;;
    reload) kill -HUP $(cat {pid}); sleep 1;;
    *) $1;;
esac
"""
"""What systemd does for the one node of a machine."""

JOURNALCTL = """#!/bin/sh
tail -n 20 {log}
"""

PORTS = ("listenPort", "haListenPort", "adminListenPort")
"""Of a machine of its own they are the usual ones."""


PROGRESS = re.compile(r"[\d.]+ \w+ of [\d.]+ \w+ are copied")
"""What a copy that takes its time says now and then; how often depends on the machine."""


def lines_of(seen: str) -> list[str]:
    """What a command said in the end."""
    lines = [line.rstrip() for line in seen.splitlines() if line.strip()]
    return [line for line in lines if not PROGRESS.fullmatch(line)]


def blocks(page: str) -> Iterator[list[tuple[str, list[str]]]]:
    """The blocks of a page: commands, each with the lines that one sees."""
    text = (PAGES / page).read_text(encoding="utf-8")
    for block in re.findall(r"\.\. code-block:: console\n\n((?:   .*\n|\n)+)", text):
        found: list[tuple[str, list[str]]] = []
        for line in filter(None, (line[3:] for line in block.splitlines())):
            if line.startswith("# "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
        yield found


class Machine:
    """Where a node runs whose file, store and unit have the names of the pages."""

    def __init__(self, folder: Path, node: Node) -> None:
        self.node = node
        self.pid = folder / f"{node.name}.unit.pid"
        self.opt = folder / f"{node.name}-opt"
        self.opt.symlink_to(BIN.parent)
        self.bin = folder / f"{node.name}-bin"
        self.bin.mkdir()
        for name, script in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
            path = self.bin / name
            path.write_text(
                script.format(
                    pid=self.pid,
                    python=sys.executable,
                    opt=self.opt,
                    conf=node.conf,
                    log=folder / f"{node.name}.unit.log",
                    ports=" ".join(f"--set {key}={node.keys[key]}" for key in PORTS),
                ),
                encoding="ascii",
            )
            path.chmod(0o755)

    def run(self, command: str, names: dict[str, str]) -> str:
        """Run a line of a page, and return what is seen."""
        for name, here in names.items():
            command = command.replace(name, here)
        done = subprocess.run(
            ["bash", "-c", command],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            cwd=self.bin,
            env={**os.environ, "PATH": f"{self.bin}:{BIN}:{os.environ['PATH']}", "COLUMNS": "200"},
        )
        seen = done.stdout
        for name, here in names.items():
            seen = seen.replace(here, name)
        # A node without a replica is unhealthy, and damage is what a check is for.
        checks = ("rmqha status", "rmqha verify", "rmqha diverge", "rmqha doctor")
        may_fail = command.startswith(checks)
        assert done.returncode in ((0, 1) if may_fail else (0,)), seen
        return seen

    def end(self) -> None:
        if self.pid.exists():
            subprocess.run([self.bin / "systemctl", "stop"], check=True, timeout=60)


class RunbookTestCase(SynchronousTestCase):
    """Tests that follow a page in a folder."""

    folder: Path

    def machine(self, node: Node) -> Machine:
        made = Machine(self.folder, node)
        self.addCleanup(made.end)
        return made

    def names(self, node: Node, **more: str) -> dict[str, str]:
        """What the names of a page are on a machine."""
        return {
            "/etc/rmqha/broker.conf": str(node.conf),
            "/var/lib/rmqha": str(node.root),
            "rmqha status": f"rmqha status 127.0.0.1:{node.admin_port}",
            "rmqha doctor": f"rmqha doctor 127.0.0.1:{node.admin_port}",
            "rmqha slots": f"rmqha slots 127.0.0.1:{node.admin_port}",
            **more,
        }

    def follow(
        self, machine: Machine, names: dict[str, str], *steps: tuple[str, list[str]]
    ) -> None:
        """Do what a page says, and see what it says."""
        for command, wanted in steps:
            if command == "rmqha status" and "serving" in "".join(wanted):
                self.until_serving(machine.node, in_sync="in-sync" in "".join(wanted))
            seen = machine.run(command, names)
            sys.stdout.write(f"# {command}\n{seen}\n")
            pattern = "".join(
                r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
                for line in wanted
            )
            self.assertRegex("\n".join([*lines_of(seen), ""]), rf"\A{pattern}\Z", command)

    def until_serving(self, node: Node, *, in_sync: bool) -> None:
        """Wait until a node serves, and is in sync."""

        def serves() -> bool:
            try:
                status = node.status()
            except OSError:
                return False
            upstream = (status.get("upstream") or {}).get("state")
            return status["state"] == "serving" and (not in_sync or upstream == "in-sync")

        until(serves, "it serves", 60)
