"""A stock client that needs no JVM: the C++ one, in the wheel C{rocketmq} from PyPI.

It runs as a child process, the same one the tests beside stock clients use.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence

from attrs import frozen
from rich.console import Console

from lab.harness.nodes import ROOT, until
from lab.stock.clients import Client, CppClient

TOPIC = "Demo"
GROUP = "demo-readers"
SIZE = 1024
"""Bytes of a message's body."""

SENDERS = 4
"""Threads that send."""
TRIES = 5
AT_ONCE = 10
"""Messages a thread sends before it looks at the clock."""


def why_not() -> str:
    """Why the C++ client cannot run here; empty if it can."""
    try:
        import rocketmq.client  # noqa: F401
    except (ImportError, OSError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def possible(console: Console, without: str) -> bool:
    """Whether it can; the console is told if not, and what works C{without} it."""
    reason = why_not()
    if reason:
        console.print(
            "The demo needs RocketMQ's C++ client, which is not installed here: its wheel is for "
            f"x86-64 Linux with glibc and libstdc++. {reason}\nNothing was tried. {without}",
            highlight=False,
        )
    return not reason


class Cpp(CppClient):
    """The client's process, in the environment the demo runs in."""

    def command(self) -> list[str]:
        """Its command line; its library leaves logs in C{HOME}."""
        script = ROOT / "lab" / "stock" / "python" / "cpp_client.py"
        return ["env", f"HOME={self.folder}", sys.executable, str(script)]


@frozen
class Sent:
    """What the client said of one message."""

    key: str
    ok: bool
    error: str
    id: str = ""


def body_of(key: str) -> str:
    """What a message with this key says."""
    return key.ljust(SIZE, ".")


class Burst:
    """Messages that are being sent, and what became of them so far."""

    def __init__(
        self, client: Client, keys: Sequence[str], rate: float, topic: str = TOPIC
    ) -> None:
        """@param rate: Messages a second."""
        self.sent: list[Sent] = []
        self._client = client
        self._keys = list(keys)
        self._rate = rate
        self._topic = topic
        self._taken = 0
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        # A client's first message has to be sent alone: it asks for the route meanwhile, and
        # tells others that there is none.
        senders = SENDERS if len(self._keys) > AT_ONCE else 1
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(senders)]
        for thread in self._threads:
            thread.start()

    def _take(self) -> list[str]:
        with self._lock:
            keys = self._keys[self._taken : self._taken + AT_ONCE]
            self._taken += len(keys)
            due = self._begun + self._taken / self._rate
        time.sleep(max(0.0, due - time.monotonic()))
        return keys

    def _send(self) -> None:
        while keys := self._take():
            bodies, tags = [body_of(key) for key in keys], ["demo"] * len(keys)
            answers = self._client.send(
                self._topic, bodies, group="demo-writers", tags=tags, keys=keys
            )
            for key, answer in zip(keys, answers, strict=True):
                ok, error = answer.status == "SEND_OK", answer.error or answer.status
                self.sent.append(Sent(key, ok, error, answer.id))

    @property
    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def wait(self, timeout: float = 60.0) -> list[Sent]:
        """Wait until all were sent, as long as one more is within each C{timeout}."""
        until(
            lambda: self.done,
            f"{len(self._keys)} messages are sent",
            timeout,
            tell=lambda: f"{len(self.sent)} are\n{self._client.process.tail()}",
            progress=lambda: len(self.sent),
        )
        if len(self.sent) != len(self._keys):
            what = f"{len(self.sent)} of {len(self._keys)} messages sent"
            raise AssertionError(f"{what}\n{self._client.process.tail()}")
        return self.sent


def send_all(client: Client, keys: Sequence[str], rate: float) -> list[Sent]:
    """Send to a broker that refuses nothing.

    What is not acknowledged is sent again: this client gives a message up by itself where its
    threads wait for each other a moment too long, and calls that a missing route.
    """
    done: list[Sent] = []
    for _ in range(TRIES):
        sent = Burst(client, keys, rate).wait()
        done += [one for one in sent if one.ok]
        failed = [one for one in sent if not one.ok]
        if not failed:
            break
        keys = [one.key for one in failed]
    return done + failed
