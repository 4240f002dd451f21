"""The files of a store: where they are, how large, when they are flushed and deleted.

L{rmqha.config.settings} tells how they are written.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from attrs import frozen

from rmqha.config.keys import Derived, key, later_key, own_key
from rmqha.config.values import (
    FOLDER,
    HOURS,
    HOURS_OF_DAY,
    LEVELS,
    QUEUE_FILE,
    SWITCH,
    choice,
    millis,
    percent,
    whole,
)
from rmqha.wire.log.delay_levels import DEFAULT_DELAY_LEVELS
from rmqha.wire.log.layout import MAX_RECORD_OVERHEAD, MIN_BLANK
from rmqha.wire.store_layout import COMMITLOG

DEFAULT_MAX_MESSAGE_SIZE = 4 << 20
"""C{maxMessageSize}: most bytes of one body."""

_PAGES = whole(0, unit="4 KiB pages")


class FlushDisk(StrEnum):
    """C{flushDiskType}: whether a write waits for the disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


def fitting_message_size(file_size: int) -> int:
    """The largest body whose record surely fits a log file, in bytes.

    @param file_size: C{mappedFileSizeCommitLog}, in bytes.
    @return: At least 1, at most RocketMQ's default of 4 MiB.
    """
    return max(1, min(DEFAULT_MAX_MESSAGE_SIZE, file_size - MIN_BLANK - MAX_RECORD_OVERHEAD))


@frozen(kw_only=True)
class StoreSettings:
    """The files: where they are, how large, when they are flushed and deleted."""

    root: Path = key("storePathRootDir", FOLDER, "${user.home}/store")
    """The folder of the store. Only one running node can use it. A leading ~ is the home folder
    too."""

    commitlog: Path = key(
        "storePathCommitLog",
        FOLDER,
        derived=Derived(
            "commitlog in storePathRootDir", lambda of: of("storePathRootDir") / COMMITLOG
        ),
    )
    """The folder of the commit log. Several paths are not supported."""

    file_size: int = key(
        "mappedFileSizeCommitLog",
        whole(MIN_BLANK + MAX_RECORD_OVERHEAD + 1, unit="bytes"),
        "1073741824",
        aliases=("mapedFileSizeCommitLog",),
    )
    """Size of one commit log file. A slave must have its master's size; existing files keep
    theirs."""

    queue_file_size: int = key(
        "mappedFileSizeConsumeQueue", QUEUE_FILE, "6000000", aliases=("mapedFileSizeConsumeQueue",)
    )
    """Size of one consume queue file, rounded up to whole units of 20 bytes."""

    index_enable: bool = key("messageIndexEnable", SWITCH, "true")
    """Whether messages are indexed, to be found by key."""

    index_slots: int = key("maxHashSlotNum", whole(1), "5000000")
    """Hash slots of one index file."""

    index_entries: int = key("maxIndexNum", whole(2), "20000000")
    """Entries of one index file."""

    flush_disk: FlushDisk = key("flushDiskType", choice(FlushDisk), "ASYNC_FLUSH")
    """Whether a write waits for the disk; on a slave, whether a report to the master does."""

    flush_interval: float = key("flushIntervalCommitLog", millis(), "500")
    """ASYNC_FLUSH: pause between flushes of the commit log."""

    flush_least_pages: int = key("flushCommitLogLeastPages", _PAGES, "4")
    """ASYNC_FLUSH: how many pages must be new for a flush of the commit log."""

    flush_thorough_interval: float = key("flushCommitLogThoroughInterval", millis(), "10000")
    """ASYNC_FLUSH: after this time the commit log is flushed with fewer new pages too."""

    queue_flush_interval: float = key("flushIntervalConsumeQueue", millis(), "1000")
    """Pause between flushes of the consume queues."""

    queue_flush_least_pages: int = key("flushConsumeQueueLeastPages", _PAGES, "2")
    """How many pages of a consume queue must be new for a flush."""

    queue_flush_thorough_interval: float = key(
        "flushConsumeQueueThoroughInterval", millis(), "60000"
    )
    """After this time consume queues are flushed with fewer new pages too."""

    sync_flush_timeout: float = key("syncFlushTimeout", millis(), "5000")
    """SYNC_FLUSH: longest time a write waits for the disk. It does not limit the wait for
    replicas."""

    put_message_timeout: float = later_key("putMessageTimeout", millis(), "8000")
    """Longest time a write may take in all."""

    max_message_size: int = key(
        "maxMessageSize",
        whole(1, unit="bytes"),
        derived=Derived(
            f"{DEFAULT_MAX_MESSAGE_SIZE}, or what fits a log file",
            lambda of: fitting_message_size(of("mappedFileSizeCommitLog")),
        ),
    )
    """Largest message body. A record (the body and 65536 bytes around it) must fit a commit log
    file; a value given here that does not is refused."""

    check_crc_on_recover: bool = key("checkCRCOnRecover", SWITCH, "true")
    """Whether recovery checks message bodies against their CRC."""

    delete_when: tuple[int, ...] = key("deleteWhen", HOURS_OF_DAY, "04")
    """Hours of the day, local time, at which expired commit log files are deleted."""

    file_reserved: float = key("fileReservedTime", HOURS, "72")
    """Age at which a commit log file expires and may be deleted."""

    disk_max_used: float = key("diskMaxUsedSpaceRatio", percent(10, 95), "75")
    """Disk usage above which expired files are deleted at any hour."""

    disk_warning: float = later_key("diskSpaceWarningLevelRatio", percent(35, 90), "90")
    """Disk usage above which writes are refused."""

    disk_clean_forcibly: float = later_key("diskSpaceCleanForciblyRatio", percent(30, 85), "85")
    """Disk usage above which files of any age are deleted, even those that slow replicas still
    need."""

    clean_forcibly: bool = key("cleanFileForciblyEnable", SWITCH, "true")
    """Whether files younger than fileReservedTime may be deleted to free disk space."""

    clean_interval: float = key("cleanResourceInterval", millis(), "10000")
    """Pause between checks for files to delete."""

    delete_files_interval: float = key("deleteCommitLogFilesInterval", millis(0), "100")
    """Pause between the deletions of two commit log files."""

    delete_batch: int = later_key("deleteFileBatchMax", whole(1), "10")
    """Most commit log files deleted in one run."""

    delay_levels: str = key("messageDelayLevel", LEVELS, DEFAULT_DELAY_LEVELS)
    """The delays of delay levels 1, 2, and so on. They are built into consume queues: keep those
    that the store was written with."""

    max_msgs_num_batch: int = key("maxMsgsNumBatch", whole(1), "64")
    """Most messages returned by one query by key."""

    publish_interval: float = own_key("publishInterval", millis(), "100")
    """Shortest pause between two writes of rmqha/published.json, which tells readers of the files,
    such as the Spark pipeline, how far the log may be read. It is not written while nothing
    changes."""

    scrub_rate: int = own_key("scrubBytesPerSecond", whole(0, unit="bytes"), "8388608")
    """How fast a node reads its whole commit log again, to find damage at rest. 0 switches it off.
    The page cache stays as it is."""

    scrub_interval: float = own_key("scrubInterval", millis(), "86400000")
    """Shortest time from the start of one such pass to the start of the next."""

    offset_journal_interval: float = own_key("offsetJournalInterval", millis(0), "150")
    """Shortest pause between two writes of the journal that keeps consumer offsets between two
    writes of consumerOffset.json, and after which the slaves get what was written. A crash costs
    what was committed since. 0 writes no journal: a crash then costs the commits of some seconds,
    as in stock brokers."""
