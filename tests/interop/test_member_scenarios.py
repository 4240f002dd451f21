"""What befalls a set beside a kill: stops, freezes, switches on demand, losses.  After each,
nothing that was acknowledged or read is missing, and all logs are equal.
"""

from __future__ import annotations

import itertools
import shutil

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote
from lab.stock.brokers import BOOT, Sends
from rmqha.wire.remoting.codes import ControllerRequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.controller import RoleChangedRequest
from tests.interop import cases
from tests.interop.scenario_cases import ScenarioTestCase

ROUNDS = cases.rounds(3, 10)


class OurScenarioTests(ScenarioTestCase):
    """Members of ours alone."""

    roles = "members of ours"
    full_only = (
        "test_every_order_of_three",
        "test_lost_log",
        "test_lost_log_of_three",
        "test_forged_news",
        "test_forged_news_to_three",
    )

    def epoch_of(self, node: Node) -> int:
        """The master epoch that a member knows."""
        return int(node.status()["controller"]["masterEpoch"])

    def until_succeeded(self, nodes: list[Node], load: Sends, epoch: int) -> None:
        """Wait until one of these leads: in a newer epoch, and with all that was acknowledged."""
        least = self.least_end(load)
        self.until_led(nodes)
        master = self.led(nodes)
        self.assertGreater(self.end_of(master), least, f"{master.name} lacks what counts")
        self.assertGreater(self.epoch_of(master), epoch)

    def kills(self, count: int) -> None:
        """Whoever is master is killed under load, often; with three, writes go on meanwhile."""
        nodes = self.set_of(count)
        for number in range(cases.rounds(3, 20)):
            with self.scenario(f"the master of {count} is killed (-9) under load: {number + 1}"):
                killed = self.led(nodes)
                rest = [node for node in nodes if node is not killed]
                load = self.load()
                epoch = self.epoch_of(killed)
                killed.kill9()
                self.until_succeeded(rest, load, epoch)
                if count == 2:
                    self.until_refused(load)
                else:
                    self.until_in_sync(self.led(rest), count - 1)
                    self.until_again(load)
                killed.start()
                self.until_in_sync(self.led(rest), count)
                self.until_again(load)
                self.enough(load)
        self.assert_settled(nodes)

    def test_kills(self) -> None:
        """Of two."""
        self.kills(2)

    def test_kills_of_three(self) -> None:
        """Of three."""
        self.kills(3)

    def test_freeze(self) -> None:
        """The master stands still until another one leads, with requests in its sockets; then it
        wakes: it demotes itself, and what it wrote alone is acknowledged to nobody.
        """
        nodes = self.set_of(3)
        with self.scenario("the master is frozen (SIGSTOP) with requests in its sockets, thawed"):
            master = self.led(nodes)
            rest = [node for node in nodes if node is not master]
            load = self.load(50)
            epoch = self.epoch_of(master)
            master.freeze()
            self.until_succeeded(rest, load, epoch)
            self.until_in_sync(self.led(rest), 2)
            self.until_again(load)
            master.thaw()
            self.until_state(master, "following")
            self.until_in_sync(self.led(rest), 3)
            self.enough(load)
        self.assert_settled(nodes)

    def orders(self, count: int) -> None:
        nodes = self.set_of(count)
        for order in [*itertools.permutations(nodes)] * cases.rounds(1, 1):
            names = ", ".join(node.name for node in order)
            with self.scenario(f"all are killed (-9) under load, and come as {names}"):
                load = self.load()
                epoch = self.epoch_of(self.led(nodes))
                for node in nodes:
                    node.kill9()
                for node in order:
                    node.start()
                self.until_succeeded(nodes, load, epoch)
                self.until_in_sync(self.led(nodes), count)
                self.until_again(load)
                self.enough(load)
        self.assert_settled(nodes)

    def test_every_order(self) -> None:
        """Two are down, and start in each order."""
        self.orders(2)

    def test_every_order_of_three(self) -> None:
        """Three are."""
        self.orders(3)

    def lost_log(self, count: int) -> None:
        """All are killed, one comes without its log, the others a while later."""
        nodes = self.set_of(count)
        master = self.led(nodes)
        loser = next(node for node in nodes if node is not master)
        with self.scenario("a member loses its log, not its id: it leads only what it has again"):
            load = self.load()
            self.until_held(loser)
            # Nobody is left to take anybody out of the SyncStateSet, or to be elected.
            master.freeze()
            for node in nodes:
                if node is not master:
                    node.kill9()
            master.kill9()
            self.enough(load)
            for path in (loser.root / "commitlog", loser.root / "consumequeue"):
                shutil.rmtree(path)
            loser.start()
            self.assert_never_leads(loser, 12.0)
            for node in nodes:
                if node is not loser:
                    node.start()
            self.until_led(nodes)
            self.assertIsNot(self.led(nodes), loser)
            self.until_in_sync(self.led(nodes), count)
        with self.scenario("then the others are killed: it leads"):
            load = self.load()
            self.until_held(loser)
            for node in nodes:
                if node is not loser:
                    node.kill9()
            if count == 2:
                self.until_state(loser, "leading")
            for node in nodes:
                if node is not loser:
                    node.start()
            self.until_led(nodes)
            self.until_in_sync(self.led(nodes), count)
            self.enough(load)
        self.assert_settled(nodes)

    def until_held(self, node: Node) -> None:
        """Wait until it has written down that it is counted on."""
        until((node.root / "rmqha" / "held.json").exists, "counted on", BOOT, tell=node.tail)

    def test_lost_log(self) -> None:
        """One of two."""
        self.lost_log(2)

    def test_lost_log_of_three(self) -> None:
        """One of three."""
        self.lost_log(3)

    def test_switches(self) -> None:
        """An operator elects one after the other while clients write."""
        nodes = self.set_of(2)
        group = self.group(self.decider)
        load = self.load()
        for number in range(ROUNDS):
            with self.scenario(f"an operator elects another master under load: {number + 1}"):
                master = self.led(nodes)
                (other,) = (node for node in nodes if node is not master)
                self.until_in_sync(master, 2)
                epoch = self.epoch_of(master)
                self.elect(group, self.id_of(other))
                self.until_succeeded([other], load, epoch)
                self.until_state(master, "following")
                self.until_again(load)
        self.enough(load)
        self.assert_settled(nodes)

    def forged_news(self, count: int) -> None:
        """Somebody tells of elections that were none: only a controller's answer counts."""
        nodes = self.set_of(count)
        master = self.led(nodes)
        with self.scenario("members are told of elections that were none, under load"):
            load = self.load()
            for epoch in (99, 0, 1, 99):
                for node in nodes:
                    for named in nodes:
                        forged = RoleChangedRequest(
                            master_address=f"127.0.0.1:{named.port}",
                            master_broker_id=self.id_of(named),
                            master_epoch=epoch,
                            sync_state_set_epoch=epoch,
                        )
                        remote = Remote(node.port)
                        code = ControllerRequestCode.NOTIFY_BROKER_ROLE_CHANGED
                        remote.send(Command.request(code, forged, oneway=True))
                        remote.close()
                self.until_again(load)
            self.enough(load)
            told = [node.status()["controller"] for node in nodes]
            self.assertEqual({1}, {each["masterEpoch"] for each in told})
            self.assertIs(self.led(nodes), master)
        self.assert_settled(nodes)

    def test_forged_news(self) -> None:
        """To two."""
        self.forged_news(2)

    def test_forged_news_to_three(self) -> None:
        """To three."""
        self.forged_news(3)
