"""What the text of an option may be, and what becomes of it.

All options are text to Spark; L{as_text} lets a Python caller give what it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

from attrs import AttrsInstance, define, field, fields, frozen

from rmqha.config.values import Kind
from rmqha.pipeline.errors import OptionInvalid, OptionUnknown
from rmqha.wire.remoting.fields import camel

_SIZE = re.compile(r"(\d{1,18})\s*(|b|k|kb|m|mb|g|gb|t|tb)", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.ASCII | re.DOTALL)
_DELAY = re.compile(r"(\d{1,9})\s*(ms|s|m|h)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_OFFSET_MAX = 2**63 - 1
_CAPITAL = re.compile(r"[A-Z]")


class Edge(StrEnum):
    """A position that needs no number."""

    EARLIEST = "earliest"
    LATEST = "latest"


LATEST, EARLIEST = -1, -2
"""What Spark's Kafka source calls the end and the beginning, where a number is needed."""


@frozen
class QueueOffsets:
    """Places in some queues; of the others everything is meant.

    @ivar queues: Queue offsets by topic and queue id, or L{LATEST} or L{EARLIEST}; or times.
    """

    queues: dict[str, dict[int, int]]


Offsets = Edge | dict[str, int] | QueueOffsets
"""An edge of every log, a physical offset for each store, or places in queues."""


def as_text(value: object) -> str:
    """A Python value as the text of an option."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(
            {str(name): str(v) if isinstance(v, Path) else v for name, v in value.items()}
        )
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(str(part) for part in value)
    if isinstance(value, re.Pattern):
        return str(value.pattern)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    size = int(match[1]) << 10 * _POWERS[match[2].lower()[:1]]
    if not 0 < size <= _OFFSET_MAX:
        raise ValueError(text)
    return size


SIZE = Kind("a number of bytes above 0, like 67108864, 64m or 2g", _size)
"""A number of bytes, with a unit if one is written: C{512k}, C{64m}, C{2g}."""


def _names(separator: str) -> Kind:
    """Names with a separator between them, at least one."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(part.strip() for part in text.split(separator)))
        if not all(names):
            raise ValueError(text)
        return names

    return Kind(f"names separated by {separator}", parse)


NAMES, TAGS = _names(","), _names("||")


