"""How a command that runs for long tells its service manager whether to start it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from rmqha.archive.errors import ReceiveStopped
from rmqha.cli.common import told
from rmqha.errors import RmqhaError
from rmqha.ha.states import SyncState
from rmqha.roles.host.exit_codes import FOR_A_PERSON, LASTING_ERRNOS, exit_code
from rmqha.tier.errors import TierError, TierRefused, TierUnreachable


class ForAPerson(click.ClickException):
    """It ended for what the next start would find again."""

    exit_code = FOR_A_PERSON


@contextmanager
def as_service() -> Iterator[None]:
    """End with an exit code of its own where starting the command again cannot help.

    @raise ForAPerson: For such an error.
    """
    try:
        yield
    except (RmqhaError, OSError) as error:
        if _lasts(error):
            raise ForAPerson(told(error)) from error
        raise


def _lasts(error: RmqhaError | OSError) -> bool:
    if isinstance(error, OSError):
        return error.errno in LASTING_ERRNOS
    if isinstance(error, ReceiveStopped) and error.state == SyncState.FAILED:
        return False  # the archive's own disk: nothing of the logs was found wrong
    if isinstance(error, TierError):
        return isinstance(error, TierRefused) or not isinstance(error, TierUnreachable)
    return exit_code(error) == FOR_A_PERSON
