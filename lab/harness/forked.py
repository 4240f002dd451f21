"""Nodes and commands of ours that begin where what they import is there already.

To import what a node is made of takes two seconds of a processor, nine tenths of what most of them
need in a test.  So each process of tests has a child that has imported it, and is told to fork; who
is forked becomes the test's own child, with its own command line, folder, environment, input and
output, and is all that a new process of Python would be but for what C{/proc} calls it.  Whatever
has to change what is imported, or is not named here, is started as ever.

Run by L{Forked}; the child is C{python -m lab.harness.forked DESCRIPTOR}.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent

#: What is forked, by how its command begins, and where it begins then.
BEGIN = {
    (str(BIN / "twistd"),): "twisted.scripts.twistd:run",
    (str(BIN / "rmqha"),): "rmqha.cli.start:start",
    ("-m", "lab.harness.writer_child"): "lab.harness.writer_child:main",
    ("-m", "lab.harness.proxy"): "lab.harness.proxy:main",
}

#: What they import when they know what they are to do.
LATER = (
    *(f"rmqha.cli.{name}" for name in ("doctor", "nodes.status", "promote", "switchover.main")),
    "rmqha.roles.live_promotion",
    "rmqha.roles.master",
    "rmqha.roles.member",
    "rmqha.roles.namesrv",
    "rmqha.roles.slave",
    "rmqha.roles.tap",
    "twisted.application.reactors",
    "twisted.plugins",
    "twisted.web.static",
)

#: What Python itself goes by in an environment: who wants it otherwise is not forked.
BORN_WITH = ("PYTHON", "LANG", "LC_", "TZ")

#: The one module that notes when its process began, and where: a slave tells lives of its master
#: apart by it.
BOOT = "rmqha.broker.admin.runtime_info", "BOOTED"

UNBUFFERED = "PYTHONUNBUFFERED"

#: Longest command with its environment.
MOST = 1 << 17

#: C{PR_SET_CHILD_SUBREAPER} of prctl(2): who has lost its parent becomes a child of ours.
ADOPT = 36

_lock = threading.Lock()
_server: tuple[socket.socket, subprocess.Popen[bytes]] | None = None


def place(arguments: list[str]) -> str:
    """Where a command of Python begins, C{""} if it is none that is forked."""
    for begin, found in BEGIN.items():
        if tuple(arguments[: len(begin)]) == begin:
            return found
    return ""


def born_with(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment cannot be changed once Python has begun."""
    given = {name: text for name, text in environment.items() if name.startswith(BORN_WITH)}
    for name in (UNBUFFERED, "PYTHONDONTWRITEBYTECODE"):
        given.pop(name, None)
    return given


class Forked(subprocess.Popen[str]):
    """A process that is forked, if it is one that can be."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        told = [str(word) for word in args]
        cwd, environment = os.path.abspath(more[4] or "."), dict(more[5] or os.environ)
        known = told[0] == sys.executable and place(told[1:])
        alike = born_with(environment) == born_with(os.environ)
        before, passed = more[1], more[3]
        if not known or not alike or before or passed:
            super()._execute_child(args, *more)
            return
        pipes = more[9:15]
        request = {
            "arguments": told[1:],
            "cwd": cwd,
            "environment": environment,
            "session": more[-2],
        }
        ends = enumerate((pipes[0], pipes[3], pipes[5]))
        files = [usual if end < 0 else end for usual, end in ends]
        self.pid = _fork(json.dumps(request).encode(), files)
        self._child_created = True
        self._close_pipe_fds(*pipes)


def _fork(request: bytes, files: list[int]) -> int:
    global _server
    libc = ctypes.CDLL(None)
    with _lock:
        if _server is None:
            port, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-m", __name__, str(other.fileno())]
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, UNBUFFERED: "1"},
            )
            other.close()
            _server = port, process
        port = _server[0]
        libc.prctl(ADOPT, 1, 0, 0, 0)
        try:
            socket.send_fds(port, [request], files)
            pid = int(port.recv(MOST))
            port.recv(MOST)
        finally:
            libc.prctl(ADOPT, 0, 0, 0, 0)
    return pid


def serve(port: socket.socket) -> Callable[[], object] | None:
    """Fork until nobody is there to ask; in who was forked, give what it is to do."""
    while True:
        request, files, _, _ = socket.recv_fds(port, MOST, 3)
        if not request:
            return None
        between = os.fork()
        if not between:
            child = os.fork()
            if not child:
                return _become(json.loads(request), files, port)
            port.send(str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)
        port.send(b"its parent is gone")
        for file in files:
            os.close(file)


def _become(request: dict[str, Any], files: list[int], port: socket.socket) -> Callable[[], object]:
    arguments: list[str] = request["arguments"]
    module, _, name = place(arguments).partition(":")
    if request["session"]:
        os.setsid()
    # First, so that what goes wrong from here on is said where it is looked for.
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    port.close()
    if UNBUFFERED not in request["environment"]:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    setattr(sys.modules[BOOT[0]], BOOT[1], int(time.time() * 1000))
    begin = getattr(sys.modules[module], name)
    if arguments[0] != "-m":
        # Commands tell their name by it.
        sys.modules["__main__"].__package__ = None
        sys.argv = arguments
        return begin  # type: ignore[no-any-return]
    sys.argv = arguments[1:]
    return lambda: begin(sys.argv[1:])


def main() -> None:
    """Import everything, then fork."""
    for name in (*(place.partition(":")[0] for place in BEGIN.values()), *LATER):
        importlib.import_module(name)
    assert "twisted.internet.reactor" not in sys.modules, "each has its own"
    # Who ends would look at all of it once more.
    gc.freeze()
    begin = None
    with suppress(KeyboardInterrupt):
        begin = serve(socket.socket(fileno=int(sys.argv[1])))
    if begin is not None:
        sys.exit(begin())


if __name__ == "__main__":
    main()
