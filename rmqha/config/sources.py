"""Where settings are written: a file and C{--set}, with a place for every value.

Nothing is refused here but what cannot be read as C{key=value}: what a key means is
L{rmqha.config.load}'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from rmqha.config import properties
from rmqha.config.errors import ConfigUnreadable, MalformedLine, UnknownKey, Unsupported
from rmqha.config.keys import Key
from rmqha.config.vocabulary import Vocabulary
from rmqha.errors import BadValue, ConfigError

COMMAND_LINE = "--set"
"""The place of a value that was given on the command line."""

DEFAULT = "default"
"""The place of a value nobody gave."""

TLS_CONFIG_FILE = "tls.config.file"
"""The key that names another file, with keys of TLS."""


@frozen
class Given:
    """One key as somebody wrote it.

    @ivar name: The key, perhaps an alias or unknown.
    @ivar text: Its value without surrounding blanks.
    @ivar where: C{file:line}, or L{COMMAND_LINE}.
    """

    name: str
    text: str
    where: str


@frozen(kw_only=True)
class Chosen:
    """The value one key ends up with.

    @ivar name: The name it was given by, an alias perhaps.
    @ivar value: What the text means.
    @ivar where: C{file:line}, L{COMMAND_LINE} or L{DEFAULT}.
    """

    key: Key
    name: str
    text: str
    value: Any
    where: str


@define(kw_only=True)
class SettingsDraft:
    """What was found so far: chosen values, and everything to tell about them.

    @ivar known: What may stand in the file.
    @ivar chosen: The given values, by the name of their key (never an alias).
    @ivar broken: Keys whose given value is already refused; what depends on them cannot
        be judged.
    @ivar problems: What is wrong, in the order it was found.
    @ivar ignored: Harmless keys that were given, in order.
    @ivar notes: Sentences for the log.
    """

    known: Vocabulary
    chosen: dict[str, Chosen] = field(factory=dict)
    broken: set[str] = field(factory=set)
    problems: list[ConfigError] = field(factory=list)
    ignored: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)

    def value(self, name: str) -> Any:
        """The value of a key that is chosen by now."""
        return self.chosen[name].value

    def choose(self, name: str, value: Any, where: str) -> None:
        """Choose a value that nobody wrote."""
        key = self.known.by_name[name]
        self.chosen[name] = Chosen(
            key=key, name=name, text=key.kind.show(value), value=value, where=where
        )

    def fill(self) -> None:
        """Choose for every key nobody gave what its absence means."""
        # What is derived comes last, when all it can be derived from is there.
        for key in sorted(self.known.keys, key=lambda key: key.derived is not None):
            if key.name not in self.chosen:
                self.choose(key.name, key.absent(self.value), DEFAULT)

    def refuse(self, name: str, allowed: str) -> None:
        """Note that a chosen value is not allowed after all."""
        given = self.chosen[name]
        self.problems.append(BadValue(given.name, given.text, allowed, given.where))
        self.broken.add(name)

    def sound(self, *names: str) -> bool:
        """Whether none of these keys is refused already."""
        return self.broken.isdisjoint(names)

    def given(self, *names: str) -> bool:
        """Whether any of these keys was given by somebody."""
        return any(name in self.chosen and self.chosen[name].where != DEFAULT for name in names)


def read(path: Path | None, overrides: Sequence[str], known: Vocabulary) -> SettingsDraft:
    """Read both sources; what C{overrides} say wins over the file.

    @param path: The file, if there is one.
    @param overrides: C{key=value} each.
    @param known: What may stand in the file.
    """
    draft = SettingsDraft(known=known)
    written = _from_file(path, draft) if path is not None else []
    on_line = _last_of_each(_from_command_line(overrides, draft), draft)
    in_file = _last_of_each(written + _from_tls_file((*written, *on_line), draft), draft)
    replaced = {_canonical(given.name, known) for given in on_line}
    kept = [given for given in in_file if _canonical(given.name, known) not in replaced]
    for level in (kept, on_line):
        _judge(level, draft)
    return draft


def _canonical(name: str, known: Vocabulary) -> str:
    key = known.by_name.get(name)
    return key.name if key is not None else name


def _from_file(path: Path, draft: SettingsDraft) -> list[Given]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        draft.problems.append(ConfigUnreadable(str(path), error.strerror or str(error)))
        return []
    found = []
    for entry in properties.parse(properties.decode(raw)):
        where = f"{path}:{entry.line}"
        if entry.fault:
            draft.problems.append(MalformedLine(f"{entry.key}: {entry.fault}", where))
        elif not entry.key:
            draft.problems.append(MalformedLine(f"={entry.value}: no key before the =", where))
        else:
            found.append(Given(entry.key, entry.value.strip(), where))
    return found


def _from_tls_file(given: Sequence[Given], draft: SettingsDraft) -> list[Given]:
    """What stands in the file that RocketMQ's C{tls.config.file} names: C{tls.} keys alone."""
    names = [one.text for one in given if _canonical(one.name, draft.known) == TLS_CONFIG_FILE]
    found = _from_file(Path(names[-1]), draft) if names and names[-1] else []
    for one in found:
        if not one.name.startswith("tls."):
            draft.problems.append(UnknownKey(one.name, "", one.where))
    return [one for one in found if one.name.startswith("tls.") and one.name != TLS_CONFIG_FILE]


