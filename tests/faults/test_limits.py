"""F44 and F45: a copy at a limited rate, and keys that change under load."""

from __future__ import annotations

import os
import signal
import time

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.faults.harness import FaultTestCase, rounds, seconds

MIB = 1 << 20

#: Bytes a second, and how much of the limit may go in one piece before it is noticed.
RATE, PIECE = 2 * MIB, MIB


class RateTests(FaultTestCase):
    """F44: C{haMaxReceiveBytesPerSecond}."""

    def test_rate(self) -> None:
        """A slave that catches up takes as long as its limit says, and then follows at once."""
        master = self.master().start()
        gap = int(seconds(6 * MIB, 60 * MIB))
        bodies = gap // 16_000
        master.put(bodies, size=16_000, concurrency=16).wait()
        end = master.status()["maxOffset"]
        slave = self.slave(master.address, haMaxReceiveBytesPerSecond=RATE)
        begun = time.monotonic()
        slave.start().until_synced(end, 60 + 3 * gap / RATE)
        took = time.monotonic() - begun
        self.tell(f"{end / MIB:.1f} MiB at {RATE / MIB:.0f} MiB/s in {took:.1f} s")
        self.assertGreater(took, 0.9 * (end - PIECE) / RATE)
        self.write(master, 50)
        self.settle(master, slave)


class ChangedKeysTests(FaultTestCase):
    """F45: C{mqadmin updateBrokerConfig} while clients write, and a file that is read again."""

    def test_hundred_changes(self) -> None:
        """Good changes hold, bad ones change nothing, and no connection is lost by either."""
        master, slave = self.pair()
        before = slave.status()["upstream"]
        burst = master.put(1_000_000, concurrency=8, rate=1000)
        until(lambda: len(burst.writes) > 20, "writes", tell=master.tail)
        with Remote(master.port) as client:
            for number in rounds(100):
                good = self.random.random() < 0.5
                text = f"registerNameServerPeriod={10_000 + number}\n"
                if not good:
                    text += self.random.choice(
                        ["registerNameServerPeriod=soon\n", "listenPort=20911\n", "noSuchKey=1\n"]
                    )
                held = self.key(client, "registerNameServerPeriod")
                answer = client.ask(
                    Command(code=RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
                )
                self.assertEqual(good, answer.code == 0, answer)
                self.assertEqual(
                    str(10_000 + number) if good else held,
                    self.key(client, "registerNameServerPeriod"),
                )
        master.enough()
        statuses = {write.status for write in burst.wait()}
        self.assertEqual({"PUT_OK"}, statuses, master.tail())
        self.assertEqual(before["reconnects"], slave.status()["upstream"]["reconnects"])
        self.settle(master, slave)

    def test_hang_up(self) -> None:
        """SIGHUP has a node read its file again: what changed is in force and in the log; a file
        with a mistake changes nothing; the process goes on.
        """
        node = Node(self.folder, "master", "alone", fileReservedTime=72)
        self._processes.append(node)
        node.start()
        pid = node.pid
        for value, said in (
            ("48", "A reload of the configuration changed fileReservedTime from 72 to 48"),
            ("soon", "All settings stay as they are: "),
        ):
            node.keys["fileReservedTime"] = value
            node.write_conf()
            os.kill(pid, signal.SIGHUP)
            until(lambda said=said: said in node.log(), said, tell=node.tail)
            with Remote(node.port) as client:
                self.assertEqual("48", self.key(client, "fileReservedTime"))
        self.assertEqual((pid, "serving"), (node.pid, node.status()["state"]))
        node.term()

    def key(self, client: Remote, name: str) -> str:
        """A key as the broker has it now."""
        answer = client.ask(Command(code=RequestCode.GET_BROKER_CONFIG))
        lines = bytes(answer.body).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)[name]
