"""The options of a read, from Spark, SQL or a Python caller.

An error names the option, its text and what is allowed; an unknown name is an error
too, because a misspelled C{topic} would read everything.

Source: docs/guide/pipeline.rst, Options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from attrs import evolve, field, frozen

from rmqha.config.values import LEVELS, SOME_FILE, SOME_TEXT, SWITCH, Kind, choice, whole
from rmqha.errors import ExpressionInvalid
from rmqha.pipeline.errors import OptionMissing
from rmqha.pipeline.log.option_values import (
    DELAY,
    LATEST,
    LOCAL_PATH,
    NAMES,
    NUMBERS,
    PATHS,
    PATTERN,
    POSITIONS,
    QUEUE_TIMES,
    QUEUES,
    SIZE,
    TAGS,
    TIER_URLS,
    TIME,
    Edge,
    Offsets,
    OptionsDraft,
    QueueOffsets,
    as_text,
    kinds_of,
    option,
)
from rmqha.pipeline.remoting.errors import NoBrokers
from rmqha.pipeline.remoting.name_servers import NAME_SERVERS, RegisteredBrokers
from rmqha.pipeline.remoting.store_places import (
    ANY,
    BROKER,
    CLUSTER,
    RegisteredStores,
    StorePlaces,
    asked,
    filled,
)
from rmqha.priority import Priority
from rmqha.tier.joined_log import only_tier
from rmqha.wire.columnar.decoder import DECOMPRESSED_LIMIT, DECOMPRESSED_MOST, STYLES
from rmqha.wire.log.delay_levels import DEFAULT_DELAY_LEVELS
from rmqha.wire.sql92.filter import read_filter

ONLY = "store"
"""What the store of C{path} is called in offsets, wherever the folder lies."""

NO_PATH = (
    "it says where the store is (a table of Spark's catalog that was made with a list of "
    "columns has lost its options: make it without one, the option columns chooses them)"
)

PLACE_PATTERN = (
    "with nameServer a pattern with {broker} or {host}, and maybe {cluster} and {id}; among stores "
    "one for *, which stands for all brokers that are not named"
)

TIER_PATTERN = "with nameServer URLs with {broker}, and maybe {cluster} where clusterName is given"

DEFAULT_PARTITION = 64 << 20
"""Bytes of a partition: below it the start of a task costs more than its work."""

CORRUPT = "_corrupt_record"
"""Spark's name for the column that says what is wrong with a damaged record."""

ROWS_MAX = 2**63 - 1
PARTITIONS_MAX = 1_000_000
READER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}", re.ASCII)


class RowKind(StrEnum):
    """The option C{table}: what a row of the DataFrame is."""

    MESSAGES = "messages"
    RANGES = "ranges"
    FILES = "files"


class Visibility(StrEnum):
    """Which records are rows: those a consumer could see, or all."""

    CONSUMER = "consumer"
    LOG = "log"


class Style(StrEnum):
    """The option C{columnStyle}: what columns are named after."""

    RMQHA = "rmqha"
    ROCKETMQ = "rocketmq"
    KAFKA = "kafka"


class Mode(StrEnum):
    """What becomes of a damaged record, by Spark's own names: the read fails, the record
    becomes a row that says so, or it is left out.
    """

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


class MissingStores(StrEnum):
    """What becomes of a stream of several stores when one cannot be read: it fails, or goes on with
    the others and keeps that one's place, or forgets a store that is not there.
    """

    FAIL = "fail"
    WAIT = "wait"
    SKIP = "skip"


class PointFile(StrEnum):
    """Whether the published point of a store is believed."""

    USE = "use"
    IGNORE = "ignore"


def _reader(text: str) -> str:
    if READER_NAME.fullmatch(text) is None:
        raise ValueError(text)
    return text


READER = Kind("up to 127 letters, digits, dots, dashes and underscores", _reader)
"""A name that can be a file's."""


