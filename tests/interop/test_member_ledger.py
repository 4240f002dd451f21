"""Rounds of faults of a set, with a ledger by byte of messages of all kinds.

How many is C{RMQHA_FAULT_ROUNDS} times those of every day; C{RMQHA_SEED} has the same chosen again.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter

from lab.harness import compare_stores
from lab.harness.nodes import Node, until
from lab.harness.remote import Remote
from lab.stock.brokers import BOOT
from tests.faults.harness import SOON_SILENT, rounds
from tests.faults.ledger import GROUP, ORDERS, QUEUES, Ledger, Sender, TablesLedger, until_told
from tests.faults.test_newer_tables import LATER, PAID
from tests.interop import set_cases
from tests.support import client

FAULTS = (
    "kill leader",
    "kill follower",
    "kill two",
    "kill all",
    "end leader",
    "end follower",
    "freeze leader",
    "freeze follower",
    "recover leader",
    "recover follower",
    "choose follower",
    "choose follower",
    "corner two",
    "part_from_controllers leader",
    "part_from_members leader",
    "part_from_all leader",
    "part_from_controllers follower",
    "disconnect leader",
)
"""What is done, and to whom; each comes as often as the others."""

DAILY = 3
"""Rounds of every day."""

BETWEEN_CHECKS = 6
"""Rounds between two looks at everything."""

AGAIN = 20
"""Acknowledged messages that show that a set works again."""

KEYS: dict[str, object] = {
    **SOON_SILENT,
    "mappedFileSizeCommitLog": 128 << 10,
    "haMaxTimeSlaveNotCatchup": 3000,
    "slaveTimeout": 1000,
    "transactionCheckInterval": 500,
    "transactionCheckMax": 1_000_000,
    "transactionTimeOut": 100,
}
"""Files are small, so that many end."""


class LedgerTests(set_cases.LinkedSetTestCase):
    """Three members of ours, each with a client of its own that sends to it whenever it is
    there; topics are deleted, and a group goes on.
    """

    roles = "members of ours"
    timeout = 14400  # type: ignore[assignment]

    def setUp(self) -> None:
        super().setUp()
        self.seed = os.environ.get("RMQHA_SEED") or str(random.SystemRandom().randrange(10**9))
        self.chance = random.Random(f"{self.seed} {self.id()}")
        self.ledger = Ledger()
        self.tables = TablesLedger(self.ledger, self.chance)
        self.senders: list[Sender] = []

    def test_rounds(self) -> None:
        """Whatever was acknowledged, by whoever led, is on all members at its byte, in its queue
        and for its consumers; what was to come later comes, what was rolled back or deleted does
        not, and no group goes back.
        """
        try:
            with self.scenario(f"faults with a ledger of all kinds: {len(rounds(DAILY))}x"):
                self.run_rounds()
        except BaseException:
            told = self.tables.told()
            self.ledger.keep(self.folder, self._processes, seed=self.seed, **told)
            raise

    def run_rounds(self) -> None:
        self.begin_as("OOO", **KEYS)
        leader = self.leader_of_all()
        for topic in (ORDERS, LATER, PAID):
            client.make_topic(f"127.0.0.1:{leader.port}", topic, QUEUES)
        client.make_group(f"127.0.0.1:{leader.port}", GROUP)
        for node in self.nodes:
            until(lambda node=node: self.knows(node), "all topics are known", BOOT, pause=0.2)
        bag: list[str] = []
        done: Counter[str] = Counter()
        for number in (every := rounds(DAILY)):
            bag = bag or self.chance.sample(FAULTS, len(FAULTS))
            fault = bag.pop()
            done[fault] += 1
            begun = time.monotonic()
            how, who = fault.split()
            leader = self.leader_of_all()
            rest = [node for node in self.nodes if node is not leader]
            self.chance.shuffle(rest)
            chosen = {"leader": [leader], "follower": rest[:1], "two": [leader, rest[0]]}
            name = f"T{number}"
            self.tables.delete_topic(leader, name)
            self.tables.move_group(leader, *rest)
            until_told(name, leader, *rest)
            self.send_everywhere()
            self.passes(self.chance.uniform(0.2, 0.8))
            getattr(self, how)(*chosen.get(who, self.nodes))
            self.until_some(self.ledger.entries, AGAIN, BOOT)
            self.enough_sent()
            leader = self.leader_of_all()
            self.tables.check_group(leader)
            self.tables.check_deleted(leader, name)
            self.tell_round(f"{number}: {fault}, {time.monotonic() - begun:.1f} s")
            if number % BETWEEN_CHECKS == BETWEEN_CHECKS - 1 or number == every[-1]:
                self.check_all()
        kinds = Counter(entry.kind for entry in self.ledger.entries)
        self.tell_round(f"faults: {dict(done)}; acknowledged: {dict(kinds)}; missing: none")
        self.assert_quiet(*self.nodes)

    def tell_round(self, text: str) -> None:
        """A line for whoever has to repeat this."""
        sys.stdout.write(f"RMQHA_SEED={self.seed} {text}\n")
        sys.stdout.flush()

    # --- the set ------------------------------------------------------------

    def leader_of_all(self) -> Node:
        self.until_whole()
        leader = self.until_master(lambda master: True)
        assert isinstance(leader, Node), "all are ours"
        return leader

    def knows(self, node: Node) -> bool:
        return {ORDERS, LATER, PAID} <= client.topic_names(f"127.0.0.1:{node.port}")

    def send_everywhere(self) -> None:
        """Have a client send to each member that takes it, until it is enough."""
        self.senders = [
            Sender(node.port, self.ledger, self.chance.random(), again=True) for node in self.nodes
        ]
        for sender in self.senders:
            sender.start()

    def enough_sent(self) -> None:
        """Let nobody send any more."""
        for sender in self.senders:
            sender.enough.set()
        for sender in self.senders:
            sender.join(BOOT)
            self.assertFalse(sender.is_alive(), "a sender has no answer")

    def passes(self, length: float) -> None:
        moment = time.monotonic() + length
        until(lambda: time.monotonic() > moment, "a while", length + 10)

    # --- faults -------------------------------------------------------------

    def lasts(self, *away: Node) -> None:
        """Let a fault last for a moment, or longer, or until another one leads; where two have gone
        the one that is there may not be let.
        """
        self.passes(self.chance.uniform(0.0, self.chance.choice((1.0, 7.0))))
        if len(away) == 1 and self.chance.random() < 0.5:
            self.until_master(lambda master: master not in away)

    def kill(self, *nodes: Node) -> None:
        """Kill members at once, and start them."""
        for node in nodes:
            node.kill9()
        self.lasts(*nodes)
        for node in self.chance.sample(nodes, len(nodes)):
            node.start()

    def end(self, node: Node) -> None:
        """Stop a member cleanly, and start it."""
        node.term()
        self.lasts(node)
        node.start()

    def freeze(self, node: Node) -> None:
        node.freeze()
        self.lasts(node)
        node.thaw()

    def recover(self, node: Node) -> None:
        """Kill a member, and again while it recovers."""
        for _ in range(3):
            node.kill9()
            node.launch()
            self.passes(self.chance.uniform(0.1, 1.0))
        self.kill(node)

    def choose(self, node: Node) -> None:
        """An operator elects another one, and sometimes yet another one at once."""
        self.elect(self.asked, self.number_of(node))
        if self.chance.random() < 0.5:
            others = [each for each in self.nodes if each is not node]
            self.elect(self.asked, self.number_of(self.chance.choice(others)))

    def corner(self, leader: Node, follower: Node) -> None:
        """One stands still until it counts no more, and the leader is killed."""
        follower.freeze()
        self.until_only(*(node for node in self.nodes if node is not follower))
        self.passes(self.chance.uniform(0.0, 1.0))
        leader.kill9()
        self.lasts(leader)
        for back in self.chance.sample([leader.start, follower.thaw], 2):
            back()

    def part_from_controllers(self, node: Node) -> None:
        """Nothing passes between it and the controllers."""
        self.parting(node, controllers=True)

    def part_from_members(self, node: Node) -> None:
        """Nothing passes between it and who follows it."""
        self.parting(node, members=True)

    def part_from_all(self, node: Node) -> None:
        self.parting(node, controllers=True, members=True)

    def parting(self, node: Node, **whom: bool) -> None:
        """For a moment, or until another one leads, if one is to."""
        links = self.links[node.name]
        links.part(True, **whom)
        if whom.get("controllers"):
            self.lasts(node)
        else:
            self.passes(self.chance.uniform(0.0, 6.0))
        links.part(False, **whom)

    def disconnect(self, leader: Node) -> None:
        """The connections of replication end again and again."""
        for _ in range(5):
            self.links[leader.name].replication.cut()
            self.passes(self.chance.uniform(0.0, 0.8))

    # --- everything ---------------------------------------------------------

    def check_all(self) -> None:
        """Hold all members to the ledger, running and stopped, and start them again."""
        leader = self.leader_of_all()
        with Remote(leader.port) as broker:
            sender = Sender(leader.port, self.ledger, self.chance.random())
            until(lambda: sender.plain(broker), "a write is acknowledged", BOOT, pause=0.1)
        self.ledger.until_delivered(leader)
        self.ledger.until_decided(leader.port)
        self.tables.check_deleted(leader, *self.tables.gone)
        end = leader.status()["maxOffset"]
        rest = [node for node in self.nodes if node is not leader]
        for node in rest:
            node.until(lambda status: status["dispatchedOffset"] >= end, "all can be read", BOOT)
        for node in self.nodes:
            self.ledger.check_pulled(node.port)
        for node in (*rest, leader):
            node.term()
        for node in rest:
            both = self.settings(leader), self.settings(node)
            self.assertEqual([], compare_stores.damage(*both, equal=False)[:20])
        for node in self.nodes:
            self.ledger.check_bytes(self.settings(node))
        self.tell_round(f"{len(self.ledger.entries)} in the ledger, none is missing")
        for node in self.chance.sample(self.nodes, len(self.nodes)):
            node.launch()
        self.until_whole()
