"""What an archive says of itself: whose log it is, and how far it went when that was written.

It is for people and for the next run; where the archive really ends its files tell.  Source:
docs/guide/archive.rst, What is in an archive.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from attrs import field, frozen

from rmqha.errors import Refused, TableUnreadable
from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.published import other_first
from rmqha.logfiles.typed_table import Natural, require_version, value_of
from rmqha.wire.log.log_identity import LogIdentity
from rmqha.wire.store_layout import ARCHIVE, OWN_FOLDER

VERSION = 1


def manifest_path(root: Path) -> Path:
    """Where an archive keeps it."""
    return root / OWN_FOLDER / ARCHIVE


@frozen(kw_only=True)
class ArchiveManifest:
    """One generation of the file.

    @ivar source: The HA port that the log was received from last.
    @ivar log: Whose log it is: C{brokerName} of the broker there, if it told, and the first record
        that was there.
    @ivar file_size: Size of each log file, in bytes.
    @ivar start: The first byte, a physical offset.
    @ivar end: Just past the last record that was on the disk.
    @ivar begun: When the archive was begun, in milliseconds since 1970.
    @ivar updated: When this was written, the same.
    """

    source: str
    file_size: int
    start: int
    end: int
    begun: int
    updated: int
    log: LogIdentity = field(factory=LogIdentity)

    @classmethod
    def read(cls, root: Path) -> Self | None:
        """What an archive says; C{None} if it is none.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If there is something, and it makes no sense.
        """
        table = json_table.read(manifest_path(root))
        if table is None:
            return None
        try:
            require_version(table, VERSION)
            known = {"identity": {"broker": value_of(table, "brokerName", str)}, **table}
            return cls(
                source=value_of(table, "from", str),
                log=LogIdentity.from_json(value_of(known, "identity", dict)),
                file_size=value_of(table, "fileSize", Natural),
                start=value_of(table, "firstOffset", Natural),
                end=value_of(table, "lastOffset", Natural),
                begun=value_of(table, "begun", Natural),
                updated=value_of(table, "updated", Natural),
            )
        except ValueError as error:
            raise TableUnreadable(str(manifest_path(root)), f"{error}") from error

    def require_log(self, root: Path, command: str) -> None:
        """Refuse files that are not of the log that this speaks of.

        @param command: Who asks.
        @raise Refused: If the first record is another one.
        """
        found = other_first(self.log, LogFiles.find(root))
        if found:
            place = manifest_path(root).relative_to(root)
            raise Refused(
                command,
                f"the files of {root} are of another log than its {place} speaks of: the record at "
                f"byte {self.log.first} has fingerprint {found}, not {self.log.sum}",
            )

    def write(self, root: Path) -> None:
        """Make this what the archive says, durably.

        @raise DiskFull: If there is no room; the generation before stays.
        """
        path = manifest_path(root)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            fsync_folder(root)
        json_table.replace(
            path,
            {
                "version": VERSION,
                "from": self.source,
                "brokerName": self.log.broker,
                "identity": self.log.to_json(),
                "fileSize": self.file_size,
                "firstOffset": self.start,
                "lastOffset": self.end,
                "begun": self.begun,
                "updated": self.updated,
            },
        )
