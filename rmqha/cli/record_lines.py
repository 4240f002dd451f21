"""Records as lines, for people and as JSON."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from rmqha.wire.log.layout import MAGIC_V1, MAGIC_V2
from rmqha.wire.log.record import Host, Record
from rmqha.wire.names import KEYS, TAGS, UNIQUE_KEY


def _host(host: Host) -> dict[str, Any]:
    return {"ip": host[0], "port": host[1]}


def as_line(record: Record, with_body: bool = False) -> str:
    """A record as one line of JSON.

    @param with_body: Whether to give the body, and not only its digest.
    """
    return json.dumps(as_json(record, with_body), ensure_ascii=False, separators=(",", ":"))


def as_json(record: Record, with_body: bool = False) -> dict[str, Any]:
    """What that line says."""
    magic = MAGIC_V2 if record.version == 2 else MAGIC_V1
    content: dict[str, Any] = {
        "physicalOffset": record.offset,
        "size": record.size,
        "magic": f"0x{magic & 0xFFFFFFFF:08X}",
        "queueId": record.queue_id,
        "flag": record.flag,
        "queueOffset": record.queue_offset,
        "storedPhysicalOffset": record.stored_offset,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp,
        "bornHost": _host(record.born_host),
        "storeTimestamp": record.store_timestamp,
        "storeHost": _host(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCRC": record.body_crc,
        "bodyLength": len(record.body),
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
        "topic": record.topic,
        "properties": record.properties,
        "rawProperties": record.raw_properties.decode("utf-8", "replace"),
        "offsetMsgId": record.offset_msg_id,
    }
    if with_body:
        content["body"] = base64.b64encode(record.body).decode("ascii")
    return content


def as_text(record: Record) -> str:
    """A record as one line for a person."""
    stored = shown_time(record.store_timestamp)
    parts = [
        f"{record.offset} {record.size} {stored}",
        f"{plain(record.topic)}/{record.queue_id}@{record.queue_offset}",
        f"body={len(record.body)}",
    ]
    for name, key in ((TAGS, "tags"), (KEYS, "keys"), (UNIQUE_KEY, "id")):
        value = record.properties.get(name)
        if value:
            parts.append(f"{key}={plain(value)}")
    if record.sys_flag:
        parts.append(f"sysFlag={record.sys_flag}")
    return " ".join(parts)


def shown_time(milliseconds: int) -> str:
    """A time since 1970."""
    try:
        time = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds}ms"
    return f"{time:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def plain(text: str) -> str:
    """Text that cannot break a line or a terminal."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