@frozen(kw_only=True)
class ReadOptions:
    """All options, parsed; each is called here what Spark's name is in snake case.

    @ivar stores: The stores by name, sorted.
    @ivar tier: URLs of tiers, by the names of their stores.
    @ivar starting_timestamp: Milliseconds since 1970, as all times here.
    @ivar max_partition_bytes: Bytes, as all sizes here.
    """

    stores: tuple[tuple[str, Path], ...] = option(PATHS)
    tier: tuple[tuple[str, str], ...] = option(TIER_URLS, (), secret=True)
    table: RowKind = option(choice(RowKind), RowKind.MESSAGES)
    topic: tuple[str, ...] | None = option(NAMES)
    subscribe_pattern: re.Pattern[str] | None = option(PATTERN)
    assign: dict[str, frozenset[int]] | None = option(QUEUES)
    tags: tuple[str, ...] | None = option(TAGS)
    property_filter: str | None = option(SOME_TEXT)
    queue_ids: frozenset[int] | None = option(NUMBERS)
    visibility: Visibility = option(choice(Visibility), Visibility.CONSUMER)
    starting_offsets: Offsets = option(POSITIONS, Edge.EARLIEST)
    ending_offsets: Offsets = option(POSITIONS, Edge.LATEST)
    starting_timestamp: int | None = option(TIME)
    ending_timestamp: int | None = option(TIME)
    starting_offsets_by_timestamp: QueueOffsets | None = option(QUEUE_TIMES)
    columns: tuple[str, ...] | None = option(NAMES)
    column_style: Style = option(choice(Style), Style.RMQHA)
    include_headers: bool = option(SWITCH, False)
    verify_crc: bool = option(SWITCH, True)
    decompress: bool = option(SWITCH, False)
    max_decompressed_bytes: int = option(SIZE, DECOMPRESSED_MOST)
    message_delay_level: str = option(LEVELS, DEFAULT_DELAY_LEVELS)
    mode: Mode = option(choice(Mode), Mode.FAILFAST)
    column_name_of_corrupt_record: str = option(SOME_TEXT, CORRUPT)
    max_partition_bytes: int = option(SIZE, DEFAULT_PARTITION)
    keep_page_cache: bool = option(SWITCH, False)
    max_read_bytes_per_second: int | None = option(SIZE)
    priority: Priority = option(choice(Priority), Priority.IDLE)
    min_partitions: int | None = option(whole(1, PARTITIONS_MAX))
    min_bytes_per_trigger: int | None = option(SIZE)
    max_trigger_delay: float = option(DELAY, 900.0)
    max_bytes_per_trigger: int | None = option(SIZE)
    max_rows_per_trigger: int | None = option(whole(1, ROWS_MAX))
    fail_on_data_loss: bool = option(SWITCH, True)
    fail_on_queue_gap: bool = option(SWITCH, False)
    allow_unconfirmed_tail: bool = option(SWITCH, False)
    point_file: PointFile = option(choice(PointFile), PointFile.USE)
    reader_name: str | None = option(READER)
    missing_stores: MissingStores = option(choice(MissingStores), MissingStores.FAIL)
    stores_file: Path | None = option(LOCAL_PATH)
    name_server: tuple[str, ...] | None = option(NAME_SERVERS)
    cluster_name: str | None = option(SOME_TEXT)
    tls_config_file: Path | None = option(SOME_FILE)
    registered: RegisteredStores | None = field(default=None, eq=False, repr=False)
    """With C{nameServer}: whom it asks, and where the stores of brokers are."""
    named: bool = field(default=True)
    """Whether the caller named the stores, so that a name may stand for a broker's."""

    @classmethod
    def parse(cls, given: Mapping[str, object], *, streaming: bool | None = False) -> Self:
        """Read options.

        @param given: By name; case does not matter.
        @param streaming: Whether a stream is to be made of them; C{None} if that is not
            known yet.
        @raise OptionInvalid: If a value is not allowed, alone or beside another one.
        @raise OptionUnknown: If there is no such option.
        @raise OptionMissing: If nothing says what to read.
        @raise NameServersSilent: If none of the name servers answers.
        @raise NoBrokers: If they know none.
        """
        draft = OptionsDraft(KINDS)
        for name, value in given.items():
            if value is not None:
                draft.take(name, as_text(value))
        found = draft.values
        for name, ours in _KAFKA.items():
            if name in found:
                found[ours] = found.pop(name)
        if "nameServer" in found:
            options = cls(**_with_registered(draft)).now()
            if not options.stores:
                raise NoBrokers(draft.texts["nameServer"], options.cluster_name)
        else:
            draft.refuse(("clusterName", "tlsConfigFile"), "only with nameServer")
            named = _name_stores(draft)
            options = cls(named=named, **draft.attributes)
        _check_together(options, draft)
        if streaming:
            _check_streaming(draft)
        elif streaming is not None:
            draft.refuse(_STREAM_ONLY, "only in a stream")
        return options

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.stores)

    def tier_of(self, store: str) -> str:
        """The URL of a store's tier, C{""} if it has none."""
        urls = dict(self.tier)
        if self.name_server is None:
            return urls.get(store, "")
        values = {BROKER: store, CLUSTER: self.cluster_name}
        return filled(urls.get(store, urls.get(ANY, "")), values)

    def now(self, known: Iterable[str] = ()) -> Self:
        """The same with the stores that the file, or the name server, says now; those of before if
        it says nothing.

        @param known: Stores that are read from already: those of brokers that are not registered
            any more are there nevertheless.
        """
        if self.registered is not None:
            return evolve(self, stores=self.registered.stores(known))
        if self.stores_file is None:
            return self
        try:
            return evolve(self, stores=_listed(self.stores_file))
        except (OSError, ValueError):
            return self


