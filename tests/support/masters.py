"""What feeds replicas from a log, with all that belongs to it."""

from typing import Any

from rmqha.config.ha_settings import HASettings
from rmqha.ha.master.ledger import Ledger
from rmqha.ha.master.master import MasterFactory
from rmqha.ha.master.transfer import GroupTransfer
from rmqha.logfiles.reader import LogReader


def feeding(
    log: LogReader,
    clock: Any,
    settings: HASettings | None = None,
    *,
    start: int | None = None,
    needed: int = 1,
    **more: Any,
) -> MasterFactory:
    """A master of a log, not started, whose epoch begins at the log's end if nothing is said."""
    settings = settings or HASettings()
    ledger = Ledger(
        log=log,
        start=log.end if start is None else start,
        first_sync=settings.first_sync,
        accept_unproven=settings.accept_unproven,
    )
    return MasterFactory(
        log=log,
        settings=settings,
        clock=clock,
        ledger=ledger,
        transfer=GroupTransfer(ledger=ledger, clock=clock, needed=needed),
        **more,
    )
