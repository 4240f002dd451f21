"""A slave's node: opening, following, repairs, stopping."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any
from unittest.mock import patch

from attrs import evolve
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from lab.harness.compare_stores import derived_faults
from rmqha.broker.broker import Broker
from rmqha.config.ha_settings import DivergencePolicy
from rmqha.config.store_settings import FlushDisk
from rmqha.errors import DiskFull
from rmqha.ha.slave.connection import SlaveProtocol
from rmqha.ha.slave.follower import Follower
from rmqha.ha.states import NodeState
from rmqha.roles import slave as slave_role
from rmqha.roles.host.exit_codes import FOR_A_PERSON
from rmqha.roles.serving import Serving
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.files.lock import is_locked
from rmqha.store.log import truncate
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.retention import Retention
from rmqha.store.published import publish
from rmqha.store.store import Store
from rmqha.wire.log.encode import encode
from rmqha.wire.log.published import CutReason
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer
from tests.roles.nodes import NodeReactor, PuppetSlave, settings
from tests.support.following import SIZE, SIZES
from tests.support.health import unhealthy
from tests.support.log_lines import log_lines
from tests.support.logs import STORED, Disk, Held, LogTestCase, content, message, now
from tests.support.scripted_master import Connection
from tests.support.unreadable import make_unreadable


class SlaveCase(LogTestCase):
    """A slave with a store on disk and a master played by hand."""

    def setUp(self) -> None:
        """The master's log: real records of two topics."""
        self.reactor = NodeReactor()
        self.root = self.folder() / "store"
        self.theirs = self.log()
        self.count = 0
        for size in SIZES:
            self.put(self.theirs, size)

    def put(self, log: CommitLog, size: int, topic: str = "TopicA") -> None:
        """Append a record that queues and index can be made of."""
        made = message(size, topic=topic)
        log.put([encode(made, max_message_size=1 << 20)], [self.count], STORED + self.count)
        self.count += 1

    def start(self, *, wait: bool = True, run: Any = now, **keys: Any) -> PuppetSlave:
        """Start the node, with these threads."""
        self.node = PuppetSlave(settings(self.root, **keys), self.reactor, run)
        self.node.startService()
        self.addCleanup(self.end)
        if wait:
            self.successResultOf(self.node.ready)
        return self.node

    @property
    def upstream(self) -> dict[str, Any]:
        """What it says of its master."""
        found: dict[str, Any] = self.node.status()["upstream"]
        return found

    def end(self) -> None:
        """Stop it, and see that nothing is left."""
        if self.node.running:
            self.stop()
        self.assertFalse(is_locked(self.root / "lock"))

    def stop(self) -> None:
        stopped = self.node.stopService()
        self.turn()
        self.successResultOf(stopped)

    def turn(self) -> None:
        for _ in range(5):
            self.reactor.advance(0)

    def accept(self, within: float = 0.0) -> Connection:
        self.turn()
        waited = 0.0
        while not self.node.endpoint.waiting and waited < within:
            self.reactor.advance(0.05)
            waited += 0.05
        self.assertTrue(self.node.endpoint.waiting, f"no attempt within {within} s")
        return self.node.endpoint.accept()

    def parted(self, policy: str = "truncate", **keys: Any) -> CommitLog:
        """A slave with two records more than its master, which it has noticed: its log before."""
        own = self.ahead(policy, **keys)
        self.notice()
        return own

    def ahead(self, policy: str = "truncate", **keys: Any) -> CommitLog:
        """The same, before it has asked its master."""
        self.start()
        connection = self.accept()
        connection.feed(self.theirs, 0)
        self.turn()
        self.stop()
        own = self.log(self.root / "commitlog", end=self.theirs.end)
        for size in (900, 800):
            self.put(own, size, topic="Others")
        self.before = content(own)
        own.folder.close()
        self.start(policy=DivergencePolicy(policy), **keys)
        self.assertEqual(content(self.node.store.log), self.before)
        return own

    def notice(self) -> None:
        """It hears how far its master is."""
        connection = self.accept()
        connection.feed(self.theirs, connection.reports()[0])
        connection.heartbeat(self.theirs.end)

    def catch_up(self, within: float = 1.0) -> None:
        """The next connection brings everything."""
        connection = self.accept(within)
        start = connection.reports()[0]
        connection.feed(self.theirs, start)
        connection.heartbeat(self.theirs.end)
        self.reactor.pump([0.01] * 10)

    def assertCopied(self) -> None:
        """The slave's log is the master's, and queues and index are a rebuild's."""
        follower = self.node.following.follower
        assert follower is not None
        self.assertEqual(follower.sync.state.value, "in-sync", follower.sync.reason)
        self.assertEqual(content(self.node.store.log), content(self.theirs))
        self.assertEqual(unhealthy(self.node), "")
        self.stop()
        self.assertEqual(derived_faults(self.node.settings.store), [])

    @property
    def marker(self) -> Path:
        """The file that says that a copy is under way."""
        return self.root / "rmqha" / "bootstrapping.json"

    @property
    def state(self) -> str:
        assert self.node.following.follower is not None
        return self.node.following.follower.sync.state.value


