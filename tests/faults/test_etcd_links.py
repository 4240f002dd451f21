"""Sets on real etcd in a bad network: between members and etcd, and within etcd."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from lab.harness.etcd import Etcd, begin
from lab.harness.nodes import Node, until
from lab.harness.proxy import Proxy
from lab.harness.remote import Remote, bodies, pull
from rmqha.controller.etcd.client import decoded
from tests.faults.harness import rounds, seconds
from tests.faults.test_etcd import LATE, TOPIC, TTL, EtcdCase

ELSEWHERE = "127.0.0.2"
"""Where members' client ports are to each other, with proxies there."""

MOST_LATE = 17.0
"""Seconds that an answer is late at most: longer than anything here waits."""


class LinkCase(EtcdCase):
    """Sets whose members each have a way of their own to each etcd."""

    def setUp(self) -> None:
        super().setUp()
        self.ways: dict[str, list[Proxy]] = {}

    def member(self, name: str, **keys: Any) -> Node:
        """One of ours, not started, with proxies before it."""
        ways = self.ways[name] = [self.proxy(("127.0.0.1", each.port)) for each in self.cluster]
        addresses = ";".join(f"127.0.0.1:{way.address[1]}" for way in ways)
        return super().member(name, **{"etcdAddresses": addresses, **keys})

    def part(self, node: Node, *, told: bool = False) -> None:
        """Cut a member off from etcd, whose connections end, or where nothing arrives any more."""
        for way in self.ways[node.name]:
            if told:
                way.refuse(True)
                way.cut()
            else:
                way.part(True)

    def heal(self, node: Node) -> None:
        """Let it reach etcd again."""
        for way in self.ways[node.name]:
            way.part(False)

    def epoch(self) -> int:
        """The master epoch, as the set's master knows it."""
        return int(self.until_led().status()["controller"]["masterEpoch"])

    def key(self, name: str) -> dict[str, Any]:
        """A key of the set in etcd, which has to be there."""
        (found,) = [
            each
            for each in self.cluster[0].ask("kv/range", key="AA==", range_end="AA==").get("kvs", ())
            if decoded(each["key"]).endswith("/" + name)
        ]
        return dict(found)

    def last_by(self, *names: str) -> float:
        """When one of some members acknowledged something for the last time."""
        assert self.load is not None
        return max(at for at, by in self.load.times if by in names)


class MemberLinkTests(LinkCase):
    """A member that does not reach etcd."""

    def test_master(self) -> None:
        """A master that is cut off acknowledges nothing once its lease may be over; then another
        one does, which has all of it; and the old one follows when it is back.
        """
        self.etcd()
        self.set_of()
        assert self.load is not None
        for _ in rounds(1):
            master = self.until_in_sync(3)
            cut = time.monotonic()
            self.part(master, told=self.random.random() < 0.5)
            rest = [node.name for node in self.others(master)]
            first = self.load.first_after(cut, *rest)
            self.passes(1.0)
            last = self.last_by(master.name)
            self.tell(
                f"the last write by the old master {last - cut:.2f} s after the cut, the first by "
                f"another {first - cut:.2f} s, TTL {TTL} s"
            )
            self.assertLess(last - cut, TTL)
            self.assertLess(last, first)
            self.assertLess(first - cut, TTL + LATE)
            self.heal(master)
            master.until(lambda status: status["controller"]["state"] == "following", "it follows")
            self.until_in_sync(3)
        self.check()

    def test_slave(self) -> None:
        """A slave that is cut off for longer than its lease: writes go on, and none is elected."""
        self.etcd()
        master = self.set_of()
        epoch = self.epoch()
        slave = self.others(master)[0]
        for _ in rounds(1):
            begun = time.monotonic()
            self.part(slave, told=self.random.random() < 0.5)
            self.passes(TTL + LATE)
            self.assertLess(self.silence(begun), TTL / 2)
            self.heal(slave)
            slave.until(lambda status: status["controller"]["lease"]["secondsLeft"], "a lease")
        self.until_in_sync(3)
        self.assertEqual(self.epoch(), epoch)
        self.check()


