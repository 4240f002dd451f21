"""What happens, told as it happens."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console

from lab.demo.story import Story
from lab.demo.traffic import Burst, Sent
from lab.demo_pipeline.report import Facts, Report
from lab.harness.nodes import NameServer, Node, until
from lab.stock.clients import Client
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.pipeline.jobs.lag import Lag
from rmqha.pipeline.jobs.stream import stream
from rmqha.pipeline.log.options import Priority
from rmqha.pipeline.spark.session import builder
from rmqha.priority import VARIABLE

TOPICS = {"Orders": 300.0, "Payments": 120.0, "Refunds": 30.0}
"""Messages a second of each."""

DEAD = 2.0
"""Seconds that the master is away, and its start besides."""

EVERY = "500 milliseconds"
"""The stream's batches."""

FILE_SIZE = 4 << 20
"""Bytes of a log file: small, so that the log has several."""

READER = "demo"

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.log.level": "OFF",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Let stderr be a file, for processes that are started meanwhile."""
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class PipelineStory(Story):
    """What C{make demo-pipeline} does, step by step."""

    def __init__(self, console: Console, out: Path, seconds: float) -> None:
        super().__init__(console)
        self.out = out
        self.seconds = seconds
        self.facts = Facts(out / "messages", out / "rates.png")
        self._spark: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._count = dict.fromkeys(TOPICS, 0)

    @property
    def sent(self) -> list[Sent]:
        """What the client said of each message."""
        return self.facts.sent

    def run(self) -> bool:
        """Tell it, and say whether all was well."""
        shutil.rmtree(self.facts.table, ignore_errors=True)
        self.out.mkdir(parents=True, exist_ok=True)
        starting = ThreadPoolExecutor(1).submit(self.start_spark)
        names = self.start_names()
        master, slave = self.start_pair(names)
        client = self.start_client(names)
        starting.result()
        query = self.start_stream(slave)
        self.first(client)
        self.until_read(query, slave)
        self.say("spark", "the first rows are in the table")
        self.send(client, self.seconds / 3)
        self.kill_and_restart(query, client, master, slave)
        self.send(client, self.seconds / 3)
        client.process.term()
        self.catch_up(query, master, slave)
        self.say("demo", "stopping all")
        self.end()
        self.stop(slave, master, names)
        self.compared(Report(self.facts, OfflineLog(slave.root, FILE_SIZE)))
        self.say("demo", f"the table is {self.facts.table}, a picture of it {self.facts.picture}")
        return not self.wrong

    def end(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    # --- who takes part -----------------------------------------------------

    def start_spark(self) -> None:
        """A local session; what Java and Spark say goes into a file."""
        log = self.out / "spark.log"
        log.unlink(missing_ok=True)
        # Who started the demo waits for it, with nothing else to do on this machine.
        os.environ.setdefault(VARIABLE, Priority.NORMAL)
        with log_to(log):
            self._spark = builder("local[2]", "rmqha demo", SETTINGS).getOrCreate()

    def start_pair(self, names: NameServer) -> tuple[Node, Node]:
        """A master and a slave, both empty."""
        keys: dict[str, Any] = {
            "mappedFileSizeCommitLog": FILE_SIZE,
            "mappedFileSizeConsumeQueue": 60000,
            "maxHashSlotNum": 20000,
            "maxIndexNum": 80000,
            # Readers see what is on the slave's disk.  By default the last few KiB of a log
            # that grows no more get there after ten seconds.
            "flushCommitLogThoroughInterval": 500,
        }
        master = self.node(names, "master", brokerRole="SYNC_MASTER", **keys).start()
        slave = self.node(names, "slave", **keys)
        # A slave asks the name server at its start, and then every 30 seconds.
        names.until(lambda status: status["brokers"], "the master has registered")
        slave.start()
        self.say("master", f"twistd rmqha --role master, process {master.pid}, an empty store")
        self.say("master", f"an acknowledged write is {master.status()['syncGuarantee']}")
        slave.until_upstream("in-sync")
        self.say("slave", f"twistd rmqha --role slave, process {slave.pid}: in sync")
        return master, slave

    def start_stream(self, slave: Node) -> StreamingQuery:
        """Read the slave's files, and nothing else, into a Delta table."""
        assert self._spark is not None, "Spark did not start"
        query = stream(
            self._spark,
            slave.root,
            self.facts.table,
            format="delta",
            every=EVERY,
            told=self.told,
            visibility="log",
            readerName=READER,
        )
        self._query = query
        self.say("spark", f"local[2], reads {slave.root}")
        self.say("spark", f"adds every record to a Delta table, a batch each {EVERY}")
        return query

    def told(self, lag: Lag) -> None:
        """The stream has done a batch."""
        self.facts.commits.append((time.time(), sum(lag.ends.values())))

    # --- what happens -------------------------------------------------------

    def keys_of(self, topic: str, count: int) -> list[str]:
        first, self._count[topic] = self._count[topic], self._count[topic] + count
        return [f"{topic.lower()}-{n:05}" for n in range(first, self._count[topic])]

    def begin(self, client: Client, seconds: float) -> list[Burst]:
        return [
            Burst(client, self.keys_of(topic, max(1, round(rate * seconds))), rate, topic)
            for topic, rate in TOPICS.items()
        ]

    def wait(self, bursts: list[Burst]) -> list[Sent]:
        """Wait until all was sent, and keep what the client said."""
        sent = [one for burst in bursts for one in burst.wait(120)]
        self.facts.sent.extend(sent)
        return sent

    def first(self, client: Client) -> None:
        """Send to each topic until it is acknowledged: the client asks seldom for the way."""
        for topic, rate in TOPICS.items():
            send = partial(self._one, client, topic, rate)
            until(send, f"{topic} takes messages", tell=client.process.tail, pause=0.5)

    def _one(self, client: Client, topic: str, rate: float) -> bool:
        return self.wait([Burst(client, self.keys_of(topic, 1), rate, topic)])[0].ok

    def send(self, client: Client, seconds: float) -> None:
        """Send for a while with nothing in the way."""
        self.first(client)
        rates = ", ".join(f"{rate:.0f} to {topic}" for topic, rate in TOPICS.items())
        self.say("client", f"sends for {seconds:.0f} s, 1 KiB each, a second {rates}")
        sent = self.wait(self.begin(client, seconds))
        # While it asks for the way again, which it does by itself, it refuses a few.
        well = sum(one.ok for one in sent)
        self.expect(well > 0.9 * len(sent), f"only {well} of {len(sent)} acknowledged")
        self.say("client", f"{well} of {len(sent)} messages acknowledged")

    def kill_and_restart(
        self, query: StreamingQuery, client: Client, master: Node, slave: Node
    ) -> None:
        """The master is killed under load, and comes back with its store."""
        bursts = self.begin(client, self.seconds / 3)
        time.sleep(self.seconds / 9)
        position = slave.status()["maxOffset"]
        master.kill9()
        self.facts.killed = time.time()
        self.say("master", f"kill -9; the slave has {position} bytes of its log")
        slave.until_upstream("connecting", "waiting", "backing-off", "disconnected", "idle")
        self.say("slave", "has lost its master")
        end = self.until_read(query, slave)
        self.say("spark", f"reads its files all the same: all {end} bytes are in the table")
        time.sleep(max(0.0, self.facts.killed + DEAD - time.time()))
        master.start()
        self.facts.back = time.time()
        away = self.facts.back - self.facts.killed
        self.say("master", f"started again, process {master.pid}, away for {away:.1f} s")
        slave.until_upstream("in-sync")
        self.say("slave", "has compared its log with the master's and follows it again")
        sent = self.wait(bursts)
        lost = [one for one in sent if not one.ok]
        self.say("client", f"tried {len(sent)} messages around that, {len(lost)} not acknowledged")

    def catch_up(self, query: StreamingQuery, master: Node, slave: Node) -> None:
        """Wait until the table has what the log has."""
        slave.until_synced(int(master.status()["maxOffset"]))
        self.say("slave", "in sync")
        end = self.until_read(query, slave)
        self.say("spark", f"all {end} bytes are in the table")

    def until_read(self, query: StreamingQuery, slave: Node) -> int:
        """Wait until the table has what the slave's log has now, and say where that ends."""
        end = int(slave.status()["maxOffset"])

        def read() -> bool:
            failed = query.exception()
            assert failed is None, f"the stream has ended: {failed}"
            return bool(self.facts.commits) and self.facts.commits[-1][1] >= end

        until(
            read,
            f"the stream is at byte {end}",
            120,
            tell=lambda: str(query.lastProgress),
            progress=lambda: len(self.facts.commits),
        )
        return end