class LifeTests(SlaveCase):
    def test_bootstrap(self) -> None:
        """An empty slave becomes a copy, and its marker goes."""
        self.start()
        connection = self.accept()
        self.assertTrue(self.marker.exists())
        connection.feed(self.theirs, 0, SIZE)
        self.assertEqual(self.state, "bootstrapping")
        connection.feed(self.theirs, SIZE)
        self.assertFalse(self.marker.exists())
        self.reactor.pump([0.01] * 10)
        self.assertCopied()

    def test_resumed_after_a_stop(self) -> None:
        """A copy goes on where it was, and is still one."""
        self.start()
        self.accept().feed(self.theirs, 0, SIZE + 1000)
        self.stop()
        self.assertTrue(self.marker.exists())
        self.start()
        assert self.node.following.follower is not None
        self.assertTrue(self.node.following.follower.sync.is_bootstrapping)
        self.catch_up()
        self.assertFalse(self.marker.exists())
        self.assertCopied()

    def test_no_place_for_the_log(self) -> None:
        """N6: what keeps a node from starting names the key that says where the file is."""
        for folder in ("/proc/nope", "/proc/nope/log"):
            self.start(wait=False, store_commitlog=Path(folder))
            self.assertIn(f"storePathCommitLog={folder}: No such file", self.node.reason)
            self.assertEqual([1], self.node.codes)

    def test_recovering(self) -> None:
        """Until the store is open the node recovers, is not healthy, and follows nobody."""
        held = Held()
        self.start(wait=False, run=held)
        self.assertIs(self.node.state, NodeState.RECOVERING)
        self.assertEqual(unhealthy(self.node), "recovering")
        status = self.node.status()
        self.assertEqual((status["state"], status["upstream"]), ("recovering", None))
        self.assertIsNone(status["maxOffset"])
        self.node.run = now
        held.work()
        self.assertIs(self.node.state, NodeState.SERVING)
        self.assertEqual(unhealthy(self.node), "")
        self.successResultOf(self.node.ready)

    def test_stop_while_recovering(self) -> None:
        """A stop then waits for the thread, gives no exit code and leaves no lock."""
        held = Held()
        self.start(wait=False, run=held)
        stopped = self.node.stopService()
        self.assertNoResult(stopped)
        while held.calls:
            held.work()
            self.turn()
        self.successResultOf(stopped)
        self.assertEqual(self.node.codes, [])
        self.assertEqual(self.reactor.stops, 0)

    def test_retries_are_told(self) -> None:
        """Each new try of a master away is a line with its address, without Python in it."""
        lines = log_lines(self)
        node = self.start()
        for _ in range(3):
            node.endpoint.refuse()
            self.reactor.advance(40.0)
        again = "Connecting to the master 10.0.0.1:10912 again in "
        self.assertEqual(sum(line.startswith(again) for line in lines), 3)
        self.assertEqual([line for line in lines if " at 0x" in line or "Endpoint" in line], [])

    def test_cannot_open(self) -> None:
        """A store that cannot be opened ends the process, with an exit code."""
        folder = self.root / "commitlog"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").write_bytes(bytes(5000))
        self.start(wait=False)
        self.assertTrue(self.node.ready.called)
        self.assertEqual(self.node.codes, [FOR_A_PERSON])
        self.assertEqual(self.reactor.stops, 1)
        self.assertIs(self.node.state, NodeState.FAILED)
        self.assertIn("mappedFileSizeCommitLog is 4096", unhealthy(self.node))
        self.flushLoggedErrors()

    def test_clean_stop(self) -> None:
        """A clean stop removes abort."""
        self.start()
        self.accept().feed(self.theirs, 0)
        self.assertTrue((self.root / "abort").exists())
        self.stop()
        self.assertFalse((self.root / "abort").exists())
        self.assertEqual(self.node.status()["state"], "stopped")
        self.assertEqual(unhealthy(self.node), "stopped: the node is stopping")

    def test_failing_step_of_a_stop(self) -> None:
        """Whatever of it fails, the node stops, its store is closed, and the lock given back."""
        for owner, name in ((Follower, "stopService"), (Serving, "end"), (Broker, "stop")):
            self.start()
            self.accept().feed(self.theirs, 0)
            broken = self.patch(owner, name, lambda *_, **more: 1 // 0)
            self.stop()
            broken.restore()
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
            self.assertFalse((self.root / "abort").exists())
            self.assertFalse(is_locked(self.root / "lock"))
            self.theirs = self.log()
            self.put(self.theirs, 500)
            self.root = self.folder() / "store"
            self.reactor = NodeReactor()

    def test_stop_twice(self) -> None:
        """A second stop is over at once."""
        self.start()
        self.stop()
        self.successResultOf(self.node.stopService())

    def test_stop_states_are_unhealthy(self) -> None:
        """While replication stands still /healthz says why."""
        self.parted("stop")
        self.assertEqual(self.state, "ahead")
        self.assertIn("ahead: the master ends at", unhealthy(self.node))
        self.assertIs(self.node.state, NodeState.SERVING)

    def test_no_master(self) -> None:
        """Without a master's address a slave waits; N6: the start warns, and says its store."""
        warned, told = self.started(master=None)
        self.assertIn(
            "namesrvAddr and haMasterAddress are empty: this slave finds no master", warned
        )
        self.assertIn(f"the store is {self.root}", told[-1])
        upstream = self.node.status()["upstream"]
        self.assertEqual(upstream["state"], "connecting")
        self.assertIn("no master address: ", upstream["reason"])
        self.assertEqual(unhealthy(self.node), "")

    def test_master(self) -> None:
        """A slave that has one is not warned of."""
        warned, _ = self.started()
        self.assertEqual([text for text in warned if "finds no master" in text], [])

    def started(self, **keys: Any) -> tuple[list[str], list[str]]:
        """Start it, and return what was warned of, and what was said of the log's end."""
        events: list[LogEvent] = []
        globalLogPublisher.addObserver(events.append)
        try:
            self.start(**keys)
        finally:
            globalLogPublisher.removeObserver(events.append)
        texts = [(event["log_level"], formatEvent(event)) for event in events]
        warned = [text for level, text in texts if level is LogLevel.warn]
        return warned, [text for _, text in texts if text.startswith("Log ends at byte")]

    def test_master_from_a_name_server(self) -> None:
        """A slave without a master's address follows the one a name server tells."""
        self.start(master=None)
        self.node.told(RegisterBrokerAnswer())
        self.node.told(RegisterBrokerAnswer(ha_server_addr="nonsense"))
        self.assertIn("no master address: ", self.node.status()["upstream"]["reason"])
        self.node.told(RegisterBrokerAnswer(ha_server_addr="10.0.0.2:10912"))
        self.accept().feed(self.theirs, 0)
        upstream = self.node.status()["upstream"]
        self.assertEqual((upstream["address"], upstream["state"]), ("10.0.0.2:10912", "in-sync"))

    def test_configured_master_wins(self) -> None:
        """What name servers say is nothing to a slave that was told its master."""
        self.start()
        self.accept().feed(self.theirs, 0)
        self.node.told(RegisterBrokerAnswer(ha_server_addr="10.9.9.9:10912"))
        self.turn()
        upstream = self.node.status()["upstream"]
        self.assertNotIn("10.9.9.9", upstream["address"])
        self.assertEqual(upstream["state"], "in-sync")

    def test_ha_status(self) -> None:
        """An administrator is told when it heard of its master, and when it last answered it."""
        self.start()
        self.node.environment = evolve(
            self.node.environment, now_ms=lambda: 1_000_000 + int(self.reactor.seconds() * 1000)
        )
        never = self.node.ha_status().ha_client_runtime_info
        self.assertEqual((never.last_read_timestamp, never.last_write_timestamp), (0, 0))
        self.reactor.advance(1)
        began = self.reactor.seconds()
        self.accept().feed(self.theirs, 0)
        self.turn()
        self.reactor.advance(0.5)
        heard = self.node.ha_status().ha_client_runtime_info
        self.assertEqual(heard.max_offset, self.theirs.end)
        self.assertEqual(heard.last_read_timestamp, 1_000_000 + int(began * 1000))
        self.assertGreaterEqual(heard.last_write_timestamp, heard.last_read_timestamp)
        self.reactor.advance(0.5)
        last = self.node.ha_status().ha_client_runtime_info
        self.assertEqual(last.transferred_byte_in_second, self.theirs.end)

    def test_status(self) -> None:
        """The names that are relied on are there, in every part of its life."""
        names = {
            "role", "state", "reason", "minOffset", "maxOffset", "flushedOffset",
            "dispatchedOffset", "syncGuarantee", "upstream", "published",
        }  # fmt: skip
        self.start()
        self.assertLessEqual(names, set(self.node.status()))
        self.accept().feed(self.theirs, 0)
        status = self.node.status()
        self.assertEqual(status["role"], "slave")
        self.assertEqual(status["maxOffset"], self.theirs.end)
        self.assertEqual(status["upstream"]["state"], "in-sync")
        self.stop()
        self.assertLessEqual(names, set(self.node.status()))

    def test_status_opens_nothing_of_a_closed_store(self) -> None:
        """Asking a stopped node leaves no file open."""
        self.start()
        self.accept().feed(self.theirs, 0)
        self.stop()
        self.node.status()
        for file in self.node.store.log.folder.files:
            self.assertLess(file._fd, 0)

    def test_sync_flush(self) -> None:
        """A SYNC_FLUSH slave reports only what is on its disk."""
        held = Held()
        self.start(store_flush_disk=FlushDisk.SYNC_FLUSH)
        connection = self.accept()
        self.node.store.flusher.fsync = FsyncInThread(held)
        connection.feed(self.theirs, 0)
        self.assertEqual(connection.reports(), [0])
        while held.calls:
            held.work()
            self.turn()
        self.assertEqual(connection.reports()[-1], self.theirs.end)
        self.node.store.flusher.fsync = FsyncInThread(self.node.run)

    def test_failed_fsync(self) -> None:
        """An fsync that fails ends replication, for good."""
        self.start()
        connection = self.accept()
        connection.feed(self.theirs, 0, SIZE)

        def sync(fd: int) -> None:
            raise OSError(5, "Input/output error")

        self.node.store.flusher.fsync = FsyncInThread(now, sync)
        connection.feed(self.theirs, SIZE)
        self.reactor.pump([0.5] * 40)
        self.assertEqual(self.state, "failed")
        self.assertFalse(connection.open)
        self.assertIs(self.node.state, NodeState.FAILED)
        self.assertIn("Input/output error", unhealthy(self.node))
        self.reactor.pump([1.0] * 60)
        self.assertEqual(self.node.endpoint.waiting, [])

    def test_bad_record_found_by_dispatch(self) -> None:
        """What became bad after it was checked is found by dispatch, dropped and refetched."""
        self.patch(SlaveProtocol, "_verify", lambda connection: None)
        self.start()
        connection = self.accept()
        connection.feed(self.theirs, 0)
        end = self.theirs.end
        connection.frame(end, b"\1" * 300)
        self.reactor.pump([0.01] * 10)
        self.assertEqual(self.state, "diverged")
        self.assertFalse(connection.open)
        self.assertEqual(self.node.store.log.end, end)
        self.catch_up(within=2)
        self.assertCopied()

    def test_full_disk(self) -> None:
        """It goes on within ten seconds after there is room again."""
        self.start()
        connection = self.accept()
        connection.feed(self.theirs, 0, SIZE)
        self.turn()
        disk = Disk(full=True).install(self)
        connection.feed(self.theirs, SIZE)
        self.assertEqual(self.state, "disk-full")
        self.assertIn("disk-full", unhealthy(self.node))
        for _ in range(3):
            connection = self.accept(within=5.1)
            connection.feed(self.theirs, connection.reports()[0])
            self.assertEqual(self.state, "disk-full")
        disk.full = False
        self.catch_up(within=5.1)
        self.assertCopied()


class LostTailTests(SlaveCase):
    """A slave whose disk lost what it had."""

    def lost(self) -> tuple[int, int]:
        """Start on a log whose last record is damaged: where it ends, and where it ended."""
        self.start()
        self.accept().feed(self.theirs, 0)
        self.turn()
        self.stop()
        end = self.theirs.end
        with open(max((self.root / "commitlog").iterdir()), "r+b") as file:
            file.seek((end - 1) % 4096)
            byte = file.read(1)[0]
            file.seek((end - 100) % 4096)
            file.write(bytes([byte ^ 0x5A]))
        self.start()
        left = self.node.store.log.end
        self.assertLess(left, end)
        self.assertEqual(self.node.status()["lostTail"], {"from": left, "to": end})
        self.assertIn("lost-tail", unhealthy(self.node))
        return left, end

    def remembered(self) -> bool:
        """Whether the next start would know."""
        return (self.root / "rmqha" / "lost-tail.json").exists()

    def test_fetched_again(self) -> None:
        """It says so until its master has sent the bytes again; then nothing of it is left."""
        self.lost()
        self.catch_up()
        self.assertIsNone(self.node.status()["lostTail"])
        self.assertTrue(self.remembered())
        self.assertCopied()
        self.assertFalse(self.remembered())

    def test_not_fetched(self) -> None:
        """Without its master it says so at the next start too."""
        left, end = self.lost()
        self.stop()
        self.assertTrue(self.remembered())
        self.start()
        self.assertEqual(self.node.status()["lostTail"], {"from": left, "to": end})

    def test_the_master_lost_them_too(self) -> None:
        """A slave that is in sync lacks nothing: its master has no more."""
        left, _ = self.lost()
        connection = self.accept()
        connection.feed(self.theirs, connection.reports()[0], left)
        connection.heartbeat(left)
        self.assertEqual(self.state, "in-sync")
        self.assertIsNone(self.node.status()["lostTail"])
        self.stop()
        self.assertFalse(self.remembered())

    def test_its_own_cut(self) -> None:
        """What it cut to follow its master, or put aside, it does not miss."""
        for policy in ("truncate", "rebootstrap"):
            self.root = self.folder() / "store"
            self.theirs = self.log()
            for size in SIZES:
                self.put(self.theirs, size)
            self.parted(policy)
            self.turn()
            self.catch_up()
            self.assertIsNone(self.node.status()["lostTail"])
            self.stop()
            self.start()
            self.assertIsNone(self.node.status()["lostTail"], policy)
            self.assertFalse(self.remembered())
            self.stop()


class RepairTests(SlaveCase):
    def test_truncate(self) -> None:
        """The tail is in quarantine, the log is the master's, so are queues and index."""
        self.parted()
        self.assertEqual(self.state, "ahead")
        self.turn()
        self.catch_up()
        kept = list((self.root / "rmqha" / "quarantine").iterdir())
        self.assertEqual([path.read_bytes() for path in kept], [self.before[self.theirs.end :]])
        self.assertFalse((self.root / "rmqha" / "truncate.json").exists())
        self.assertCopied()
        self.assertEqual(self.cuts(), [(self.theirs.end, CutReason.CUT)])

    def cuts(self) -> list[tuple[int, CutReason]]:
        """What readers are told of bytes that are gone."""
        point = publish.load(self.root)
        assert point is not None
        return [(cut.at, cut.why) for cut in point.cuts]

    def test_truncate_a_difference(self) -> None:
        """The same when the master has written on meanwhile."""
        self.start()
        self.accept().feed(self.theirs, 0)
        self.turn()
        self.stop()
        own = self.log(self.root / "commitlog", end=self.theirs.end)
        common = self.theirs.end
        self.put(own, 900, topic="Others")
        own.folder.close()
        self.put(self.theirs, 1200)
        self.start(policy=DivergencePolicy.TRUNCATE)
        connection = self.accept()
        connection.feed(self.theirs, 1)
        self.assertEqual(self.state, "diverged")
        # Whose version is right is looked at first; the master has no more of it.
        connection.heartbeat(self.theirs.end)
        self.catch_up()
        kept = sorted(path.name for path in (self.root / "rmqha" / "quarantine").iterdir())
        self.assertEqual(
            kept,
            [
                f"{common:020d}-{common + 900:020d}.log",
                f"{common:020d}-{common + 900:020d}.ours.log",
                f"{common:020d}-{common + 1200:020d}.master.log",
            ],
        )
        self.assertCopied()

    def test_sets_aside_anew(self) -> None:
        """What there is is set aside for garbage collection before clients, and after a repair."""
        seen: list[tuple[Store, bool]] = []

        def set_aside(*, writes: bool) -> None:
            self.assertFalse(writes)
            seen.append((self.node.store, self.node.clients.serving))

        with patch.object(PuppetSlave, "set_aside", staticmethod(set_aside)):
            self.parted()
            old = self.node.store
            self.turn()
            self.catch_up()
        self.assertEqual(seen[-2:], [(old, False), (self.node.store, False)])
        self.assertTrue(self.node.clients.serving)

    def test_follows_the_new_store(self) -> None:
        """After a repair bytes go to the store that was opened anew."""
        self.parted()
        old = self.node.store
        self.turn()
        self.catch_up()
        self.assertIsNot(self.node.store, old)
        self.put(self.theirs, 700)
        follower = self.node.following.follower
        assert follower is not None and follower.sync.connection is not None
        self.assertIs(follower.sync.connection.log, self.node.store.log)

    def test_states_meanwhile(self) -> None:
        """A node in repair recovers; it is not stopped."""
        held = Held()
        self.parted()
        self.node.run = held
        seen = set()
        for _ in range(40):
            self.reactor.advance(0)
            seen.add(self.node.status()["state"])
            if held.calls:
                held.work()
        self.node.run = now
        self.assertLessEqual(seen, {"serving", "recovering"})
        self.assertIn("recovering", seen)
        self.catch_up(within=2)
        self.assertCopied()

    def test_too_much(self) -> None:
        """More than haMaxTruncateBytes is not cut: the store stays open, and as it was."""
        self.parted(max_truncate=1699)
        store = self.node.store
        self.turn()
        self.assertEqual(self.state, "ahead")
        self.assertIn("haMaxTruncateBytes allows 1699", unhealthy(self.node))
        self.assertIs(self.node.store, store)
        self.assertEqual(content(store.log), self.before)
        self.assertFalse((self.root / "rmqha" / "quarantine").exists())

    def test_no_room_for_the_quarantine(self) -> None:
        """If the tail cannot be kept it is not cut; the store is open again, and says why."""

        def full(*args: Any) -> Path:
            raise DiskFull("quarantine", 1700)

        self.patch(truncate, "quarantine", full)
        self.parted()
        self.turn()
        self.assertEqual(self.state, "ahead")
        self.assertIn("no space for 1700 bytes", unhealthy(self.node))
        self.assertEqual(self.node.status()["state"], "serving")
        self.assertEqual(content(self.node.store.log), self.before)

    def test_no_descriptor_for_a_table(self) -> None:
        """A table unreadable for want of a descriptor is read with one, and no older before."""
        self.parted()
        unreadable = make_unreadable(self, self.root / "config" / "topics.json", errno.EMFILE)
        self.turn()
        self.reactor.advance(5)
        self.assertEqual(self.node.status()["state"], "recovering")
        self.assertIsNone(self.node.broker)
        unreadable.restore()
        self.reactor.advance(1)
        self.catch_up()
        self.assertCopied()

    def test_rebootstrap(self) -> None:
        """The old log is kept aside, and everything is copied anew."""
        self.parted("rebootstrap")
        self.turn()
        aside = self.root / "commitlog.aside"
        self.assertEqual(content(self.log(aside, end=len(self.before))), self.before)
        connection = self.accept(within=1)
        self.assertEqual(connection.reports(), [0])
        self.assertTrue(self.marker.exists())
        connection.feed(self.theirs, 0)
        self.reactor.pump([0.01] * 10)
        self.assertFalse(self.marker.exists())
        self.assertCopied()
        self.assertEqual(self.cuts(), [(0, CutReason.COPY)])

    def test_one_copy_aside(self) -> None:
        """A second one is refused, again and again, and nothing is deleted."""
        (self.root / "commitlog.aside").mkdir(parents=True)
        self.parted("rebootstrap")
        self.turn()
        for _ in range(3):
            self.assertEqual(self.state, "ahead")
            self.assertIn("one old log is kept aside", unhealthy(self.node))
            self.assertFalse(self.marker.exists())
            self.assertEqual(content(self.node.store.log), self.before)
            connection = self.accept(within=31)
            connection.feed(self.theirs, 1)
            connection.heartbeat(self.theirs.end)
            self.turn()

    def test_aside_fails(self) -> None:
        """If the log cannot be put aside no marker is set, or it would go as unfinished."""

        def fails(commitlog: Path) -> Path:
            raise OSError(30, "Read-only file system")

        self.patch(slave_role, "set_log_aside", fails)
        self.parted("rebootstrap")
        self.turn()
        self.assertFalse(self.marker.exists())
        self.assertIn("Read-only file system", unhealthy(self.node))
        self.assertEqual(content(self.node.store.log), self.before)

    def test_unfinished_copy_starts_over(self) -> None:
        """A copy whose continuation is deleted starts over without anything aside."""
        self.start()
        self.accept().feed(self.theirs, 0, SIZE)
        self.stop()
        self.start()
        connection = self.accept()
        self.reactor.advance(6)
        survey = self.accept(within=1)
        self.assertEqual(survey.reports(), [0])
        survey.feed(self.theirs, 2 * SIZE)
        self.assertEqual(self.state, "below-min")
        self.turn()
        self.assertFalse(connection.open)
        again = self.accept(within=1)
        self.assertEqual(again.reports(), [0])
        self.assertFalse((self.root / "commitlog.aside").exists())
        self.assertEqual(self.node.store.log.end, 0)
        again.feed(self.theirs, 0)
        self.reactor.pump([0.01] * 10)
        self.assertCopied()

    def test_slaves_that_are_not_gone(self) -> None:
        """Nothing is cut under slaves that stay; the store opens, the repair is tried again."""
        self.parted()
        broken = self.patch(Serving, "end", lambda *_, **more: 1 // 0)
        self.turn()
        self.assertEqual(self.state, "ahead")
        self.assertIn("failed steps: replication to slaves", unhealthy(self.node))
        self.assertEqual(content(self.node.store.log), self.before)
        self.assertEqual(self.node.store_service.state, "")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        broken.restore()
        connection = self.accept(within=31)
        connection.feed(self.theirs, connection.reports()[0])
        connection.heartbeat(self.theirs.end)
        self.turn()
        self.catch_up(within=5.1)
        self.assertCopied()

    def test_store_that_does_not_close(self) -> None:
        """A repair goes on behind a store that was not closed cleanly."""
        self.parted()
        broken = self.patch(Retention, "stop", lambda _: 1 // 0)
        self.turn()
        broken.restore()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.catch_up()
        self.assertCopied()

    def test_stop_in_every_step(self) -> None:
        """A stop in any step of a repair ends cleanly; the next start finishes or forgets it."""
        for policy in ("truncate", "rebootstrap"):
            for steps in range(9):
                with self.subTest(policy=policy, steps=steps):
                    self.reactor = NodeReactor()
                    self.root = self.folder() / "store"
                    held = Held()
                    self.parted(policy)
                    self.node.run = held
                    for _ in range(steps):
                        self.reactor.advance(0)
                        if held.calls:
                            held.work()
                    stopped = self.node.stopService()
                    for _ in range(30):
                        self.reactor.advance(0)
                        if held.calls:
                            held.work()
                    self.successResultOf(stopped)
                    self.assertEqual(self.node.codes, [])
                    self.assertFalse(is_locked(self.root / "lock"))
                    self.assertEqual(
                        [call for call in self.reactor.getDelayedCalls() if call.active()], []
                    )
                    self.start(policy=DivergencePolicy(policy))
                    for _ in range(3):
                        connection = self.accept(within=31)
                        connection.feed(self.theirs, connection.reports()[0])
                        connection.heartbeat(self.theirs.end)
                        self.reactor.pump([0.01] * 10)
                        if self.state == "in-sync":
                            break
                    self.assertCopied()

    def test_store_does_not_open_again(self) -> None:
        """Then the node says so, and stands."""
        self.parted()
        self.patch(slave_role, "intend", self._break)
        self.turn()
        self.assertEqual(self.state, "failed")
        self.assertIs(self.node.state, NodeState.FAILED)
        self.assertTrue(unhealthy(self.node).startswith("failed: "))
        self.node.status()
        self.reactor.pump([1.0] * 60)
        self.assertEqual(self.node.endpoint.waiting, [])

    def _break(self, *args: Any) -> None:
        (self.root / "commitlog" / f"{99 * SIZE:020d}").write_bytes(bytes(SIZE))
