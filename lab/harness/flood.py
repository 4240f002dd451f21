"""Clients that ask all that a broker takes: C{python -m lab.harness.flood PORT KIND COUNT}."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.harness.nodes import Process
from lab.harness.remote import Remote, pull, send
from rmqha.wire.remoting.bodies.tables import GroupConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import encode
from rmqha.wire.remoting.json_body import write

TOPIC = "Flooded"
"""Its pulls ask for this topic's messages."""

GROUP = "flooding"
"""Whose pulls they are."""

AT_ONCE = 50_000
"""Pulls that are sent without waiting for an answer."""

PATIENCE = 60.0
"""Longest wait of a good producer for one answer, in seconds."""

MOST_NICE = 19
"""What gives way to every other process."""

PAUSE = 0.01
"""Seconds until a connection that was refused or closed is tried again."""


def frame(header: bytes, body: bytes = b"") -> bytes:
    """A remoting frame with a header as it is."""
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def loose_header(size: int) -> bytes:
    """A header of about so many bytes, in JSON as only Java reads it."""
    start = f"{{'code':{int(RequestCode.GET_ALL_TOPIC_CONFIG)},'opaque':1,'flag':0,'extFields':{{"
    count = (size - len(start)) // len("'k0000':'v',")
    fields = ",".join(f"'k{number:04}':'v'" for number in range(count))
    return f"{start}{fields}}}}}".encode()


def pulls(count: int) -> bytes:
    """So many pulls of messages that are there."""
    return encode(pull(TOPIC, GROUP, 0)) * count


KINDS: dict[str, Callable[[], bytes]] = {
    "long-loose": lambda: frame(loose_header(197_000)),
    "loose": lambda: frame(loose_header(8_000)) * 8,
    "short-loose": lambda: frame(loose_header(1_000)) * 64,
    "pulls": lambda: pulls(AT_ONCE),
}
"""What one connection sends, again and again."""


@contextlib.contextmanager
def running_beside(folder: Path, port: int, kind: str, connections: int = 1) -> Iterator[None]:
    """Have a process send one kind meanwhile."""
    process = Process(f"flood-{kind}", folder / f"flood-{kind}.log")
    process.spawn([sys.executable, "-m", "lab.harness.flood", str(port), kind, str(connections)])
    try:
        yield
    finally:
        process.kill9()


def prepare(port: int) -> None:
    """Have what the pulls of a flood ask for."""
    group = write(GroupConfig(group_name=GROUP))
    with Remote(port) as client:
        for _ in range(32):
            client.ask(send(TOPIC, bytes(100)))
        client.ask(Command(code=RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group))


def sends(port: int, seconds: float) -> list[float]:
    """Send one message after the other, and say how many seconds each took."""
    taken = []
    with Remote(port) as client:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begun = time.perf_counter()
            client.ask(send("Good", bytes(1000)), PATIENCE)
            taken.append(time.perf_counter() - begun)
    return taken


def flood(port: int, data: bytes, count: int) -> None:
    """Send it on so many connections, and read what is answered, for ever."""
    places: dict[socket.socket, int] = {}
    while True:
        while len(places) < count:
            try:
                peer = socket.create_connection(("127.0.0.1", port), 5)
            except OSError:
                time.sleep(PAUSE)
                continue
            peer.setblocking(False)
            places[peer] = 0
        reading, writing, _ = select.select(list(places), list(places), [], 1.0)
        for peer in {*reading, *writing}:
            try:
                if peer in writing:
                    sent = peer.send(memoryview(data)[places[peer] : places[peer] + (1 << 16)])
                    places[peer] = (places[peer] + sent) % len(data)
                if peer in reading and not peer.recv(1 << 18):
                    raise ConnectionError("closed")
            except BlockingIOError:
                pass
            except OSError:
                peer.close()
                del places[peer]
                time.sleep(PAUSE)


if __name__ == "__main__":
    # Other clients are on other machines: here they take what the producer leaves of a processor.
    os.nice(MOST_NICE)
    flood(int(sys.argv[1]), KINDS[sys.argv[2]](), int(sys.argv[3]))
