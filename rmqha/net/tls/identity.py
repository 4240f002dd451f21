"""A key and certificates that are in use, and read again when somebody has changed their files.

Connections that there are keep what they began with; the next ones take what is new.  Files that
cannot be used change nothing: what was read before stays in force, and the node says so until they
are mended.

Source: docs/guide/tls.rst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from attrs import define, field
from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator, IReactorTime
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from rmqha.config.settings import ClientAuth
from rmqha.health import HealthReason
from rmqha.net.tls.errors import TlsFilesInvalid
from rmqha.net.tls.material import TlsFiles, TlsMaterial, seconds_left
from rmqha.periodic import Watch

LOOK_EVERY = 2.0
"""Seconds between two looks whether files were changed."""

LONGEST_READ = 8.0
"""Seconds after which a read that is not over is told: with L{LOOK_EVERY} that is within ten."""

DAY = 86400.0

Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsConnection(SSL.Connection):
    """One whose memory goes when the connection does.

    A peer that leaves without TLS's own farewell makes the last read fail.  Twisted keeps that
    error in a cycle with the frames that it went through, and OpenSSL's 70 KiB would stay in one
    of them until the cycle is collected, which does not know how much hangs there.
    """

    def recv(self, bufsiz: int, flags: int | None = None) -> bytes:
        """Read; an error leaves no frame behind that knows this connection."""
        try:
            return super().recv(bufsiz, flags)
        except SSL.Error as error:
            del self
            raise error.with_traceback(None) from None


@implementer(IOpenSSLServerConnectionCreator)
@define(eq=False)
class TlsIdentity:
    """One use of a key and certificates.

    @ivar role: What they are for, in one word for metrics.
    @ivar purpose: The same in words.
    @ivar asked: As a port: whether peers are asked for certificates.
    @ivar material: What is in force.
    @ivar fault: Why the files cannot be used as they are now; empty if they can.
    @ivar reloads: How often changed files came into force.
    @ivar failures: How often changed files could not be used.
    """

    role: str
    purpose: str
    files: TlsFiles
    asked: ClientAuth = ClientAuth.NONE
    material: TlsMaterial = field(factory=TlsMaterial, init=False)
    fault: str = field(default="", init=False)
    reloads: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    _stamp: Stamp = field(default=(), init=False)
    _context: SSL.Context | None = field(default=None, init=False)

    _log = Logger()

    def load(self) -> None:
        """Read the files for the first time.

        @raise TlsFilesInvalid: If one cannot be used.
        """
        self._stamp = self._stamped()
        self._adopt(TlsMaterial.read(self.files))

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """The side of a port in its next connection."""
        assert self._context is not None, "of a port that has a certificate, after load"
        return TlsConnection(self._context, None)

    def _adopt(self, material: TlsMaterial) -> None:
        self.material = material
        if material.own is not None:
            self._context = material.server(self.asked)

    def _stamped(self) -> Stamp:
        return tuple(_stamp(path) for path in self.files)

    def changed(self) -> TlsMaterial | TlsFilesInvalid | None:
        """Read the files again if they have changed, for L{take}.  Blocking."""
        stamp = self._stamped()
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            return TlsMaterial.read(self.files)
        except TlsFilesInvalid as error:
            return error

    def take(self, found: TlsMaterial | TlsFilesInvalid | None) -> None:
        """Go on with what L{changed} has found."""
        if isinstance(found, TlsFilesInvalid):
            self.failures += 1
            self.fault = str(found)
        elif found is not None:
            self.reloads += 1
            self.fault = ""
            self._adopt(found)
            self._log.info(
                "Read the changed certificates {purpose}: new connections take them; valid until "
                "{until}",
                purpose=self.purpose,
                until=_shown(self.material.expires),
            )

    def health(self, reads: float) -> Iterator[HealthReason]:
        """Files that cannot be used, or that a thread does not come back from.

        @param reads: For how many seconds the files have been read by now.
        """
        fault = self.fault
        if reads >= LONGEST_READ:
            paths = ", ".join(map(str, self.files))
            fault = f"{paths}: these have not been read for {reads:.0f} s"
        if fault:
            yield HealthReason(f"tls-files-{self.role}", f"{fault}; those read before are in force")

    def ends(self, left: float) -> HealthReason:
        """A certificate that ends soon.

        @param left: In how many seconds.
        """
        when = f"in {left / DAY:.1f} days" if left > 0 else "and is not valid any more"
        return HealthReason(
            f"tls-expiry-{self.role}",
            f"the certificate {self.purpose}, {self.files.certificates}, ends on "
            f"{_shown(self.material.expires)}, {when}",
        )

    def status(self, now: float) -> dict[str, object]:
        """A row of C{tls} in C{/status}.

        @param now: Seconds since 1970.
        """
        return {
            "role": self.role,
            "certificate": None
            if self.files.certificates is None
            else str(self.files.certificates),
            "validUntil": _shown(self.material.expires) or None,
            "secondsLeft": seconds_left(self.material.expires, now),
            "reloads": self.reloads,
            "reloadFailures": self.failures,
            "fault": self.fault,
        }


@define(eq=False, kw_only=True)
class TlsIdentities(Watch):
    """All of a node's.

    @ivar in_thread: Runs what blocks, in a thread that nobody waits for.
    @ivar now: Seconds since 1970.
    @ivar near: How many seconds ahead the end of a certificate is told; 0 is never.
    """

    all: Sequence[TlsIdentity]
    clock: IReactorTime
    in_thread: Callable[..., Deferred[Any]]
    now: Callable[[], float]
    near: float
    # Whose files a thread looks at, and since when.
    _reading: tuple[TlsIdentity, float] | None = field(default=None, init=False)

    job = "reading changed certificates"
    every = LOOK_EVERY

    def load(self) -> None:
        """Read all files for the first time.

        @raise TlsFilesInvalid: If one cannot be used.
        """
        for identity in self.all:
            identity.load()

    def start(self) -> None:
        """Read them again whenever they have changed."""
        if self.all:
            super().start()

    async def _look_at_all(self) -> None:
        for identity in self.all:
            self._reading = identity, self.clock.seconds()
            try:
                identity.take(await self.in_thread(identity.changed))
            finally:
                self._reading = None

    def look(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._look_at_all())

    def health(self) -> Iterator[HealthReason]:
        now = self.now()
        for identity in self.all:
            mine = self._reading is not None and self._reading[0] is identity
            reads = self.clock.seconds() - self._reading[1] if self._reading and mine else 0.0
            yield from identity.health(reads)
            left = seconds_left(identity.material.expires, now)
            if left is not None and self.near and left < self.near:
                yield identity.ends(left)

    def status(self) -> list[dict[str, object]]:
        """C{tls} of C{/status}."""
        now = self.now()
        return [identity.status(now) for identity in self.all]


def _stamp(path: Any) -> tuple[int, int, int] | None:
    """What changes with a file's content; C{None} if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _shown(moment: datetime | None) -> str:
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S UTC")
