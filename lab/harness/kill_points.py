"""Places at which a node can be made to die, as if the kill -9 had come just there: C{NAME} or
C{NAME:COUNT}, the COUNTth time it is passed.  Classes are patched, so only in its own process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.python.reflect import namedAny

from rmqha.logfiles.listing import file_name
from rmqha.store.files.fsync import Files
from rmqha.store.files.mapped import MappedFile
from rmqha.store.log.commit_log import CommitLog

Die = Callable[[], None]

#: Where a kill comes just before (C{<}) or just behind (C{>}) a call.
CALLS = {
    # a master's write
    "put-told": ("<", "rmqha.store.log.commit_log.CommitLog._tell"),
    "put-done": (">", "rmqha.store.store.Store.put"),
    # a run of the write lane: read, written, told, answers made
    "run-read": ("<", "rmqha.store.log.commit_log.CommitLog.put_run"),
    "run-written": ("<", "rmqha.store.log.commit_log.CommitLog._grown"),
    "run-told": (">", "rmqha.store.store.Store.put_run"),
    "run-answers": ("<", "rmqha.broker.sending.write_lane._Answers.ready"),
    "run-done": ("<", "rmqha.broker.sending.write_lane._Answers.done"),
    "ack-read": ("<", "rmqha.ha.master.transfer.GroupTransfer.acked"),
    "ack-resolve": ("<", "rmqha.ha.master.transfer.GroupTransfer._resolve"),
    "ack-told": (">", "rmqha.ha.master.transfer.GroupTransfer._resolve"),
    # the roll to a new file
    "roll-made": (">", "rmqha.store.files.mapped.LogFolder.create_next"),
    "roll-room": (">", "rmqha.store.files.allocate.Allocator.next_file"),
    # a slave's frame
    "frame-staged": (">", "rmqha.store.log.commit_log.CommitLog.staged"),
    "frame-accept": ("<", "rmqha.store.log.commit_log.CommitLog.accept"),
    "frame-accepted": (">", "rmqha.store.log.commit_log.CommitLog.accept"),
    "frame-verified": (">", "rmqha.store.log.commit_log.CommitLog.verify"),
    "report": ("<", "rmqha.ha.slave.connection.SlaveProtocol._report"),
    "reported": (">", "rmqha.ha.slave.connection.SlaveProtocol._report"),
    "discard": ("<", "rmqha.store.log.commit_log.CommitLog.discard"),
    # derived files
    "dispatch": ("<", "rmqha.store.derived.dispatch.Dispatcher.run"),
    "unit": (">", "rmqha.store.derived.dispatch.Dispatcher._units"),
    "units": (">", "rmqha.store.derived.consume_queues.ConsumeQueues.write_usual"),
    "key": ("<", "rmqha.store.derived.index.Index.put"),
    "mark": ("<", "rmqha.store.derived.dispatch_mark.save"),
    "marked": (">", "rmqha.store.derived.dispatch_mark.save"),
    "checkpoint": ("<", "rmqha.store.log.checkpoint.Checkpoint.save"),
    # start and stop
    "epoch": (">", "rmqha.ha.epoch.Epoch.save"),
    "close": ("<", "rmqha.store.store.Store._close"),
    # a member that is elected: before its epoch is written, behind that, with others let in
    "lead": ("<", "rmqha.roles.leading.Lead._promote"),
    "lead-epoch": ("<", "rmqha.ha.master_epoch.EpochJournal.led"),
    "lead-written": ("<", "rmqha.store.store.Store.took_over"),
    "lead-dispatched": ("<", "rmqha.roles.leading.Lead._set_master"),
    "lead-lets-in": (">", "rmqha.ha.elected.set_master.SetMaster.start"),
    "lead-tables": ("<", "rmqha.broker.tables.table.ConfigTable.lead"),
    # a cut
    "cut-zero": (">", "rmqha.store.files.mapped.MappedFile.zero"),
    "cut-file": (">", "rmqha.store.files.mapped.MappedFile.remove"),
}

#: Steps that a truncation tells of itself.
STEPS = ("quarantined", "intended", "cut", "derived", "done")


def install(place: str, node: Any, die: Die) -> None:
    """Make a node die at a place."""
    name, _, count = place.partition(":")
    trigger = Trigger(die, int(count or 1))
    if name in CALLS:
        when, path = CALLS[name]
        _around(path, when, trigger)
    elif name.startswith("step-"):
        _step(node, name.removeprefix("step-"), trigger)
    else:
        SPECIAL[name](node, trigger)


class Trigger:
    """Dies when it is called for the last time."""

    def __init__(self, die: Die, count: int) -> None:
        self.die = die
        self.left = count

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.die()


def _around(path: str, when: str, trigger: Trigger) -> None:
    owner = namedAny(path.rpartition(".")[0])
    name = path.rpartition(".")[2]
    raw = vars(owner)[name]
    function = raw.__func__ if isinstance(raw, classmethod) else raw

    @wraps(function)
    def instead(*arguments: Any, **more: Any) -> Any:
        if when == "<":
            trigger()
        result = function(*arguments, **more)
        if when == ">":
            trigger()
        return result

    setattr(owner, name, classmethod(instead) if isinstance(raw, classmethod) else instead)


def _step(node: Any, wanted: str, trigger: Trigger) -> None:
    """Kill at a step of a truncation."""

    def step(name: str) -> None:
        if name == wanted:
            trigger()

    _with_environment(node, step=step)
    # A slave's own repair does not pass by its store.
    repair = namedAny("rmqha.roles.slave")
    intend = repair.intend
    repair.intend = lambda root, folder, at, end: intend(root, folder, at, end, step)


def _with_environment(node: Any, **changes: Any) -> None:
    """Change what the store of a node is given, and those that replace it."""
    node.environment = node.store_service.environment = evolve(node.environment, **changes)


def _half_record(node: Any, trigger: Trigger) -> None:
    """In the middle of copying a record into the map."""
    put = CommitLog.put

    def half(self: CommitLog, records: Any, queue_offsets: Any, store_timestamp: int) -> int:
        record = records[0]
        file = self._room(len(record))
        position = max(self.end, file.start) - file.start
        whole = bytes(file.view[position : position + len(record) // 2])
        file.view[position : position + len(record) // 2] = record[: len(record) // 2]
        trigger()
        file.view[position : position + len(record) // 2] = whole
        return put(self, records, queue_offsets, store_timestamp)

    CommitLog.put = half  # type: ignore[method-assign]


def _half_run(node: Any, trigger: Trigger) -> None:
    """With the last record of a run half written."""
    grown = CommitLog._grown

    def half(self: CommitLog, end: int) -> None:
        if trigger.left == 1:
            file = self.folder.at(self.last_record)
            position, stop = self.last_record - file.start, end - file.start
            middle = (position + stop) // 2
            file.view[middle:stop] = bytes(stop - middle)
        trigger()
        grown(self, end)

    CommitLog._grown = half  # type: ignore[method-assign]


def _roll_empty(node: Any, trigger: Trigger) -> None:
    """Between making a new log file and giving it its size."""
    create = MappedFile.create.__func__  # type: ignore[attr-defined]

    def instead(cls: Any, folder: Any, start: int, size: int, suffix: str = "") -> Any:
        path = folder / (file_name(start) + suffix)
        path.touch()
        trigger()
        path.unlink()
        return create(cls, folder, start, size, suffix)

    MappedFile.create = classmethod(instead)  # type: ignore[assignment]


def _roll_blank(node: Any, trigger: Trigger) -> None:
    """With the next file there and the blank before it not yet written."""
    log = namedAny("rmqha.store.log.commit_log")
    make = log.blank

    def blank(size: int) -> bytes:
        trigger()
        return bytes(make(size))

    log.blank = blank


def _frame_header(node: Any, trigger: Trigger) -> None:
    """With a frame's header sent and its body not."""
    _in_frame(trigger, lambda parts: parts[:1])