class ApartTests(LinkCase):
    """Members that do not reach each other."""

    def setUp(self) -> None:
        """No ways between them yet."""
        super().setUp()
        self.between: dict[str, list[Proxy]] = {}

    def member(self, name: str, **keys: Any) -> Node:
        """One whose client and HA ports others reach through proxies; clients reach it directly."""
        own = {"bindAddress": "127.0.0.1", "brokerIP1": ELSEWHERE, "haAllowedPeers": "127.0.0.1"}
        node = super().member(name, **own, **keys)
        clients = self.proxy(("127.0.0.1", node.port), (ELSEWHERE, node.port))
        replication = self.proxy(node.address)
        told = [f"127.0.0.1:{port}" for port in (node.ha_port, replication.address[1])]
        clients.swap("down", *told)
        self.between[name] = [clients, replication]
        return node

    def cut_off(self, node: Node, on: bool) -> None:
        """Let the other members reach it no more, or again."""
        for way in self.between[node.name]:
            way.part(on)

    def test_members(self) -> None:
        """The master is cut off from its slaves, not from etcd: nobody else is elected, and it
        acknowledges nothing, as it alone would hold that; all goes on when the network is whole.
        """
        self.etcd()
        self.set_of()
        assert self.load is not None
        for _ in rounds(1):
            master, epoch = self.until_in_sync(3), self.epoch()
            self.passes(1.0)
            cut = time.monotonic()
            self.cut_off(master, True)
            self.passes(2 * TTL)
            last = self.last_by(*(node.name for node in self.nodes)) - cut
            self.tell(f"the last write was acknowledged {last:.2f} s after the cut")
            self.assertLess(last, LATE)
            self.assertEqual(self.epoch(), epoch)
            self.cut_off(master, False)
            healed = time.monotonic()
            again = self.load.first_after(healed, master.name) - healed
            self.tell(f"and {again:.2f} s after it was whole again")
            self.until_in_sync(3)
        self.check()

    def test_both(self) -> None:
        """It is cut off from etcd as well, and clients go on at both sides: another one leads when
        its lease is over, it acknowledges nothing, and follows when the network is whole.
        """
        self.etcd()
        self.set_of()
        assert self.load is not None
        for _ in rounds(1):
            master = self.until_in_sync(3)
            self.passes(1.0)
            cut = time.monotonic()
            self.cut_off(master, True)
            self.part(master, told=self.random.random() < 0.5)
            first = self.load.first_after(cut, *(node.name for node in self.others(master))) - cut
            self.passes(1.0)
            last = self.last_by(master.name) - cut
            self.tell(f"last write by the old one {last:.2f} s after the cut, first {first:.2f} s")
            self.assertLess(last, LATE)
            self.assertLess(first, TTL + LATE)
            self.cut_off(master, False)
            self.heal(master)
            master.until(lambda status: status["controller"]["state"] == "following", "it follows")
            self.until_in_sync(3)
        self.check()


class LeaseTests(LinkCase):
    """Leases that end, and answers that come too late."""

    def test_lost(self) -> None:
        """The lease of a master is taken from it while it is written to: whoever is elected, maybe
        itself, has all of it, and the set goes on sooner than after a kill.
        """
        (one,) = self.etcd()
        self.set_of()
        assert self.load is not None
        for _ in rounds(2):
            master = self.until_in_sync(3)
            epoch = master.status()["controller"]["masterEpoch"]
            number = master.status()["controller"]["id"]
            lost = time.monotonic()
            one.ask("lease/revoke", ID=self.key(f"live/{number}")["lease"])
            until(lambda before=epoch: self.epoch() > before, "an election", pause=0.1)
            self.load.first_after(time.monotonic(), *(node.name for node in self.nodes))
            silent = self.silence(lost)
            self.tell(f"longest silence after the lease was taken away: {silent:.2f} s")
            self.assertLess(silent, TTL)
            self.until_in_sync(3)
        self.check()

    def late(self, nodes: Iterable[Node], delay: float) -> None:
        """Have etcd's answers to some members come late."""
        for node in nodes:
            for way in self.ways[node.name]:
                way.set("down", delay=delay)

    def test_slow_answers(self) -> None:
        """etcd does what it is asked for and answers much later: to signs of life, to an election,
        to a change of the SyncStateSet, and to a member that registers.  Nothing is lost, and all
        is as it was when answers are quick again.
        """
        self.etcd()
        self.set_of()
        delay = seconds(TTL + LATE, MOST_LATE)
        kinds = [self.late_life, self.late_election, self.late_change, self.late_registration]
        for kind in self.random.sample(kinds, min(len(rounds(1)), len(kinds))):
            kind(self.until_in_sync(3), delay)
            self.goes_on(kind.__name__)
        self.check()

    def late_life(self, master: Node, delay: float) -> None:
        """To the master's signs of life: its lease lives in etcd, but it cannot know."""
        begun = time.monotonic()
        self.late([master], delay)
        self.passes(delay)
        self.assertLess(self.last_by(master.name) - begun, TTL)
        self.late([master], 0.0)

    def late_election(self, master: Node, delay: float) -> None:
        """To an election, which is made, and of which nobody hears."""
        rest = self.others(master)
        self.late(rest, delay)
        master.kill9()
        self.passes(delay)
        self.late(rest, 0.0)
        master.launch()

    def late_change(self, master: Node, delay: float) -> None:
        """To a change of the SyncStateSet: until it is read, both sets count."""
        gone = self.others(master)[0]
        self.late([master], delay)
        gone.kill9()
        self.passes(delay)
        self.late([master], 0.0)
        gone.launch()

    def late_registration(self, master: Node, delay: float) -> None:
        """A lease was given, and who asked for it does not know which."""
        joins = self.others(master)[0]
        joins.kill9()
        self.late([joins], delay)
        joins.launch()
        self.passes(delay)
        self.assertEqual(self.until_led(), master)
        self.late([joins], 0.0)

    def goes_on(self, what: str) -> None:
        """Wait until all are in sync, and writes are acknowledged."""
        assert self.load is not None
        healed = time.monotonic()
        self.load.first_after(healed, *(node.name for node in self.nodes))
        self.until_in_sync(3)
        self.tell(f"after {what}: whole in {time.monotonic() - healed:.1f} s")


