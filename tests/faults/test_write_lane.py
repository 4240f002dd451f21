"""Runs of the write lane and batches, and a master that dies within one."""

from __future__ import annotations

import signal
from unittest import skipUnless

from attrs import evolve

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, send
from lab.harness.writer import Driver
from rmqha.broker.sending.transactions import COMMITTED, ROLLED_BACK
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import ONEWAY, Command
from tests.broker.support import batch
from tests.faults.harness import FaultTestCase
from tests.faults.ledger import bodies, until_there
from tests.faults.test_newer_tables import PAID, commit, half

#: Where it dies.
PLACES = ("run-read", "half-run", "run-written", "run-told", "run-answers", "run-done")

#: Messages that a client sends at a time.
WINDOW = 40

#: One in so many is a batch.
BATCHES = 5

TOPIC = "Orders"

#: What is said of half messages.
WORDS = (COMMITTED, COMMITTED, ROLLED_BACK)


@skipUnless(COMPILED, "the write lane is not compiled here")
class RunTests(FaultTestCase):
    """A SYNC master that is killed between the passes of a run, or of a client's batch."""

    def test_each_place(self) -> None:
        """Wherever it dies, each message that was acknowledged is there when it is back, and its
        slave has the same log.  Files are small, so runs go over their ends.
        """
        master, slave = self.pair(mappedFileSizeCommitLog=262144)
        self.acked: set[bytes] = set()
        self.halves: dict[bytes, Command] = {}
        self.sent = 0
        for place in self.random.sample(PLACES, len(PLACES)):
            count = self.random.randint(1, 60)
            self.tell(f"{place}:{count}")
            master.term()
            master.die = [f"{place}:{count}"]
            master.start()
            slave.until_synced(master.status()["maxOffset"])
            self.send_until_dead(master)
            self.assertEqual(-signal.SIGKILL, master.wait(), place)
            master.start()
        self.send_some(master, slave)
        self.end_all(master, slave)
        self.settle(master, slave)

    def send_until_dead(self, master: Driver) -> None:
        """Send windows of messages until the master is gone."""
        try:
            with Remote(master.port) as client:
                while True:
                    self.window(client)
        except (OSError, EOFError):
            pass
        until(lambda: not master.running, "dead", tell=master.tail)

    def window(self, client: Remote) -> None:
        """One window, sent at once, and its answers; half messages of it are ended by the next."""
        sends = {}
        ends = list(self.halves.values())[-WINDOW // 4 :]
        for number in range(WINDOW):
            for end in ends[number::WINDOW]:
                client.send(evolve(end, flag=ONEWAY))
            sent = [self.body()]
            if number % 4 == 0:
                command = half(self.sent)
                sent = [bytes(command.body)]
            elif self.random.randrange(BATCHES):
                command = send(TOPIC, sent[0], self.sent % 4)
            else:
                sent += [self.body() for _ in range(self.random.randint(0, 20))]
                command = send(TOPIC, batch(*((body, "") for body in sent)), self.sent % 4)
                command.code = RequestCode.SEND_BATCH_MESSAGE
                command.ext["m"] = "true"
            client.send(command)
            sends[command.opaque] = sent
        for _ in sends:
            answer = client.heard()
            if answer.code == ResponseCode.SUCCESS:
                self.acked.update(sends[answer.opaque])
                body = sends[answer.opaque][0]
                if body.startswith(b"half "):
                    place = int(answer.ext["queueOffset"]), int(answer.ext["msgId"][-16:], 16)
                    self.halves[body] = commit(*place, word=self.random.choice(WORDS))

    def body(self) -> bytes:
        self.sent += 1
        return f"message {self.sent} ".encode().ljust(self.random.randint(20, 1500), b".")

    def send_some(self, master: Driver, slave: Node) -> None:
        """Now nothing dies: everything is acknowledged, and all that ever was is in both logs."""
        slave.until_upstream("in-sync")
        before = len(self.acked)
        with Remote(master.port) as client:
            until(lambda: self.answered(client), "a SYNC write")
            self.window(client)
        self.assertGreaterEqual(len(self.acked), before + WINDOW)
        # How many come together is the machine's affair.
        self.assertGreater(master.status()["remoting"]["laneMessages"], WINDOW // 4)
        slave.until_synced(master.status()["maxOffset"])
        for node in (master, slave):
            log = b"".join(
                path.read_bytes() for path in sorted((node.root / "commitlog").iterdir())
            )
            self.assertEqual([], [body for body in self.acked if body not in log], node.name)

    def end_all(self, master: Driver, slave: Node) -> None:
        """Whatever was said of half messages is said again, and changes nothing: those that were
        committed are there, in both, and none that was rolled back.
        """
        with Remote(master.port) as client:
            for answer in client.ask_all([evolve(end) for end in self.halves.values()]):
                self.assertEqual(ResponseCode.SUCCESS, answer.code, answer)
        slave.until_synced(master.status()["maxOffset"])
        wanted = {
            body
            for body, end in self.halves.items()
            if end.ext["commitOrRollback"] == str(COMMITTED)
        }
        for node in (master, slave):
            until_there(node.port, PAID, wanted)
            self.assertEqual(set(), (bodies(node.port, PAID) - wanted) & self.halves.keys())

    def answered(self, client: Remote) -> bool:
        body = b"is the slave there? "
        return client.ask(send(TOPIC, body)).code == ResponseCode.SUCCESS
