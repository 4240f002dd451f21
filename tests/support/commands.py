"""Commands as processes of their own."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.harness.forked import Forked

BIN = Path(sys.executable).parent
"""The folder of the commands that are installed beside this Python."""

RMQHA = BIN / "rmqha"


def ended(
    *command: object, check: bool = False, timeout: float = 120.0, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end: its exit code, and what it wrote."""
    told = [str(word) for word in command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Forked(told, **pipes, text=True, **more) as process:
        try:
            done = subprocess.CompletedProcess(told, 0, *process.communicate(timeout=timeout))
        finally:
            process.kill()
    done.returncode = process.returncode
    if check:
        done.check_returncode()
    return done


def rmqha(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run C{rmqha} to its end."""
    return ended(sys.executable, RMQHA, *arguments, **more)


@contextmanager
def nobody() -> Iterator[str]:
    """An address that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