def _name_stores(draft: OptionsDraft) -> bool:
    """Make names and folders of what says where the stores are.

    @return: Whether the caller named them.
    @raise OptionInvalid: If it is said twice, or a tier is of none of them.
    @raise OptionMissing: If it is not said.
    """
    found = draft.values
    named = "stores" in found or "storesFile" in found
    paths = _one_of(draft)
    if not paths and "tier" in found:
        found["tier"] = tuple((name or ONLY, url) for name, url in found["tier"])
        found["stores"] = tuple((name, only_tier(url)) for name, url in found["tier"])
        named = found["tier"][0][0] != ONLY
    elif "path" in found:
        found["stores"] = ((ONLY, found.pop("path")),)
    elif "paths" in found:
        found["stores"] = found.pop("paths")
    elif "storesFile" in found:
        try:
            found["stores"] = _listed(found["storesFile"])
        except (OSError, ValueError) as error:
            raise draft.invalid("storesFile", f"a file with {PATHS.allowed}") from error
    _name_tier(draft)
    return named


def _one_of(draft: OptionsDraft) -> list[str]:
    """The option that says where stores are; none if only C{tier} does."""
    paths: list[str] = [
        name for name in ("path", "paths", "stores", "storesFile") if name in draft.values
    ]
    if len(paths) > 1:
        raise draft.invalid(paths[1], f"cannot be combined with {paths[0]}")
    if not paths and "tier" not in draft.values:
        raise OptionMissing("path", NO_PATH)
    return paths


def _with_registered(draft: OptionsDraft) -> dict[str, Any]:
    """Make patterns of what says where the stores of brokers are.

    @return: The options by attribute.
    @raise OptionInvalid: If a pattern does not tell brokers apart.
    @raise OptionMissing: If it is not said.
    """
    draft.refuse(("paths", "storesFile"), "not with nameServer, which says what there is")
    (place,) = _one_of(draft) or ["tier"]
    found = draft.values
    tier = found["tier"] = tuple((name or ANY, url) for name, url in found.get("tier", ()))
    known = {BROKER, CLUSTER} if "clusterName" in found else {BROKER}
    if any(not asked(url) <= known or (name, asked(url)) == (ANY, set()) for name, url in tier):
        raise draft.invalid("tier", TIER_PATTERN)
    if "path" in found:
        given = {ANY: found.pop("path")}
    else:
        given = dict(found.pop("stores", ())) or {name: only_tier(url) for name, url in tier}
    places = StorePlaces({name: str(path) for name, path in given.items()})
    if not places.tell_apart:
        raise draft.invalid(place, PLACE_PATTERN)
    brokers = RegisteredBrokers(
        found["nameServer"], found.get("clusterName"), found.get("tlsConfigFile")
    )
    return {**draft.attributes, "stores": (), "registered": RegisteredStores(brokers, places)}


def _name_tier(draft: OptionsDraft) -> None:
    """Give a tier without a name that of the only store.

    @raise OptionInvalid: If there are several, or a name is no store's.
    """
    tier, stores = draft.values.get("tier", ()), dict(draft.values["stores"])
    if tier and not tier[0][0] and len(stores) == 1:
        draft.values["tier"] = ((next(iter(stores)), tier[0][1]),)
    elif "storesFile" not in draft.values and {name for name, _ in tier} - stores.keys():
        names = ", ".join(stores)
        raise draft.invalid("tier", f"a URL by name, for stores among {names}")


