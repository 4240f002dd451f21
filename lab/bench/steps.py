"""The way of one SYNC message through a pair, and what each of its steps costs a processor.

One producer sends a message and waits for its answer, so each event of a reactor is one step: the
master reads a message and sends it on; the slave reads, appends, checks and reports it; the master
reads the report and answers.  An event is measured around Twisted's call for what is ready, with
the system calls in it; what the kernel does there for the other end of a loopback connection is in
it too.  The wait for events and the dispatch to queues and index are not.

Beside it, in turn, three small processes pass as many bytes on and back, and do nothing else
(L{lab.bench.raw.relay}).

Source: docs/way-of-a-sync-write.rst.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from lab.bench.catchup import STOCK
from lab.bench.queues import TurnNode
from lab.bench.raw import relay
from lab.bench.report import Row, limited, spread
from lab.bench.sends import BODY
from lab.bench.turn_child import EVENTS
from lab.harness.remote import Remote, send
from rmqha.wire.remoting.codes import ResponseCode

WARM = 2000
"""Messages that do not count."""

STEPS = (
    ("master, from the socket to the slave", "master", "RemotingProtocol", 15.0),
    ("master, from the report to the answer", "master", "MasterProtocol", 10.0),
    ("slave, from the socket to the report", "slave", "_WrappingProtocol", 12.0),
)
"""What is told, in the order of L{relay}: its name, whose it is, the protocol that is served (the
endpoint that dialled wraps a slave's), and the goal in us."""


def run(folder: Path, messages: int, rounds: int) -> list[Row]:
    """Measure the rows about one message.

    @param messages: Of a round, one after the other; L{EVENTS} at most count.
    """
    ours, bare = [], []
    for number in range(rounds):
        bare.append([_median(step, messages) for step in relay(WARM + messages)])
        ours.append(_round(folder / str(number), messages))
    return [
        limited(
            f"one SYNC message of 1 KiB, processor time of the {name}",
            "us",
            micros,
            goal,
            beside=f"its system calls alone {spread(calls, 'us')}",
            ratio=f"{statistics.median(micros) / statistics.median(calls):.1f}",
        )
        for (name, _, _, goal), micros, calls in zip(
            STEPS, zip(*ours, strict=True), zip(*bare, strict=True), strict=True
        )
    ]


def _round(folder: Path, messages: int) -> list[float]:
    """@return: Microseconds of each step, medians."""
    master = TurnNode(folder / "m", "master", **STOCK, brokerRole="SYNC_MASTER")
    slave = TurnNode(folder / "s", "slave", master=master.address, **STOCK)
    nodes = {"master": master, "slave": slave}
    try:
        master.start()
        slave.start()
        slave.until_upstream("in-sync")
        client = Remote(master.port)
        try:
            for _ in range(WARM + min(messages, EVENTS)):
                answer = client.ask(send("Steps", bytes(BODY)))
                assert answer.code == ResponseCode.SUCCESS, answer
        finally:
            client.close()
        slave.term()
        master.term()
        events = {role: node.phases()["serving"]["events"] for role, node in nodes.items()}
        return [_median(events[role][name], messages) for _, role, name, _ in STEPS]
    finally:
        slave.kill9()
        master.kill9()


def _median(seconds: list[float], messages: int) -> float:
    return 1e6 * statistics.median(seconds[-messages:])
