"""Free TCP ports.

Tests run in several processes at once, and a port is free again while its node restarts: so
each process takes ports from a range of its own, and none twice in a row.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import socket
import tempfile
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

#: Below the range from which Linux takes the ports of outgoing connections: one of
#: those could connect to itself while its master is away.
PORTS = range(12_000, 31_000)

#: How many a process has for itself.
OWN = 1_000

#: The last ports that were given, neighbours too.
_given: deque[int] = deque(maxlen=OWN // 4)


def free_ports(count: int) -> list[int]:
    """TCP ports that are free on every local address."""
    return [free_port() for _ in range(count)]


def client_port() -> int:
    """A port for clients: the VIP port two below it is free too."""
    return free_port(-2)


def free_port(*neighbours: int) -> int:
    """A free TCP port, with some neighbours free too, counted from there."""
    for port in _candidates():
        places = [port + step for step in (0, *neighbours)]
        # Whoever got one of them may not listen there yet.
        if not set(places) & set(_given) and all(map(is_free, places)):
            _given.extend(places)
            return port
    raise AssertionError("no free port")


@cache
def _candidates() -> Iterator[int]:
    own = list(_range())
    random.SystemRandom().shuffle(own)
    return itertools.cycle(own)


def _range() -> range:
    """Ports of which no other process that lives takes any; all, if there are too many."""
    for start in range(PORTS.start, PORTS.stop, OWN):
        path = Path(tempfile.gettempdir()) / f"rmqha-ports-{start}"
        try:
            lock = os.open(path, os.O_CREAT | os.O_WRONLY)
        except PermissionError:
            continue  # another user's
        try:
            # Until this process ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return range(start, start + OWN)
    return PORTS


def is_free(port: int) -> bool:
    """Whether nobody listens there, on any local address."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError:
            return False
    return True
