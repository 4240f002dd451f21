"""What all fault tests share: a pair of nodes, a seed, and what must hold in the end."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import compare_stores
from lab.harness.evidence import evidence
from lab.harness.nodes import Folder, Node, Process, until
from lab.harness.proxy import Proxy
from lab.harness.remote import Remote, pull, records
from lab.harness.writer import Driver, Write
from rmqha.config.store_settings import StoreSettings
from rmqha.ha.promotion import promote
from rmqha.wire.log.record import Record
from rmqha.wire.remoting.codes import ResponseCode
from tests.support.commands import rmqha

#: How often the random tests are repeated, times what is quick: 1 is for every day.
ROUNDS = float(os.environ.get("RMQHA_FAULT_ROUNDS", "1"))

#: Quick to come back, so that a test has little to wait for.
BRISK: dict[str, object] = {"haReconnectBackoffMax": 200}

#: Silence that ends a connection, in seconds, and the key that says so.
HOUSEKEEPING = 2.0
SOON_SILENT = {"haHousekeepingInterval": 2000}

#: What a sweep, a tick and a busy machine may add to it, in seconds.
SLACK = 2.5

#: What a write is told that no replica holds: at once, or while one that is not counted asks again.
NOT_HELD = {"SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"}

#: How often something is timed that other work on the machine may slow down.
TRIES = 3


def rounds(quick: int) -> range:
    """Repetitions: C{quick} of them, times C{RMQHA_FAULT_ROUNDS}."""
    return range(max(1, round(quick * ROUNDS)))


def seconds(quick: float, longest: float) -> float:
    """How long a fault lasts: C{quick}, times C{RMQHA_FAULT_ROUNDS}, up to C{longest}."""
    return min(longest, quick * max(1.0, ROUNDS))


class FaultTestCase(SynchronousTestCase):
    """Tests that start nodes in a folder, and leave none behind.  Every random choice comes from
    one
    seed, which is printed; C{RMQHA_SEED} repeats it.
    """

    def setUp(self) -> None:
        """Choose a seed and make a folder."""
        self.seed = os.environ.get("RMQHA_SEED") or str(random.SystemRandom().randrange(10**9))
        self.random = random.Random(f"{self.seed} {self.id()}")
        self.tell(f"RMQHA_SEED={self.seed} {self.id()}")
        self._folder = Folder("fault-")
        self.folder: Path = self._folder.path
        self._processes: list[Process] = []
        self.addCleanup(self._folder.remove)
        self.addCleanup(self._end)

    def _end(self) -> None:
        for process in self._processes:
            process.kill9()

    def tell(self, text: str) -> None:
        """A line for whoever has to repeat this."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def passes(self, length: float) -> None:
        moment = time.monotonic() + length
        until(lambda: time.monotonic() > moment, "a while", length + 10)

    def at_best(self, measure: Callable[[], float], bound: float, what: object) -> float:
        """Time something, in seconds, until it is quick enough, three times at most: a machine that
        does
        other things may be late, what is slow is slow each time.
        """
        times: list[float] = []
        while not times or (times[-1] >= bound and len(times) < TRIES):
            times.append(measure())
        self.assertLess(times[-1], bound, f"{what}: {times}")
        return times[-1]

    def ended(
        self, *arguments: object, code: int | None = 0, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run C{rmqha} to its end, with an exit code, C{None} for any."""
        done = rmqha(*arguments, timeout=timeout)
        if code is not None:
            self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done

    # --- nodes --------------------------------------------------------------

    def master(self, name: str = "master", **keys: Any) -> Driver:
        given = {**BRISK, "brokerRole": "SYNC_MASTER", **keys}
        master = Driver(self.folder, "master", name, **given)
        self._processes.append(master)
        return master

    def slave(self, address: tuple[str, int], name: str = "slave", **keys: Any) -> Node:
        """A slave under twistd, not started."""
        slave = Node(self.folder, "slave", name, master=address, **{**BRISK, **keys})
        self._processes.append(slave)
        return slave

    def driven_slave(self, address: tuple[str, int], name: str = "slave", **keys: Any) -> Driver:
        """A slave that can be told to die, or given a bad disk; not started."""
        slave = Driver(self.folder, "slave", name, master=address, **{**BRISK, **keys})
        self._processes.append(slave)
        return slave

    def proxy(self, address: tuple[str, int], at: tuple[str, int] | None = None) -> Proxy:
        proxy = Proxy(self.folder, address, self.seed, at)
        self._processes.append(proxy)
        return proxy.start()

    def pair(self, **keys: Any) -> tuple[Driver, Node]:
        master = self.master(**keys)
        slave = self.slave(master.address, **keys)
        self.start_both(master, slave)
        slave.until_synced(master.status()["maxOffset"])
        return master, slave

    def start_both(self, master: Driver, slave: Node) -> None:
        """Start a master and a slave at the same time."""
        slave.launch()
        master.start()
        slave.until(lambda status: status["state"] != "recovering", "open")

    def node(self, role: str, name: str, **keys: object) -> Node:
        """A broker under twistd that clients of this machine reach, not started."""
        given = {**BRISK, "brokerIP1": "127.0.0.1", **keys}
        node = Node(self.folder, role, name, **given)
        self._processes.append(node)
        return node

    def follower(self, master: Node, **more: object) -> Node:
        """A slave that has what its master has."""
        keys = {
            "haMasterAddress": "{}:{}".format(*master.address),
            "haMasterClientAddress": f"127.0.0.1:{master.port}",
        }
        slave = self.node("slave", "slave", **keys, **more).start()
        slave.until_synced(master.status()["maxOffset"])
        return slave

    def heir(self, slave: Node, **keys: object) -> Node:
        """The master that a slave becomes, once it has dispatched what it has of a dead one."""
        slave.until(lambda status: status["dispatchedOffset"] == status["confirmedOffset"], "done")
        slave.term()
        promote(self.settings(slave))
        heir = self.node("master", "heir", **keys)
        heir.root = heir.keys["storePathRootDir"] = slave.root
        return heir.start()

    def copies(self, node: Node, topic: str) -> dict[bytes, list[Record]]:
        """All that was delivered to a topic's first queue, by body."""
        found: dict[bytes, list[Record]] = {}
        offset = 0
        with Remote(node.port) as reader:
            while not (answer := reader.ask(pull(topic, "readers", offset))).code:
                offset = int(answer.ext["nextBeginOffset"])
                for record in records(answer):
                    found.setdefault(record.body, []).append(record)
        self.assertEqual(ResponseCode.PULL_NOT_FOUND, answer.code, answer)
        return found

    def killed_often(self, master: Node, quick: int, shortest: float, longest: float) -> None:
        """Kill a master again and again, after so many seconds, and start it."""
        for _ in rounds(quick):
            self.passes(self.random.uniform(shortest, longest))
            master.kill9()
            master.start()

    # --- writes -------------------------------------------------------------

    def write(self, master: Driver, count: int, **how: Any) -> list[Write]:
        """Write and expect every write to be acknowledged.  A slave says that it is in sync a
        moment before its master has heard that.
        """
        if master.keys["brokerRole"] == "SYNC_MASTER":
            master.until(
                lambda status: any(row["acked"] is not None for row in status["replicas"]),
                "a replica",
            )
        writes = master.put(count, **{"concurrency": 8, **how}).wait()
        statuses = {write.status for write in writes}
        self.assertEqual({"PUT_OK"}, statuses, master.tail())
        self.assertEqual(count, len(writes))
        return writes

    # --- the end ------------------------------------------------------------

    def settings(self, node: Node) -> StoreSettings:
        """What a comparison needs to know of a node's store."""
        return compare_stores.settings_of(
            node.root,
            file_size=int(str(node.keys["mappedFileSizeCommitLog"])),
            queue_file_size=int(str(node.keys["mappedFileSizeConsumeQueue"])),
            index_slots=int(str(node.keys["maxHashSlotNum"])),
            index_entries=int(str(node.keys["maxIndexNum"])),
        )

    def settle(
        self, master: Driver, *slaves: Node, acked: list[Write] | None = None, timeout: float = 30.0
    ) -> None:
        """Let slaves catch up, stop all, and check what must hold after every fault."""
        end = master.status()["maxOffset"]
        for slave in slaves:
            slave.until_synced(end, timeout)
        for slave in slaves:
            slave.term()
        self.assertEqual(0, master.stop(), master.tail())
        for slave in slaves:
            self.check(master, slave, acked=acked)

    def check(
        self, master: Driver, slave: Node, *, acked: list[Write] | None = None, equal: bool = True
    ) -> None:
        """Two stopped nodes: prefix, promises, derived files, and a log without surprises."""
        promised = master.history.acked if acked is None else acked
        with self.evidence(promised):
            found = compare_stores.damage(
                self.settings(master), self.settings(slave), promised, equal=equal
            )
            tails = f"\n{master.tail()}\n{slave.tail()}"
            self.assertEqual([], found[:20], tails)
        for node in (master, slave):
            self.assertEqual([], node.complaints(), node.log()[-20_000:])

    def evidence(self, acked: list[Write]) -> AbstractContextManager[None]:
        """Keep all that tells where these are, if the stores are not well."""
        return evidence(self.folder, self._processes, [one.acknowledged for one in acked])


class NetworkTestCase(FaultTestCase):
    """Tests with a bad network between the nodes."""

    def proxied(self, **keys: object) -> tuple[Driver, Proxy, Node]:
        """A pair with a bad network between."""
        master = self.master(**keys).start()
        proxy = self.proxy(master.address)
        slave = self.slave(proxy.address, **keys).start()
        slave.until_synced(0)
        return master, proxy, slave

    def in_sync(self, master: Driver, slave: Node) -> int:
        """Let a slave finish its first copy, and return how much it has said until then."""
        self.write(master, 20)
        slave.until_synced(master.status()["maxOffset"])
        return len(slave.log())

    def fed(self, master: Driver) -> int:
        """How many replicas are connected and have reported."""
        return sum(row["acked"] is not None for row in master.status()["replicas"])