def _from_command_line(overrides: Sequence[str], draft: SettingsDraft) -> list[Given]:
    found = []
    for override in overrides:
        name, equals, text = override.partition("=")
        if name.strip() and equals:
            found.append(Given(name.strip(), text.strip(), COMMAND_LINE))
        else:
            draft.problems.append(MalformedLine(f"{override!r} is not key=value", COMMAND_LINE))
    return found


def _last_of_each(level: Sequence[Given], draft: SettingsDraft) -> list[Given]:
    """Take the last of each key of one source, as Java does, and say so."""
    last: dict[str, Given] = {}
    for given in level:
        before = last.get(given.name)
        if before is not None and before.text != given.text:
            draft.notes.append(
                f"{given.where}: {given.name}={given.text} replaces {before.text} ({before.where})"
            )
        last[given.name] = given
    return list(last.values())


def _judge(level: Sequence[Given], draft: SettingsDraft) -> None:
    """Sort the keys of one source into chosen values, problems and ignored ones."""
    here: dict[str, Given] = {}
    for given in level:
        key = draft.known.by_name.get(given.name)
        if key is None:
            _foreign(given, draft)
            continue
        other = here.setdefault(key.name, given)
        if other.text != given.text:
            allowed = f"{other.name}={other.text} ({other.where}) is the same key, say one of them"
            draft.problems.append(BadValue(given.name, given.text, allowed, given.where))
        elif other is given:
            _parse(key, given, draft)


def _foreign(given: Given, draft: SettingsDraft) -> None:
    known = draft.known
    unsupported = known.unsupported.get(given.name)
    if unsupported is not None and unsupported.enabled(given.text):
        draft.problems.append(Unsupported(given.name, given.text, unsupported.reason, given.where))
    elif given.name in known.dead:
        draft.notes.append(
            f"{given.where}: {given.name} is a dead key, RocketMQ does not read it either: delete "
            "the line"
        )
    elif unsupported is None and given.name not in known.harmless:
        draft.problems.append(UnknownKey(given.name, known.nearest(given.name), given.where))
    elif given.name not in draft.ignored:
        draft.ignored.append(given.name)


def _parse(key: Key, given: Given, draft: SettingsDraft) -> None:
    try:
        value = key.kind.parse(given.text)
    except ValueError:
        allowed = key.kind.allowed
        if " #" in given.text or " //" in given.text:
            allowed += " (a comment needs a line of its own)"
        draft.problems.append(BadValue(given.name, given.text, allowed, given.where))
        draft.broken.add(key.name)
        return
    note = key.kind.note(given.text)
    if note:
        draft.notes.append(f"{given.where}: {given.name}={given.text} {note}")
    draft.chosen[key.name] = Chosen(
        key=key, name=given.name, text=given.text, value=value, where=given.where
    )
