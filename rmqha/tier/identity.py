"""Whose log a tier has: said before its first file is there, and compared by all who come later.

Object stores replace what is there, and not all can be told to refuse.  So what says whose log it
is has a name that follows from what it says, and never takes another one's place: who finds that
two logs were begun in one tier does nothing there.  Of two that begin at the same moment each looks
again when its own object is there, and so at least one sees both, and takes its own back.

Source: docs/guide/tier.rst, What is in a tier.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Self

from attrs import field, frozen

from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.published import other_first
from rmqha.logfiles.typed_table import Natural, require_version, value_of
from rmqha.tier.errors import TierManifestInvalid, TierOfAnotherLog
from rmqha.tier.objects import ObjectFolder
from rmqha.wire.log.log_identity import LogIdentity

VERSION = 1

LOGS = "logs"
"""The folder of a tier that says whose log it has."""

_DIGITS = 16

_NAME = re.compile(r"[0-9a-f]{16}\.json", re.ASCII)


@frozen(kw_only=True)
class TierIdentity:
    """What a store said when it began a tier.

    @ivar log: Whose log it was.
    @ivar begin: The first byte that it had then, a physical offset.
    @ivar where: The object, for people.
    """

    log: LogIdentity
    begin: int
    where: str = field(default="", eq=False)

    @property
    def name(self) -> str:
        return f"{LOGS}/{hashlib.sha256(self.render()).hexdigest()[:_DIGITS]}.json"

    def render(self) -> bytes:
        table = {"version": VERSION, "firstOffset": self.begin, "identity": self.log.to_json()}
        return json.dumps(table).encode() + b"\n"

    @classmethod
    def parse(cls, raw: bytes, where: str) -> Self:
        """Read one.

        @raise TierManifestInvalid: If it is none.
        """
        try:
            table = json.loads(raw)
            require_version(table, VERSION)
            log = LogIdentity.from_json(value_of(table, "identity", dict))
            return cls(log=log, begin=value_of(table, "firstOffset", Natural), where=where)
        except (ValueError, RecursionError) as error:
            raise TierManifestInvalid(where, str(error)) from error

    def require(self, log: LogIdentity, files: LogFiles, where: str) -> None:
        """Refuse a log that is not this one.

        @param files: Its files.
        @param where: It, for people.
        @raise TierOfAnotherLog: If it is another.
        """
        if not self.log.is_named_as(log):
            theirs, ours = f"the tier is of broker {self.log.name}", f"the store of {log.name}"
            raise TierOfAnotherLog(self.where, where, self.begin, theirs, ours)
        found = other_first(self.log, files)
        if found:
            theirs = f"the tier's record at byte {self.log.first} has fingerprint {self.log.sum}"
            raise TierOfAnotherLog(self.where, where, self.begin, theirs, f"the store's {found}")


def identities(folder: ObjectFolder) -> tuple[TierIdentity, ...]:
    """What a tier says of whose log it has; nothing, if it was begun by a version before
    identities.

    @raise TierOfAnotherLog: If two logs were begun there.
    @raise TierError: If it cannot be read.
    """
    # What a kill left half written has another name.
    names = [f"{LOGS}/{name}" for name in folder.names(LOGS) if _NAME.fullmatch(name)]
    found = tuple(TierIdentity.parse(folder.read(name), folder.shown(name)) for name in names)
    for one in found[1:]:
        _require_one(found[0], one)
    return found


def _require_one(one: TierIdentity, two: TierIdentity) -> None:
    """Compare two that are in one tier: replicas of one log may have begun it together."""
    same_place = one.log.first == two.log.first
    if not one.log.is_named_as(two.log) or (same_place and one.log.sum != two.log.sum):
        raise TierOfAnotherLog(
            one.where,
            two.where,
            max(one.begin, two.begin),
            f"one is of broker {one.log.name}, first record {one.log.sum or 'unknown'}",
            f"the other of {two.log.name}, {two.log.sum or 'unknown'}; remove what is not of this "
            "tier's log",
        )


def claim(folder: ObjectFolder, log: LogIdentity, begin: int) -> tuple[TierIdentity, ...]:
    """Say whose log a tier has that does not say it yet.

    @param begin: The first byte that the tier has, or will have.
    @return: What it says then; nothing, if the log has no record yet.
    @raise TierOfAnotherLog: If somebody else has said that it is another log's meanwhile.
    @raise TierError: If it cannot be read or written.
    """
    if not log.sum:
        return ()
    mine = TierIdentity(log=log, begin=begin)
    folder.write(mine.name, [mine.render()])
    try:
        return identities(folder)
    except TierOfAnotherLog:
        folder.remove(mine.name)
        raise


def require_all(
    found: Iterable[TierIdentity], log: LogIdentity, files: LogFiles, where: str
) -> None:
    """Refuse a log that is not the one that all of these are of.

    @raise TierOfAnotherLog: If it is another.
    """
    for each in found:
        each.require(log, files, where)
