"""The alternatives: what two small Python processes on blocking sockets can do here.

 - L{copy}: C{sendfile} from the log's files on one side, C{recv_into} freshly made
   mapped files on the other, in pieces of a frame's size;
 - L{ping_pong}: 1 KiB one way, 8 bytes back;
 - L{relay}: the way of a SYNC write, without the write.

No headers, no checks, no queues, no reactor: nothing that copies a log into mapped
files by way of TCP can do much less.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import select
import shutil
import socket
import time
from pathlib import Path
from typing import Any

PIECE = 32 << 10
"""Bytes of one C{sendfile} and of one C{recv_into}: RocketMQ's C{haTransferBatchSize}."""

PING = 1024
PONG = 8
"""Bytes of a message's body, and of a report."""

ANSWER = 256
"""Bytes of an answer, about."""


def _send(port: int, files: list[Path], total: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        left = total
        for path in files:
            with open(path, "rb") as file:
                size = min(left, path.stat().st_size)
                position = 0
                while position < size:
                    position += os.sendfile(
                        sock.fileno(), file.fileno(), position, min(PIECE, size - position)
                    )
            left -= size
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)


def _receive(sock: socket.socket, folder: Path, total: int, file_size: int) -> float:
    begun = 0.0
    done = 0
    while done < total:
        path = folder / f"{done:020d}"
        with open(path, "w+b") as file:
            file.truncate(file_size)
            view = memoryview(mmap.mmap(file.fileno(), file_size))
        position, size = 0, min(file_size, total - done)
        while position < size:
            count = sock.recv_into(view[position : min(position + PIECE, size)])
            begun = begun or time.perf_counter()
            if not count:
                raise ConnectionError("the sender has gone")
            position += count
        done += size
    return time.perf_counter() - begun


def copy(source: Path, target: Path, total: int, file_size: int) -> float:
    """Copy the front of a log by the shortest way.

    @param source: The folder of its files.
    @param target: A folder to be made, and deleted again.
    @return: Seconds from the first byte to the last.
    """
    target.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = multiprocessing.get_context("fork").Process(
            target=_send, args=(listener.getsockname()[1], sorted(source.iterdir()), total)
        )
        sender.start()
        sock = listener.accept()[0]
        with sock:
            seconds = _receive(sock, target, total, file_size)
    sender.join()
    shutil.rmtree(target)
    return seconds


def _pong(port: int) -> None:
    answer = bytes(PONG)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = bytearray(PING)
        while sock.recv_into(buffer, PING, socket.MSG_WAITALL):
            sock.send(answer)


def ping_pong(count: int) -> list[float]:
    """Send 1 KiB and wait for 8 bytes, again and again.

    @return: The seconds of each.
    """
    times: list[float] = []
    message: Any = bytes(PING)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = multiprocessing.get_context("fork").Process(
            target=_pong, args=(listener.getsockname()[1],)
        )
        other.start()
        sock = listener.accept()[0]
    with sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            begun = time.perf_counter()
            sock.send(message)
            sock.recv(PONG)
            times.append(time.perf_counter() - begun)
    other.join()
    return times


def relay(count: int) -> tuple[list[float], list[float], list[float]]:
    """Send 1 KiB to a process that sends it on to another, whose 8 bytes have the first one answer:
    again and again.

    @return: The processor seconds of each step: from the socket on to the next process; from
        its 8 bytes to the answer; and that process's.
    """
    context = multiprocessing.get_context("fork")
    times = [context.SimpleQueue() for _ in range(2)]
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    first, second = (listener.getsockname()[1] for listener in listeners)
    others = [
        context.Process(target=_middle, args=(listeners[0], second, times[0])),
        context.Process(target=_last, args=(listeners[1], times[1])),
    ]
    for other in others:
        other.start()
    with socket.create_connection(("127.0.0.1", first)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        message = bytes(PING)
        for _ in range(count):
            sock.send(message)
            sock.recv(ANSWER)
    onward, back = times[0].get()
    (reported,) = times[1].get()
    for other in others:
        other.join()
    for listener in listeners:
        listener.close()
    return onward, back, reported


def _middle(listener: socket.socket, port: int, told: Any) -> None:
    with listener.accept()[0] as above, socket.create_connection(("127.0.0.1", port)) as below:
        told.put(_steps([(above, PING, below, PING), (below, PONG, above, ANSWER)]))


def _last(listener: socket.socket, told: Any) -> None:
    with listener.accept()[0] as above:
        told.put(_steps([(above, PING, above, PONG)]))


def _steps(ways: list[tuple[socket.socket, int, socket.socket, int]]) -> list[list[float]]:
    """Wait for sockets, read what they have and write to others, until one is closed.

    @param ways: From where how many bytes come, and where how many go then.
    @return: The processor seconds of each way's steps.
    """
    seconds: list[list[float]] = [[] for _ in ways]
    poller, way_of = select.epoll(), {}
    for way, found in zip(ways, seconds, strict=True):
        way[2].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poller.register(way[0], select.EPOLLIN)
        way_of[way[0].fileno()] = way, bytes(way[3]), found
    while True:
        for descriptor, _ in poller.poll():
            (source, most, target, _), answer, found = way_of[descriptor]
            begun = time.thread_time()
            if not source.recv(most):
                return seconds
            target.send(answer)
            found.append(time.thread_time() - begun)
