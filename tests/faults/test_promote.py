"""A slave that becomes the master, by hand: after the master died, and planned."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from lab.harness import compare_stores
from lab.harness.nodes import NameServer, Node, until
from lab.harness.remote import Remote, commit, progress, send
from lab.harness.writer import Driver, Write
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.scan import scan
from rmqha.wire.log.record import decode
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.namesrv import BrokerNameRequest
from tests.faults.harness import BRISK, NOT_HELD, FaultTestCase, rounds

SIZE = 500


class PromotionTestCase(FaultTestCase):
    def rmqha(self, *arguments: str | Path, code: int = 0) -> str:
        """Run the command, and return what it printed."""
        return self.ended(*arguments, code=code).stdout

    def promote(self, slave: Node, *arguments: str | Path) -> dict[str, Any]:
        """Make its store a master's."""
        command = ("promote", slave.root, "--conf", slave.conf, *arguments, "--json")
        planned = json.loads(self.rmqha(*command, "--dry-run"))
        done: dict[str, Any] = json.loads(self.rmqha(*command))
        self.assertEqual(planned["end"], done["end"])
        self.tell(f"promoted: {done}")
        return done

    def as_master(self, slave: Node, old: Driver, **keys: Any) -> Driver:
        """Start the promoted store, with what clients were told of the old master."""
        new = Driver(
            self.folder,
            "master",
            "promoted",
            root=slave.root,
            history=old.history,
            **{**BRISK, "brokerRole": "SYNC_MASTER", **keys},
        )
        self._processes.append(new)
        return new.start()

    def as_slave(self, old: Node, new: Node, **keys: Any) -> Node:
        """Start the old master's store behind the new one."""
        slave = self.slave(
            new.address, "rejoined", root=old.root, haDivergencePolicy="truncate", **keys
        )
        return slave.start()

    def quarantined(self, node: Node) -> list[dict[str, Any]]:
        """The records that were cut off, as C{rmqha dump} reads them."""
        lines = [self.rmqha("dump", path, "--json").splitlines() for path in node.cuts]
        return [json.loads(line) for line in itertools.chain(*lines)]

    def serve(self, **keys: Any) -> tuple[NameServer, Node, Node, dict[str, Any]]:
        """A name server and a pair that knows it."""
        names = NameServer(self.folder)
        self._processes.append(names)
        names.start()
        told: dict[str, Any] = {
            **BRISK,
            "namesrvAddr": names.client_address,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            **keys,
        }
        master = Node(self.folder, "master", **{**told, "brokerRole": "SYNC_MASTER"})
        self._processes.append(master)
        slave = self.slave(master.address, **told)
        slave.launch()
        master.start()
        slave.until_synced(0)
        return names, master, slave, told


