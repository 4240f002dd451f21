"""What looking for damage at rest costs: the scrubber of an idle master, and the checks of a pull.

The scrubber's is processor time of the whole process with it, less that without it.  A pull's time
is what a client on this machine waits for 32 messages; the checks are timed on the same records
by themselves.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from struct import pack

from lab.bench.catchup import FILE_SIZE, STOCK
from lab.bench.corpus import write_log
from lab.bench.idle import LIMIT, SETTLE
from lab.bench.processes import processor_seconds
from lab.bench.report import Row, spread
from lab.harness.nodes import Node
from lab.harness.remote import Remote, send
from rmqha.broker.consuming.served_records import first_wrong
from rmqha.wire.columnar.record_blocks import walk
from rmqha.wire.log.hashing import body_crc
from rmqha.wire.log.layout import MAGIC_V1
from rmqha.wire.log.record import decode
from rmqha.wire.remoting.bodies.tables import GroupConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.pull import PullMessageRequest
from rmqha.wire.remoting.json_body import write

RATE = 8 << 20
SCRUB_GOAL = 1.0
"""Percent of a core."""

BUSY = 0.02
"""Share of a core below which a start is over; the scrubber takes less."""

BODY = 1024
BATCH = 32
MESSAGES = 6000
PULLS = 2000
PULL_GOAL = 3.0
"""Percent of a pull's time."""


def run(folder: Path, total: int, seconds: float, rounds: int) -> list[Row]:
    """Measure both.

    @param total: Bytes of the log that is scrubbed.
    @param seconds: How long it is watched.
    """
    return [_scrubber(folder, total, seconds), _pulls(folder, rounds)]


def _scrubber(folder: Path, total: int, seconds: float) -> Row:
    master = Node(folder, "master", **STOCK, scrubBytesPerSecond=0)
    end = write_log(master.root / "commitlog", total, file_size=FILE_SIZE, bodies=(BODY,))
    used, read = [], 0
    try:
        # Dispatched and stopped once: what is measured is an ordinary start.
        master.start(LIMIT)
        master.until(lambda status: status["dispatchedOffset"] >= end, "dispatched", LIMIT)
        master.term()
        for rate in (0, RATE):
            master.keys["scrubBytesPerSecond"] = rate
            master.start(LIMIT)
            master.until(lambda status: status["dispatchedOffset"] >= end, "dispatched", LIMIT)
            _until_idle(master)
            before = processor_seconds(master.pid), master.status()["scrub"]["readBytes"]
            time.sleep(seconds)
            used.append(processor_seconds(master.pid) - before[0])
            read = master.status()["scrub"]["readBytes"] - before[1]
            master.term()
    finally:
        master.kill9()
    percent = 100 * (used[1] - used[0]) / seconds
    return Row(
        what=f"scrubber of an idle master at {RATE >> 20} MiB/s, {BODY} bytes, processor",
        ours=f"{percent:.2f} % of a core, {read / seconds / (1 << 20):.1f} MiB/s read",
        beside=f"without it {100 * used[0] / seconds:.2f} %",
        goal=f"<= {SCRUB_GOAL:g} %",
        met=percent <= SCRUB_GOAL,
    )


def _until_idle(master: Node) -> None:
    """Wait until what a start leaves to be done in the background, such as the index of splits, is
    done.
    """
    end = time.monotonic() + LIMIT
    used = SETTLE
    while used > BUSY * SETTLE and time.monotonic() < end:
        before = processor_seconds(master.pid)
        time.sleep(SETTLE)
        used = processor_seconds(master.pid) - before


def _pulls(folder: Path, rounds: int) -> Row:
    master = Node(folder / "pulls", "master", brokerRole="ASYNC_MASTER", scrubBytesPerSecond=0)
    waits, processor = [], []
    try:
        master.start(LIMIT)
        with Remote(master.port) as client:
            group = write(GroupConfig(group_name="group"))
            client.ask(Command(code=RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group))
            client.ask_all([send("Topic", bytes(BODY)) for _ in range(MESSAGES)])
            for _ in range(rounds):
                before, taken = processor_seconds(master.pid), []
                for number in range(PULLS):
                    command = _pull(number * BATCH % (MESSAGES - BATCH))
                    begun = time.perf_counter()
                    answer = client.ask(command)
                    taken.append((time.perf_counter() - begun) * 1e6)
                    if answer.code:
                        raise AssertionError(f"a pull was answered {answer}")
                waits.append(statistics.median(taken))
                processor.append((processor_seconds(master.pid) - before) / PULLS * 1e6)
    finally:
        master.kill9()
    checks = [_checks() for _ in range(rounds)]
    percent = 100 * statistics.median(checks) / statistics.median(waits)
    return Row(
        what=f"pull with checks, {BATCH} messages of {BODY} bytes: the checks",
        ours=spread(checks, "us"),
        beside=f"a pull, from request to answer {spread(waits, 'us')}",
        ratio=f"{percent:.1f} %",
        goal=f"<= {PULL_GOAL:g} %",
        met=percent <= PULL_GOAL,
        notes=(f"Processor time of the broker for such a pull: {spread(processor, 'us')}",),
    )


def _pull(offset: int) -> Command:
    request = PullMessageRequest(
        consumer_group="group",
        topic="Topic",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=BATCH,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return Command(code=RequestCode.PULL_MESSAGE, ext=to_ext(request))


def _log(size: int, body_size: int) -> bytes:
    """Build a log of records as a 5.x client makes them: CLUSTER, UNIQ_KEY, TAGS."""
    parts: list[bytes] = []
    offset = 0
    while offset < size:
        number = len(parts)
        body = os.urandom(body_size)
        topic = b"BenchTopic%d" % (number % 4)
        properties = b"MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x01%032X\x02CLUSTER\x01" % number
        properties += b"DefaultCluster\x02WAIT\x01true\x02TAGS\x01TagA\x02"
        whole = 91 + len(body) + len(topic) + len(properties)
        head = pack(
            ">iiiiiqqiq", whole, MAGIC_V1, body_crc(body), number % 4, 0, number, offset, 0, 1
        )
        hosts = pack(">4siq4siiqi", bytes(4), 1, 2, bytes(4), 2, 0, 0, len(body))
        parts += [head, hosts, body, bytes((len(topic),)), topic, pack(">h", len(properties))]
        parts += [properties]
        offset += whole
    return b"".join(parts)


def _best(work: Callable[[], object], rounds: int = 9) -> float:
    """Seconds of the fastest of a few rounds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _checks() -> float:
    """Microseconds for the records of one pull."""
    data = memoryview(_log(BATCH * (BODY + 300), BODY))
    block = walk(data, 0, len(data), 1 << 30, max_size=1 << 20)
    starts, sizes = block.start[:BATCH].tolist(), block.size[:BATCH].tolist()
    numbers = [decode(data, start, start).queue_offset for start in starts]
    if first_wrong(data, starts, sizes, numbers) != BATCH:
        raise AssertionError("the records are sound")
    times = 200
    return (
        _best(lambda: [first_wrong(data, starts, sizes, numbers) for _ in range(times)])
        / times
        * 1e6
    )
