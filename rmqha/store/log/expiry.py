"""What retention is going to delete, in words: told before it is gone."""

from __future__ import annotations

import time
from bisect import bisect_left

from rmqha.config.store_settings import StoreSettings
from rmqha.store.files.mapped import LogFolder, MappedFile
from rmqha.store.log import arrival
from rmqha.store.log.retention import fullest, last_stored

HOUR = 3600.0


def of_store(settings: StoreSettings, now: float) -> str:
    """The same of a store that is not open.  Blocking; nothing is changed.

    @param now: Seconds since 1970, as all times here.
    @raise StoreError: If its log's files cannot be used.
    """
    folder = LogFolder.load(settings.commitlog, settings.file_size, tidy=False)
    try:
        return next_deletions(
            settings,
            folder.files,
            arrived=arrival.since(settings, now),
            now=now,
            use=fullest(settings),
        )
    finally:
        folder.close()


def next_deletions(
    settings: StoreSettings, files: list[MappedFile], *, arrived: float, now: float, use: float
) -> str:
    """Which log files go next, and when.  Blocking: the ends of some of them are read.

    @param files: Oldest first; the last one never goes.
    @param arrived: When the log came here.
    @return: Empty, if none is due.
    """
    forced = min(settings.disk_clean_forcibly, settings.disk_warning)
    if settings.clean_forcibly and use > forced and len(files) > 1:
        return (
            f"the disk is {use:.0%} full, and above {forced:.0%} log files go at once, the oldest "
            "first, whatever their age"
        )
    horizon = now - settings.file_reserved
    # Files are in the order of their store times, but for those of a clock that was wrong.
    old = bisect_left(files[:-1], True, key=lambda file: last_stored(file, now) > horizon)
    if not old:
        return ""
    hours = settings.file_reserved / HOUR
    text = f"{old} of {len(files)} log files are older than fileReservedTime={hours:g}"
    kept = arrived + settings.file_reserved
    if kept > now:
        text += f"; they came here at {_shown(arrived)}, and are kept until {_shown(kept)}"
    if use < 0 or use > settings.disk_max_used:
        when = "then" if kept > now else "at once"
        return f"{text}: they go {when}, as the disk is more than {settings.disk_max_used:.0%} full"
    return f"{text}: they go at {_shown(_next_time(settings, max(now, kept)))} (deleteWhen)"


def _next_time(settings: StoreSettings, moment: float) -> float:
    """The first time from a moment on that lies in an hour of C{deleteWhen}."""
    if time.localtime(moment).tm_hour in settings.delete_when:
        return moment
    day = time.localtime(moment)
    hours = (
        time.mktime((day.tm_year, day.tm_mon, day.tm_mday, day.tm_hour + more, 0, 0, 0, 0, -1))
        for more in range(1, 50)  # summer time may leave out an hour of one day
    )
    return next(at for at in hours if time.localtime(at).tm_hour in settings.delete_when)


def _shown(moment: float) -> str:
    return time.strftime("%H:%M on %Y-%m-%d", time.localtime(moment))
