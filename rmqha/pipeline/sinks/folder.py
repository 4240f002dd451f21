"""
A folder of Parquet files that is exact without a table format.

Tasks stage files where no reader looks.  A commit is one small file that lists them and
says how far the table is; then they are moved to where readers look, which is done again
when the table is opened next, should it be interrupted.  So readers see no file that is
not committed, and a job that begins again knows what is.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from attrs import asdict, define, evolve, field

from rmqha.pipeline.errors import TableRefused
from rmqha.pipeline.sinks.parquet import OURS, STAGED, WAITING, Shape
from rmqha.pipeline.sinks.position import Source, TablePosition, as_json, of_json
from rmqha.pipeline.sinks.rewrite import left_of, write
from rmqha.pipeline.sinks.table import LakeTable, Taken, require_same
from rmqha.pipeline.sinks.table_layout import By, encoded
from rmqha.pipeline.sinks.written import WrittenFile

COMMITS = "commits"
"""Folder with a file a commit, below L{OURS}; the last one says how far the table is."""

_LOCK = "lock"
"""File below L{OURS} that one writer holds."""

_KEPT = 100
"""Commits that stay: what they say of files, the folder itself says too."""

_VERSION = 1


@define
class FolderTable(LakeTable):
    """
    A folder of Parquet files.

    @ivar columns: Columns of the files.
    """

    shape: Shape
    columns: list[str] = field(factory=list)
    _number: int = 0
    _last: dict[str, Any] = field(factory=dict)
    _lock: int = -1

    @classmethod
    def open(cls, shape: Shape, schema: pa.Schema | None = None) -> Self:
        """
        Open a folder, and finish what was interrupted.

        @param schema: Of files that are to come; without it the table has to be there.
        @raise TableRefused: If it is in use, or not such a folder.
        """
        root = shape.root
        if (root / "_delta_log").exists():
            raise TableRefused(str(root), "it is a Delta table")
        if schema is None and not (root / OURS / COMMITS).is_dir():
            raise TableRefused(str(root), "it was not made by rmqha")
        (root / OURS / COMMITS).mkdir(parents=True, exist_ok=True)
        table = cls(shape, list(schema.names) if schema is not None else [])
        table._take_lock()
        try:
            table._recover()
        except BaseException:
            table.close()
            raise
        return table

    @property
    def generation(self) -> int:
        return int(self._last.get("generation", 0))

    def sources(self) -> dict[Source, TablePosition]:
        return of_json(self._last.get("held", {}))

    def commit(self, files: Iterable[WrittenFile], moved: Mapping[Source, TablePosition]) -> None:
        self._commit([asdict(each) for each in files], [], moved, self.generation)

    def take_off(self, store: str, to: int) -> Taken:
        moved = self._cut_back(store, to)
        generation = self.generation + 1
        added, removed, rows = [], [], 0
        for path, start, end in self._files(store):
            if end > to:
                left, gone = left_of(self.shape.root / path, store, to)
                rows += gone
                if gone:
                    removed.append(str(path))
                if gone and left.num_rows:
                    added.append(self._stage(path, left, start, to, generation))
        self._commit(added, removed, moved, generation)
        return Taken(rows, {store: to})

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- commits ------------------------------------------------------------

    def _commit(
        self,
        added: list[dict[str, Any]],
        removed: list[str],
        moved: Mapping[Source, TablePosition],
        generation: int,
    ) -> None:
        content = {
            "version": _VERSION,
            "by": self.shape.by.value,
            "columns": self.columns,
            "generation": generation,
            "held": as_json({**self.sources(), **moved}),
            "removed": removed,
            "added": added,
        }
        self._number += 1
        file = self._place(self._number)
        beside = file.with_suffix(".unfinished")
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(beside, file)
        self._last = content
        self._apply()
        self._place(self._number - _KEPT).unlink(missing_ok=True)

    def _place(self, number: int) -> Path:
        return self.shape.root / OURS / COMMITS / f"{number:020d}.json"

    def _apply(self) -> None:
        """
        Make the folder what the last commit says.
        """
        root = self.shape.root
        for path in self._last.get("removed", ()):
            (root / path).unlink(missing_ok=True)
        for each in self._last.get("added", ()):
            final = root / each["path"]
            waiting = Path(root, STAGED, each["path"]).with_name(final.name + WAITING)
            if waiting.exists():
                final.parent.mkdir(parents=True, exist_ok=True)
                os.replace(waiting, final)

    def _recover(self) -> None:
        """
        Read the last commit, finish it, and drop what was staged without one.
        """
        numbers = [int(path.stem) for path in (self._place(0).parent).glob("*.json")]
        if numbers:
            self._number = max(numbers)
            self._last = json.loads(self._place(self._number).read_text(encoding="utf-8"))
            root = str(self.shape.root)
            if self.columns:
                require_same(root, self.columns, self._last["columns"])
                if self._last["by"] != self.shape.by.value:
                    raise TableRefused(root, f"its folders are by {self._last['by']}")
            self.columns = self._last["columns"]
            self.shape = evolve(self.shape, by=By(self._last["by"]))
            self._apply()
        shutil.rmtree(self.shape.root / STAGED, ignore_errors=True)

    def _take_lock(self) -> None:
        path = self.shape.root / OURS / _LOCK
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise TableRefused(str(self.shape.root), "another job writes to it") from error

    # --- files --------------------------------------------------------------

    def _files(self, store: str) -> Iterator[tuple[Path, int, int]]:
        """
        The files with rows of a store: path below the root, and its range.
        """
        name = encoded(store)
        for path in self.shape.root.rglob("*.parquet"):
            below = path.relative_to(self.shape.root)
            if below.parts[0] == OURS:
                continue
            found = path.stem.rsplit("-", 3)
            if len(found) == 4 and found[0] == name:
                yield below, int(found[1]), int(found[2])

    def _stage(
        self, path: Path, rows: pa.Table, start: int, to: int, generation: int
    ) -> dict[str, Any]:
        """
        Write what is left of a file, to be moved into its folder.

        @return: What the commit says of it.
        """
        store, _, _, token = path.stem.rsplit("-", 3)
        final = path.with_name(f"{store}-{start:020d}-{to:020d}-{token}r{generation}.parquet")
        waiting = Path(self.shape.root, STAGED, final).with_name(final.name + WAITING)
        size = write(rows, waiting, self.shape.encoding)
        return {"path": str(final), "rows": rows.num_rows, "bytes": size}
