"""Measure the replication transports alone, against raw blocking sockets.

Two processes on loopback, each way in turn, several rounds in one run, medians:

 - bulk: frames from a mapped file into a mapped file, MB/s at the receiver;
 - ping-pong: one frame of 1.1 KiB, answered by an 8-byte report, in microseconds.

Ways: C{raw} is blocking C{sendmsg} and C{recvmsg_into} a frame at a time; C{regions} is
L{rmqha.net.zero_copy_send} to L{rmqha.net.zero_copy_receive} under the default reactor.

Run: C{python bench/transport.py [--mib 2048] [--frame 32768] [--rounds 5] [--pings 20000]}.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqha.wire.ha_frame import MAX_BODY, OFFSET_REPORT, TRANSFER_HEADER

WINDOW = 256 * 1024 * 1024
PING_BODY = 1100
NOTHING_YET = (b"", 0, 0, 0)


def mapped(folder: Path, name: str) -> memoryview:
    """A file of L{WINDOW} bytes, all pages present, mapped shared."""
    path = folder / name
    with open(path, "wb") as out:
        for _ in range(WINDOW >> 20):
            out.write(os.urandom(1024) * 1024)
    with open(path, "r+b") as file:
        view = memoryview(mmap.mmap(file.fileno(), WINDOW))
    sum(view[::4096])
    return view


def raw_send(sock: socket.socket, source: memoryview, total: int, frame: int) -> None:
    """Send frames with one blocking C{sendmsg} each."""
    offset = 0
    while offset < total:
        place = offset % WINDOW
        body = source[place : place + frame]
        parts: list[Any] = [TRANSFER_HEADER.pack(offset, frame), body]
        sent = sock.sendmsg(parts)
        if sent < frame + 12:
            sock.sendall((parts[0] + bytes(body))[sent:])
        offset += frame
    sock.recv(8)


def raw_receive(sock: socket.socket, target: memoryview, total: int, frame: int) -> None:
    """Receive each body and the next header with blocking C{recvmsg_into}."""
    header = memoryview(bytearray(12))
    have = sock.recv_into(header)
    while True:
        while have < 12:
            have += sock.recv_into(header[have:])
        offset, left = TRANSFER_HEADER.unpack(header)
        place = offset % WINDOW
        have = 0
        while left:
            parts = [target[place : place + left]]
            if offset + frame < total:
                parts.append(header)
            count = sock.recvmsg_into(parts)[0]
            have = max(0, count - left)
            place += min(count, left)
            left -= min(count, left)
        if offset + frame >= total:
            sock.sendall(OFFSET_REPORT.pack(total))
            return


def raw_ping(sock: socket.socket, source: memoryview, pings: int) -> list[float]:
    """Send single frames and wait for each report."""
    times = []
    for n in range(pings):
        begin = time.perf_counter()
        place = n * PING_BODY % (WINDOW - PING_BODY)
        sock.sendmsg([TRANSFER_HEADER.pack(place, PING_BODY), source[place : place + PING_BODY]])
        sock.recv(8)
        times.append(time.perf_counter() - begin)
    return times


def raw_pong(sock: socket.socket, target: memoryview, pings: int) -> None:
    """A slave's side without Twisted: receive a frame, send a report."""
    header = memoryview(bytearray(12))
    for _ in range(pings):
        sock.recv_into(header)
        offset, size = TRANSFER_HEADER.unpack(header)
        sock.recv_into(target[offset : offset + size])
        sock.send(OFFSET_REPORT.pack(offset + size))


def raw_server(pipe: Any, source: memoryview, options: argparse.Namespace) -> None:
    """Serve both measurements on blocking sockets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        sock = listener.accept()[0]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw_send(sock, source, options.total, options.frame)
        pipe.send(raw_ping(sock, source, options.pings))


def raw_client(port: int, target: memoryview, options: argparse.Namespace) -> float:
    """Take part in both measurements; returns the seconds of the bulk one."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = time.perf_counter()
        raw_receive(sock, target, options.total, options.frame)
        seconds = time.perf_counter() - begin
        raw_pong(sock, target, options.pings)
    return seconds


