"""A folder of Parquet files that is exact without a table format, on a file system or in an object
store.

Tasks stage files where no reader looks.  A commit is one small object that lists them and
says how far the table is; then they are moved to where readers look, which is done again
when the table is opened next, should it be interrupted.  So readers see no file that is
not committed, and a job that begins again knows what is.

Files wait in a folder of their batch, which has the number of its commit.  Who opens the table
clears those up to the last commit: their batches are committed, or never will be.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any, Self

import pyarrow as pa
from attrs import asdict, define, evolve, field

from rmqha.pipeline.errors import TableRefused
from rmqha.pipeline.sinks.commits import COMMITS, Commits
from rmqha.pipeline.sinks.parquet import OURS, STAGED, WAITING, Shape, scratch
from rmqha.pipeline.sinks.position import Source, TablePosition, as_json, of_json
from rmqha.pipeline.sinks.rewrite import left_of, places_of, write
from rmqha.pipeline.sinks.table import LakeTable, Taken, require_same
from rmqha.pipeline.sinks.table_layout import By, encoded
from rmqha.pipeline.sinks.written import WrittenFile, range_of
from rmqha.tier.objects import ObjectFolder

_VERSION = 2

_REWIND = "rewind"
"""What the folder is called for files that are written anew, in the place of a selection."""

_AT_ONCE = 16
"""Files that an object store copies at the same time."""


@define
class FolderTable(LakeTable):
    """A folder of Parquet files.

    @ivar columns: Columns of the files.
    """

    shape: Shape
    _commits: Commits
    columns: list[str] = field(factory=list)
    _number: int = 0
    _last: dict[str, Any] = field(factory=dict)

    @classmethod
    def open(cls, shape: Shape, schema: pa.Schema | None = None) -> Self:
        """Open a folder, and finish what was interrupted.

        @param schema: Of files that are to come; without it the table has to be there.
        @raise TableRefused: If it is in use, or not such a folder.
        """
        if shape.folder.has("_delta_log"):
            raise TableRefused(shape.place, "it is a Delta table")
        if schema is None and not shape.folder.has(COMMITS):
            raise TableRefused(shape.place, "it was not made by rmqha")
        columns = list(schema.names) if schema is not None else []
        table = cls(shape, Commits.of(shape), columns)
        try:
            table._commits.open()
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
        if self._commits.alone:
            self.sweep(_REWIND, [store])
        generation = self.generation + 1
        added, removed, rows = [], [], 0
        for path, start, end in self._files(store):
            if end > to:
                left, gone = self._left_of(path, store, to)
                rows += gone
                if gone:
                    removed.append(path)
                if gone and left.num_rows:
                    added.append(self._stage(store, path, left, start, to, generation))
        self._commit(added, removed, moved, generation)
        return Taken(rows, {store: to})

    def places(self, store: str, start: int, end: int) -> pa.Array:
        found = [pa.array([], pa.int64())]
        for path, first, last in self._files(store):
            if first < end and start < last:
                with self._folder.open(path) as file:
                    found.append(places_of(file, store, start, end))
        return pa.concat_arrays(found)

    def close(self) -> None:
        self._commits.close()

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
            "staged": self.shape.staged,
            "removed": removed,
            "added": added,
        }
        self._commits.add(self._number + 1, content)
        self._number += 1
        self._last = content
        self._apply()
        self._begin()

    def _apply(self) -> None:
        """Make the folder what the last commit says, and clear what waits for no other."""
        folder = self._folder
        for path in self._last.get("removed", ()):
            folder.remove(path)
        waiting = folder.walk(STAGED)
        added = self._last.get("added", ())
        here = [each for each in added if _waits(each) in waiting]
        # What was cleared in part had all been moved.
        gone = [each for each in added if here and _waits(each) not in waiting]
        for each in gone:
            self._require(each)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._show, here))
        for name in folder.names(STAGED):
            number = name.partition("-")[0]
            if self._commits.alone or not number.isdigit() or int(number) <= self._number:
                folder.remove_folder(f"{STAGED}/{name}")

    def _show(self, file: Mapping[str, Any]) -> None:
        try:
            self._folder.show(_waits(file), file["path"])
        except FileNotFoundError:  # another job does the same
            self._require(file)

    def _require(self, file: Mapping[str, Any]) -> None:
        """Refuse a file that waits no longer and is not where it has to be, if no other job has
        finished the commit and gone on since.
        """
        size, expected = self._folder.size(file["path"]), file["bytes"]
        if size != expected and not self._passed:
            found = "it is missing" if size < 0 else f"it has {size} bytes"
            raise TableRefused(
                self.shape.place,
                f"{file['path']} of {expected} bytes was committed (commit {self._number}), but "
                f"{found}, and it is not in {STAGED} any more",
            )

    @property
    def _passed(self) -> bool:
        """Whether another job has committed since."""
        return max(self._commits.numbers(), default=0) > self._number

    def _recover(self) -> None:
        """Read the last commit, finish it, and drop what was staged without one."""
        self._number, self._last = self._commits.last()
        if self._number:
            place, version = self.shape.place, self._last["version"]
            if version > _VERSION:
                raise TableRefused(place, f"its commits have version {version}, not {_VERSION}")
            if self.columns:
                require_same(place, self.columns, self._last["columns"])
                if self._last["by"] != self.shape.by.value:
                    raise TableRefused(place, f"its folders are by {self._last['by']}")
            self.columns = self._last["columns"]
            self.shape = evolve(self.shape, by=By(self._last["by"]))
        self._apply()
        self._begin()

    def _begin(self) -> None:
        """Have a place for the files of the next batch."""
        staged = f"{STAGED}/{self._number + 1:020d}-{uuid.uuid4().hex}"
        self.shape = evolve(self.shape, staged=staged)

    # --- files --------------------------------------------------------------

    @property
    def _folder(self) -> ObjectFolder:
        return self.shape.folder

    def _files(self, store: str) -> Iterator[tuple[str, int, int]]:
        """The files with rows of a store: path below the root, and its range."""
        name = encoded(store)
        for path in sorted(self._folder.walk()):
            found = None if path.startswith(f"{OURS}/") else range_of(path)
            if found is not None and found[0] == name:
                yield path, found[1], found[2]

    def _left_of(self, path: str, store: str, to: int) -> tuple[pa.Table, int]:
        """What is left of a file, and how many rows are not."""
        try:
            with self._folder.open(path) as file:
                return left_of(file, store, to)
        except FileNotFoundError:
            if self._passed:
                raise self._commits.overtaken(self._number + 1) from None
            raise

    def _stage(
        self, store: str, path: str, rows: pa.Table, start: int, to: int, generation: int
    ) -> dict[str, Any]:
        """Write what is left of a file, to be moved into its folder.

        @return: What the commit says of it.
        """
        head, _, _, token = PurePosixPath(path).stem.rsplit("-", 3)
        name = f"{head}-{start:020d}-{to:020d}-{token}r{generation}.parquet"
        final = str(PurePosixPath(path).with_name(name))
        aside = scratch(self.shape.root, store, _REWIND) / uuid.uuid4().hex
        try:
            size = write(rows, aside, self.shape.encoding)
            waiting = self.shape.bring(aside, final)
        finally:
            aside.unlink(missing_ok=True)
        return {"path": final, "waiting": waiting, "rows": rows.num_rows, "bytes": size}


def _waits(file: Mapping[str, Any]) -> str:
    """Where a file of a commit waits to be moved."""
    return str(file.get("waiting") or f"{STAGED}/{file['path']}{WAITING}")
