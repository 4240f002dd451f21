"""Measure a stock pair and ours with stock clients, and write lab/bench/RESULTS-clients.md:
C{python -m lab.bench.clients}, with the options of L{lab.bench.beside}.
"""

from __future__ import annotations

import sys

from lab.bench import (
    client_kinds,
    consuming,
    crowd,
    delays,
    metadata,
    popping,
    slave_reads,
    topics,
    writes,
)
from lab.bench.beside import GIB, Bench

NEEDED = 10 * GIB
"""Four stores of nearly two million messages, with their queues and indexes."""

LIMIT = 2100.0
"""Seconds after which the whole run is given up."""

#: Seconds of the run after which a part begins no more rounds.
SYNC_UNTIL, ASYNC_UNTIL, FLUSH_UNTIL, TOPICS_UNTIL = 210.0, 420.0, 600.0, 800.0
CONSUME_UNTIL, IDLE_UNTIL, SLAVE_UNTIL = 950.0, 1050.0, 1200.0
KINDS_UNTIL, POP_UNTIL = 1450.0, 1600.0

NOTES = """\
## What is compared

- **Pairs.** Master and slave are stock in one and ours in the other; both are up all the time and
  take turns with the same producers, which are one JVM. It holds the (stock) name server too.
- **Writes** count from the producer's `send` to its return. Two processors are shared by
  producers, master and slave.
- **Processor time a message** is that of all threads of the process, in user mode and in the
  kernel, from the first send to the last answer, divided by the messages. The producer's process
  holds the name server too. All JVMs have the heap that is said above.
- **Warm-up.** Each pair gets 300,000 messages of 64 threads, or 30 seconds of them, and a whole
  round before the first one that counts.
- **A disk.** Both masters answer when a message is on the disk that temporary files are on (or
  the checkout, where those are in memory); both slaves write to it too, without being waited for.
- **Many topics** are sent to in turn by the same producers as the one, through the same pair; all
  are known to them before. What is beside ours there is our pair with one topic.
- **The push consumer** has a stock consumer's defaults, a group of its own each time, and nothing
  to do for a message; its speed counts from the first message to the last.
- **Idle clients** are sockets that have sent one heartbeat. Memory is what the master has more
  than before the first of them came.
- **Reads from slaves.** The push consumer, the producers and the name server are one JVM, so that
  it shares the two processors with the writes wherever it reads. It begins far behind, and gets
  eight messages a pull, as all who read what memory does not hold.
- **Kinds** are sent by 32 threads (batches by 8), each kind to both pairs in turn; a transaction
  counts until its producer goes on, and of one-way messages every 32nd of a thread is waited for,
  as a stock broker drops what has to wait.
- **POP** is measured beside RocketMQ 5 only (`--rocketmq 5.3.3`): three stock consumers of one
  process, to which the broker shares out single messages, and acknowledge each.
- **Delayed messages** wait in a master each, ours and a stock one at the same time. A message is
  due a delay after it was stored to wait, and delivered when its copy is stored, both by the
  broker's own time stamps, in whole milliseconds.
- **Tables** go from a master of ours to a slave of ours with an empty store, whose reactor is
  asked for a turn each millisecond meanwhile. A stock slave asks once in 10 seconds, or 60.

## What the limit is

A message costs a master of ours less processor time than a stock one, and our slave two to three
times as much. Producers, master and slave share two processors, so all three decide the rate; how
far apart the two pairs are differs from machine to machine (SYNC with 64 threads, before
dispatch was in runs: 0.96 on an AMD EPYC, 0.80 on an Intel Xeon, a day apart).
What costs is the turn, not the message: with 64 producers a turn of the master brings some ten
messages, and a wake-up, a read, an append, a frame, a report and a write of answers are paid once
a turn, most of it in Python. Where one client sends 64 requests together (a small C program, no
JVM), the same two processes store some 60,000 messages a second SYNC, at 11 us of the master's
processor time and 8 us of the slave's. With one producer the time of a write is that of four
wake-ups of processes; where nobody waits for the slave (ASYNC), it gets what came within 5 ms in
one frame. Batches and whole pulls are bound by what they cost per message, of which copies and
checksums are the most. A push consumer that catches up costs all processes together 6.6 us a
message beside either master (ours 2.6 of it, the stock one 2.9); with ours a quarter of the two
processors stays idle, probably as one thread answers the pulls of eight queues in turn and the
consumer's chain of threads waits for each. With many topics each message is a unit in a file of
its own: 10 us on each side, of which the write is one.

Tried for SYNC with many producers, and left out: a pause of 100 or 200 us before a read, so that
more comes together (no faster); new bytes that wait for the slave's answer to those before them,
1 ms at most (5 % faster, where elected masters would need a rule of their own); time slices of
0.1 ms from the kernel's scheduler for both nodes (no faster, p99 neither); nine modules of a
write's way compiled by Cython as they are (a tenth slower than the interpreter, which specialises).
For the push consumer: each answer written at once, not with the others of one read (no faster).
"""

BENCH = Bench(
    name="bench-clients",
    parts={
        "sync": lambda field: writes.sync(field, SYNC_UNTIL),
        "async": lambda field: writes.asynchronous(field, ASYNC_UNTIL),
        "flush": lambda field: writes.flushed(field, FLUSH_UNTIL),
        "topics": lambda field: topics.run(field, TOPICS_UNTIL),
        "consume": lambda field: consuming.run(field, CONSUME_UNTIL),
        "idle": lambda field: crowd.run(field, IDLE_UNTIL),
        "slave-reads": lambda field: slave_reads.run(field, SLAVE_UNTIL),
        "kinds": lambda field: client_kinds.run(field, KINDS_UNTIL),
        "pop": lambda field: popping.run(field, POP_UNTIL),
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
