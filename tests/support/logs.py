"""Real logs in small files, and what stands in for threads and a full disk."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.store.environment import StoreEnvironment
from rmqha.store.files import mapped
from rmqha.store.files.allocate import Allocator
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.opening import Opening
from rmqha.store.service import StoreService
from rmqha.store.store import Store
from rmqha.wire.log.encode import encode
from rmqha.wire.log.record import Message
from tests.support.derived import settings

FILE_SIZE = 4096
STORED = 1_700_000_000_000
HOST = ("127.0.0.1", 10911)
PROPERTIES = b"KEYS\x01a b\x02TAGS\x01TagA\x02"
OVERHEAD = 91 + len("TopicA") + len(PROPERTIES)
"""Bytes of a record that are not its body."""


def now(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Deferred[Any]:
    """A thread that is done at once."""
    return maybeDeferred(function, *args, **kwargs)


@define(eq=False)
class Held:
    """A thread that works when it is told to."""

    calls: list[Callable[[], None]] = field(factory=list)

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.calls.append(lambda: maybeDeferred(function, *args, **kwargs).chainDeferred(done))
        return done

    def work(self) -> None:
        self.calls.pop(0)()


@define
class Disk:
    """What C{posix_fallocate} finds: room, or none."""

    full: bool = False
    asked: list[int] = field(factory=list)

    def install(self, case: SynchronousTestCase) -> Disk:
        """Stand in for the real one during a test."""
        real = os.posix_fallocate

        def fallocate(fd: int, start: int, size: int) -> None:
            self.asked.append(size)
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(fd, start, size)

        case.patch(mapped.os, "posix_fallocate", fallocate)
        return self


def message(
    size: int,
    *,
    topic: str = "TopicA",
    queue_id: int = 0,
    properties: bytes = PROPERTIES,
    **more: Any,
) -> Message:
    """A message whose record has exactly C{size} bytes."""
    body = size - 91 - len(topic) - len(properties)
    given: dict[str, Any] = {
        "body": bytes(i % 251 + 1 for i in range(body)),
        "born_timestamp": STORED,
        "born_host": ("127.0.0.1", 40000),
        "store_host": HOST,
    }
    return Message(topic=topic, queue_id=queue_id, properties=properties, **(given | more))


def encoded(size: int, **more: Any) -> bytearray:
    """Its record, not yet placed."""
    record = encode(message(size, **more), max_message_size=1 << 20)
    assert len(record) == size, f"{len(record)} instead of {size}"
    return record


def content(log: Any, start: int | None = None, end: int | None = None) -> bytes:
    """A copy of a log's bytes, from its first to its end if nothing else is said."""
    position = log.min_offset if start is None else start
    parts = []
    while position < (log.end if end is None else end):
        parts.append(bytes(log.read(position, (log.end if end is None else end) - position)))
        position += len(parts[-1])
    return b"".join(parts)


def files_of(folder: Path) -> bytes:
    """All bytes of all files of a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


class LogTestCase(SynchronousTestCase):
    """Tests with logs in folders that go away."""

    def __init__(self, methodName: str = "runTest") -> None:
        super().__init__(methodName)
        self._services: dict[Store, StoreService] = {}

    def folder(self) -> Path:
        # No test survives a power cut; on a busy disk an fsync takes 10 ms.
        self.patch(os, "fsync", lambda fd: None)
        made = Path(tempfile.mkdtemp(prefix="log-"))
        self.addCleanup(shutil.rmtree, made, ignore_errors=True)
        return made

    def log(
        self, folder: Path | None = None, file_size: int = FILE_SIZE, end: int = 0
    ) -> CommitLog:
        """A log, empty unless C{folder} has one."""
        made = LogFolder.load(folder if folder is not None else self.folder(), file_size)
        self.addCleanup(made.close)
        return CommitLog(folder=made, end=end, allocator=Allocator())

    def filled(
        self, *sizes: int, file_size: int = FILE_SIZE, folder: Path | None = None
    ) -> CommitLog:
        """A log with records of these sizes."""
        log = self.log(folder, file_size)
        for number, size in enumerate(sizes):
            log.put([encoded(size)], [number], STORED + number)
        return log

    def service(
        self, root: Path, *, clock: Clock | None = None, master: bool = True, **more: Any
    ) -> StoreService:
        """The service of a store with the golden stores' sizes, not yet started; its environment,
        opening and
        settings may have other attributes.
        """
        opening = {
            name: more.pop(name)
            for name in ("repair", "ours_from", "fetches", "before", "patient", "follows_confirm")
            if name in more
        }
        given = {
            "clock": clock or Clock(),
            "fsync": FsyncInThread(now, lambda fd: None),
            "in_thread": now,
            "disk_use": lambda folder: 0.1,
            "local_hour": lambda now: 12,
        } | more
        sizes = given.pop("settings", {})
        return StoreService(
            settings(root, **sizes), Opening(master=master, **opening), StoreEnvironment(**given)
        )

    def opened(self, root: Path, **more: Any) -> Store:
        service = self.service(root, **more)
        service.startService()
        self.addCleanup(service.stopService)
        return self.opened_by(service)

    def opened_by(self, service: StoreService) -> Store:
        """What a service has opened; L{service_of} finds the service again."""
        store: Store = self.successResultOf(service.ready)
        self._services[store] = service
        return store

    def service_of(self, store: Store) -> StoreService:
        return self._services[store]

    def close_store(self, store: Store) -> None:
        self.successResultOf(self.service_of(store).stopService())

    def reopened(self, store: Store, **more: Any) -> Store:
        """The same store, stopped and opened again."""
        self.close_store(store)
        return self.opened(store.settings.root, **more)

    def crash(self, store: Store) -> Path:
        """A copy of a store's folder as a kill would leave it."""
        root = self.folder() / "store"
        shutil.copytree(store.settings.root, root)
        return root