def _listed(file: Path) -> tuple[tuple[str, Path], ...]:
    stores: tuple[tuple[str, Path], ...] = PATHS.parse(file.read_text(encoding="utf-8"))
    return stores


KINDS: dict[str, Kind] = {
    **kinds_of(ReadOptions),
    "path": LOCAL_PATH,
    "paths": PATHS,
    "subscribe": NAMES,
    "maxOffsetsPerTrigger": whole(1, ROWS_MAX),
}
"""Every option there is; C{paths} is what Spark makes of a list given to C{load}."""

_KAFKA = {"subscribe": "topic", "maxOffsetsPerTrigger": "maxRowsPerTrigger"}
"""What options are called by Spark's Kafka source."""

OF_ROWS = (
    "columns",
    "columnStyle",
    "includeHeaders",
    "topic",
    "subscribe",
    "subscribePattern",
    "assign",
    "tags",
    "propertyFilter",
    "queueIds",
    "startingOffsetsByTimestamp",
    "mode",
)
"""Options that say which rows a range gives, and nothing about ranges."""

_STREAM_ONLY = (
    "maxBytesPerTrigger",
    "maxRowsPerTrigger",
    "maxOffsetsPerTrigger",
    "minBytesPerTrigger",
    "maxTriggerDelay",
    "missingStores",
    "readerName",
)
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "paths")


def _check_together(options: ReadOptions, draft: OptionsDraft) -> None:
    for one, other in (
        *_KAFKA.items(),
        ("subscribePattern", "topic"),
        ("subscribePattern", "subscribe"),
        ("assign", "topic"),
        ("assign", "subscribe"),
        ("assign", "subscribePattern"),
        ("assign", "queueIds"),
        ("startingTimestamp", "startingOffsets"),
        ("endingTimestamp", "endingOffsets"),
    ):
        if one in draft.texts and other in draft.texts:
            raise draft.invalid(one, f"cannot be combined with {other}")
    for name in ("startingOffsets", "endingOffsets"):
        offsets = draft.values.get(name)
        if isinstance(offsets, dict) and set(offsets) != set(options.names):
            names = ", ".join(options.names)
            raise draft.invalid(name, f"an offset for each of the stores {names}, and for no other")
    several = len(options.stores) > 1 or options.registered is not None
    if options.column_style is Style.KAFKA and several:
        raise draft.invalid(
            "columnStyle", "one store: topic, partition and offset of several are not unique"
        )
    if options.column_style is not Style.KAFKA:
        draft.refuse(("includeHeaders",), "only with columnStyle=kafka")
    if options.max_decompressed_bytes > DECOMPRESSED_LIMIT:
        raise draft.invalid("maxDecompressedBytes", f"at most {DECOMPRESSED_LIMIT} bytes")
    columns = {name.lower() for name in STYLES[options.column_style.value]}
    if options.column_name_of_corrupt_record.lower() in columns:
        raise draft.invalid("columnNameOfCorruptRecord", "must not be the name of another column")
    if options.property_filter is not None:
        try:
            read_filter(options.property_filter)
        except ExpressionInvalid as error:
            raise draft.invalid("propertyFilter", f"an SQL92 filter: {error}") from None
    if options.ending_offsets is Edge.EARLIEST:
        raise draft.invalid("endingOffsets", "latest, or physical offsets by store")
    if options.table is not RowKind.MESSAGES:
        draft.refuse(OF_ROWS, "only with table=messages")


def _check_streaming(draft: OptionsDraft) -> None:
    draft.refuse(_BATCH_ONLY, "not allowed in a stream")
    starting = draft.values.get("startingOffsets")
    if isinstance(starting, QueueOffsets) and any(
        LATEST in queues.values() for queues in starting.queues.values()
    ):
        raise draft.invalid(
            "startingOffsets",
            "a queue of a stream has no latest: its checkpoint has places of the log only",
        )
    if draft.values.get("table") is RowKind.FILES:
        raise draft.invalid("table", "only messages or ranges are allowed in a stream")
