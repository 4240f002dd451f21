"""What all interop tests share: peers of one version, nodes of ours, and the comparisons."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import compare_stores
from lab.harness.evidence import evidence
from lab.harness.nodes import Folder, Node, Process, until
from lab.harness.proxy import Proxy
from lab.harness.writer import Driver, Write
from lab.stock import jars
from lab.stock.brokers import Broker, Row, Sent, Tool
from rmqha.config.store_settings import StoreSettings
from rmqha.ha.promotion import promote
from rmqha.wire.log.layout import MAGIC_BLANK
from rmqha.wire.log.record import decode
from tests.interop import matrix

#: Set to 1 to run these tests, to C{full} to run all pairs.
WANTED = os.environ.get("RMQHA_INTEROP", "")

#: How often what is repeated is repeated, instead of what each test says.
ROUNDS = os.environ.get("RMQHA_INTEROP_ROUNDS", "")


def rounds(usual: int, full: int) -> int:
    """How often to repeat something, in C{make interop} and in C{make interop-full}."""
    return int(ROUNDS) if ROUNDS else full if WANTED == "full" else usual


#: Quick to come back, so that a test has little to wait for.
BRISK: dict[str, object] = {"haReconnectBackoffMax": 500, "haHousekeepingInterval": 20000}

#: How a record or a blank begins: its size and what it is.
HEAD = Struct(">ii")

_tools: dict[tuple[str, tuple[str, ...]], Tool] = {}


def tool(version: str, jvm: tuple[str, ...] = jars.CLEAR) -> Tool:
    """The helper of a version: started by the first test that needs it so, kept for all."""
    found = _tools.get((version, jvm))
    if found is None or not found.running:
        found = Tool(Folder("interop-tool-").path, version)
        found.jvm = jvm
        try:
            _tools[version, jvm] = found.start()
        except jars.Missing as error:
            raise SkipTest(str(error)) from error
    return found


class InteropTestCase(SynchronousTestCase):
    """Tests with stock peers of one version; without one, a class is only a base.

    @cvar roles: Who is what, for the table.
    @cvar jvm: Options of what is Java.
    @cvar full_only: Tests that only C{make interop-full} runs.
    @cvar long: Whether they take minutes: C{make interop} begins with these.
    """

    version = ""
    roles = ""
    long = False
    jvm = jars.CLEAR
    full_only: tuple[str, ...] = ()
    timeout = 600  # type: ignore[assignment]

    def setUp(self) -> None:
        """Find the peers, or say why there are none."""
        if WANTED not in ("1", "full"):
            raise SkipTest("real brokers are only started for make interop (RMQHA_INTEROP=1)")
        if not self.version:
            raise SkipTest("only a base")
        if WANTED == "1" and self._testMethodName in self.full_only:
            raise SkipTest("only for make interop-full")
        self.tool = tool(self.version, self.jvm)
        self._folder = Folder("interop-")
        self.folder: Path = self._folder.path
        self._processes: list[Process] = []
        self.topic = f"{type(self).__name__}-{self._testMethodName}"
        if os.environ.get("RMQHA_INTEROP_KEEP"):
            self._folder.keep()
        else:
            self.addCleanup(self._folder.remove)
        self.addCleanup(self._end)

    def _end(self) -> None:
        for process in self._processes:
            process.kill9()

    @contextmanager
    def scenario(self, what: str, roles: str = "") -> Iterator[None]:
        begun = time.monotonic()
        result = matrix.FAILED
        try:
            yield
            result = matrix.OK
        finally:
            seconds = time.monotonic() - begun
            sys.stdout.write(f"{seconds:6.1f} s  {self.version} {what}: {result}\n")
            sys.stdout.flush()
            matrix.record(
                matrix.Result(
                    peer="RocketMQ",
                    version=self.version,
                    roles=roles or self.roles,
                    scenario=what,
                    result=result,
                    seconds=round(seconds, 1),
                )
            )

    # --- who takes part -----------------------------------------------------

    def broker(self, name: str = "java", *, of: str = "", **keys: Any) -> Broker:
        """A stock broker, not started, of this test's version or another."""
        broker = Broker(self.folder, tool(of) if of else self.tool, name, **keys)
        self._processes.append(broker)
        return broker

    def proxy(self, address: tuple[str, int]) -> Proxy:
        """A network to a master, started; its choices follow from a seed, which is printed."""
        seed = os.environ.get("RMQHA_SEED") or str(random.SystemRandom().randrange(10**9))
        sys.stdout.write(f"RMQHA_SEED={seed} {self.id()}\n")
        self.random = random.Random(f"{seed} {self.id()}")
        proxy = Proxy(self.folder, address, seed)
        self._processes.append(proxy)
        return proxy.start()

    def our_slave(self, address: tuple[str, int], name: str = "slave", **keys: Any) -> Node:
        """A slave of ours under twistd, not started."""
        slave = Node(self.folder, "slave", name, master=address, **{**BRISK, **keys})
        self._processes.append(slave)
        return slave

    def our_heir(self, slave: Node, **keys: Any) -> Node:
        """The master that a slave of a dead one becomes, once it has dispatched what it has."""
        slave.until(lambda status: status["dispatchedOffset"] == status["confirmedOffset"], "done")
        slave.term()
        promote(self.settings(slave))
        heir = Node(self.folder, "master", "heir", root=slave.root, **keys)
        self._processes.append(heir)
        return heir.start()

    def our_master(self, name: str = "master", **keys: Any) -> Driver:
        """A master of ours that can be told to write, not started."""
        given = {**BRISK, "brokerRole": "SYNC_MASTER", **keys}
        master = Driver(self.folder, "master", name, **given)
        self._processes.append(master)
        return master

    def empty(self, broker: Broker) -> None:
        """Take all from a stopped stock member but its id."""
        for path in broker.root.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif not path.name.startswith("brokerIdentity"):
                path.unlink()

    # --- what must hold -----------------------------------------------------

    def settings(self, node: Node | Broker) -> StoreSettings:
        """What a comparison needs to know of a store."""
        if isinstance(node, Broker):
            return node.settings()
        return compare_stores.settings_of(
            node.root,
            file_size=int(str(node.keys["mappedFileSizeCommitLog"])),
            queue_file_size=int(str(node.keys["mappedFileSizeConsumeQueue"])),
        )

    def until_equal(self, broker: Broker, slave: Node, timeout: float = 60.0) -> int:
        """Wait until a slave of ours holds all that its stock master has, and return their end."""

        def equal(status: dict[str, Any]) -> bool:
            # Its master may still write by itself: delayed messages come due.
            held = status["confirmedOffset"] == status["maxOffset"]
            in_sync = (status["upstream"] or {}).get("state") == "in-sync"
            return held and in_sync and status["maxOffset"] == broker.max_offset()

        return int(slave.until(equal, "all that its master has", timeout)["maxOffset"])

    def assert_followed(self, broker: Broker, slave: Node, *, index: bool = True) -> None:
        """Stop a stock master and our slave of it, once they hold the same: the logs are
        byte-equal, and so
        is what is derived, maybe but for the master's index.
        """
        self.until_equal(broker, slave)
        slave.term()
        broker.stop()
        self.assert_quiet(slave)
        self.assert_same_log(broker, slave)
        self.assert_derived(slave, exact=True)
        self.assert_derived(broker, exact=False, index=index)
        self.assert_same_units(broker, slave)

    def assert_same_log(self, one: Node | Broker, other: Node | Broker, *, first: int = 0) -> None:
        """Two stopped stores have the same log from C{first} on, byte for byte."""
        ours, theirs = (compare_stores.open_log(self.settings(node)) for node in (one, other))
        try:
            self.assertEqual(ours.end, theirs.end)
            self.assertGreater(ours.end, first)
            self.assertLessEqual(theirs.min_offset, first)
            for pair in compare_stores.pairs(self.settings(one), self.settings(other), ours.end):
                self.assertTrue(pair.same or int(pair.name) < first, f"{pair.name} differs")
        finally:
            for log in (ours, theirs):
                log.folder.close()

    def assert_derived(self, node: Node | Broker, *, exact: bool, index: bool = True) -> None:
        """Queues and index are what the log says.

        @param exact: Whether to the last byte what our rebuild makes.
        @param index: Whether the index too: a stock broker that was killed comes back with
            keys that are lost or there twice.
        """
        settings = self.settings(node)
        faults = compare_stores.derived_faults(settings, exact=exact)
        if not index:
            faults = [fault for fault in faults if not fault.startswith(f"{settings.root}/index")]
        self.assertEqual([], faults[:20])

    def units(self, node: Node | Broker) -> dict[str, bytes]:
        """Each queue's units, all its files in one, without what was never written."""
        found: dict[str, bytes] = {}
        settings = self.settings(node)
        for folder in sorted((settings.root / "consumequeue").glob("*/*")):
            whole = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
            pieces = [whole[at : at + 20] for at in range(0, len(whole), 20)]
            while pieces and pieces[-1][8:12] == bytes(4):
                pieces.pop()
            if pieces:
                found["/".join(folder.parts[-2:])] = b"".join(pieces)
        return found

    def assert_same_units(self, one: Node | Broker, other: Node | Broker) -> None:
        """Two stores have the same queues, unit for unit."""
        ours, theirs = self.units(one), self.units(other)
        self.assertEqual(sorted(ours), sorted(theirs))
        for name, units in ours.items():
            if units != theirs[name]:
                self.fail(
                    f"queue {name}: {len(units) // 20} and {len(theirs[name]) // 20} units differ"
                )

    def log_rows(self, node: Node | Broker) -> list[Row]:
        """The messages that consumers can reach, as a stopped store's log tells them."""
        log = compare_stores.open_log(self.settings(node))
        found, at = [], log.min_offset
        while at < log.end:
            view = log.read(at, min(log.file_end(at), log.end) - at)
            pos = 0
            while pos < len(view):
                size, magic = HEAD.unpack_from(view, pos)
                if magic == MAGIC_BLANK:
                    pos = len(view)
                    break
                record = decode(view, pos, at + pos)
                if record.has_unit:
                    body = hashlib.sha256(record.body).hexdigest()[:32]
                    named = record.properties
                    found.append(
                        Row(
                            record.topic,
                            record.queue_id,
                            record.queue_offset,
                            record.offset,
                            body,
                            named.get("TAGS"),
                            named.get("KEYS"),
                        )
                    )
                pos += size
            at += pos
        log.folder.close()
        return found

    def assert_holds(self, node: Node | Broker, sent: list[Sent]) -> None:
        """A stopped store's log has each of these sends where the broker said it is."""
        told = [one for send in sent for one in send.acknowledged]
        with evidence(self.folder, self._processes, told):
            log = compare_stores.open_log(self.settings(node))
            for send in sent:
                for place, body in zip(send.places, send.bodies, strict=True):
                    self.assertLess(place, log.end, f"message {send.n} is behind the log's end")
                    view = log.read(place, log.file_end(place) - place)
                    record = decode(view, 0, place)
                    found = hashlib.sha256(record.body).hexdigest()[:32]
                    if not record.sys_flag & 1:  # not compressed
                        self.assertEqual(body, found, f"message {send.n} at {place}")
            log.folder.close()

    def assert_has(self, node: Node | Broker, writes: list[Write]) -> None:
        """So it has each of these writes of a master of ours."""
        told = [write.acknowledged for write in writes]
        with evidence(self.folder, self._processes, told):
            log = compare_stores.open_log(self.settings(node))
            self.assertEqual([], compare_stores.missing(log, writes)[:20])
            log.folder.close()

    def assert_opens_in_java(self, node: Node | Broker, *, index: bool = True) -> None:
        """C{DefaultMessageStore} opens a stopped store and serves all its log has."""
        wanted = self.log_rows(node)
        named = [row for row in wanted if row.keys and row.topic == wanted[-1].topic]
        keys = sorted({key for row in named[-500:] for key in str(row.keys).split()})[:20]
        topic = named[-1].topic if named else ""
        read = self.tool.read(self.settings(node), topic, keys)
        log = compare_stores.open_log(self.settings(node))
        self.assertEqual((log.min_offset, log.end), (read["min"], read["max"]))
        log.folder.close()
        self.assertEqual(len(wanted), len(read["rows"]))
        for want, found in zip(wanted, read["rows"], strict=True):
            self.assertEqual(want, found)
        for key in keys if index else ():
            places = [row.place for row in named if key in str(row.keys).split()]
            self.assertEqual(places, sorted(read["keys"][key]), f"index of key {key}")

    def assert_quiet(self, *nodes: Node) -> None:
        """Nodes of ours said nothing that has no name."""
        for node in nodes:
            self.assertEqual([], node.complaints(), node.log()[-20_000:])

    def until_some(self, what: list[Any], count: int, timeout: float = 60.0) -> None:
        """Wait until a list that grows has so many more."""
        wanted = len(what) + count
        until(lambda: len(what) >= wanted, f"{count} more", timeout, tell=self.tool.tail)
