"""
Measure a stock pair and ours with stock clients, and write lab/bench/RESULTS-clients.md:
C{python -m lab.bench.clients}, with the options of L{lab.bench.beside}.
"""

from __future__ import annotations

import sys

from lab.bench import consuming, crowd, delays, metadata, slave_reads, writes
from lab.bench.beside import GIB, Bench

NEEDED = 6 * GIB
"""Four stores of a million messages, with their queues and indexes."""

LIMIT = 900.0
"""Seconds after which the whole run is given up."""

#: Seconds of the run after which a part begins no more rounds.
SYNC_UNTIL, ASYNC_UNTIL, CONSUME_UNTIL, IDLE_UNTIL, SLAVE_UNTIL = 150.0, 300.0, 420.0, 510.0, 660.0

NOTES = """\
## What is compared

- **Pairs.** Master and slave are stock in one and ours in the other; both are up all the time and
  take turns with the same producers, which are one JVM. It holds the (stock) name server too.
- **Writes** count from the producer's `send` to its return. Two processors are shared by
  producers, master and slave.
- **Warm-up.** A whole round of each pair comes before the first one that counts.
- **The push consumer** has a stock consumer's defaults, a group of its own each time, and nothing
  to do for a message; its speed counts from the first message to the last.
- **Idle clients** are sockets that have sent one heartbeat. Memory is what the master has more
  than before the first of them came.
- **Reads from slaves.** The push consumer, the producers and the name server are one JVM, so that
  it shares the two processors with the writes wherever it reads. It begins far behind, and gets
  eight messages a pull, as all who read what memory does not hold.
- **Delayed messages** wait in a master each, ours and a stock one at the same time. A message is
  due a delay after it was stored to wait, and delivered when its copy is stored, both by the
  broker's own time stamps, in whole milliseconds.
- **Tables** go from a master of ours to a slave of ours with an empty store, whose reactor is
  asked for a turn each millisecond meanwhile. A stock slave asks once in 10 seconds, or 60.

## What the limit is

One Python thread does all that a master of ours does for a message: some 50 us of it in user mode
and 6 us in the kernel, where many messages of 1 KiB are on their way at once (a profile of a
master without a slave). About a sixth of it is the request's JSON header and its typed fields, a
fifth the record and its place in the log, a fifth what the consume queue and the index get of it,
a sixth the answer, and the rest Twisted's reactor, the topic's checks and properties. So a
processor bears less than 20,000 messages a second, whatever else is done; producers, slave and
reactor share two. A stock broker runs its threads on both. With one producer the time of a write
is that of four wake-ups of processes and of the one message, which costs more alone: nothing is
done for several at a time. Larger batches and whole pulls are bound by the same thread, by
what they cost per message: less, as most of it is vectorised or not looked at.
"""

BENCH = Bench(
    name="bench-clients",
    parts={
        "sync": lambda field: writes.sync(field, SYNC_UNTIL),
        "async": lambda field: writes.asynchronous(field, ASYNC_UNTIL),
        "consume": lambda field: consuming.run(field, CONSUME_UNTIL),
        "idle": lambda field: crowd.run(field, IDLE_UNTIL),
        "slave-reads": lambda field: slave_reads.run(field, SLAVE_UNTIL),
        "delays": delays.run,
        "metadata": metadata.run,
    },
    needed=NEEDED,
    limit=LIMIT,
    size=lambda quick: f"{consuming.QUICK if quick else consuming.MESSAGES:,} messages to consume",
    notes=NOTES,
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
