"""What a divergence policy does to a log that is not its master's: cut it, or copy the master's
anew.

Whether that may be done is found out while the store is open; the files are changed under its
lock, while it is opened once more.

Source: docs/architecture.rst, The divergence guard.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from attrs import define
from twisted.internet.defer import Deferred, fail

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.config.settings import Settings
from rmqha.config.store_settings import StoreSettings
from rmqha.errors import Refused
from rmqha.ha.slave.repair import Divergence, plan_cut
from rmqha.store.files.allocate import InThread
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log import bootstrap_marker
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.truncate import aside_of, intend, set_log_aside
from rmqha.store.lost_tail import begin_anew

Reopen = Callable[[Callable[[StoreSettings], None], str], Deferred[str]]
"""Closes the store, does something to its files, and opens it again; fires with the text."""


class Permit(Protocol):
    """Whether the log may be cut as the present master wants it."""

    def __call__(self, policy: DivergencePolicy, *, at: int, end: int) -> Coroutine[Any, Any, None]:
        """@param at: The first byte that would go.
        @param end: Where the log ends.
        @raise RmqhaError: If it may not be.
        """


@define(eq=False, kw_only=True)
class PolicyRepair:
    """Carries policies out on the store of a slave.

    @ivar log: The log that is open.
    @ivar permit: Asked before bytes go.
    @ivar unseen: Whether nobody can have seen anything of the log, so that all of it may go.
    """

    settings: Settings
    log: Callable[[], CommitLog]
    permit: Permit
    unseen: Callable[[], bool]
    reopen: Reopen
    in_thread: InThread
    now_ms: Callable[[], int]

    def repair(self, policy: DivergencePolicy, divergence: Divergence | None) -> Deferred[str]:
        """Carry a policy out: close the store, do it under the lock while opening anew.

        @param divergence: Where the logs part, as far as that is known.
        @return: Fires with what was done; fails with why nothing was.
        """
        if policy is DivergencePolicy.TRUNCATE:
            if divergence is None:
                return fail(Refused("truncate", "it is not known where the logs part"))
            return self.in_thread(
                plan_cut,
                self.log(),
                divergence,
                self.settings.ha.max_truncate,
                to_nothing=self.unseen(),
            ).addCallback(self._truncate)
        if bootstrap_marker.marker(self.settings.store.root).exists():
            return self.reopen(self._start_over, "starting the unfinished copy over")
        aside = aside_of(self.settings.store.commitlog)
        if aside.exists():
            return fail(Refused("rebootstrap", f"{aside} exists: only one old log is kept aside"))
        permitted = Deferred.fromCoroutine(self.permit(policy, at=0, end=self.log().end))
        text = f"the old log is now {aside}; copying the master's from its start"
        return permitted.addCallback(lambda _: self.reopen(self._set_aside, text))

    def _truncate(self, at: int) -> Deferred[str]:
        end = self.log().end

        def cut(settings: StoreSettings) -> None:
            folder = LogFolder.load(settings.commitlog, settings.file_size)
            try:
                intend(settings.root, folder, at, end)
            finally:
                folder.close()

        permitted = Deferred.fromCoroutine(self.permit(DivergencePolicy.TRUNCATE, at=at, end=end))
        text = f"cut the log from byte {end} back to {at}; the tail is in quarantine"
        return permitted.addCallback(lambda _: self.reopen(cut, text))

    def _set_aside(self, settings: StoreSettings) -> None:
        begin_anew(settings.root, self.now_ms)
        # In this order: a marker beside the old log would let it be deleted.
        set_log_aside(settings.commitlog)
        bootstrap_marker.begin(settings.root, str(self.settings.ha.master))

    def _start_over(self, settings: StoreSettings) -> None:
        begin_anew(settings.root, self.now_ms)
        folder = LogFolder.load(settings.commitlog, settings.file_size)
        while folder.files:
            folder.files.pop().remove()
