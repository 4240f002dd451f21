"""The runbook that has a stock broker in it, as it is printed: docs/runbooks/stock-and-back.rst."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from lab.harness.nodes import Node, until
from lab.stock.brokers import Sent
from tests.interop.cases import InteropTestCase
from tests.support.runbooks import PORTS, Machine, RunbookTestCase, blocks

SCRIPT = """#!/bin/sh
touch {name}.asked
while [ ! -e {name}.done ]; do sleep 0.1; done
rm {name}.done
"""


class StockPairTests(InteropTestCase, RunbookTestCase):
    """A stock master gets a slave of ours, which becomes the master, and the slave again."""

    roles = "Java master, our slave; and in the other order"
    long = True

    def setUp(self) -> None:
        super().setUp()
        self.java = self.broker("java", role="ASYNC_MASTER").start()
        self.ended = threading.Event()
        self.addCleanup(self.ended.set)

    def script(self, folder: Path, name: str, act: Callable[[], None]) -> None:
        """A command on the stock broker's machine."""
        path = folder / name
        path.write_text(SCRIPT.format(name=path), encoding="ascii")
        path.chmod(0o755)
        asked, done = path.with_suffix(".asked"), path.with_suffix(".done")

        def wait() -> None:
            while not self.ended.wait(0.1):
                if asked.exists():
                    asked.unlink()
                    act()
                    done.touch()

        threading.Thread(target=wait, daemon=True).start()

    def start_java(self, role: str, node: Node) -> None:
        self.java.keys |= {"brokerRole": role, "brokerId": int(role == "SLAVE")}
        self.java.keys.pop("haMasterAddress", None)
        if role == "SLAVE" and self.version < "5":
            self.java.keys["haMasterAddress"] = "{}:{}".format(*node.address)
        self.java.launch()

    def traffic(self) -> list[Sent]:
        """Messages that whoever is master takes."""
        found: list[Sent] = []

        def taken() -> bool:
            sends = self.tool.put(20, self.topic, size=100)
            sends.wait()
            found.extend(sends.acked)
            return len(sends.acked) == 20

        until(taken, "they are acknowledged", 90, tell=self.tool.tail, pause=0.2)
        return found

    def test_stock_and_back(self) -> None:
        """The page, with messages that are sent before each of its steps and after the last."""
        behind, ours, back = blocks("stock-and-back.rst")
        node = Node(self.folder, "slave", "ours")
        machine = Machine(self.folder, node)
        self.addCleanup(machine.end)
        ssh = machine.bin / "ssh"
        ssh.write_text('#!/bin/sh\nshift; exec "$@"\n', encoding="ascii")
        ssh.chmod(0o755)
        self.script(machine.bin, "stop-broker", self.java.stop)
        self.script(machine.bin, "start-as-slave", lambda: self.start_java("SLAVE", node))
        self.script(machine.bin, "start-as-master", lambda: self.start_java("ASYNC_MASTER", node))
        names = self.names(
            node,
            **{
                "STOCK-HA": "{}:{}".format(*self.java.address),
                "STOCK": self.java.client_address,
                "OURS": f"127.0.0.1:{node.port}",
                "cd /etc/rmqha": f"cd {self.folder}",
                "broker.conf.before": f"{node.conf.name}.before",
                "mv broker.conf": f"mv {node.conf.name}",
                " broker.conf": f" {node.conf.name}",
            },
        )
        sent: list[Sent] = []
        for what, steps in (
            ("`rmqha clone` behind a stock master, as the runbook says", behind),
            ("`rmqha switchover` to ours, as the runbook says", ours),
            ("`rmqha switchover` back, as the runbook says", back),
        ):
            sent += self.traffic()
            with self.scenario(what):
                self.follow(machine, names, *steps)
            if steps is behind:
                # On a machine of its own it has the usual ones, which its file need not name.
                with open(node.conf, "a", encoding="ascii") as file:
                    file.writelines(f"{key}={node.keys[key]}\n" for key in PORTS)
        sent += self.traffic()
        end = self.java.max_offset()
        until(lambda: node.status()["confirmedOffset"] >= end, "ours has all", 60)
        machine.end()
        self.java.stop()
        self.assert_holds(self.java, sent)
        self.assert_holds(node, sent)


class StockPair4Tests(StockPairTests):
    version = "4.9.7"


class StockPair5Tests(StockPairTests):
    version = "5.3.3"