class PeerLinkTests(EtcdCase):
    """Three of etcd that do not all hear each other, or that are all away."""

    def etcd_apart(self) -> None:
        """Start three, with a proxy before each one's port for the others."""
        self.cluster = [Etcd(self.folder, number) for number in range(3)]
        self._processes += self.cluster
        self.ways = [self.proxy(("127.0.0.1", each.peer_port)) for each in self.cluster]
        for each, way in zip(self.cluster, self.ways, strict=True):
            each.known_port = way.address[1]
        begin(self.cluster)
        told = [each.ask("maintenance/status")["header"]["member_id"] for each in self.cluster]
        self.names = [f"X-Server-From: {int(number):x}" for number in told]

    def isolate(self, *alone: Etcd) -> None:
        """Let some of them hear none of the others, and none of the others hear them."""
        apart = {each.name for each in alone}
        for each, way in zip(self.cluster, self.ways, strict=True):
            way.bar(
                *(
                    name
                    for other, name in zip(self.cluster, self.names, strict=True)
                    if (other.name in apart) != (each.name in apart)
                )
            )

    def test_isolated(self) -> None:
        """Their leader, whom members ask, is cut off from the other two, at length another one too:
        members ask those that have a quorum, and none is elected.  A member of etcd that is back
        has them elect a leader again; with it leases begin anew.
        """
        self.etcd_apart()
        leader = self.leader_of_etcd()
        ordered = [leader, *(each for each in self.cluster if each is not leader)]
        master = self.set_of(etcdAddresses=";".join(each.address for each in ordered))
        epoch = master.status()["controller"]["masterEpoch"]
        begun = time.monotonic()
        for number in rounds(1):
            alone = ordered[number % 3]
            self.isolate(alone)
            until(lambda one=alone: not one.answers(), "it has no quorum")
            self.passes(2 * TTL)
            self.isolate()
            until(alone.answers, "it has one again", tell=alone.tail)
            self.passes(1.0)
        self.tell(f"longest silence: {self.silence(begun):.2f} s")
        self.assertLess(self.silence(begun), TTL + LATE)
        self.assertEqual(self.until_led().status()["controller"]["masterEpoch"], epoch)
        self.check()

    def test_all(self) -> None:
        """All three are killed: the master acknowledges until its lease may be over, then reads are
        all that it serves, and nobody is elected.  When they are back all goes on by itself.
        """
        self.etcd(3)
        master = self.set_of()
        assert self.load is not None
        epoch = master.status()["controller"]["masterEpoch"]
        for _ in rounds(1):
            away = time.monotonic()
            for each in self.cluster:
                each.kill9()
            until(lambda: self.state(master) == "fenced", "fenced", TTL + 10)
            self.passes(TTL + LATE)
            last = self.last(away)
            self.tell(f"the last write was acknowledged {last:.2f} s after all were killed")
            self.assertLess(last, TTL)
            self.assertGreater(last, 0.2)
            self.assertNotIn("leading", [self.state(node) for node in self.nodes])
            with Remote(master.port) as broker:
                self.assertTrue(bodies(broker.ask(pull(TOPIC, "readers", 0))))
            for each in self.cluster:
                each.launch()
            back = time.monotonic()
            again = self.load.first_after(back, *(node.name for node in self.nodes)) - back
            self.tell(f"and {again:.2f} s after they were started again")
            self.assertEqual(self.until_led(), master)
            self.assertEqual(master.status()["controller"]["masterEpoch"], epoch)
        self.until_in_sync(3)
        self.check()

    def last(self, since: float) -> float:
        """Seconds from a moment to the last acknowledgement."""
        assert self.load is not None
        return max(at for at, _ in self.load.times) - since

    def test_slow_disk(self) -> None:
        """etcd mostly stands still, as with a slow disk: no lease is lost, and none is elected."""
        (one,) = self.etcd()
        master = self.set_of()
        epoch = master.status()["controller"]["masterEpoch"]
        begun = time.monotonic()
        for _ in rounds(5):
            one.freeze()
            self.passes(0.8)
            one.thaw()
            self.passes(0.2)
        self.tell(f"longest silence: {self.silence(begun):.2f} s")
        self.assertLess(self.silence(begun), 1.0)
        self.assertEqual(self.until_led().status()["controller"]["masterEpoch"], epoch)
        self.check()
