"""Sets of members of ours that real etcd coordinates: no Java anywhere."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import socket
import statistics
import subprocess
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from unittest import SkipTest
from urllib.error import HTTPError

from attrs import define, field

from lab.harness import compare_stores
from lab.harness.certificates import Authority
from lab.harness.etcd import MISSING, PROGRAM, Etcd, addresses_of, etcd
from lab.harness.nodes import Node, Process, until
from lab.harness.remote import Remote, make_topic, send
from rmqha.config.load import load
from rmqha.controller.etcd.client import encoded
from rmqha.wire.remoting.codes import ResponseCode
from tests.faults.harness import SOON_SILENT, FaultTestCase, rounds, seconds
from tests.faults.ledger import Entry, Ledger
from tests.support.commands import rmqha

TTL = 3
"""Seconds of a lease."""

LATE = 1.5
"""Seconds that an election may take on a busy machine, after the lease is over."""

STANDSTILLS = (1.0, 5.0, 20.0, 60.0)
"""Seconds for which a master stands still: less than its lease, more, and much more; the last one
only at length.
"""

USUAL_TTL = 10
"""C{etcdLeaseSeconds} where nobody says anything."""

FAULTS = (
    "kill master",
    "kill follower",
    "kill two",
    "kill etcd",
    "kill quorum",
    "stop master",
    "stop follower",
    "freeze master",
    "freeze follower",
    "freeze two",
    "freeze etcd",
    "freeze quorum",
    "elect follower",
)
"""What is done, and to whom; each comes as often as the others."""

TOPIC, QUEUES = "Orders", 4


@define(eq=False)
class Load:
    """Clients that send to each member whenever it is there: the acks, when, and by whom."""

    nodes: list[Node]
    producers: int = 1
    ledger: Ledger = field(factory=Ledger)
    times: list[tuple[float, str]] = field(factory=list)
    enough: threading.Event = field(factory=threading.Event)
    _threads: list[threading.Thread] = field(factory=list)

    def start(self) -> None:
        for node in self.nodes * self.producers:
            thread = threading.Thread(target=self._run, args=(node,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        self.enough.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, node: Node) -> None:
        while not self.enough.wait(0.05):
            with contextlib.suppress(OSError), Remote(node.port) as broker:
                while not self.enough.wait(0.003):
                    if not self._one(node, broker):
                        self.enough.wait(0.05)

    def _one(self, node: Node, broker: Remote) -> bool:
        number = next(self.ledger.numbers)
        body, queue = b"%d " % number + b"x" * 200, number % QUEUES
        answer = broker.ask(send(TOPIC, body, queue))
        if answer.code != ResponseCode.SUCCESS:
            return False
        self.times.append((time.monotonic(), node.name))
        self.ledger.entries.append(
            Entry(
                kind="plain",
                body=body,
                offset=int(answer.ext["msgId"][-16:], 16),
                topic=TOPIC,
                queue=queue,
                queue_offset=int(answer.ext["queueOffset"]),
            )
        )
        return True

    def first_after(self, moment: float, *names: str) -> float:
        """Wait for the first acknowledgement after a moment by some members: when it came."""

        def found() -> float | None:
            # Clients note them at once, and so not quite in their order.
            near = max(0, bisect_right(self.times, (moment, "")) - 100)
            later = itertools.islice(self.times, near, None)
            return next((at for at, by in later if at > moment and by in names), None)

        at: float = until(found, "a write is acknowledged again", pause=0.01)
        return at


class EtcdCase(FaultTestCase):
    def setUp(self) -> None:
        if PROGRAM is None:
            raise SkipTest(MISSING)
        super().setUp()
        self.nodes: list[Node] = []
        self.load: Load | None = None

    def etcd(self, count: int = 1, quota: int = 0) -> list[Etcd]:
        self.cluster = etcd(self.folder, count, quota)
        self._processes += self.cluster
        return self.cluster

    def member(self, name: str, **keys: Any) -> Node:
        """One of ours, not started."""
        node = Node(
            self.folder,
            "member",
            name,
            **{
                "brokerRole": "SYNC_MASTER",
                "brokerId": 0,
                "brokerIP1": "127.0.0.1",
                "brokerIP2": "127.0.0.1",
                "enableControllerMode": "true",
                "controllerType": "etcd",
                "etcdAddresses": addresses_of(self.cluster),
                "etcdLeaseSeconds": TTL,
                "haMaxTimeSlaveNotCatchup": 3000,
                "haReconnectBackoffMax": 200,
                **SOON_SILENT,
                **keys,
            },
        )
        self._processes.append(node)
        self.nodes.append(node)
        return node

    def set_of(self, count: int = 3, producers: int = 1, **keys: Any) -> Node:
        """Start a set, wait until all are in sync, send to it, and return its master."""
        for number in range(count):
            self.member(f"m{number}", **keys).start()
        master = self.until_led()
        self.until_in_sync(count)
        with Remote(master.port) as broker:
            self.assertEqual(broker.ask(make_topic(TOPIC, QUEUES)).code, ResponseCode.SUCCESS)
        self.load = Load(self.nodes, producers)
        self.addCleanup(self.load.stop)
        self.load.start()
        self.load.first_after(0.0, master.name)
        return master

    def state(self, node: Node) -> str:
        """What a member says that it does; nothing if it does not answer."""
        with contextlib.suppress(OSError):
            return str(node.status()["controller"]["state"])
        return ""

    def until_led(self, *but: Node) -> Node:
        """Wait until a member leads that is not one of some."""
        found: Node = until(
            lambda: next(
                (
                    node
                    for node in self.nodes
                    if node not in but and node.running and self.state(node) == "leading"
                ),
                None,
            ),
            "one leads",
            tell=lambda: "\n".join(node.tail() for node in self.nodes),
        )
        return found

    def until_in_sync(self, count: int) -> Node:
        """Wait until so many are in the SyncStateSet, and return the master."""

        def found() -> Node | None:
            for node in self.nodes:
                with contextlib.suppress(OSError):
                    known = node.status()["controller"]["set"] or {}
                    if len(known.get("syncStateSet", ())) == count:
                        return node
            return None

        led: Node = until(
            found,
            f"{count} in the SyncStateSet",
            tell=lambda: "\n".join(node.tail() for node in self.nodes),
            pause=0.1,
        )
        return led

    def others(self, node: Node) -> list[Node]:
        return [each for each in self.nodes if each is not node]

    def leader_of_etcd(self) -> Etcd:
        def found() -> Etcd | None:
            for each in self.cluster:
                with contextlib.suppress(OSError):
                    told = each.ask("maintenance/status")
                    if told["leader"] == told["header"]["member_id"]:
                        return each
            return None

        leader: Etcd = until(found, "one of etcd leads", pause=0.1)
        return leader

    def silence(self, since: float) -> float:
        """The longest pause between acknowledgements since a moment, in seconds."""
        assert self.load is not None
        times = sorted(at for at, _ in self.load.times if at > since)
        times = [since, *times, time.monotonic()]
        return max(after - before for before, after in itertools.pairwise(times))

    def check(self) -> None:
        """Stop all: whatever was acknowledged is on every member, at its byte, all logs are the
        same bytes, and no member has complained of itself.
        """
        assert self.load is not None
        self.load.stop()
        master = self.until_in_sync(len(self.nodes))
        end = master.status()["maxOffset"]
        for node in self.nodes:
            node.until(lambda status: status["confirmedOffset"] == end, f"has all up to {end}")
        self.tell(f"{len(self.load.ledger.entries)} acknowledged, log of {end} bytes")
        try:
            for node in self.nodes:
                node.term()
                self.assertEqual(node.complaints(), [], node.tail())
                self.load.ledger.check_bytes(self.settings_of(node))
            first, *others = map(self.settings_of, self.nodes)
            for other in others:
                for pair in compare_stores.pairs(first, other, end):
                    self.assertTrue(pair.same, f"{pair.name} differs: {first.root}, {other.root}")
        except BaseException:
            self.load.ledger.keep(self.folder, self._processes, seed=self.seed)
            raise

    def command(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return rmqha("set", *arguments)

    def id_of(self, node: Node) -> int:
        """As its set has it."""
        return int(node.status()["controller"]["id"])

    def done(self, *arguments: object) -> str:
        """Run it, and it does."""
        done = self.command(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def settings_of(self, node: Node) -> Any:
        return load(node.conf, role="member").store


class MasterTests(EtcdCase):
    def test_kill(self) -> None:
        """Killed, it is followed by another one that has all of it when its lease is over, which
        acknowledges at once; then it comes back and follows.
        """
        self.etcd()
        self.set_of()
        self.replaced(Node.kill9, TTL, TTL + LATE)

    def test_kill_with_the_usual_lease(self) -> None:
        """The same with C{etcdLeaseSeconds} as it is by default."""
        self.etcd()
        self.set_of(etcdLeaseSeconds=USUAL_TTL)
        self.replaced(Node.kill9, USUAL_TTL, USUAL_TTL + LATE)

    def test_stop(self) -> None:
        """Stopped cleanly, it lets its lease go: another one leads at once."""
        self.etcd()
        self.set_of()
        self.replaced(Node.term, TTL, TTL)

    def replaced(self, end: Callable[[Node], object], ttl: int, most: float) -> None:
        """End the master under load, once, and another one acknowledges in time."""
        assert self.load is not None
        silences = []
        for _ in rounds(1):
            master = self.until_in_sync(3)
            self.passes(1.0)
            ended = time.monotonic()
            end(master)
            others = [node.name for node in self.others(master)]
            silences.append(self.load.first_after(ended, *others) - ended)
            self.tell(f"first acknowledged write after {silences[-1]:.2f} s, TTL {ttl} s")
            self.assertLess(silences[-1], most)
            master.start()
            self.until_in_sync(3)
        least, most, middle = min(silences), max(silences), statistics.median(silences)
        self.tell(f"{len(silences)} times {least:.2f} to {most:.2f} s, median {middle:.2f} s")
        self.check()

    def test_freeze(self) -> None:
        """It stands still under load for longer and shorter than its lease, and wakes with requests
        and reports in its sockets: nothing that it acknowledges is lost.
        """
        self.etcd()
        self.set_of()
        assert self.load is not None
        for number in rounds(len(STANDSTILLS) - 1):
            once_more = number >= len(STANDSTILLS)
            length = self.random.uniform(1.0, 60.0) if once_more else STANDSTILLS[number]
            master = self.until_led()
            self.until_in_sync(3)
            frozen = time.monotonic()
            master.freeze()
            self.passes(length)
            woken = time.monotonic()
            master.thaw()
            # A member that is older than the election acknowledges nothing.
            again = self.load.first_after(frozen, *(node.name for node in self.nodes)) - frozen
            told = [by for at, by in self.load.times if woken < at < woken + 0.5]
            self.tell(
                f"frozen for {length:.1f} s, acknowledged again after {again:.2f} s; "
                f"in the half second after: {sorted(set(told))}"
            )
            if length > TTL + LATE:
                self.assertNotIn(master.name, told)
        self.until_in_sync(3)
        self.check()


class IdleTests(EtcdCase):
    def test_requests(self) -> None:
        """Three members ask etcd for less than four things a second, and one of ten is a write."""
        (one,) = self.etcd()
        self.set_of()
        assert self.load is not None
        self.load.stop()
        self.until_in_sync(3)
        names = ("grpc_server_started_total", "etcd_server_proposals_committed_total")
        begun, before = time.monotonic(), [one.counted(name) for name in names]
        self.passes(seconds(10, 60))
        length = time.monotonic() - begun
        asked, written = (
            (one.counted(name) - count) / length for name, count in zip(names, before, strict=True)
        )
        self.tell(f"{asked:.2f} requests a second, {written:.2f} of them writes")
        # In a short while the alarms' turn may come, and one more of each.
        self.assertLess(asked, 4.0 + 3 / length)
        self.assertLess(written, 1.0)
        self.check()


class FullTests(EtcdCase):
    def test_alarm(self) -> None:
        """Its alarm is a reason of each member; the master goes on, and the guide mends all."""
        (one,) = self.etcd(quota=1 << 20)
        master = self.set_of(2)
        assert self.load is not None
        refused = False
        while not refused:
            try:
                one.ask("kv/put", key=encoded("/other"), value=encoded("x" * 100_000))
            except HTTPError as error:
                refused = error.code == HTTPStatus.TOO_MANY_REQUESTS
        for node in self.nodes:
            node.until(lambda status: status["controller"]["etcd"]["alarms"] == ["NOSPACE"], "full")
            self.assertIn("etcd-alarm", node.reasons())
        self.load.first_after(time.monotonic(), master.name)
        self.assertEqual(self.state(master), "leading")
        revision = one.ask("kv/range", key="AA==")["header"]["revision"]
        one.ask("kv/compaction", revision=revision, physical=True)
        one.ask("maintenance/defragment")
        for each in one.ask("maintenance/alarm", action="GET")["alarms"]:
            one.ask("maintenance/alarm", action="DEACTIVATE", **each)
        for node in self.nodes:
            node.until(lambda status: status["controller"]["etcd"]["alarms"] == [], "room again")
        master.kill9()
        self.until_led(master)
        master.start()
        self.check()


class OperatorTests(EtcdCase):
    def test_elect(self) -> None:
        """The master is chosen, again and again, under load: nothing is lost, and writes go on at
        once; who may not be it is refused by name.
        """
        self.etcd()
        self.set_of(producers=4)
        assert self.load is not None
        longest = 0.0
        for number in rounds(4):
            master = self.until_in_sync(3)
            other = self.others(master)[number % 2]
            found = json.loads(self.command("list", other.conf, "--json").stdout)
            ours = next(
                each for each in found["members"] if each["address"].endswith(f":{other.port}")
            )
            self.assertEqual((len(found["members"]), ours["inSync"]), (3, True))
            begun = time.monotonic()
            done = self.command("elect", master.conf, "--id", ours["id"])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.load.first_after(begun, other.name)
            self.passes(0.5)
            times = sorted(at for at, _ in self.load.times if at > begun)
            pauses = (after - one for one, after in itertools.pairwise([begun, *times]))
            paused = max(pauses)
            self.tell(f"{number}: {master.name} to {other.name}, {paused:.2f} s")
            longest = max(longest, paused)
        self.tell(f"longest silence of all elections: {longest:.2f} s")
        done = self.command("elect", self.nodes[0].conf, "--id", 7)
        self.assertEqual(done.returncode, 1)
        self.assertIn("id 7 is not alive and in sync", done.stderr)
        self.until_in_sync(3)
        self.check()
        self.assertEqual(self.command("list", self.nodes[0].conf).returncode, 1)

    def test_elect_beside_a_mute_name_server(self) -> None:
        """A name server that takes connections and says nothing does not hold up an election."""
        self.etcd()
        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
            master = self.set_of(namesrvAddr=f"127.0.0.1:{port}")
            assert self.load is not None
            other = self.others(master)[0]
            begun = time.monotonic()
            self.done("elect", master.conf, "--id", self.id_of(other))
            self.load.first_after(begun, other.name)
            silent = self.silence(begun)
            self.tell(f"longest silence: {silent:.2f} s")
            self.assertLess(silent, TTL)
            self.until_in_sync(3)
            self.check()

    def test_new(self) -> None:
        """Before a set begins etcd is tried, and nothing is written; then there is a set of that
        name, and each member is listed with its lease and the end of its log.
        """
        (one,) = self.etcd()
        first = self.member("m0")
        first.write_conf()
        self.nodes.remove(first)
        conf = first.conf
        said = self.done("init", conf)
        self.assertIn(f"etcdAddresses={addresses_of(self.cluster)}", said)
        self.assertEqual(one.ask("kv/range", key="AA==", range_end="AA==").get("kvs", []), [])
        self.assertIn("no election yet", self.done("history", conf))
        self.set_of(2)
        self.assertIn("there is a set", self.command("init", conf).stderr)
        for each in json.loads(self.done("list", conf, "--json"))["members"]:
            self.assertIn(each["leaseSeconds"], range(TTL + 1))
            self.assertGreater(each["logEnd"], 0)
            self.assertEqual(each["epoch"], 1)
        self.check()

    def test_pause(self) -> None:
        """While a set is paused its master may be killed and comes back in its epoch, and is fenced
        without etcd as ever; another one is chosen; after that ends one is elected at once.
        """
        (one,) = self.etcd()
        master = self.set_of()
        assert self.load is not None
        epoch = master.status()["controller"]["masterEpoch"]
        self.done("pause", master.conf)
        for node in self.nodes:
            node.until(lambda _, node=node: "paused" in node.reasons(), "says so")
        master.kill9()
        self.passes(TTL + LATE)
        self.assertEqual([self.state(each) for each in self.others(master)], ["waiting"] * 2)
        listed = self.command("list", master.conf)
        self.assertEqual(listed.returncode, 1)
        self.assertIn("paused since", listed.stdout)
        master.start()
        self.assertIs(self.until_led(), master)
        self.until_in_sync(3)
        self.load.first_after(time.monotonic(), master.name)
        one.kill9()
        until(lambda: self.state(master) == "fenced", "fenced", TTL + 10)
        one.launch()
        self.load.first_after(time.monotonic(), master.name)
        self.assertEqual(master.status()["controller"]["masterEpoch"], epoch)
        self.until_in_sync(3)
        other = self.others(master)[0]
        self.done("elect", master.conf, "--id", self.id_of(other))
        self.load.first_after(time.monotonic(), other.name)
        self.until_in_sync(3)
        other.kill9()
        self.passes(TTL + LATE)
        rest = self.others(other)
        begun = time.monotonic()
        self.done("resume", master.conf)
        again = self.load.first_after(begun, *(node.name for node in rest)) - begun
        self.tell(f"first acknowledged write {again:.2f} s after the pause, its command included")
        for node in rest:
            self.assertNotIn("paused", node.reasons())
        other.start()
        self.until_in_sync(3)
        found = json.loads(self.done("history", master.conf, "--json"))["elections"]
        first, chosen, last = (each["why"] for each in found)
        self.assertEqual((first, last), ("first", "lease over"))
        self.assertRegex(chosen, "^chosen by .+@.+$")
        self.check()

    def test_remove(self) -> None:
        """A member that is gone is taken out; it is refused when it comes back, and after a reset
        it is a new one.  A clean stop of the master is remembered as one.
        """
        self.etcd()
        master = self.set_of()
        assert self.load is not None
        follower = self.others(master)[0]
        gone = self.id_of(follower)
        self.assertIn("lives", self.command("remove", master.conf, "--id", gone).stderr)
        follower.term()
        self.until_in_sync(2)
        self.done("remove", master.conf, "--id", gone)
        follower.launch()
        follower.until(
            lambda status: "was removed from the set" in status["controller"]["reason"], "refused"
        )
        follower.term()
        rmqha("controller", "reset", follower.root, check=True)
        follower.start()
        self.until_in_sync(3)
        self.assertEqual(self.id_of(follower), 4)
        master.term()
        self.until_led(master)
        master.start()
        self.until_in_sync(3)
        found = json.loads(self.done("history", master.conf, "--json"))["elections"]
        self.assertEqual(found[-1]["why"], "clean stop")
        self.check()

    def test_forget(self) -> None:
        """All that could be elected is lost for good: etcd forgets the set, and what is left of it
        begins another one on its logs, which are read as before.
        """
        self.etcd()
        master = self.set_of()
        assert self.load is not None
        rest = self.others(master)
        self.passes(1.0)
        self.load.stop()
        self.until_in_sync(3)
        for node in rest:
            node.term()
        self.until_in_sync(1)
        self.assertIn("live", self.command("remove", master.conf, "--all").stderr)
        master.kill9()
        shutil.rmtree(master.root)
        self.passes(TTL + LATE)
        self.done("remove", master.conf, "--all")
        for node in rest:
            node.launch()
            node.until(
                lambda status: "unknown-set" in status["controller"]["reason"], "knows no set"
            )
            node.term()
            rmqha("controller", "reset", node.root, check=True)
            node.start()
        self.until_led()
        self.until_in_sync(2)
        master.start()
        self.check()


class EtcdTests(EtcdCase):
    def test_away(self) -> None:
        """Without etcd the master goes on until its lease is over; then it takes no writes, and its
        readers read.  All goes on by itself when etcd is back, and none was elected.
        """
        (one,) = self.etcd()
        master = self.set_of()
        assert self.load is not None
        epoch = master.status()["controller"]["masterEpoch"]
        away = time.monotonic()
        one.kill9()
        until(lambda: self.state(master) == "fenced", "fenced", TTL + 10)
        last = max(at for at, _ in self.load.times) - away
        self.tell(f"the last write was acknowledged {last:.2f} s after etcd was killed")
        self.assertLess(last, TTL)
        self.assertGreater(last, 0.2)
        self.passes(2.0)
        one.launch()
        back = time.monotonic()
        again = self.load.first_after(back, *(node.name for node in self.nodes)) - back
        self.tell(f"and {again:.2f} s after it was started again")
        self.assertEqual(self.until_led().status()["controller"]["masterEpoch"], epoch)
        self.check()


class ClusterTests(EtcdCase):
    def test_one_away(self) -> None:
        """Their leader is killed, then the one that is asked stands still: no member of the set
        loses its lease, none is elected, and writes go on.
        """
        self.etcd(3)
        master = self.set_of()
        epoch = master.status()["controller"]["masterEpoch"]
        begun = time.monotonic()
        killed = self.leader_of_etcd()
        killed.kill9()
        self.passes(2 * TTL)
        killed.launch()
        until(killed.answers, "etcd is whole", tell=killed.tail, pause=0.1)
        asked = master.status()["controller"]["leader"]
        frozen = next(each for each in self.cluster if each.address == asked)
        frozen.freeze()
        self.passes(2 * TTL)
        frozen.thaw()
        self.passes(1.0)
        self.tell(f"longest silence: {self.silence(begun):.2f} s")
        status = self.until_led().status()["controller"]
        self.assertEqual(status["masterEpoch"], epoch)
        self.assertEqual(len(status["set"]["syncStateSet"]), 3)
        self.assertLess(self.silence(begun), TTL)
        self.check()

    def test_master_and_leader(self) -> None:
        """Their leader and the master are killed at once."""
        self.etcd(3)
        master = self.set_of()
        assert self.load is not None
        killed, other = time.monotonic(), self.leader_of_etcd()
        other.kill9()
        master.kill9()
        rest = self.others(master)
        silent = self.load.first_after(killed, *(node.name for node in rest)) - killed
        self.tell(f"first acknowledged write {silent:.2f} s after both were killed")
        other.launch()
        master.start()
        self.until_in_sync(3)
        self.check()

    def test_no_quorum(self) -> None:
        """Two of three are away: the master is fenced in time, and goes on when one is back."""
        self.etcd(3)
        master = self.set_of()
        assert self.load is not None
        epoch = master.status()["controller"]["masterEpoch"]
        for each in self.cluster[:2]:
            each.kill9()
        until(lambda: self.state(master) == "fenced", "fenced", TTL + 10)
        self.passes(2.0)
        self.cluster[0].launch()
        back = time.monotonic()
        self.load.first_after(back, *(node.name for node in self.nodes))
        self.assertEqual(self.until_led().status()["controller"]["masterEpoch"], epoch)
        self.check()

    def test_leader_stands_still(self) -> None:
        """The one of etcd that leads, and that members ask first, stands still for longer than the
        others wait before they elect another one, and wakes with signs of life in its sockets.  It
        may end leases then that live on elsewhere: whoever is elected has all of it, and writes go
        on.
        """
        self.etcd(3)
        leader = self.leader_of_etcd()
        ordered = [leader, *(each for each in self.cluster if each is not leader)]
        addresses = ";".join(each.address for each in ordered)
        self.set_of(etcdAddresses=addresses)
        assert self.load is not None
        begun = time.monotonic()
        for _ in rounds(2):
            frozen = self.leader_of_etcd()
            frozen.freeze()
            self.passes(self.random.uniform(TTL, 2 * TTL))
            frozen.thaw()
            self.passes(1.0)
            # How long that takes is how long etcd takes to have a leader, on a busy machine too.
            self.load.first_after(time.monotonic(), *(node.name for node in self.nodes))
        epoch = self.until_in_sync(3).status()["controller"]["masterEpoch"]
        self.tell(f"longest silence: {self.silence(begun):.2f} s, {epoch - 1} elections")
        self.check()


class LockedTests(EtcdCase):
    """An etcd that does not let everybody in."""

    def test_certificates(self) -> None:
        """Over TLS, with a client's certificate, a set is as ever; a node without one, and one that
        expects another etcd, are no members, and say why.
        """
        roots = Authority(self.folder / "tls")
        key, cert = roots.certificate("node")
        self.one(roots)
        keys = {"etcdTlsTrustCertPath": roots.root, "etcdTlsKeyPath": key, "etcdTlsCertPath": cert}
        self.goes_on(**keys)
        self.refused("bare", "no etcd of", **keys | {"etcdTlsKeyPath": "", "etcdTlsCertPath": ""})
        other = Authority(self.folder / "tls", "other")
        self.refused(
            "other", "certificate verify failed", **keys | {"etcdTlsTrustCertPath": other.root}
        )
        self.check()

    def test_users(self) -> None:
        """With a user who may write below the prefix alone a set is as ever; with a wrong password
        and as nobody a node is no member, and says why.
        """
        self.lock(self.one())
        password, wrong = self.folder / "password", self.folder / "wrong"
        password.write_text("secret\n")
        wrong.write_text("guess")
        keys = {"etcdUser": "rmqha", "etcdPasswordFile": password}
        self.goes_on(**keys)
        self.refused("guessing", "authentication failed", **keys | {"etcdPasswordFile": wrong})
        self.refused("unknown", "user name is empty")
        self.check()

    def one(self, roots: Authority | None = None) -> Etcd:
        """Start etcd, with certificates or without."""
        one = Etcd(self.folder, 0)
        if roots is not None:
            one.root, one.shown = roots.root, roots.certificate("etcd")
        self.cluster = [one]
        self._processes.append(one)
        one.launch()
        until(one.answers, "etcd answers", tell=one.tail, pause=0.1)
        return one

    def goes_on(self, **keys: object) -> None:
        """A set begins, and a member of it comes back."""
        master = self.set_of(2, **keys)
        assert self.load is not None
        (other,) = self.others(master)
        other.kill9()
        other.launch()
        self.until_in_sync(2)
        for each in json.loads(self.done("list", master.conf, "--json"))["members"]:
            self.assertIn(each["leaseSeconds"], range(TTL + 1))
        self.done("pause", master.conf)
        self.done("resume", master.conf)
        self.load.first_after(time.monotonic(), master.name)

    def refused(self, name: str, why: str, **keys: object) -> None:
        """A node is no member, and says why."""
        node = self.member(name, **keys)
        self.nodes.remove(node)
        node.launch()
        node.until(
            lambda status: (
                status["controller"]["state"] == "no-controller"
                and why in status["controller"]["reason"]
            ),
            why,
        )
        node.term()

    def lock(self, one: Etcd) -> None:
        """Two users: one for everything, whom etcd asks for, and that of a set."""
        below = {"key": encoded("/rmqha/"), "range_end": encoded("/rmqha0")}
        one.ask("auth/user/add", name="root", password="root")
        one.ask("auth/user/grant", user="root", role="root")
        one.ask("auth/role/add", name="sets")
        one.ask("auth/role/grant", name="sets", perm={"permType": "READWRITE", **below})
        one.ask("auth/user/add", name="rmqha", password="secret")
        one.ask("auth/user/grant", user="rmqha", role="sets")
        one.ask("auth/enable")


class DiskTests(EtcdCase):
    """Which disk a member comes back with."""

    def refused(self, node: Node, *why: str) -> None:
        """It says that it is no member, and why."""
        found = node.until(lambda status: status["controller"]["state"] == "refused", "refused")[
            "controller"
        ]["reason"]
        for part in why:
            self.assertIn(part, found)

    def test_copy(self) -> None:
        """A copy of the disk of a living member is refused, and that one goes on."""
        self.etcd()
        master = self.set_of()
        follower = self.others(master)[0]
        copy = self.member("copy")
        passing = shutil.ignore_patterns("lock", "*.tmp")
        shutil.copytree(follower.root, copy.root, ignore=passing)
        copy.launch()
        self.refused(copy, "identity", "this store is a copy of its disk")
        copy.term()
        self.nodes.remove(copy)
        self.until_in_sync(3)
        self.check()

    def test_older(self) -> None:
        """A disk as it was before is refused; after a reset it is a new member, and follows."""
        self.etcd()
        master = self.set_of()
        follower = self.others(master)[0]
        follower.term()
        older = self.folder / "older"
        shutil.copytree(follower.root, older)
        follower.start()
        self.until_in_sync(3)
        follower.term()
        shutil.rmtree(follower.root)
        shutil.copytree(older, follower.root)
        follower.launch()
        self.refused(follower, "identity", "an older state of that disk")
        follower.term()
        rmqha("controller", "reset", follower.root, check=True)
        follower.start()
        self.until_in_sync(3)
        self.assertEqual(follower.status()["controller"]["id"], 4)
        self.check()

    def test_wiped(self) -> None:
        """A member whose disk is empty is a new one, and gets everything."""
        self.etcd()
        master = self.set_of()
        follower = self.others(master)[0]
        follower.kill9()
        shutil.rmtree(follower.root)
        follower.start()
        self.until_in_sync(3)
        self.assertEqual(follower.status()["controller"]["id"], 4)
        self.check()


class SwitchTests(EtcdCase):
    def test_rounds(self) -> None:
        """Members and etcd are killed, stopped, frozen, and elected, at random, with a ledger."""
        self.etcd(3)
        self.set_of()
        assert self.load is not None
        for number in rounds(6):
            fault, length = self.random.choice(FAULTS), self.random.uniform(0.5, 2.5 * TTL)
            master = self.until_in_sync(3)
            begun = time.monotonic()
            self.hurt(fault, master, length)
            # What was on its way before is no sign that it works again.
            again = self.load.first_after(time.monotonic(), *(each.name for each in self.nodes))
            self.tell(f"{number}: {fault}, {length:.1f} s; works after {again - begun:.1f} s")
        self.until_in_sync(3)
        self.check()

    def hurt(self, fault: str, master: Node, length: float) -> None:
        """Do it, and undo it after a while."""
        how, who = fault.split()
        if how == "elect":
            chosen_one = self.random.choice(self.others(master))
            number = chosen_one.status()["controller"]["id"]
            done = self.command("elect", master.conf, "--id", number)
            self.assertEqual(done.returncode, 0, done.stderr)
            return
        chosen: list[Process] = {
            "master": [master],
            "follower": self.random.sample(self.others(master), 1),
            "two": [master, *self.random.sample(self.others(master), 1)],
            "etcd": self.random.sample(self.cluster, 1),
            "quorum": self.random.sample(self.cluster, 2),
        }[who]  # type: ignore[assignment]
        for each in chosen:
            {"kill": each.kill9, "stop": each.term, "freeze": each.freeze}[how]()
        self.passes(length)
        for each in chosen:
            if how == "freeze":
                each.thaw()
            else:
                each.launch()  # type: ignore[attr-defined]