def _numbers(text: str) -> frozenset[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        raise ValueError(text)
    return frozenset(map(int, parts))


NUMBERS = Kind("whole numbers separated by commas, like 0,1,2", _numbers)
"""Whole numbers, none below 0."""


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(text) from error


PATTERN = Kind("a regular expression of Python", _pattern)
"""A regular expression that a whole name has to match."""


def _positions(text: str) -> Offsets:
    if text.lower() in tuple(Edge):
        return Edge(text.lower())
    found = json.loads(text)
    if not isinstance(found, dict) or not found:
        raise ValueError(text)
    if all(isinstance(queues, dict) for queues in found.values()):
        return QueueOffsets(
            {
                topic: {int(queue): _offset(offset) for queue, offset in queues.items()}
                for topic, queues in found.items()
            }
        )
    return {store: _offset(offset) for store, offset in found.items()}


def _offset(value: object) -> int:
    if type(value) is not int or not EARLIEST <= value <= _OFFSET_MAX:
        raise ValueError(value)
    return value


POSITIONS = Kind(
    'earliest, latest, physical offsets by store, like {"store": 0}, or queue offsets '
    'by topic and queue id, like {"orders": {"0": 17}}; -1 is latest and -2 earliest',
    _positions,
)
"""Where to begin or to end in each log."""


def _queue_times(text: str) -> QueueOffsets:
    found = _positions(text)
    if not isinstance(found, QueueOffsets):
        raise ValueError(text)
    if any(time < 0 for queues in found.queues.values() for time in queues.values()):
        raise ValueError(text)
    return found


QUEUE_TIMES = Kind(
    'milliseconds since 1970 by topic and queue id, like {"orders": {"0": 1700000000000}}',
    _queue_times,
)


def _queues(text: str) -> dict[str, frozenset[int]]:
    found = json.loads(text)
    if not isinstance(found, dict) or not found:
        raise ValueError(text)
    for queues in found.values():
        if not isinstance(queues, list) or not queues:
            raise ValueError(text)
        if any(type(queue) is not int or queue < 0 for queue in queues):
            raise ValueError(text)
    return {topic: frozenset(queues) for topic, queues in found.items()}


QUEUES = Kind('queue ids by topic, like {"orders": [0, 1]}', _queues)


def _time(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return round(time.timestamp() * 1000)


TIME = Kind("milliseconds since 1970, or a time with its zone, like 2026-01-31T12:00:00Z", _time)
"""A moment, as milliseconds since 1970."""


def _delay(text: str) -> float:
    match = _DELAY.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _SECONDS[match[2]]


DELAY = Kind("a time with its unit, like 500ms, 30s, 15m or 2h", _delay)
"""A length of time, as seconds."""


def _local_path(text: str) -> Path:
    match = _SCHEME.fullmatch(text)
    if match is not None:
        if match[1].lower() != "file":
            raise ValueError(text)
        text = match[3]
    if not text or "\0" in text:
        raise ValueError(text)
    return Path(text).expanduser().absolute()


LOCAL_PATH = Kind(
    "a store's folder on a mounted file system; the option tier reads what rmqha tier put "
    "into an object store",
    _local_path,
)
"""A store's root on a file system of this machine, as a path or as Spark's C{file:} name."""


def _tier_urls(text: str) -> tuple[tuple[str, str], ...]:
    found = json.loads(text) if text.lstrip().startswith("{") else {"": text}
    for name, url in found.items():
        if not isinstance(url, str) or "://" not in url or (not name and len(found) > 1):
            raise ValueError(text)
    if not found:
        raise ValueError(text)
    return tuple(sorted((name, url.rstrip("/")) for name, url in found.items()))


TIER_URLS = Kind(
    "a URL like s3://bucket/folder, or one for each store by name, like "
    '{"broker-a": "s3://bucket/a"}',
    _tier_urls,
)
"""Where the tier of a store is, or of several by their names."""


def _paths(text: str) -> tuple[tuple[str, Path], ...]:
    stores = json.loads(text)
    if isinstance(stores, list):
        named = [(Path(str(path)).name, path) for path in stores]
    elif isinstance(stores, dict):
        named = list(stores.items())
    else:
        raise ValueError(text)
    found = {}
    for name, path in named:
        if not name or name in found or not isinstance(path, str):
            raise ValueError(text)
        found[name] = _local_path(path)
    if not found:
        raise ValueError(text)
    return tuple(sorted(found.items()))


PATHS = Kind(
    'stores\' folders by name, like {"broker-a": "/data/a", "broker-b": "/data/b"}', _paths
)
"""Stores by name; or a list of them, whose folders name them."""


def option(kind: Kind, default: Any = None, *, secret: bool = False) -> Any:
    """Declare an option.

    @param kind: What its text may be.
    @param secret: Whether it is shown nowhere.
    """
    return field(default=default, metadata={"kind": kind}, repr=not secret)


def _snake(name: str) -> str:
    return _CAPITAL.sub(lambda match: "_" + match[0].lower(), name)


def kinds_of(cls: type[AttrsInstance]) -> dict[str, Kind]:
    """The options that a class declares with L{option}, by Spark's names."""
    return {
        camel(attribute.name): attribute.metadata["kind"]
        for attribute in fields(cls)
        if "kind" in attribute.metadata
    }


@define
class OptionsDraft:
    """What was given so far.

    @ivar texts: What was given for them, by Spark's names.
    @ivar values: The same, parsed.
    """

    kinds: Mapping[str, Kind]
    texts: dict[str, str] = field(factory=dict)
    values: dict[str, Any] = field(factory=dict)

    def take(self, given: str, text: str) -> None:
        """Read one.

        @raise OptionInvalid: If its value is not allowed.
        @raise OptionUnknown: If there is no such option.
        """
        lowered = {name.lower(): name for name in self.kinds}
        name = lowered.get(given.lower())
        if name is None:
            raise OptionUnknown(given, nearest(given, lowered))
        self.texts[name] = text
        kind = self.kinds[name]
        try:
            self.values[name] = kind.parse(text)
        except (ValueError, OverflowError, RecursionError) as error:
            raise OptionInvalid(name, text, kind.allowed) from error

    @property
    def attributes(self) -> dict[str, Any]:
        """The values by the names of attributes."""
        return {_snake(name): value for name, value in self.values.items()}

    def invalid(self, name: str, allowed: str) -> OptionInvalid:
        """The error for a value that is not allowed here."""
        return OptionInvalid(name, self.texts[name], allowed)

    def refuse(self, names: tuple[str, ...], allowed: str) -> None:
        """@raise OptionInvalid: If one of these was given."""
        for name in names:
            if name in self.texts:
                raise self.invalid(name, allowed)


def nearest(unknown: str, known: Mapping[str, str]) -> str:
    """The nearest known name, or C{""}.

    @param known: The names, by their lower case.
    """
    matches = get_close_matches(unknown.lower(), known, n=1, cutoff=0.6)
    return known[matches[0]] if matches else ""