def _frame_half(node: Any, trigger: Trigger) -> None:
    """With half of a frame's body sent."""
    _in_frame(trigger, lambda parts: [parts[0], parts[1][: max(1, len(parts[1]) // 2)]])


def _in_frame(trigger: Trigger, part: Callable[[Any], Any]) -> None:
    regions = namedAny("rmqha.net.zero_copy_send.ZeroCopyServer")
    write = regions.writeParts

    def instead(self: Any, parts: Any) -> None:
        if trigger.left == 1:
            write(self, part(parts))
        trigger()
        write(self, parts)

    regions.writeParts = instead


def _sync(before: bool) -> Callable[[Any, Trigger], None]:
    """When a node asks its thread to make files durable, or when it is told that they are."""

    def install_sync(node: Any, trigger: Trigger) -> None:
        real = node.environment.fsync

        def told(_: None) -> None:
            trigger()

        def fsync(files: Files) -> Deferred[None]:
            if before:
                trigger()
                return real(files)
            return real(files).addCallback(told)

        _with_environment(node, fsync=fsync)

    return install_sync


SPECIAL: dict[str, Callable[[Any, Trigger], None]] = {
    "half-record": _half_record,
    "half-run": _half_run,
    "roll-empty": _roll_empty,
    "roll-blank": _roll_blank,
    "frame-header": _frame_header,
    "frame-half": _frame_half,
    "sync": _sync(True),
    "synced": _sync(False),
}
