"""
What befalls a set beside a kill: stops, freezes, switches on demand, losses.  After each, nothing
that was acknowledged or read is missing, and all logs are equal.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote
from lab.stock.brokers import BOOT
from rmqha.wire.remoting.codes import ControllerRequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.controller import RoleChangedRequest
from tests.interop import cases
from tests.interop.scenario_cases import ScenarioTestCase

ROUNDS = cases.rounds(3, 10)

SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "is torn": lambda text: text[: len(text) // 2],
    "has a wrong CRC": lambda text: text.replace(b"\n", b"1\n", 2),
    "is gone": lambda text: b"",
    "tells of bytes that are not there": lambda text: b"1\n0\n1-999999999\n",
}
"""What becomes of an epoch file's text."""


class OurScenarioTests(ScenarioTestCase):
    """
    Members of ours alone.
    """

    roles = "members of ours"
    full_only = (
        "test_stop",
        "test_every_order_of_three",
        "test_lost_log",
        "test_lost_log_of_three",
        "test_lost_identity",
        "test_damaged_epoch_files",
        "test_forged_news",
        "test_delays_and_transactions",
        "test_without_controllers",
    )

    def kills(self, count: int) -> None:
        """
        Whoever is master is killed under load, again and again; with three, writes go on while it
        is away.
        """
        nodes = self.set_of(count)
        for number in range(cases.rounds(3, 20)):
            with self.scenario(f"the master of {count} is killed (-9) under load: {number + 1}"):
                killed = self.led(nodes)
                rest = [node for node in nodes if node is not killed]
                load = self.load()
                killed.kill9()
                self.until_led(rest)
                if count > 2:
                    self.until_in_sync(self.led(rest), count - 1)
                    self.until_again(load)
                killed.start()
                self.until_in_sync(self.led(rest), count)
                self.until_again(load)
                self.enough(load)
        self.assert_settled(nodes)

    def test_kills(self) -> None:
        """
        Of two.
        """
        self.kills(2)

    def test_kills_of_three(self) -> None:
        """
        Of three.
        """
        self.kills(3)

    def test_stop(self) -> None:
        """
        The master is stopped under load: it answers what waits, and another one leads.
        """
        nodes = self.set_of(2)
        for _ in range(2):
            with self.scenario("the master is stopped (SIGTERM) under load"):
                master = self.led(nodes)
                (other,) = (node for node in nodes if node is not master)
                load = self.load()
                master.term()
                self.until_state(other, "leading")
                master.start()
                self.until_in_sync(other, 2)
                self.until_again(load)
                self.enough(load)
        self.assert_settled(nodes)

    def test_freeze(self) -> None:
        """
        The master stands still until another one leads, with requests in its sockets; then it
        wakes: it demotes itself, and what it wrote alone is acknowledged to nobody.
        """
        nodes = self.set_of(3)
        with self.scenario("the master is frozen (SIGSTOP) with requests in its sockets, thawed"):
            master = self.led(nodes)
            rest = [node for node in nodes if node is not master]
            load = self.load(50)
            master.freeze()
            self.until_led(rest)
            self.until_in_sync(self.led(rest), 2)
            self.until_again(load)
            master.thaw()
            self.until_state(master, "following")
            self.until_in_sync(self.led(rest), 3)
            self.enough(load)
        self.assert_settled(nodes)

    def orders(self, count: int) -> None:
        """
        Kill all, start them in each order.
        """
        nodes = self.set_of(count)
        for order in itertools.permutations(nodes):
            names = ", ".join(node.name for node in order)
            with self.scenario(f"all are killed (-9) under load, and come as {names}"):
                load = self.load()
                for node in nodes:
                    node.kill9()
                for node in order:
                    node.start()
                self.until_led(nodes)
                self.until_in_sync(self.led(nodes), count)
                self.until_again(load)
                self.enough(load)
        self.assert_settled(nodes)

    def test_every_order(self) -> None:
        """
        Two are down, and start in each order.
        """
        self.orders(2)

    def test_every_order_of_three(self) -> None:
        """
        Three are.
        """
        self.orders(3)

    def lost_log(self, count: int) -> None:
        """
        All are killed, one comes without its log, the others a while later.
        """
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
        """
        Wait until it has written down that it is counted on.
        """
        until((node.root / "rmqha" / "held.json").exists, "counted on", BOOT, tell=node.tail)

    def test_lost_log(self) -> None:
        """
        One of two.
        """
        self.lost_log(2)

    def test_lost_log_of_three(self) -> None:
        """
        One of three.
        """
        self.lost_log(3)

    def test_lost_identity(self) -> None:
        """
        A member's id is gone, its log is not: it gets a new one, and follows.
        """
        nodes = self.set_of(2)
        master = self.led(nodes)
        (other,) = (node for node in nodes if node is not master)
        with self.scenario("a member loses its id, not its log"):
            before = self.id_of(other)
            load = self.load()
            other.kill9()
            (other.root / "brokerIdentity").unlink()
            other.start()
            self.until_state(other, "following")
            self.until_in_sync(master, 2)
            self.assertNotEqual(self.id_of(other), before)
            self.until_again(load)
            master.kill9()
            self.until_state(other, "leading")
            master.start()
            self.until_in_sync(other, 2)
            self.until_again(load)
            self.enough(load)
        self.assert_settled(nodes)

    def test_switches(self) -> None:
        """
        An operator elects one after the other while clients write.
        """
        nodes = self.set_of(2)
        group = self.group(self.decider)
        load = self.load()
        for number in range(ROUNDS):
            with self.scenario(f"an operator elects another master under load: {number + 1}"):
                master = self.led(nodes)
                (other,) = (node for node in nodes if node is not master)
                self.until_in_sync(master, 2)
                self.elect(group, self.id_of(other))
                self.until_state(other, "leading")
                self.until_state(master, "following")
                self.until_again(load)
        self.enough(load)
        self.assert_settled(nodes)

    def test_damaged_epoch_files(self) -> None:
        """
        A member's epoch file is torn, wrong, gone, or tells of bytes that are not there: it
        follows, and leads when it is elected.
        """
        nodes = self.set_of(2)
        group = self.group(self.decider)
        for what, spoil in SPOILT.items():
            with self.scenario(f"a member comes back with an epoch file that {what}, and leads"):
                master = self.led(nodes)
                (other,) = (node for node in nodes if node is not master)
                load = self.load()
                other.term()
                path = other.root / "epochFileCheckpoint"
                spoilt = spoil(path.read_bytes())
                path.unlink()
                if spoilt:
                    path.write_bytes(spoilt)
                other.start()
                self.until_in_sync(master, 2)
                self.elect(group, self.id_of(other))
                self.until_state(other, "leading")
                self.until_in_sync(other, 2)
                self.until_again(load)
                self.enough(load)
        self.assert_settled(nodes)

    def test_forged_news(self) -> None:
        """
        Somebody tells the members of elections that were none: only what a controller answers
        counts.
        """
        nodes = self.set_of(2)
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

    def test_delays_and_transactions(self) -> None:
        """
        Messages come due, and transactions are ended, on whoever leads then.
        """
        nodes = self.set_of(2)
        late, half, never = (f"{self.topic}-{name}" for name in ("late", "half", "never"))
        with self.scenario("delayed messages and transactions, the master is killed (-9)"):
            master = self.led(nodes)
            (other,) = (node for node in nodes if node is not master)
            kinds = ((late, "delay"), (half, "transaction"), (never, "transaction-rollback"))
            sends = [self.tool.put(40, topic, kind=kind) for topic, kind in kinds]
            for each in sends:
                self.assertEqual({"SEND_OK": 40}, each.wait())
            master.kill9()
            self.until_state(other, "leading")
            master.start()
            self.until_in_sync(other, 2)
            for topic, each in zip((late, half), sends, strict=False):
                wanted = {body for sent in each.acked for body in sent.bodies}
                until(
                    lambda topic=topic, wanted=wanted: (
                        wanted <= {row.body for row in self.tool.pull(topic)}
                    ),
                    f"all of {topic}",
                    BOOT,
                    pause=0.5,
                )
            last = self.tool.put(1, never)
            self.assertEqual({"SEND_OK": 1}, last.wait())
            self.assertEqual(
                last.acked[0].bodies, [row.body for row in self.tool.pull(never)], "rolled back"
            )
        self.assert_settled(nodes)

    def test_without_controllers(self) -> None:
        """
        The controller is away for a minute: writes go on, as all are there; then a member goes too,
        and the master takes no write until the controller is back.
        """
        nodes = self.set_of(2)
        master = self.led(nodes)
        (other,) = (node for node in nodes if node is not master)
        with self.scenario("the controller is away for 60 s, then a slave too: fenced; all back"):
            load = self.load()
            self.decider.kill9()
            back = time.monotonic() + 60
            while time.monotonic() < back:
                self.until_again(load)
            self.assertEqual(self.state(master), "leading")
            other.kill9()
            self.until_state(master, "fenced")
            self.decider.launch()
            other.launch()
            until(lambda: self.leader(nodes) is not None, "one leads", BOOT)
            self.until_in_sync(self.led(nodes), 2)
            self.until_again(load)
            self.enough(load)
        self.assert_settled(nodes)
