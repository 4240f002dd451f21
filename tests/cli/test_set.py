"""C{rmqha set}; with real etcd it is tried in C{tests/faults/test_etcd.py}."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lab.harness.ports import free_ports
from tests.cli.command import CommandTestCase
from tests.support.effort import slow


class SetTests(CommandTestCase):
    """What it says where there is nobody to ask."""

    def conf(self, *lines: str) -> Path:
        """A configuration."""
        path = Path(self.mktemp())
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    def test_no_set(self) -> None:
        """The file has to be that of a member."""
        said = self.fails(1, "set", "members", self.conf("brokerName=a"))
        self.assertIn("has no enableControllerMode=true", said)

    @slow
    def test_nobody(self) -> None:
        """Without an answer it is said who was asked, of either kind."""
        (port,) = free_ports(1)
        program = Path(sys.executable).with_name("rmqha")
        for kind, key, command in (
            ("etcd", "etcdAddresses", ["elect", "--id", "2"]),
            ("rocketmq", "controllerAddr", ["members"]),
        ):
            mode = ("enableControllerMode=true", f"controllerType={kind}")
            conf = self.conf(*mode, f"{key}=127.0.0.1:{port}")
            done = subprocess.run(
                [str(program), "set", *command, str(conf)],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(f"127.0.0.1:{port}", done.stderr)
