"""Stock mqadmin of sets with a controller: what it prints of ours and of Java's."""

from __future__ import annotations

import re

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, Broker, broker_ports
from lab.stock.controllers import StockController, controllers, java_member, our_member
from tests.interop.pairs import Pair, PairsTestCase

SET = "getSyncStateSet -a {controller} -b broker-a"

#: How often the set was changed, which is not always in the same steps, and the time of an answer.
CHANGES = r"(?<=SyncStateSetEpoch )\d+"


#: Rates.
RATE = r"\b\d+\.\d+(?:E-?\d+)?"

#: A number of bytes; ids and epochs are shorter.
BYTES = r"\b\d{3,}\b"


class SetsTests(PairsTestCase):
    version = "5.3.3"

    def our_pair(self) -> Pair:
        """Two members of ours; the first leads."""
        controller, names = self.controller("ours"), self.server.client_address
        both = []
        for number in (1, 2):
            node = our_member(
                self.folder, self.tool, f"ours-{number}", [controller], namesrvAddr=names
            )
            node.port = node.keys["listenPort"] = broker_ports()
            self._processes.append(node)
            node.start()
            wanted = "leading" if number == 1 else "following"
            node.until(
                lambda status, wanted=wanted: status["controller"]["state"] == wanted, wanted
            )
            both.append(node)
        self.nodes = (*both, self.server)
        self.ours: tuple[Node, Node] = (both[0], both[1])
        return self.pair(
            "ours", names, controller, *(f"127.0.0.1:{node.port}" for node in both), both[0].ha_port
        )

    def java_pair(self) -> Pair:
        controller = self.controller("java")
        both = [
            java_member(self.folder, self.tool, f"java-{number}", [controller]) for number in (1, 2)
        ]
        for broker in both:
            self._processes.append(broker)
            broker.start()
        self.java: tuple[Broker, Broker] = (both[0], both[1])
        first, second = (broker.client_address for broker in both)
        return self.pair("Java", self.tool.names, controller, first, second, both[0].address[1])

    def controller(self, name: str) -> StockController:
        folder = self.folder / f"{name}-control"
        folder.mkdir()
        (one,) = controllers(folder, 1)
        self._processes.append(one)
        one.launch()
        return one

    def pair(
        self, title: str, names: str, one: StockController, master: str, slave: str, ha: int
    ) -> Pair:
        pair = Pair(self.tool, title, names, master, slave, f"127.0.0.1:{ha}")
        pair.words["controller"] = one.address
        pair.known[one.address] = "<controller>"
        return pair

    def until_in_sync(self, count: int) -> None:
        """Wait until both sets have so many in sync, as mqadmin tells."""
        for pair in self.both:
            until(
                lambda pair=pair: re.search(
                    rf"SyncStateSetNums\D+{count}\b", pair.mqadmin(SET).printed
                ),
                f"{pair.title}: {count} in sync",
                BOOT,
                tell=lambda pair=pair: str(pair.mqadmin(SET)),
                pause=0.3,
            )

    def test_commands(self) -> None:
        """What each prints of our set is what it prints of a stock one."""
        self.until_in_sync(2)
        self.send()
        self.looks("two members")
        self.same(
            "electMaster -a {controller} -b 2 -bn broker-a -c interop", CHANGES, has="broker-a"
        )
        self.until_in_sync(2)
        self.send()
        self.looks("another is master")
        self.same(
            "cleanBrokerMetadata -a {controller} -b 1 -bn broker-a -c interop",
            fails=True,
            when="it lives",
        )
        self.ours[0].term()
        self.java[0].stop()
        self.until_in_sync(1)
        self.same(SET, CHANGES, wait=20, when="a member was stopped")
        self.same(
            "cleanBrokerMetadata -a {controller} -b 1 -bn broker-a -c interop", wait=20, when="gone"
        )
        self.same(SET, CHANGES, when="its metadata was cleaned")
        self.assertEqual([], self.faults, "\n\n".join(self.faults))
        for node in self.nodes:
            self.assertEqual([], node.complaints(), node.log()[-20_000:])

    def send(self) -> None:
        """Write something: a label without bytes is not everywhere."""
        bodies = [f"body {number}".ljust(200, ".") for number in range(20)]
        for pair in self.both:

            def sent(pair: Pair = pair) -> bool:
                answers = pair.do(
                    "send",
                    group="Senders",
                    topic="Orders",
                    how="sync",
                    bodies=bodies,
                    tags=["red"] * len(bodies),
                    keys=bodies,
                )
                return all(answer["status"] == "SEND_OK" for answer in answers)

            until(sent, f"{pair.title}: all sent", BOOT, tell=self.tool.tail, pause=0.5)

    def looks(self, when: str) -> None:
        how = "the same but for how often the set was changed"
        self.same(SET, CHANGES, has="SyncStateSet", how=how, when=when)
        how = "the same but for sizes, in any order"
        self.same(
            "getBrokerEpoch -b broker-a",
            read=lambda pair, said: pair.rows(said, BYTES),
            wait=20,
            has="Epoch",
            how=how,
            when=when,
        )
        how = "the same but for sizes and speeds"
        for where in ("-b {master}", "-b {slave}", "-c interop"):
            self.same(f"haStatus {where}", RATE, BYTES, wait=20, how=how, when=when)
        how = "the same but for versions, rates and ages"
        self.same("clusterList", r"V\d_\d_\d", RATE, r"\d+-\d+(?=\()", how=how, when=when)
