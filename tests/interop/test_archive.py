"""An archive of a stock master's log, which believes any report it gets."""

from __future__ import annotations

import sys

from lab.harness.nodes import Process, until
from lab.stock.brokers import Broker
from rmqha.logfiles.offline_log import OfflineLog
from tests.interop.cases import InteropTestCase
from tests.interop.test_java_master import FILE, NOT_HELD, SYNC
from tests.support.commands import RMQHA, rmqha


class ArchiveTests(InteropTestCase):
    """Java SYNC master, our receiver."""

    roles = "Java master, our receiver of archives"

    def receive(self, broker: Broker, *args: str) -> Process:
        """Start it, and wait until it has opened its archive."""
        self.archive = self.folder / "archive"
        process = Process("receive", self.folder / "receive.log")
        self._processes.append(process)
        seen = len(process.log())
        host, port = broker.address
        source = ["--from", f"{host}:{port}", "--client-port", broker.client_address.split(":")[1]]
        process.spawn(
            [
                *(sys.executable, str(RMQHA), "receive", str(self.archive)),
                *(*source, "--log-interval", "1", *args),
            ]
        )
        until(lambda: "; checked " in process.log()[seen:], "an archive", tell=process.tail)
        return process

    def until_archived(self, broker: Broker, process: Process) -> None:
        """Wait until it has all that its master has."""
        until(
            lambda: f" to {broker.max_offset()}, " in process.log()[-300:],
            "all of it",
            tell=process.tail,
        )

    def test_archive(self) -> None:
        """Late reports acknowledge nothing, with C{kill -9} and new connections between them;
        synchronous ones do; the archive is the master's log.
        """
        broker = self.broker(role="SYNC_MASTER", **SYNC).start()
        self.tool.put(600, self.topic, size=4000, wait=False, tell=False).wait()
        self.assertGreater(broker.max_offset(), 2 * FILE)
        with self.scenario("SYNC: rmqha status names it by either port, and acknowledges nothing"):
            host, port = broker.address
            for address in (broker.client_address, f"{host}:{port}"):
                shown = rmqha("status", address, check=True)
                self.assertIn("answers: stock, no admin port", shown.stdout)
                sends = self.tool.put(3, self.topic, threads=3)
                sends.wait()
                self.assertLessEqual({sent.status for sent in sends.sent}, NOT_HELD, sends.sent)
        with self.scenario("SYNC: a receiver of archives acknowledges nothing, killed and not"):
            process = self.receive(broker)
            for _ in range(2):
                sends = self.tool.put(6, self.topic, threads=6)
                sends.wait()
                self.assertLessEqual({sent.status for sent in sends.sent}, NOT_HELD, sends.sent)
                process.kill9()
                process = self.receive(broker)
            self.until_archived(broker, process)
            self.assertEqual(0, process.term(), process.tail())
        with self.scenario("SYNC: a synchronous one is a replica"):
            process = self.receive(broker, "--synchronous")
            self.until_archived(broker, process)
            self.assertEqual({"SEND_OK": 50}, self.tool.put(50, self.topic).wait())
            self.until_archived(broker, process)
            self.assertEqual(0, process.term(), process.tail())
        with self.scenario("SYNC: rmqha clone has every byte, and the topics"):
            root = self.folder / "clone"
            rmqha("clone", broker.client_address, root, check=True)
            cloned = OfflineLog(root)
            self.assertEqual(broker.max_offset(), cloned.end)
            cloned.close()
            tables = (root / "config" / "topics.json").read_text(encoding="utf-8")
            self.assertIn(f'"{self.topic}"', tables)
        broker.stop()
        log = OfflineLog(self.archive)
        theirs = OfflineLog(broker.settings().root)
        self.assertEqual(log.end, theirs.end)
        copies = self.archive, self.folder / "clone"
        for path in sorted(path for root in copies for path in (root / "commitlog").iterdir()):
            other = broker.settings().commitlog / path.name[:20]
            size = min(log.end - int(path.name[:20]), FILE)
            self.assertEqual(path.read_bytes()[:size], other.read_bytes()[:size], path)
        log.close()
        theirs.close()
        self.assertEqual([], process.complaints(), process.tail())


class Archive4Tests(ArchiveTests):
    version = "4.9.7"


class Archive5Tests(ArchiveTests):
    version = "5.3.3"
