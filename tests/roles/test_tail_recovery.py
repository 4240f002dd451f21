"""Tests for L{rmqha.roles.master}: from a crash to a log that may be written."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rmqha.config.ha_settings import HASettings
from rmqha.errors import LogShortened, TailNotFetched
from rmqha.ha.epoch import Epoch
from rmqha.ha.known_replicas import KnownReplicas
from rmqha.ha.states import Standing
from rmqha.roles.master import TailRecovery
from rmqha.store.store import Store
from tests.ha.test_pair import Wire
from tests.roles.nodes import settings
from tests.support.ha_frames import append_frame
from tests.support.logs import LogTestCase, content, message, now
from tests.support.masters import feeding

SIZES = {"file_size": 4096, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}
COUNT, LEFT = 20, 15


class TailRecoveryTests(LogTestCase):
    """A master whose log lost its last records."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.wire = Wire(self.clock)

    def crashed(self, *, lose: bool = True, prove: bool = True) -> Path:
        """A master's store after a kill, which knows one replica; C{whole} was its log."""
        clock = Clock()
        store = self.opened(self.folder() / "store", settings=SIZES, clock=clock)
        epoch = Epoch.begin(store.settings.root, store.log)
        for _ in range(COUNT):
            store.put(message(500))
        if prove:
            self.successResultOf(store.flusher.flush())
            clock.advance(1)
        self.whole = content(store.log)
        self.end = store.log.end
        known = KnownReplicas.load(store.settings.root, now)
        known.joined("10.0.0.2")
        known.listens("10.0.0.2", 10915)
        root = self.crash(store)
        self.assertFalse(epoch.continued)
        if lose:
            (last,) = [path for path in (root / "commitlog").iterdir() if int(path.name) == 8192]
            last.unlink()
        config = root / "config"
        config.mkdir(exist_ok=True)
        (config / "consumerOffset.json").write_text('{"offsetTable":{"TopicA@g":{0:20}}}')
        return root

    def starting(self, root: Path, *, repair: bool = False, **keys: Any) -> TailRecovery:
        """A master on it whose log is open."""
        of_node = settings(root, "master", **{"listen_port": 10912, **keys})
        self.dialled: list[tuple[str, int]] = []

        def dial(host: str, port: int) -> Wire:
            self.dialled.append((host, port))
            return self.wire

        self.node: Any = SimpleNamespace(
            settings=of_node,
            reactor=self.clock,
            environment=SimpleNamespace(in_thread=now),
            repair=repair,
            dialled=dial,
            running=True,
        )
        return TailRecovery(node=self.node, replicas=KnownReplicas.load(root, now))

    def begin(self, tail: TailRecovery) -> tuple[Store, Deferred[None]]:
        """Open the log, and let it begin."""
        store = self.opened(
            tail.node.settings.store.root,
            settings=SIZES,
            clock=self.clock,
            fetches=tail.can_ask(),
            repair=tail.node.repair,
        )
        over = Deferred.fromCoroutine(tail.run(store))
        self.settle()
        return store, over

    def replica(self, end: int | None = None) -> None:
        log = self.log()
        append_frame(log, 0, self.whole[:end])
        log.verify()
        settings = HASettings(batch=1000)
        factory = feeding(log, self.clock, settings, start=0, standing=lambda: Standing.PART)
        factory.start()
        self.addCleanup(factory.stop)
        self.wire.master = factory

    def settle(self) -> None:
        """Everything that needs no time happens."""
        for _ in range(8):
            self.wire.pump()
            self.clock.advance(0)

    def passes(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            self.clock.advance(0.1)
            self.settle()

    # --- whom to ask --------------------------------------------------------------

    def test_addresses(self) -> None:
        """Those named, else those that were there, at told ports or ours; never ourselves."""
        root = self.folder()
        tail = self.starting(root)
        tail.replicas.ports = {
            "10.0.0.2": [10915, 10918],
            "10.0.0.3": [],
            "10.0.0.4": [0],
            "127.0.0.1": [10912, 10913],
            "::1": [],
            tail.node.settings.broker.ip1: [],
        }
        self.assertEqual(
            tail.addresses(),
            [("10.0.0.2", 10915), ("10.0.0.2", 10918), ("10.0.0.3", 10912), ("127.0.0.1", 10913)],
        )
        self.assertTrue(tail.can_ask())
        named = self.starting(root, tail_sources="slave-1:10912; [::1]:10913")
        self.assertEqual(named.addresses(), [("slave-1", 10912), ("::1", 10913)])
        self.assertFalse(self.starting(root, tail_fetch_timeout=0.0).can_ask())
        self.assertFalse(self.starting(root).can_ask())

    def test_nothing_calls_for_it(self) -> None:
        """After a clean stop nobody is asked."""
        root = self.crashed(lose=False)
        store = self.opened(root, settings=SIZES)
        Epoch.begin(root, store.log).close(store.log, {})
        self.close_store(store)
        tail = self.starting(root)
        self.assertTrue(tail.asking)
        _, over = self.begin(tail)
        self.successResultOf(over)
        self.assertEqual((tail.fields()["tailFetch"], self.dialled, tail.asking), (None, [], False))

    def test_nobody_to_ask(self) -> None:
        """A crash without a replica, or where it was switched off, starts at once and says so."""
        for keys, why in (({}, "no replica is known"), ({"tail_fetch_timeout": 0.0}, "Timeout=0")):
            root = self.crashed(lose=False)
            if not keys:
                for path in (root / "rmqha").glob("replicas.json*"):
                    path.unlink()
            tail = self.starting(root, **keys)
            _, over = self.begin(tail)
            self.successResultOf(over)
            status = tail.fields()["tailFetch"]
            assert status is not None
            self.assertEqual(status["state"], "skipped")
            self.assertIn(why, status["reason"])
            self.assertEqual(self.dialled, [])

    # --- what comes back ------------------------------------------------------------

    def test_fetched(self) -> None:
        """A proven loss that a replica makes good is one no more: on the disk, in the queues, and
        the next message comes behind it with the next queue offset.
        """
        root = self.crashed()
        self.replica()
        tail = self.starting(root)
        store, over = self.begin(tail)
        self.assertEqual(self.dialled, [("10.0.0.2", 10915)])
        self.successResultOf(over)
        self.assertEqual((store.log.end, store.lost), (self.end, None))
        self.assertEqual((content(store.log), store.log.flushed), (self.whole, self.end))
        self.assertFalse((root / "rmqha" / "lost-tail.json").exists())
        self.assertEqual(store.queues.end("TopicA", 0), COUNT)
        receipt = store.put(message(500))
        self.assertEqual((receipt.begin >= self.end, receipt.queue_offset), (True, COUNT))
        self.assertIn("0:20", (root / "config" / "consumerOffset.json").read_text())
        status = tail.fields()["tailFetch"]
        assert status is not None
        self.assertEqual((status["state"], status["source"]), ("done", "10.0.0.2:10915"))

    def test_whose_damage(self) -> None:
        """Where a bit differs that no CRC covers, the checksum that was kept of the record says
        whose it is, and how ours is mended.
        """
        for ours in (True, False):
            root = self.crashed()
            whole = self.whole
            at = int.from_bytes(whole[:4], "big") - 2
            other = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
            if ours:
                path = root / "commitlog" / f"{0:020d}"
                path.write_bytes(other[: path.stat().st_size])
            else:
                self.whole = other
            self.replica()
            self.whole = whole
            tail = self.starting(root)
            store, over = self.begin(tail)
            self.passes(5.2)
            self.failureResultOf(over, TailNotFetched)
            status = tail.fields()["tailFetch"]
            assert status is not None
            (row,) = status["sources"]
            side = "the replica's" if ours else "ours"
            self.assertIn(
                f"the checksum kept of the first says that {side} is right", row["reason"]
            )
            self.assertEqual(ours, "rmqha repair" in row["reason"])
            self.close_store(store)
            self.wire.master = None

    def test_what_no_mark_knows(self) -> None:
        """So is one that nothing proves."""
        root = self.crashed(prove=False)
        self.replica()
        store, over = self.begin(self.starting(root))
        self.assertIsNone(store.lost)
        self.successResultOf(over)
        self.assertEqual(content(store.log), self.whole)

    def test_not_given(self) -> None:
        """A master whose proven loss stays must not start; what did come is kept for later."""
        for end in (None, 8192 + 500):
            root = self.crashed()
            if end is not None:
                self.replica(end)
            tail = self.starting(root)
            store, over = self.begin(tail)
            self.passes(5.2)
            error = self.failureResultOf(over, TailNotFetched).value
            self.assertEqual((error.end, error.known), (end or store.log.end, self.end))
            self.assertFalse(tail.asking)
            self.close_store(store)
            self.wire.master = None
            self.replica()
            store, over = self.begin(self.starting(root))
            self.passes(1)
            self.successResultOf(over)
            self.assertEqual((content(store.log), store.lost), (self.whole, None))
            self.wire.master = None

    def test_repair(self) -> None:
        """An operator may go on without: then whoever had read further is brought back."""
        root = self.crashed()
        tail = self.starting(root, repair=True)
        store, over = self.begin(tail)
        with capturedLogs() as events:
            self.passes(5.2)
        self.successResultOf(over)
        self.assertIsNotNone(store.lost)
        left = store.queues.end("TopicA", 0)
        self.assertLess(left, COUNT)
        table = (root / "config" / "consumerOffset.json").read_text()
        self.assertIn(f"0:{left}", table)
        said = [formatEvent(event) or "" for event in events]
        self.assertTrue(any("offset 20 is now" in line for line in said), said)

    def test_repair_that_was_not_needed(self) -> None:
        """Nobody is brought back if the bytes came after all."""
        root = self.crashed()
        self.replica()
        store, over = self.begin(self.starting(root, repair=True))
        self.successResultOf(over)
        self.assertIsNone(store.lost)
        self.assertIn("0:20", (root / "config" / "consumerOffset.json").read_text())

    def test_empty(self) -> None:
        """A log of which nothing is left has nothing to compare: it is not filled."""
        root = self.crashed()
        for path in (root / "commitlog").iterdir():
            path.unlink()
        self.replica()
        tail = self.starting(root)
        _, over = self.begin(tail)
        error = self.failureResultOf(over, LogShortened).value
        self.assertNotIsInstance(error, TailNotFetched)
        self.assertEqual(self.dialled, [])
        self.assertIn("the log is empty", str(tail.fields()["tailFetch"]))

    def test_stopped(self) -> None:
        """A node stopped meanwhile neither waits nor fails, and the next start asks again."""
        root = self.crashed()
        tail = self.starting(root)
        store, over = self.begin(tail)
        self.assertIn("10.0.0.2:10915", tail.reason)
        self.node.running = False
        stopped = tail.stop()
        self.settle()
        self.successResultOf(stopped)
        self.successResultOf(over)
        self.close_store(store)
        self.assertEqual(json.loads((root / "rmqha/lost-tail.json").read_text())["to"], self.end)
        self.replica()
        store, over = self.begin(self.starting(root))
        self.successResultOf(over)
        self.assertEqual(content(store.log), self.whole)