class UnplannedTests(PromotionTestCase):
    """The master is killed and its store comes back later, as a slave's."""

    def couple(self, die: str = "", **keys: Any) -> tuple[Driver, Node]:
        """A pair whose slave, which may die, asks its master where that ends: its copy is whole."""
        master = self.master(**keys)
        keys["haMasterClientAddress"] = f"127.0.0.1:{master.port}"
        if die:
            slave: Node = self.driven_slave(master.address, **keys)
            slave.die = [die]  # type: ignore[attr-defined]
        else:
            slave = self.slave(master.address, **keys)
        self.start_both(master, slave)
        slave.until_synced(0)
        return master, slave

    def killed(self, unreplicated: int) -> tuple[Driver, Node, list[Write]]:
        """A pair whose master is killed after writes of its own: both, ended, and those writes."""
        master, slave = self.couple(slaveTimeout=300)
        self.write(master, 200, size=SIZE)
        slave.until_synced(master.status()["maxOffset"])
        if unreplicated:
            slave.kill9()
        lost = (
            master.put(unreplicated, size=SIZE, concurrency=1 + unreplicated // 100).wait()
            if unreplicated
            else []
        )
        self.assertNotIn("PUT_OK", {write.status for write in lost})
        master.kill9()
        slave.kill9()
        return master, slave, lost

    def switch(self, unreplicated: int, written: int) -> None:
        """Promote, write some, let the old master rejoin, and compare everything."""
        old, slave, lost = self.killed(unreplicated)
        acked = list(old.history.acked)
        end = self.promote(slave)["end"]
        self.assertEqual(end, max(write.end for write in acked))
        new = self.as_master(slave, old)
        self.assertEqual(end, new.status()["epoch"]["start"])
        alone = new.put(written, size=SIZE + 1).wait() if written else []
        self.assertLessEqual({write.status for write in alone}, {"SLAVE_NOT_AVAILABLE"})
        rejoined = self.as_slave(old, new)
        rejoined.until_synced(new.status()["maxOffset"])
        found = self.quarantined(rejoined)
        self.assertEqual(
            [write.key for write in sorted(lost, key=lambda write: write.begin)],
            [record["properties"]["UNIQ_KEY"] for record in found],
        )
        more = self.write(new, 50)
        self.settle(new, rejoined, acked=acked + more)

    def test_nothing_lost(self) -> None:
        """All that the old master had is on the slave: nothing is cut anywhere."""
        self.switch(unreplicated=0, written=10)

    def test_ahead(self) -> None:
        """What only the old master had is cut off and kept, though the new one wrote nothing."""
        self.switch(unreplicated=7, written=0)

    def test_far_ahead(self) -> None:
        """F37: the same with thousands of messages."""
        self.switch(unreplicated=5000, written=100)

    def test_diverged(self) -> None:
        """The same when other messages have its place by now."""
        self.switch(unreplicated=7, written=20)

    def test_nobody_decides(self) -> None:
        """Without a policy the old master stops by name, and nothing it has is touched."""
        old, slave, _ = self.killed(7)
        self.promote(slave)
        new = self.as_master(slave, old)
        held = compare_stores.open_log(self.settings(old)).end
        rejoined = self.slave(new.address, "rejoined", root=old.root).start()
        self.assertEqual(held, rejoined.until_upstream("ahead", "diverged")["maxOffset"])
        self.assertEqual([], self.quarantined(rejoined))
        # Nobody counts one that stands apart.
        self.assertIn(new.put(1).wait()[0].status, NOT_HELD)

    def test_under_load(self) -> None:
        """Both are killed at any moment under load: every write that was acknowledged is on the
        new master, and on the old one again.
        """
        for number in rounds(1):
            master, slave = self.couple()
            burst = master.put(5000, size=SIZE, concurrency=16)
            after = self.random.randint(50, 1500)
            until(lambda: len(burst.writes) > after, "some writes")  # noqa: B023
            for node in self.random.sample([master, slave], 2):
                node.kill9()
            burst.wait()
            acked = list(master.history.acked)
            self.promote(slave)
            new = self.as_master(slave, master)
            rejoined = self.as_slave(master, new)
            rejoined.until_synced(new.status()["maxOffset"])
            more = self.write(new, 50)
            self.settle(new, rejoined, acked=acked + more)
            self.folder /= f"round-{number}"
            self.folder.mkdir()

    def test_torn(self) -> None:
        """The slave dies in the middle of a frame: what is half of it never becomes log."""
        die = f"frame-staged:{self.random.randint(20, 80)}"
        master, slave = self.couple(die=die)
        burst = master.put(2000, size=SIZE, concurrency=8)
        self.assertEqual(-9, slave.wait())
        master.kill9()
        burst.wait()
        done = self.promote(slave)
        new = self.as_master(slave, master)
        acked = list(master.history.acked)
        self.assertGreaterEqual(done["end"], max((write.end for write in acked), default=0))
        rejoined = self.as_slave(master, new)
        more = self.write_until_fed(new, rejoined)
        self.settle(new, rejoined, acked=acked + more)

    def write_until_fed(self, master: Driver, slave: Node) -> list[Write]:
        """Writes that are acknowledged, as soon as there is a replica."""
        # One that was ahead looks in sync to the master for a moment, then cuts its log.
        slave.until_upstream("in-sync")
        master.until(
            lambda status: any(row["state"] == "in-sync" for row in status["replicas"]), "a replica"
        )
        return self.write(master, 20)


class PlannedTests(PromotionTestCase):
    """Roles are changed on purpose, with clients there."""

    def stop_writes(self, names: NameServer, master: Node) -> None:
        """C{mqadmin wipeWritePerm} and C{mqadmin updateBrokerConfig -k brokerPermission -v 4}."""
        with Remote(names.port) as client:
            request = BrokerNameRequest(broker_name="broker-a")
            answer = client.ask(
                Command(code=RequestCode.WIPE_WRITE_PERM_OF_BROKER, ext=to_ext(request))
            )
            self.assertEqual(0, answer.code, answer)
        with Remote(master.port) as client:
            answer = client.ask(
                Command(code=RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
            )
            self.assertEqual(0, answer.code, answer)

    def test_switch(self) -> None:
        """A producer that never pauses loses nothing: it is refused for as long as it takes, and
        all that was acknowledged, before and after, is on both.
        """
        names, master, slave, told = self.serve()
        producer = Producer(master.port)
        until(lambda: producer.acked > 300, "some writes", tell=lambda: str(producer.said[-3:]))
        self.stop_writes(names, master)
        until(lambda: producer.refused > 20, "refusals", tell=lambda: str(producer.said[-3:]))
        end = master.status()["maxOffset"]
        slave.until_synced(end)
        self.assertEqual(end, master.status()["maxOffset"])
        with Remote(master.port) as client:
            self.assertEqual(0, client.ask(commit("Orders", "billing", 77)).code)
        for node in (master, slave):
            node.term()
        producer.stop()
        self.assertEqual(end, self.promote(slave, "--tables", master.root)["end"])
        self.rmqha("verify", slave.root, "--against", master.root)
        new = Node(
            self.folder,
            "master",
            "promoted",
            root=slave.root,
            **{**told, "brokerRole": "SYNC_MASTER"},
        )
        self._processes.append(new)
        new.start()
        rejoined = self.slave(new.address, "rejoined", root=master.root, **told).start()
        rejoined.until_synced(end)
        self.assertEqual([], self.quarantined(rejoined))
        parts = ("topics", "groups", "requestModes", "consumerOffsets", "delayOffsets")
        rejoined.until(
            lambda status: {status["metadata"][part]["state"] for part in parts} == {"adopted"},
            "its new master's tables",
        )
        with Remote(new.port) as client:
            # It asks its slaves for offsets before it serves.
            until(
                lambda: client.ask(progress("Orders", "billing")).ext.get("offset") == "77",
                "the group is where it was",
            )
        again = Producer(new.port, producer.next)
        until(lambda: again.acked > 100, "writes", tell=lambda: str(again.said[-3:]))
        again.stop()
        end = new.status()["maxOffset"]
        rejoined.until_synced(end)
        for node in (new, rejoined, names):
            node.term()
            self.assertEqual([], node.complaints(), node.tail())
        held = self.rmqha("dump", rejoined.root, "--topic", "Orders", "--json", "--body")
        numbers = {json.loads(line)["queueOffset"] for line in held.splitlines()}
        self.assertEqual(set(range(producer.acked + again.acked)), numbers)
        self.rmqha("verify", new.root, "--against", rejoined.root)
        self.rmqha("verify", new.root, "--deep", "--conf", new.conf)

    def test_without_stopping_writes(self) -> None:
        """A clean stop alone gives the slave everything, under load too: the ends are equal."""
        _, master, slave, _ = self.serve()
        producer = Producer(master.port)
        until(lambda: producer.acked > 300, "some writes", tell=lambda: str(producer.said[-3:]))
        master.term()
        producer.stop()
        end = compare_stores.open_log(self.settings(master)).end
        slave.until(lambda status: status["maxOffset"] == end, "all of it")
        slave.term()
        self.assertEqual(end, self.promote(slave)["end"])


class DelayedTests(PromotionTestCase):
    """F41: messages that wait while roles change."""

    LEVELS = 8

    def test_promoted(self) -> None:
        """All that waited arrive after the master's end, from the slave that took over; what comes
        twice had been delivered before.
        """
        keys = {"messageDelayLevel": " ".join(f"{n}s" for n in range(1, self.LEVELS + 1))}
        _, master, slave, told = self.serve(**keys)
        sent = [f"{number:05}".encode() for number in range(400)]
        with Remote(master.port) as client:
            commands = []
            for number, body in enumerate(sent):
                command = send("Later", body)
                command.ext["i"] = f"DELAY\x01{number % self.LEVELS + 1}\x02"
                commands.append(command)
            codes = {answer.code for answer in client.ask_all(commands)}
        self.assertEqual({0}, codes)
        self.passes(self.random.uniform(0.5, 4.0))
        master.kill9()
        slave.term()
        before = self.arrived(slave)
        done = self.promote(slave)
        self.assertEqual(self.LEVELS, done["delayLevels"])
        new = Node(
            self.folder,
            "master",
            "promoted",
            root=slave.root,
            **{**told, "brokerRole": "ASYNC_MASTER"},
        )
        self._processes.append(new)
        new.start()
        until(lambda: set(sent) <= set(self.arrived(new)), "all arrive", pause=0.3)
        new.term()
        found = Counter(self.arrived(new))
        self.assertEqual(set(sent), set(found))
        twice = {body for body, count in found.items() if count > 1}
        self.tell(f"{len(before)} before the promotion, {len(twice)} twice")
        self.assertLessEqual(twice, set(before))
        self.assertEqual(2 if twice else 1, max(found.values()))

    def arrived(self, node: Node) -> list[bytes]:
        """What a log holds of the topic."""
        settings = self.settings(node)
        log = OfflineLog(settings.root, settings.file_size)
        found = []
        for view, block in scan(log, log.min_offset, log.end):
            for offset in block.start.tolist():
                record = decode(view, offset - block.base, offset)
                if record.topic == "Later":
                    found.append(bytes(record.body))
        log.close()
        return found


class Producer:
    """Sends one message after the other to one queue, from a thread of its own; C{acked} counts
    those
    with everything that the master promises.
    """

    def __init__(self, port: int, first: int = 0) -> None:
        self.next = first
        self.acked = self.refused = 0
        self.said: list[int] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(port,), daemon=True)
        self._thread.start()

    def _run(self, port: int) -> None:
        try:
            with Remote(port) as client:
                while not self._ending.wait(0.001):
                    answer = client.ask(send("Orders", f"{self.next:06d}".encode()))
                    self.next += 1
                    self.said.append(answer.code)
                    if answer.code == 0:
                        self.acked += 1
                    else:
                        self.refused += 1
        except OSError:
            return  # the broker is stopped

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(30)
