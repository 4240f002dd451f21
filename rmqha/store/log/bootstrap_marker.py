"""
The marker of a copy from nothing that is not finished (C{rmqha/bootstrapping.json}).

While it is there the log may begin again at any time, and nothing else may take it for a
whole one: neither slaves behind it nor a master's role.
"""

from __future__ import annotations

from pathlib import Path

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import UnfinishedCopy
from rmqha.logfiles.listing import LOG_NAME
from rmqha.wire.store_layout import BOOTSTRAPPING, OWN_FOLDER


def marker(root: Path) -> Path:
    """
    Where a store keeps it.
    """
    return root / OWN_FOLDER / BOOTSTRAPPING


def refuse_unfinished(settings: StoreSettings) -> None:
    """
    Refuse to take an unfinished copy for a whole store.

    @raise UnfinishedCopy: If it is one.
    """
    path = marker(settings.root)
    if path.exists():
        files = (file for file in settings.commitlog.glob("*") if LOG_NAME.fullmatch(file.name))
        raise UnfinishedCopy(str(path), sum(file.stat().st_size for file in files))
