# Twisted's transports are only partly annotated.
# mypy: allow-untyped-calls
"""Ports that outlive a lack of file descriptors.

Where the process, or the machine, has none left, C{accept} fails and the connection stays in the
kernel's queue, so the port is readable at once again: Twisted's own would fail again, a log line
each, as fast as it can, or take each connection to close it.  These stop listening to the kernel
for a moment instead.  Who waits in the queue is let in when there are descriptors again.
"""

from __future__ import annotations

import errno
from typing import Any

from twisted.internet import tcp
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmqha.periodic import cancelled

PAUSE = 0.5
"""Seconds until a port that had no descriptor for a connection looks again."""

AT_ONCE = 8
"""Most connections that are let in between two looks at the others: where one has to make room for
each newcomer, who came before was heard first."""

NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class _Listening:
    """A listening socket that has nobody waiting while there is no descriptor."""

    def __init__(self, real: Any, port: PatientPort) -> None:
        self._real = real
        self._port = port

    def accept(self) -> Any:
        """What C{socket.accept} gives."""
        try:
            accepted = self._real.accept()
        except OSError as error:
            if error.errno not in NONE_LEFT:
                raise
            self._port.starve(error)
            raise BlockingIOError(errno.EAGAIN, "no file descriptor left") from error
        self._port.fed()
        return accepted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class PatientPort(tcp.Port):
    """A listening port that waits for file descriptors."""

    _log = Logger()
    _later: IDelayedCall | None = None
    _starved = False
    connected: bool
    disconnecting: bool
    reactor: Any

    def startListening(self) -> None:
        """Listen.

        @raise CannotListenError: If the port is in use.
        """
        super().startListening()
        self.socket: Any = _Listening(self.socket, self)

    def doRead(self) -> None:
        """Let in who waits; before others are, these are read from."""
        self.numberAccepts = min(self.numberAccepts, AT_ONCE)
        super().doRead()

    def loseConnection(self, *arguments: Any) -> Any:
        self._later = cancelled(self._later)
        return super().loseConnection(*arguments)

    stopListening = loseConnection

    def starve(self, error: OSError) -> None:
        """There is no descriptor for the next connection: take none for a moment."""
        if not self._starved:
            self._starved = True
            self._log.warn(
                "No file descriptor left for connections to the {name} ({error}): they wait until "
                "there is one",
                name=self._name(),
                error=error.strerror,
            )
        if self._later is None:
            self.stopReading()
            self._later = self.reactor.callLater(PAUSE, self._again)

    def fed(self) -> None:
        if self._starved:
            self._starved = False
            self._log.info(
                "There are file descriptors again: the {name} takes connections", name=self._name()
            )

    def _again(self) -> None:
        self._later = None
        if self.connected and not self.disconnecting:
            self.startReading()

    def _name(self) -> str:
        return str(self._getLogPrefix(self.factory))
