"""C{rmqha demo}: a pair whose master is killed, in a folder of its own, and what became of every
message that a client was told is stored.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import click
from attrs import define, field
from twisted.internet.defer import Deferred, gatherResults

from rmqha.cli.common import FAILED, complain, flag, in_reactor
from rmqha.cli.local_nodes import LOOPBACK, LocalNode, LocalNodeFailed, LocalNodes
from rmqha.net.remoting.client import UNREACHED, RemotingClient
from rmqha.nodes.broker_admin import BrokerAdmin
from rmqha.nodes.find import cluster_of
from rmqha.store.offline.client_ledger import Acknowledged, write_ledger
from rmqha.wire.names import UNIQUE_KEY
from rmqha.wire.remoting.codes import ResponseCode

TOPIC = "Demo"
QUEUES = 4
"""Those of a topic that a client makes by sending to it."""

BROKER = "demo"
"""C{brokerName} of the pair."""

SENDERS = 8
"""Messages on their way at a time."""

_MASTER = 0

LIMIT = 28.0
"""Seconds that it may take."""

FIRST = 400
"""Messages while both nodes are there."""

BEFORE_KILL = 100
"""Messages after which the master is killed, while more are on their way."""

AFTER = 200
"""Messages to the promoted store."""

KEYS = {
    "brokerName": BROKER,
    "brokerClusterName": "demo",
    "brokerIP1": LOOPBACK,
    "brokerIP2": LOOPBACK,
    "haListenAddress": LOOPBACK,
    # Small files: the pair takes a few MB of the disk.
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}
"""What all brokers of the demo are told."""


@define(eq=False)
class DemoClient:
    """A producer and a consumer.

    @ivar server: The name server's C{host:port}.
    @ivar ledger: What it was told is stored.
    @ivar refused: Messages that were not acknowledged, each with what was said instead.
    """

    server: str
    remoting: RemotingClient
    ledger: list[Acknowledged] = field(factory=list, init=False)
    refused: list[str] = field(factory=list, init=False)
    _last: int = field(default=0, init=False)

    async def master(self) -> str:
        """Where the name server says that the master is; C{""} if it knows none."""
        try:
            known = await cluster_of(self.server, self.remoting)
        except UNREACHED:
            return ""
        broker = known.broker_addr_table.get(BROKER)
        return "" if broker is None else broker.broker_addrs.get(_MASTER, "")

    async def send(self, master: str, count: int) -> None:
        """Send messages until so many more are acknowledged, or one is not."""
        end = len(self.ledger) + count
        bad = len(self.refused)

        async def sender() -> None:
            while len(self.ledger) < end and len(self.refused) == bad:
                await self._send(master)

        await gatherResults([Deferred.fromCoroutine(sender()) for _ in range(SENDERS)])

    async def _send(self, master: str) -> None:
        self._last = number = self._last + 1
        unique, body, queue = f"{number:032X}", f"message {number} of the demo", number % QUEUES
        broker, now = BrokerAdmin(master, self.remoting), int(time.time() * 1000)
        try:
            code, told = await broker.send(TOPIC, queue, body.encode(), {UNIQUE_KEY: unique}, now)
        except UNREACHED as error:
            self.refused.append(str(error))
            return
        if code != ResponseCode.SUCCESS:
            self.refused.append(f"answer {code.value}, {code.name}")
            return
        row = {
            "offsetMsgId": told.msg_id,
            "topic": TOPIC,
            "queueId": told.queue_id,
            "queueOffset": told.queue_offset,
            "msgId": unique,
            "body": body,
        }
        self.ledger.append(Acknowledged.of_row(row))

    async def read(self, master: str) -> set[str]:
        """Read all queues from their first message to their last.

        @return: The messages' own ids.
        """
        broker, found = BrokerAdmin(master, self.remoting), set[str]()
        for queue in range(QUEUES):
            pulled = await broker.pull(TOPIC, queue, 0)
            while pulled.records:
                found.update(each.properties.get(UNIQUE_KEY, "") for each in pulled.records)
                pulled = await broker.pull(TOPIC, queue, pulled.next)
        return found

    async def close(self) -> None:
        """End its connections."""
        await self.remoting.close()

    @property
    def acknowledged(self) -> set[str]:
        """The ids of the messages in the ledger."""
        return {str(each.msg_id) for each in self.ledger}


@click.command()
@flag("--keep", "Keep the folder with stores and logs.")
@click.option(
    "--dir",
    "given",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Work in this folder, which is new or empty, and keep it.",
)
def demo(keep: bool, given: Path | None) -> int:
    """Show a failover on this machine, in a few seconds: no message that was acknowledged is lost.

    A name server, a SYNC master and its slave are started in a temporary folder, with free ports
    on loopback.  A client sends; the master is killed with kill -9 meanwhile; the slave's store is
    promoted and started as the master; the client goes on and reads all.  At the end `rmqha verify`
    and `rmqha doctor` look at every record, and for every acknowledged message at its byte.

    Exit code 1 if anything was not as it should be, or took longer than half a minute: the folder
    is kept then.
    """
    folder = _folder(given)
    begun: list[LocalNodes] = []

    async def run(reactor: Any) -> None:
        begun.append(LocalNodes(reactor, folder, LIMIT))
        await Demo(begun[0]).run()

    well = False
    try:
        in_reactor(run)
        well = True
    except click.Abort:
        well = True  # it was not tried to its end, and there is nothing to look at
        raise
    except UNREACHED as error:
        complain(f"{str(error).rstrip('.')}. Stores and logs are in {folder}")
        return FAILED
    finally:
        for each in begun:
            each.end_all()
        if well and not keep and given is None:
            shutil.rmtree(folder, ignore_errors=True)
    if keep or given is not None:
        click.echo(f"Stores and logs are in {folder}")
    return 0


def _folder(given: Path | None) -> Path:
    if given is None:
        return Path(mkdtemp(prefix="rmqha-demo-"))
    folder = given.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.UsageError(f"--dir {given}: it is not empty; give a new or an empty folder")
    return folder


@define(eq=False)
class Demo:
    """What happens, told as it happens."""

    nodes: LocalNodes
    _client: DemoClient = field(init=False)
    _conf: Path = field(init=False)

    def say(self, who: str, text: str) -> None:
        """Tell one thing, with the time."""
        click.echo(f"{self.nodes.seconds:4.1f} s  {who:<12} {text}")

    async def run(self) -> None:
        """Tell all of it.

        @raise LocalNodeFailed: At the first thing that is not as it should be.
        """
        names, master = await self._master()
        slave = await self._slave(master)
        self._client = DemoClient(names.client, RemotingClient(self.nodes.reactor))
        await self._send(master, FIRST, "each is on both nodes")
        await self._kill(master)
        promoted = await self._promote(slave)
        await self._go_on(promoted)
        for node in (promoted, names):
            await self.nodes.stop(node)
        self.check(self._client.ledger)

    def _store(self, name: str) -> str:
        return str(self.nodes.folder / name)

    def _broker(self, name: str, port: int, *words: str) -> LocalNode:
        return self.nodes.node(name, port, *words, "--conf", str(self._conf))

    async def _master(self) -> tuple[LocalNode, LocalNode]:
        folder = self.nodes.folder
        self.say("demo", f"works in {folder}, on ports of {LOOPBACK}")
        kept = f"kvConfigPath={folder / 'kvConfig.json'}"
        names = self.nodes.node("name server", next(self.nodes.ports), "namesrv", "--set", kept)
        self._conf = folder / "demo.conf"
        keys = KEYS | {"namesrvAddr": names.client}
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        words = ("--store", self._store("a"), "--set", "brokerRole=SYNC_MASTER")
        master = self._broker("master", next(self.nodes.ports), *words)
        await self.nodes.status(names, lambda status: True)
        self.say("name server", f"process {names.pid}, clients on {names.port}")
        await self.nodes.status(master, lambda status: status["state"] == "serving")
        self.say("master", f"process {master.pid}, SYNC_MASTER, clients on {master.port}, store a")
        return names, master

    async def _slave(self, master: LocalNode) -> LocalNode:
        words = ("--slave-of", master.client, "--store", self._store("b"))
        slave = self._broker("slave", next(self.nodes.ports), *words)

        def in_sync(status: dict[str, Any]) -> bool:
            return (status.get("upstream") or {}).get("state") == "in-sync"

        await self.nodes.status(slave, in_sync)
        self.say("slave", f"process {slave.pid}, in sync with {master.client}, store b")
        return slave

    async def _send(self, node: LocalNode, count: int, meaning: str) -> None:

        async def known() -> bool:
            return await self._client.master() == node.client

        await self.nodes.until(known, f"the name server did not learn of {node.client}")
        before = len(self._client.ledger)
        await self._client.send(node.client, count)
        self._all_acknowledged()
        self.say("client", f"{len(self._client.ledger) - before} messages acknowledged: {meaning}")

    def _all_acknowledged(self) -> None:
        if self._client.refused:
            raise LocalNodeFailed(f"a message was not acknowledged: {self._client.refused[0]}")

    async def _kill(self, master: LocalNode) -> None:
        before = len(self._client.ledger)
        sending = Deferred.fromCoroutine(self._client.send(master.client, 1 << 30))

        async def enough() -> bool:
            return len(self._client.ledger) >= before + BEFORE_KILL or bool(self._client.refused)

        await self.nodes.until(enough, "the client got no answers")
        self._all_acknowledged()
        self.nodes.kill(master)
        await sending
        more, lost = len(self._client.ledger) - before, len(self._client.refused)
        self.say(
            "master",
            f"kill -9 while the client sends: {more} more messages acknowledged, {lost} without "
            "an answer",
        )
        self._client.refused.clear()

    async def _promote(self, slave: LocalNode) -> LocalNode:
        await self.nodes.stop(slave)
        lines = self._command("promote", self._store("b"), "--tables", self._store("a"), "--json")
        told = json.loads("\n".join(lines[lines.index("{") :]))
        self.say(
            "promote",
            f"rmqha promote b --tables a: {told['verifiedRecords']} records up to byte "
            f"{told['end']}, master epoch {told['masterEpochBefore']} -> {told['masterEpoch']}",
        )
        role = ("--set", "brokerRole=ASYNC_MASTER")
        promoted = self._broker("new master", slave.port, "--store", self._store("b"), *role)
        await self.nodes.status(promoted, lambda status: status["state"] == "serving")
        self.say("new master", f"process {promoted.pid}, clients on {promoted.port}, store b")
        return promoted

    async def _go_on(self, promoted: LocalNode) -> None:
        await self._send(promoted, AFTER, "the name server told where")
        read, wanted = await self._client.read(promoted.client), self._client.acknowledged
        if missing := sorted(wanted - read):
            raise LocalNodeFailed(
                f"{len(missing)} acknowledged messages were not read: {missing[0]}"
            )
        self.say("client", f"reads {len(read)} messages, all {len(wanted)} acknowledged among them")
        await self._client.close()

    def check(self, acknowledged: list[Acknowledged]) -> None:
        """Look for all that was acknowledged in the promoted store, which no node runs on.

        @raise LocalNodeFailed: If a record is damaged, or a message is not at its byte.
        """
        ledger = self.nodes.folder / "acknowledged.jsonl"
        write_ledger(ledger, acknowledged)
        verdict = self._command("verify", self._store("b"))[-1]
        self.say("verify", f"rmqha verify b: {verdict}")
        self._command("doctor", "--ledger", str(ledger), self._store("b"))
        count = len(acknowledged)
        self.say("doctor", f"rmqha doctor: each of {count} acknowledged messages is at its byte")
        self.say("demo", "all is well: no acknowledged message was lost")

    def _command(self, *words: str) -> list[str]:
        """Run another command, here: with so small a store it takes no time.

        @return: The lines that it said.
        @raise LocalNodeFailed: If it ends with another code than 0.
        @raise RmqhaError: If it does not get that far.
        """
        from rmqha.cli.main import main  # it has this command too

        log = self.nodes.folder / f"{words[0]}.log"
        with open(log, "w", encoding="utf-8") as said, redirect_stdout(said), redirect_stderr(said):
            code = main.main(list(words), standalone_mode=False)
        lines = log.read_text(encoding="utf-8").splitlines()
        if code:
            last = lines[-1] if lines else f"exit code {code}"
            raise LocalNodeFailed(f"`rmqha {' '.join(words)}` found: {last}")
        return lines
