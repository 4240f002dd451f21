"""What happens in the pictures: writes that come and go, a slave that does not answer for a moment,
consumers that are behind, a stranger at the HA port, and a request that nothing here serves.
"""

from __future__ import annotations

import math
import signal
import socket
import time

from attrs import define, field

from lab.cluster.members import Cluster, Member
from lab.harness.nodes import until
from lab.harness.remote import Remote, commit, send
from rmqha.wire.remoting.command import Command

STEP = 0.2
"""Seconds between two handfuls of messages."""

BODY = b"x" * 600

AWAY = 6.0
"""Seconds for which a slave does not answer: twice the patience of a SYNC write."""

UNSERVED = 9999
"""A request code that nothing serves."""


@define
class Scene:
    """A cluster at work, for some seconds."""

    cluster: Cluster
    seconds: float
    _sent: dict[tuple[str, int], int] = field(factory=dict, init=False)

    def member(self, name: str) -> Member:
        return next(each for each in self.cluster.members if each.name == name)

    def play(self) -> None:
        for name in ("broker-a", "broker-b"):
            until(lambda name=name: self._in_sync(name), f"{name} has its slave")
        begun = time.monotonic()
        paused = back = False
        links = {
            topic: Remote(self.member(name).ports["clients"])
            for topic, name in (("Orders", "broker-a"), ("Payments", "broker-b"))
        }
        self._stranger()
        links["Orders"].ask(Command(code=UNSERVED))
        while (passed := time.monotonic() - begun) < self.seconds:
            wave = 2 + math.sin(passed / 40) + math.sin(passed / 11) / 2
            self._write(links["Orders"], "Orders", round(4 * wave))
            self._write(links["Payments"], "Payments", round(2 * wave))
            slave = self.member("broker-b-s").process
            if not paused and passed > self.seconds / 2:
                slave.signal(signal.SIGSTOP)
                paused, gone = True, time.monotonic()
            if paused and not back and time.monotonic() - gone > AWAY:
                slave.signal(signal.SIGCONT)
                back = True
            self._consume(links, passed)
            time.sleep(STEP)
        for link in links.values():
            link.close()

    def _in_sync(self, name: str) -> bool:
        status = self.member(name).status() or {}
        return "in-sync" in [row["state"] for row in status.get("replicas", ())]

    def _write(self, link: Remote, topic: str, count: int) -> None:
        for number in range(count):
            queue = number % 4
            link.ask(send(topic, BODY, queue))
            self._sent[topic, queue] = self._sent.get((topic, queue), 0) + 1

    def _consume(self, links: dict[str, Remote], passed: float) -> None:
        for group, topic, share in (
            ("billing", "Orders", 0.98),
            ("reporting", "Orders", 0.7),
            ("ledger", "Payments", 0.9),
        ):
            for queue in range(4):
                done = int(self._sent.get((topic, queue), 0) * share)
                links[topic].ask(commit(topic, group, done, queue))

    def _stranger(self) -> None:
        master = self.member("broker-a")
        with socket.create_connection(("127.0.0.1", master.ports["slaves"])) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            until(
                lambda: (master.status() or {}).get("closedConnections"),
                "the stranger is sent away",
            )