def regions_server(pipe: Any, source: memoryview, options: argparse.Namespace) -> None:
    """Serve both measurements with L{rmqha.net.zero_copy_send}."""
    from twisted.internet import reactor
    from twisted.internet.protocol import Factory, Protocol

    from rmqha.net.zero_copy_send import TURN, ZeroCopyServerEndpoint

    class Sender(Protocol):
        def connectionMade(self) -> None:
            self.offset = 0
            self.times: list[float] = []
            self.transport.setTcpNoDelay(True)
            self.transport.registerProducer(self, True)
            self.resumeProducing()

        def resumeProducing(self) -> None:
            parts: list[Any] = []
            budget = TURN
            while self.offset < options.total and budget > 0:
                place = self.offset % WINDOW
                parts.append(TRANSFER_HEADER.pack(self.offset, options.frame))
                parts.append(source[place : place + options.frame])
                self.offset += options.frame
                budget -= options.frame
            if parts:
                self.transport.writeParts(parts)

        def pauseProducing(self) -> None:
            pass

        def stopProducing(self) -> None:
            pass

        def dataReceived(self, data: bytes) -> None:
            now = time.perf_counter()
            if self.times:
                self.times[-1] = now - self.times[-1]
            if len(self.times) == options.pings:
                self.transport.unregisterProducer()
                self.transport.loseConnection()
                return
            self.times.append(time.perf_counter())
            place = len(self.times) * PING_BODY % (WINDOW - PING_BODY)
            header = TRANSFER_HEADER.pack(place, PING_BODY)
            self.transport.writeParts((header, source[place : place + PING_BODY]))

        def connectionLost(self, reason: Any) -> None:
            pipe.send(self.times)
            reactor.stop()

    listening = ZeroCopyServerEndpoint(reactor, 0, interface="127.0.0.1").listen(
        Factory.forProtocol(Sender)
    )
    listening.addCallback(lambda port: pipe.send(port.getHost().port))
    reactor.run()


def regions_client(port: int, target: memoryview, options: argparse.Namespace) -> float:
    """Take part in both measurements with L{rmqha.net.zero_copy_receive}; returns the seconds of
    the bulk one.
    """
    from twisted.internet import reactor
    from twisted.internet.protocol import Factory, Protocol

    from rmqha.net.zero_copy_receive import ZeroCopyClientEndpoint

    seconds: list[float] = []

    class Receiver(Protocol):
        def connectionMade(self) -> None:
            self.end = 0
            self.transport.setTcpNoDelay(True)
            self.transport.start_scatter(self, NOTHING_YET, MAX_BODY)
            self.begin = time.perf_counter()

        def frame_starts(self, offset: int, size: int) -> None:
            pass

        def heartbeat(self, offset: int) -> None:
            pass

        def room(self, offset: int, left: int) -> memoryview:
            place = offset % WINDOW
            return target[place : place + left]

        def body_received(self, count: int) -> None:
            self.end += count

        def frame_ends(self) -> None:
            pass

        def turn_ends(self) -> None:
            if self.end >= options.total:
                if not seconds:
                    seconds.append(time.perf_counter() - self.begin)
                self.transport.write(OFFSET_REPORT.pack(self.end))

        def connectionLost(self, reason: Any) -> None:
            reactor.stop()

    ZeroCopyClientEndpoint(reactor, "127.0.0.1", port).connect(Factory.forProtocol(Receiver))
    reactor.run()
    return seconds[0]


WAYS: dict[str, tuple[Callable[..., None], Callable[..., float]]] = {
    "raw": (raw_server, raw_client),
    "regions": (regions_server, regions_client),
}


def _client(pipe: Any, way: str, port: int, target: memoryview, options: Any) -> None:
    pipe.send(WAYS[way][1](port, target, options))


def measure(
    way: str, source: memoryview, target: memoryview, options: argparse.Namespace
) -> tuple[float, float, float]:
    """One round of one way: MB/s, and the median and 99th percentile of a ping in microseconds."""
    fork = multiprocessing.get_context("fork")
    near, far = fork.Pipe()
    near2, far2 = fork.Pipe()
    server = fork.Process(target=WAYS[way][0], args=(far, source, options))
    server.start()
    port = near.recv()
    client = fork.Process(target=_client, args=(far2, way, port, target, options))
    client.start()
    seconds = near2.recv()
    times = sorted(near.recv())
    server.join()
    client.join()
    return (
        options.total / seconds / 1e6,
        statistics.median(times) * 1e6,
        times[len(times) * 99 // 100] * 1e6,
    )


def main() -> None:
    """Run all ways in turn and print the medians."""
    parser = argparse.ArgumentParser(description="rmqha transports against raw sockets")
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--frame", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pings", type=int, default=20000)
    options = parser.parse_args()
    options.total = options.mib << 20
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=base) as folder:
        source = mapped(Path(folder), "source")
        target = mapped(Path(folder), "target")
        results: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way, found in results.items():
                found.append(measure(way, source, target, options))
    print(f"{'way':8} {'MB/s [min..max]':>24} {'ping p50 us [best]':>20} {'p99 us':>8}")
    for way, found in results.items():
        speeds = [row[0] for row in found]
        p50, p99 = (statistics.median(row[k] for row in found) for k in (1, 2))
        bulk = f"{statistics.median(speeds):.0f} [{min(speeds):.0f}..{max(speeds):.0f}]"
        ping = f"{p50:.1f} [{min(row[1] for row in found):.1f}]"
        print(f"{way:8} {bulk:>24} {ping:>20} {p99:>8.1f}")


if __name__ == "__main__":
    main()
