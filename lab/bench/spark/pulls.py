"""The stock way to a store's messages: a Java consumer that pulls them from a stock broker."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from lab.bench.report import Row
from lab.bench.spark.decoding import JavaPeer
from lab.bench.spark.field import Field
from lab.bench.spark.made import QUEUES, TOPIC, TOPICS
from lab.bench.spark.peers import compared, in_turns
from lab.bench.stock import JVM, Peer, Stock
from lab.harness.nodes import until
from lab.stock import jars

SOURCE = Path(__file__).with_name("Consume.java")

VERSION = jars.VERSIONS[0]
ROUNDS = 3
SECONDS = 8.0
"""Of one pass; it is a rate."""

GOAL = 5.0

PATIENCE = 180.0


def part(field: Field) -> list[Row]:
    """A pull consumer and a query of ours, which both get all columns with bodies and check them.

    @raise jars.Missing: If there is no stock RocketMQ.
    """
    jars.resolve(VERSION)
    folder = field.folder / "stock"
    folder.mkdir()
    root = folder / "master" / "store"
    (root / "commitlog").mkdir(parents=True)
    # The first file is enough, and full: the broker goes on in one of its own.
    first = field.store.files[0]
    size = first.stat().st_size
    os.link(first, root / "commitlog" / first.name)
    tool = Peer(folder, VERSION)
    master = Stock(folder, tool, "master", mappedFileSizeCommitLog=size)
    consumer: JavaPeer | None = None
    try:
        tool.start()
        master.start()
        topics = [f"{TOPIC[:-1]}{number}" for number in range(TOPICS)]
        for topic in topics:
            tool.do("topic", address=master.client_address, topic=topic, queues=QUEUES)
        until(
            lambda: _dispatched(master, size // 2), "the broker has its queues", PATIENCE, pause=0.5
        )
        consumer = _consumer(folder, tool.names, 2.0 if field.quick else SECONDS, topics)
        works = {"pull": consumer.rate, "noop": lambda: field.rate(field.spark, "noop", raw=False)}
        found = in_turns(works, field.rounds(ROUNDS))
    finally:
        if consumer is not None:
            consumer.end()
        master.kill9()
        tool.kill9()
        shutil.rmtree(folder, ignore_errors=True)
    what = "all columns with bodies, CRC, to noop, beside the stock way to them"
    beside = f"Java pull consumer, RocketMQ {VERSION}"
    return [compared(what, found["noop"], beside, found["pull"], GOAL)]


def _dispatched(master: Stock, least: int) -> bool:
    look = master.look()
    return look is not None and look.held >= least and look.dispatched >= look.held


def _consumer(folder: Path, names: str, seconds: float, topics: list[str]) -> JavaPeer:
    classes = folder / "consumer"
    classes.mkdir()
    library = f"{jars.library(VERSION)}/*"
    subprocess.run(["javac", "-cp", library, "-d", str(classes), str(SOURCE)], check=True)
    path = f"{jars.HERE / 'home' / 'conf'}:{classes}:{library}"
    command = ["java", *JVM, f"-Duser.home={folder}", "-cp", path, "Consume"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([*command, names, str(seconds), *topics], text=True, **pipes)
    return JavaPeer(process)
