"""How a Parquet file is encoded: what is compressed, what gets a dictionary, what statistics."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen

from rmqha.pipeline.errors import OptionInvalid
from rmqha.wire.columnar.decoder import STYLES

_REPEATED = frozenset(
    {
        "born_host",
        "broker_name",
        "flag",
        "properties",
        "queue_id",
        "real_queue_id",
        "real_topic",
        "reconsume_times",
        "store",
        "store_host",
        "sys_flag",
        "tags",
        "topic",
    }
)
"""Columns with few values, where a dictionary pays; elsewhere it is tried in vain."""

_BULKY = frozenset({"body", "properties", "raw_properties"})
"""Columns whose least and greatest values no query uses."""


class Compression(StrEnum):
    """Codecs of Parquet that every reader knows."""

    SNAPPY = "snappy"
    ZSTD = "zstd"
    LZ4 = "lz4"
    NONE = "none"


_LEVELS = {Compression.ZSTD: (0, 22)}
"""Codecs that have levels: above the first, up to the second."""


@frozen
class Encoding:
    """How files are written.

    @ivar compression: The codec.
    @ivar level: Its level, C{None} for the codec's own.
    @raise OptionInvalid: If the codec has no such level.
    """

    compression: Compression = Compression.ZSTD
    level: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.level is None:
            return
        least, most = _LEVELS.get(self.compression, (0, 0))
        if not least < self.level <= most:
            allowed = f"{least + 1} to {most}" if most else "none"
            what = f"{allowed} with compression {self.compression.value}"
            raise OptionInvalid("level", str(self.level), what)

    def writer(self, path: Path, schema: pa.Schema, told: list[Any], style: str) -> Any:
        """Open a file.

        @param told: Gets the file's metadata when it is closed.
        @param style: What names the columns.
        @return: A C{ParquetWriter}.
        """
        columns = {name: STYLES[style].get(name, name) for name in schema.names}
        maps = [name for name in columns if pa.types.is_map(schema.field(name).type)]
        leaves = {name: f"{name}.key_value.key" for name in maps}
        return pq.ParquetWriter(
            path,
            schema,
            compression=self.compression.value,
            compression_level=self.level,
            use_dictionary=[
                leaves.get(name, name) for name, column in columns.items() if column in _REPEATED
            ],
            write_statistics=[name for name, column in columns.items() if column not in _BULKY],
            metadata_collector=told,
        )
