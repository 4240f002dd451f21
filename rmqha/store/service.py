"""One node's store as a Twisted service: lock, opening in a thread, clean stop.

The lock is taken at once, then L{rmqha.store.opening} works in a thread; only when it is done
is the open L{Store<rmqha.store.store.Store>} handed out.  A stop flushes, waits for dispatch,
removes C{abort} and gives the lock back; a start that finds C{abort} knows that the last run
crashed.

Source: docs/protocol/store.rst, The store's folder.
"""

from __future__ import annotations

from pathlib import Path

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import NotWritable, StoreLocked
from rmqha.periodic import NodePart, SingleRun
from rmqha.store.environment import StoreEnvironment
from rmqha.store.files import owner
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.mapped import none_left
from rmqha.store.log.recovery import Recovery
from rmqha.store.opening import Opener, Opening, StoreParts
from rmqha.store.store import Store
from rmqha.wire.store_layout import LOCK

RETRY = 1.0
"""Seconds until a store that could not be opened for lack of descriptors is tried again."""


@define(eq=False)
class StoreService(Service, NodePart):
    """Opens a store once, and closes it.

    @ivar ready: Fires with the open store; fails if it cannot be opened.
    @ivar opened: The same store, from when it is open, C{None} before.  It stays when it is
        closed: its numbers are still true then.
    """

    settings: StoreSettings
    opening: Opening
    environment: StoreEnvironment
    ready: Deferred[Store] = field(factory=Deferred, init=False)
    opened: Store | None = field(default=None, init=False)
    _lock: StoreLock = field(init=False)
    _opener: Opener | None = field(default=None, init=False)
    _opening: SingleRun = field(factory=SingleRun, init=False)
    _state: tuple[str, str] = field(default=("recovering", ""), init=False)
    _later: IDelayedCall | None = field(default=None, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._lock = StoreLock(self.settings.root / LOCK)

    @property
    def state(self) -> str:
        """Why writes are refused, C{""} while they are not."""
        return self._state[0] if self.opened is None else self.opened.state

    @property
    def reason(self) -> str:
        """What explains the state, in words."""
        return self._state[1] if self.opened is None else self.opened.reason

    @property
    def recovery(self) -> Recovery | None:
        """What the opening found; C{None} before it has."""
        return None if self._opener is None else self._opener.recovery

    # --- opening --------------------------------------------------------------

    def startService(self) -> None:
        """Take the lock and begin to open; L{ready} tells when that is done.

        @raise StoreLocked: If a running node has the store.
        """
        root, commitlog = self.settings.root, self.settings.commitlog
        try:
            root.mkdir(parents=True, exist_ok=True)
            if doubt := owner.doubt(root, commitlog):
                self._log.warn("{doubt}", doubt=doubt)
            self._lock.take()
        except PermissionError as error:
            raise owner.access_error(error, root, commitlog) from error
        except OSError as error:
            if not (self.opening.patient and none_left(error)):
                raise self._named(error) from error
        super().startService()
        self._opener = Opener(
            self.settings, self.opening, self.environment, lambda: bool(self.running)
        )
        self._open(self._opener)

    def _open(self, opener: Opener) -> None:
        self._later = None
        try:
            if not self._lock.held:
                self._lock.take()
        except (OSError, StoreLocked):
            self._not_opened(Failure())
            return
        in_thread = self.environment.in_thread
        self._opening.begin(
            lambda: in_thread(opener.open).addCallback(self._opened).addErrback(self._not_opened)
        ).addErrback(lambda failure: self._log.failure("Opening the store failed", failure))

    def _opened(self, parts: StoreParts) -> Deferred[Failure] | None:
        if not self.running:
            # Dispatch may have been left in the middle, so C{abort} stays.
            parts.close()
            raise NotWritable("stopped", "the node was stopped while the store was being opened")
        store = self.opened = Store(self.settings, self.environment, parts)
        try:
            store.start()
        except Exception:
            failure, self.opened = Failure(), None
            return store.stop().addBoth(lambda _: failure)
        self.environment.changed()
        self.ready.callback(store)
        return None

    def _not_opened(self, failure: Failure) -> None:
        if self.opening.patient and self.running and none_left(failure.value):
            self._wait(f"no file descriptor left: {failure.getErrorMessage()}")
            return
        self._lock.release()
        if isinstance(failure.value, PermissionError):
            error = owner.access_error(failure.value, self.settings.root, self.settings.commitlog)
            error.__cause__ = failure.value
            failure = Failure(error)
        elif isinstance(failure.value, OSError) and failure.value.filename is not None:
            failure = Failure(self._named(failure.value))
        if self._state[0] != "stopped":
            self._become("failed", failure.getErrorMessage())
        self.ready.errback(failure)

    def _named(self, error: OSError) -> OSError:
        """The same with the key that says where the file is."""
        root, commitlog = self.settings.root, self.settings.commitlog
        key, folder, at = "storePathRootDir", root, Path(error.filename)
        # A folder above it may be what is missing.
        of_log = at.is_relative_to(commitlog) or commitlog.is_relative_to(at)
        if of_log and root not in commitlog.parents and not root.is_relative_to(at):
            key, folder = "storePathCommitLog", commitlog
        return OSError(error.errno, f"{key}={folder}: {error.strerror}", error.filename)

    def _wait(self, reason: str) -> None:
        if not self._state[1]:
            self._log.warn(
                "Cannot open the store again, trying every {retry} s: {error}",
                retry=RETRY,
                error=reason,
            )
        self._become("recovering", reason)
        self._later = self.environment.clock.callLater(RETRY, self._open, self._opener)

    def _become(self, state: str, reason: str) -> None:
        self._state = state, reason
        self.environment.changed()

    # --- closing --------------------------------------------------------------

    def stopService(self) -> Deferred[None]:
        """Flush everything and leave the store as a clean stop does.

        @return: Fires when the lock is given back; fails with L{ShutdownFailed} if a step of it
            failed: C{abort} is still there then, and the next start makes it good.
        """
        if not self.running:
            return succeed(None)
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self.opened is not None:
            try:
                await self.opened.stop()
            finally:
                self._lock.release()
            return
        self._become("stopped", "the node is stopping")
        if self._later is not None:
            self._later.cancel()
            self._later = None
            self._lock.release()
            self.ready.errback(NotWritable("stopped", "the node was stopped while it waited"))
        # The thread looks whether this runs; until it ends the files are its own.
        await self._opening.over()
