"""F52: rounds of faults, with a ledger by byte of messages of all kinds."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from itertools import count
from pathlib import Path

from lab.harness import compare_stores
from lab.harness.nodes import Node, until
from lab.harness.remote import Remote
from tests.faults.harness import BRISK, SOON_SILENT, rounds
from tests.faults.ledger import (
    GROUP,
    ORDERS,
    QUEUES,
    Ledger,
    Sender,
    TablesLedger,
    bounds,
    until_told,
)
from tests.faults.test_newer_tables import LATER, PAID
from tests.faults.test_promote import PromotionTestCase
from tests.support import client

#: What is done, and to whom; each comes as often as the others.
FAULTS = (
    "kill master",
    "kill slave",
    "kill both",
    "stop master",
    "stop slave",
    "freeze master",
    "freeze slave",
    "recover master",
    "recover slave",
    "swap both",
    "swap both",
    "restore both",
)

#: Rounds of every day.
DAILY = 20

#: Rounds between two looks at everything.
BETWEEN_CHECKS = 6

#: Files are small, so that many end.
KEYS: dict[str, object] = {
    **BRISK,
    **SOON_SILENT,
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": 128 << 10,
    "slaveTimeout": 1000,
    "transactionCheckInterval": 500,
    "transactionCheckMax": 1_000_000,
    "transactionTimeOut": 100,
}


class LedgerTests(PromotionTestCase):
    """A pair, of which a fault is tried in each round, under load."""

    def setUp(self) -> None:
        super().setUp()
        self.ledger = Ledger()
        self.senders: list[Sender] = []
        self.tables = TablesLedger(self.ledger, self.random)
        self.names = count()

    def test_rounds(self) -> None:
        """Whatever was acknowledged is on both nodes at its byte, in its queue and for its
        consumer; what was to come later comes, and what was deleted or rolled back does not.
        """
        try:
            self.run_rounds()
        except BaseException:
            told = self.tables.told()
            self.ledger.keep(self.folder, self._processes, seed=self.seed, **told)
            raise

    def run_rounds(self) -> None:
        self.begin()
        bag: list[str] = []
        done: Counter[str] = Counter()
        for number in (every := rounds(DAILY)):
            bag = bag or self.random.sample(FAULTS, len(FAULTS))
            fault = bag.pop()
            done[fault] += 1
            self.tell(f"round {number}: {fault}")
            how, who = fault.split()
            name = f"T{number}"
            self.tables.delete_topic(self.master_, name)
            self.tables.move_group(self.master_, self.slave_)
            if how == "swap":
                until_told(name, self.master_, self.slave_)
            self.load()
            self.passes(self.random.uniform(0.2, 0.8))
            both = self.master_, self.slave_
            getattr(self, how)(*{"master": both[:1], "slave": both[1:], "both": both}[who])
            self.passes(0.2)
            self.enough()
            self.in_sync()
            self.tables.check_group(self.master_)
            self.tables.check_deleted(self.master_, name)
            if number % BETWEEN_CHECKS == BETWEEN_CHECKS - 1 or number == every[-1]:
                self.check_all()
        kinds = Counter(entry.kind for entry in self.ledger.entries)
        self.tell(f"faults: {dict(done)}; acknowledged: {dict(kinds)}; missing: none")
        for process in self._processes:
            self.assertEqual([], process.complaints(), process.tail())

    # --- nodes --------------------------------------------------------------

    def node_of(self, root: Path, role: str, **keys: object) -> Node:
        """A node on a store, not started."""
        name = f"{root.name}-{role}-{next(self.names)}"
        node = Node(self.folder, role, name, root=root, **{**KEYS, **keys})
        self._processes.append(node)
        return node

    def start_master(self, root: Path) -> None:
        self.master_ = self.node_of(root, "master", brokerRole="SYNC_MASTER").start()
        self.clients = f"127.0.0.1:{self.master_.port}"

    def start_slave(self, root: Path) -> None:
        """Start a store behind it; what it has more is cut off."""
        self.slave_ = self.node_of(
            root,
            "slave",
            haMasterAddress="{}:{}".format(*self.master_.address),
            haMasterClientAddress=self.clients,
            haDivergencePolicy="truncate",
        ).start()

    def begin(self) -> None:
        """A pair with its topics, which its slave knows."""
        stores = self.folder / "stores"
        self.start_master(stores / "a")
        self.start_slave(stores / "b")
        self.in_sync()
        for topic in (ORDERS, LATER, PAID):
            client.make_topic(self.clients, topic, QUEUES)
        client.make_group(self.clients, GROUP)

    def in_sync(self) -> None:
        """Wait until a write is acknowledged again."""
        self.slave_.until_upstream("in-sync")
        sender = self.sender()
        with Remote(self.master_.port) as broker:
            until(lambda: sender.plain(broker), "a write is replicated", pause=0.1)

    def sender(self) -> Sender:
        return Sender(self.master_.port, self.ledger, self.random.random())

    def load(self) -> None:
        self.senders = [self.sender() for _ in range(3)]
        for sender in self.senders:
            sender.start()

    def enough(self) -> None:
        """Let nobody send any more."""
        for sender in self.senders:
            sender.enough.set()
        for sender in self.senders:
            sender.join(60)
            self.assertFalse(sender.is_alive(), "a sender has no answer")

    # --- faults -------------------------------------------------------------

    def kill(self, *nodes: Node) -> None:
        """Kill nodes at once, and start them."""
        for node in nodes:
            node.kill9()
        for node in self.random.sample(nodes, len(nodes)):
            node.start()

    def stop(self, node: Node) -> None:
        """Stop a node cleanly, and start it."""
        node.term()
        node.start()

    def freeze(self, node: Node) -> None:
        """For less and for more than the housekeeping interval."""
        node.freeze()
        self.passes(self.random.uniform(0.1, 3.0))
        node.thaw()

    def recover(self, node: Node) -> None:
        """Kill a node, and again while it recovers."""
        for _ in range(3):
            node.kill9()
            node.launch()
            self.passes(self.random.uniform(0.1, 1.0))
        self.kill(node)

    def end(self, node: Node) -> None:
        self.random.choice([node.kill9, node.term])()

    def swap(self, old: Node, slave: Node) -> None:
        """Promote the slave, with or without its master's tables; that one was killed, stopped, or
        stands still and goes on for a moment beside the new one.
        """
        frozen = self.random.random() < 0.3
        if frozen:
            old.freeze()
        else:
            self.end(old)
        self.end(slave)
        tables = ("--tables", old.root) if self.random.random() < 0.5 else ()
        self.tell(f"promote {slave.root.name}, {'frozen' if frozen else 'ended'}, {tables}")
        self.rmqha("promote", slave.root, "--conf", slave.conf, *tables)
        self.start_master(slave.root)
        if frozen:
            old.thaw()
            self.passes(self.random.uniform(0.1, 0.5))
            old.kill9()
        self.start_slave(old.root)

    def restore(self, old: Node, slave: Node) -> None:
        """Restore the master to a moment before; its slave follows with all it has, or nothing."""
        for node in self.random.sample([old, slave], 2):
            self.end(node)
        self.enough()
        moment = self.random.choice(self.ledger.entries[1:][-300:]).offset
        root = self.folder / "stores" / f"r{next(self.names)}"
        node = self.node_of(root, "master")
        node.write_conf()
        command = ("restore", old.root, root, "--until", str(moment), "--conf", node.conf)
        end = json.loads(self.rmqha(*command, "--json"))["end"]
        self.tell(f"restored to {end}")
        # Before the filler, where the first record of a file was chosen.
        kept = [entry for entry in self.ledger.entries if entry.offset < moment]
        self.assertLess(max(entry.offset for entry in kept), end)
        self.assertLessEqual(end, moment)
        self.ledger.entries = kept
        # A topic that was deleted later is as it was before.
        self.tables.gone = {name: at for name, at in self.tables.gone.items() if at <= end}
        shutil.rmtree(old.root)
        if self.random.random() < 0.3:
            shutil.rmtree(slave.root)
        self.start_master(root)
        self.tables.floor = min(self.tables.floor, bounds(self.clients, ORDERS, 0)[1])
        self.start_slave(slave.root)

    # --- everything ---------------------------------------------------------

    def check_all(self) -> None:
        """Hold both nodes to the ledger, running and stopped, and start them again."""
        self.ledger.until_delivered(self.master_)
        self.ledger.until_decided(self.master_.port)
        self.ledger.check_pulled(self.master_.port)
        self.tables.check_deleted(self.master_, *self.tables.gone)
        for name in list(self.tables.gone)[-BETWEEN_CHECKS:]:
            until_told(name, self.master_, self.slave_)
        self.master_.term()
        log = compare_stores.open_log(self.settings(self.master_))
        log.folder.close()
        self.slave_.until(lambda status: status["maxOffset"] == log.end, "all of it")
        self.slave_.term()
        both = self.settings(self.master_), self.settings(self.slave_)
        self.assertEqual([], compare_stores.damage(*both)[:20])
        for node in (self.master_, self.slave_):
            self.ledger.check_bytes(self.settings(node))
        self.tell(f"{len(self.ledger.entries)} in the ledger, none is missing")
        for node in (self.master_, self.slave_):
            node.start()
        self.in_sync()
