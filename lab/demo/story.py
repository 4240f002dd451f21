"""What happens in the demo, told as it happens."""

from __future__ import annotations

import socket
from typing import Any

from rich.console import Console

from lab.demo.report import Mode, Report
from lab.demo.traffic import GROUP, TOPIC, Burst, Cpp, Sent, body_of, send_all
from lab.harness import golden
from lab.harness.demo_end import DemoStory
from lab.harness.nodes import NameServer, Node, Process, until
from lab.stock.clients import Client, Consumer
from rmqha.store.offline.client_ledger import Acknowledged

VERSION = "5.3.3"
WRITES = 2000
RATE = 600
"""Messages a second."""
MORE = 500
"""Messages after the slave's return."""
ASYNC_WRITES = 1000
COPY_RATE = 2 << 20
"""Bytes a second of the first copy: slow enough to be seen."""

STYLES = {
    "names": "yellow",
    "master": "cyan",
    "slave": "magenta",
    "client": "green",
    "spark": "blue",
    "demo": "bold",
}


class Story(DemoStory):
    """The story, and what is not as it should be in it."""

    styles, width = STYLES, 7

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.processes: list[Process] = []
        self.modes = Mode(role="SYNC_MASTER"), Mode(role="ASYNC_MASTER")
        self._keys = 0

    @property
    def sent(self) -> list[Sent]:
        """What the client said of each message."""
        return [sent for mode in self.modes for sent in mode.sent]

    @property
    def ledger(self) -> list[Acknowledged]:
        """What was acknowledged; this client does not say at which byte it is."""
        return [
            Acknowledged(body=body_of(sent.key), msg_id=sent.id or None)
            for sent in self.sent
            if sent.ok
        ]

    def expect(self, true: bool, what: str) -> None:
        """Note what is wrong, and go on."""
        if not true:
            self.wrong.append(what)
            self.console.print(f"         [bold red]wrong: {what}[/]", highlight=False)

    def keys(self, count: int) -> list[str]:
        first, self._keys = self._keys, self._keys + count
        return [f"demo-{n:05}" for n in range(first, self._keys)]

    # --- the story ----------------------------------------------------------

    def run(self) -> bool:
        """Tell it, and say whether all was well."""
        names = self.start_names()
        master = self.start_master(names)
        sync, later = self.modes
        client = self.start_client(names)
        self.send_without_replica(client, master, sync)
        slave = self.start_slave(names, master)
        consumer = self.consume(client)
        self.write_through_a_kill(client, master, slave, sync)
        self.garbage(client, master, sync)
        self.end_mode(client, consumer, master, sync)
        self.change_to_async(master, slave)
        client = self.start_client(names)
        consumer = self.consume(client)
        self.write_async(client, later)
        self.end_mode(client, consumer, master, later)
        slave.until_synced(int(master.status()["maxOffset"]))
        self.say("slave", f"in sync at byte {slave.status()['maxOffset']}")
        self.say("demo", "stopping all three")
        self.stop(slave, master, names)
        self.compared(Report(master, slave, (sync, later)))
        return not self.wrong

    def stop(self, *nodes: Node) -> None:
        for node in nodes:
            # twistd ends by the signal that stopped it.
            self.expect(node.term() in (0, -15), f"{node.name} did not stop cleanly")
            self.expect(not node.complaints(), f"{node.name} logged {node.complaints()}")

    def compared(self, report: Any) -> None:
        """Show a comparison, and note what is wrong in it."""
        self.show(report.tables)
        for what in report.wrong:
            self.expect(False, what)

    def start_names(self) -> NameServer:
        names = NameServer(self.folder.path).start()
        self.say(
            "names", f"twistd rmqha --role namesrv, process {names.pid}, at {names.client_address}"
        )
        return names

    def node(self, names: NameServer, role: str, **keys: Any) -> Node:
        """A broker of this machine that knows the name server, with the store's sizes."""
        given: dict[str, Any] = {
            "namesrvAddr": names.client_address,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "mappedFileSizeCommitLog": golden.LOG_FILE_SIZE,
            "mappedFileSizeConsumeQueue": golden.QUEUE_FILE_SIZE,
            "maxHashSlotNum": golden.INDEX_SLOTS,
            "maxIndexNum": golden.INDEX_ENTRIES,
        }
        node = Node(self.folder.path, role, **(given | keys))
        self.processes.append(node)
        return node

    def start_master(self, names: NameServer) -> Node:
        root = golden.store(VERSION, "store", self.folder.path / "master")
        self.say("demo", f"a store written by a stock RocketMQ {VERSION} broker, unpacked")
        master = self.node(names, "master", root=root, brokerRole="SYNC_MASTER").start()
        status = master.status()
        self.say(
            "master",
            f"twistd rmqha --role master, process {master.pid}: "
            f"{status['remoting']['topics']} topics, {status['maxOffset']} bytes of log",
        )
        self.say("master", f"an acknowledged write is {status['syncGuarantee']}")
        return master

    def start_client(self, names: NameServer) -> Client:
        """A stock client that knows nothing but the name server."""
        client = Client(Cpp(self.folder.path).start(), Cpp.title, names.client_address)
        self.say("client", f"{client.title}, process {client.process.pid}")
        return client

    def send_without_replica(self, client: Client, master: Node, mode: Mode) -> None:
        """SYNC without a replica is told at once."""
        mode.sent.extend(Burst(client, self.keys(3), RATE).wait())
        counted = dict(master.status()["writes"])
        self.say("client", f"sends 3 messages to a new topic, {TOPIC}, with no slave there")
        self.say(
            "master",
            f"answers SLAVE_NOT_AVAILABLE {counted.get('SLAVE_NOT_AVAILABLE', 0)} times, at once: "
            "this client tries each 3 times",
        )
        self.say("client", f"and then reports: {mode.sent[-1].error.split(':')[0]}")
        self.expect(not mode.acknowledged, "acknowledged without a slave")
        self.expect(set(counted) == {"SLAVE_NOT_AVAILABLE"}, f"without a slave: {counted}")

    def start_slave(self, names: NameServer, master: Node) -> Node:
        """An empty slave asks the name server for its master, and copies everything."""
        slave = self.node(names, "slave", haMaxReceiveBytesPerSecond=COPY_RATE).start()
        self.say("slave", f"twistd rmqha --role slave, process {slave.pid}, with an empty store")
        upstream = slave.until(lambda status: status["upstream"]["address"], "a master")["upstream"]
        self.say("slave", f"the name server says that its master is {upstream['address']}")
        end = master.status()["maxOffset"]
        told = -1

        def there(status: dict[str, Any]) -> bool:
            nonlocal told
            held, state = status["maxOffset"], status["upstream"]["state"]
            if held >= told + end // 5 or state == "in-sync":
                told = held
                self.say("slave", f"{state}: {held} of {end} bytes")
            return bool(state == "in-sync" and held >= end)

        slave.until(there, "the whole log")
        return slave

    def consume(self, client: Client) -> Consumer:
        consumer = client.consume(TOPIC, GROUP)
        self.say("client", f"a push consumer of group {GROUP} listens to topic {TOPIC}")
        return consumer

    def write_through_a_kill(self, client: Client, master: Node, slave: Node, mode: Mode) -> None:
        """SYNC writes go on while the slave is killed and comes back."""
        self.say("client", f"sends {WRITES} messages of 1 KiB, {RATE} a second")
        burst = Burst(client, self.keys(WRITES), RATE)
        until(lambda: len(burst.sent) > WRITES // 3, "a third of the messages")
        slave.kill9()
        self.say("slave", f"kill -9 after {len(burst.sent)} messages")
        until(lambda: not burst.sent[-1].ok, "a message that is not acknowledged")
        self.say("client", f"messages are no longer acknowledged; {self.counts(master)}")
        del slave.keys["haMaxReceiveBytesPerSecond"]
        slave.launch()
        self.say("slave", f"started again, process {slave.pid}")
        status = slave.until_upstream("in-sync", "catching-up", "bootstrapping")
        found = status["recovery"]
        self.say(
            "slave",
            f"checked {found['records']} records, compared with the master from byte 1, follows it",
        )
        slave.until_upstream("in-sync")
        mode.sent.extend(burst.wait())
        sent = send_all(client, self.keys(MORE), RATE)
        mode.sent.extend(sent)
        self.expect(all(one.ok for one in sent), "not all acknowledged after the slave's return")
        self.say("client", f"messages are acknowledged again: {MORE} more messages")

    def counts(self, master: Node) -> str:
        """What a master answered so far, in words."""
        counted = master.status()["writes"]
        return ", ".join(f"{n} {status}" for status, n in counted.items() if n)

    def garbage(self, client: Client, master: Node, mode: Mode) -> None:
        before = master.status()
        with socket.create_connection(master.address, timeout=10) as web:
            web.sendall(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
            try:
                answer = web.recv(100)
            except ConnectionResetError:
                answer = b""
        self.expect(answer == b"", f"the HA port answered a web client: {answer!r}")
        after = master.status()
        was, now = before["closedConnections"], after["closedConnections"]
        reasons = [reason for reason in now if now[reason] != was.get(reason, 0)]
        self.say(
            "master",
            f"an HTTP GET at the HA port: closed ({', '.join(reasons)}), nothing acknowledged",
        )
        sent = send_all(client, self.keys(20), RATE)
        mode.sent.extend(sent)
        self.expect(all(one.ok for one in sent), f"after the garbage: {sent}")
        self.say("client", "20 more messages acknowledged: the slave never noticed")

    def end_mode(self, client: Client, consumer: Consumer, master: Node, mode: Mode) -> None:
        """Wait until all that was acknowledged is consumed, and end the client."""
        wanted = mode.acknowledged

        def read() -> set[str]:
            return {(got.keys or "").strip() for got in list(consumer.got)}

        until(lambda: wanted <= read(), "all consumed", tell=lambda: f"{len(wanted - read())} not")
        mode.read.update(read())
        mode.count(master.status())
        self.say(
            "client",
            f"{len(wanted)} of {len(mode.sent)} messages were acknowledged, "
            f"the consumer got {len(consumer.got)}",
        )
        consumer.stop()
        client.process.term()

    def change_to_async(self, master: Node, slave: Node) -> None:
        """The master starts again, and waits for no replica from now on."""
        self.expect(master.term() in (0, -15), "the master did not stop cleanly")
        master.keys["brokerRole"] = "ASYNC_MASTER"
        master.start()
        guarantee = master.status()["syncGuarantee"]
        self.say("master", "stopped, and started again with brokerRole=ASYNC_MASTER")
        self.say("master", f"an acknowledged write is {guarantee}")
        slave.until_synced(int(master.status()["maxOffset"]))
        self.say("slave", "has reconnected, compared its log, and follows the master again")

    def write_async(self, client: Client, mode: Mode) -> None:
        for count in (1, ASYNC_WRITES - 1):
            mode.sent.extend(send_all(client, self.keys(count), 2 * RATE))
        bad = next((sent.error for sent in mode.sent if not sent.ok), "")
        self.expect(not bad, f"ASYNC, not acknowledged: {bad}")
        self.say("client", f"sent {ASYNC_WRITES} messages, {2 * RATE} a second")
