"""What /status tells of the store: the log, what is derived of it, and who reads its files.

Source: docs/guide/metrics.rst; docs/operations.rst, Status.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.ha.states import NodeState
from rmqha.metrics.status_family import (
    Found,
    Status,
    StatusFamily,
    counter,
    each,
    gauge,
    length,
    one_of,
)


def of_logs() -> Iterator[StatusFamily]:
    """Of the log, and of what is derived of it."""
    yield gauge(
        "state",
        "1",
        "1 for the state the node is in, 0 for the others.",
        "state",
        lambda status: one_of("state", NodeState)(status) if "maxOffset" in status else (),
        "state",
    )
    for name, text in (
        ("min", "Where the log begins."),
        ("max", "Where the log ends."),
        ("confirmed", "All records before it are whole and were checked."),
        ("flushed", "All bytes before it are on the disk."),
        ("dispatched", "All records before it are in consume queues and index."),
    ):
        yield gauge(f"log_{name}_offset_bytes", "bytes", text, f"{name}Offset")
    yield gauge(
        "lost_tail_bytes",
        "bytes",
        "What the log lacks of what was on the disk once.",
        "lostTail",
        _lost_tail,
    )
    yield counter(
        "truncated_bytes",
        "bytes",
        "Cut off the log's end: a torn tail, damage, or what the master does not have.",
        "truncatedBytes",
    )
    yield gauge("disk_use_ratio", "ratio", "How full the fuller disk is.", "retention.diskUse")
    yield counter("deleted_bytes", "bytes", "Log files deleted by age.", "retention.deletedBytes")
    yield counter(
        "lost_bytes",
        "bytes",
        "Deleted although a replica needed them.",
        "retention.lostBytes",
    )
    yield counter(
        "served_faults",
        "messages",
        "Asked for and not sent: the log does not hold what its queue says.",
        "servedFaults",
    )
    yield counter(
        "derived_faults",
        "places",
        "Consume queues and index disagreed with the log, and were repaired.",
        "derivedFaults",
    )
    yield gauge(
        "faults_from_master",
        "records",
        "Damaged records that are so on the master.",
        "faultsFromMaster.count",
    )
    yield gauge(
        "published_behind_bytes",
        "bytes",
        "Confirmed, and not yet published for readers of the files.",
        "published.behindBytes",
    )
    yield gauge(
        "published_behind_seconds",
        "seconds",
        "How long that has been so.",
        "published.behindSeconds",
    )
    yield counter("published_cuts", "cuts", "Published bytes were cut off again.", "published.cuts")


def _lost_tail(status: Status) -> Found:
    if "lostTail" in status:
        lost = status["lostTail"]
        yield (), lost["to"] - lost["from"] if lost else 0


def of_scrubs() -> Iterator[StatusFamily]:
    """Of what looks for cold damage, and repairs it."""
    yield gauge(
        "scrub_position_bytes",
        "bytes",
        "How far a pass of the scrubber is; nothing between two.",
        "scrub.position",
    )
    yield gauge("scrub_pass_end_bytes", "bytes", "Where that pass ends.", "scrub.passTo")
    yield counter("scrub_read_bytes", "bytes", "Read by the scrubber.", "scrub.readBytes")
    yield gauge(
        "scrub_last_pass_age_seconds",
        "seconds",
        "How long ago its last whole pass ended.",
        "scrub.lastPassAge",
    )
    yield gauge("scrub_faults", "ranges", "Damaged ranges that are known now.", "scrub.faultCount")
    yield counter(
        "compared_bytes", "bytes", "Compared with the master's.", "comparison.comparedBytes"
    )
    yield gauge(
        "comparison_differences",
        "ranges",
        "Ranges that differ from the master's.",
        "comparison.differences",
        length("comparison.differences"),
    )
    yield counter("repaired_ranges", "ranges", "Replaced by the master's bytes.", "repair.ranges")


def of_readers() -> Iterator[StatusFamily]:
    """Of Spark streams that have a name."""
    for name, unit, text in (
        ("behindBytes", "bytes", "Published, and not read yet by a Spark stream."),
        ("behindSeconds", "seconds", "How long the first of those have been stored."),
        ("silentSeconds", "seconds", "Since the stream told where it is."),
    ):
        metric = f"reader_{name.removesuffix(unit.title())}_{unit}"
        yield gauge(metric, unit, text, f"readers.{name}", each("readers", name, "name"), "reader")
