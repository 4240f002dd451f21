"""Child processes that are told what to do: one JSON object a line, both ways.

A command has a number, and so has each answer to it; the last answer to a command says
C{"done": true}.  Lines without a number are news.  A child whose parent goes away ends.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorCore
from twisted.internet.protocol import connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from lab.harness.nodes import PATIENCE, Process, until


class Commands(LineReceiver):
    """The child's side, and its handlers: each is called with a command's number and content, and
    what it returns, unless C{None}, is the only answer.
    """

    delimiter = b"\n"
    MAX_LENGTH = 1 << 20

    def __init__(self, reactor: IReactorCore, handlers: dict[str, Callable[..., Any]]) -> None:
        self.reactor = reactor
        self.handlers = handlers

    def lineReceived(self, line: bytes) -> None:
        """Run the command on one line of JSON."""
        command = json.loads(line)
        number = command.pop("number")
        name = command.pop("do")
        try:
            answer = self.handlers[name](number, **command)
        except Exception as error:
            self.say(number, done=True, error=f"{type(error).__name__}: {error}")
            raise
        if answer is not None:
            self.say(number, done=True, answer=answer)

    def say(self, number: int | None, **content: Any) -> None:
        """Write one line of JSON to the parent."""
        if number is not None:
            content["number"] = number
        if self.transport is not None:
            self.transport.write(json.dumps(content).encode() + b"\n")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The parent is gone, or wants us to be."""
        if getattr(self.reactor, "running", False):
            self.reactor.stop()


class Asked:
    """One command under way, on the parent's side, and what came so far."""

    def __init__(self, owner: Piped, number: int, each: Callable[[dict[str, Any]], None]) -> None:
        self.owner = owner
        self.number = number
        self.answers: deque[dict[str, Any]] = deque()
        self._each = each
        self._ended = threading.Event()

    def heard(self, answer: dict[str, Any]) -> None:
        """An answer came (in the reader's thread)."""
        self.answers.append(answer)
        self._each(answer)
        if answer.get("done"):
            self._ended.set()

    def give_up(self) -> None:
        """Fail what waits: the child has ended."""
        self._ended.set()

    @property
    def done(self) -> bool:
        """Whether it is over, well or not."""
        return self._ended.is_set()

    def wait(self, timeout: float = PATIENCE) -> Any:
        """Wait for the last answer; it is C{None} if the child ended before."""
        if not self._ended.wait(timeout):
            raise AssertionError(f"no answer within {timeout:g} s\n{self.owner.tail()}")
        last = self.answers[-1] if self.answers else {}
        if "error" in last and last.get("done"):
            raise AssertionError(f"{last['error']}\n{self.owner.tail()}")
        return last.get("answer")


class Piped(Process):
    """The parent's side: a process that takes commands."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.news: deque[dict[str, Any]] = deque()
        self._asked: dict[int, Asked] = {}
        self._number = 0
        self._reader: threading.Thread | None = None
        self._lock = threading.Lock()

    def open(self, command: Sequence[str]) -> None:
        self.news.clear()
        self.spawn(command, piped=True)
        self._reader = threading.Thread(target=self._read, name=self.name, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process is not None and self.process.stdout is not None, "it is piped"
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # cut short by a kill
            said = json.loads(line)
            number = said.get("number")
            if number is None:
                self.news.append(said)
            elif number in self._asked:
                self._asked[number].heard(said)
                if said.get("done"):
                    self._asked.pop(number, None)
        with self._lock:
            left, self._asked = list(self._asked.values()), {}
        for asked in left:
            asked.give_up()

    def ask(
        self, do: str, each: Callable[[dict[str, Any]], None] = lambda answer: None, **content: Any
    ) -> Asked:
        """Give a command, and call C{each} with every answer, in the reader's thread."""
        assert self.process is not None and self.process.stdin is not None, "it is piped"
        with self._lock:
            self._number += 1
            asked = Asked(self, self._number, each)
            self._asked[asked.number] = asked
            try:
                self.process.stdin.write(
                    json.dumps({"number": asked.number, "do": do, **content}) + "\n"
                )
                self.process.stdin.flush()
            except (BrokenPipeError, ValueError):
                asked.give_up()
        if self._reader is not None and not self._reader.is_alive():
            asked.give_up()
        return asked

    def do(self, do: str, timeout: float = PATIENCE, **content: Any) -> Any:
        """Give a command and wait for its answer."""
        return self.ask(do, **content).wait(timeout)

    def until_news(self, name: str, timeout: float = PATIENCE) -> dict[str, Any]:
        """Wait for one kind of news, unless the child ends before."""

        def look() -> dict[str, Any] | None:
            found = [said for said in self.news if said.get("news") == name]
            if not found and not self.running and not self._still_reading():
                raise AssertionError(f"{self.name} ended before {name!r}\n{self.tail()}")
            return found[-1] if found else None

        found: dict[str, Any] = until(look, f"{self.name}: {name}", timeout, tell=self.tail)
        return found

    def _still_reading(self) -> bool:
        return self._reader is not None and self._reader.is_alive()

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end, and for the last it said."""
        code = super().wait(timeout)
        if self._reader is not None:
            self._reader.join(timeout)
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        pass
        return code
