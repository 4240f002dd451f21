"""Golden stores as rows, and what a node publishes beside a store."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from lab.harness import golden
from rmqha.wire.log.published import Point, render_point
from rmqha.wire.store_layout import OWN_FOLDER, POINT

#: Its last record lacks property bytes.  RocketMQ's classes accept it; a log of ours
#: ends before it (docs/protocol/store.rst, Recovery).
TORN = "slave-torn-props"


def expected(version: str, name: str) -> list[dict[str, Any]]:
    """The records RocketMQ's own classes read from a golden store."""
    lines = golden.jsonl(version, golden.truth(name, "expected.jsonl"))
    records = [line for line in lines if "topic" in line]
    return records[:-1] if name == TORN else records


def row_of(record: dict[str, Any]) -> dict[str, Any]:
    """What a row says of a record, as far as the truth knows it."""
    properties = record["properties"]
    return {
        "topic": record["topic"],
        "queue_id": record["queueId"],
        "queue_offset": record["queueOffset"],
        "physical_offset": record["physicalOffset"],
        "store_size": record["size"],
        "store_timestamp": record["storeTimestamp"],
        "born_timestamp": record["bornTimestamp"],
        "flag": record["flag"],
        "sys_flag": record["sysFlag"],
        "body_crc": record["bodyCRC"],
        "reconsume_times": record["reconsumeTimes"],
        "prepared_transaction_offset": record["preparedTransactionOffset"],
        "body": record["bodySha256"],
        "properties": properties,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "uniq_key": properties.get("UNIQ_KEY"),
        "offset_msg_id": record["offsetMsgId"],
    }


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A row in the terms of L{row_of}."""
    shown = dict(row)
    shown["body"] = hashlib.sha256(row["body"]).hexdigest()
    shown["properties"] = dict(row["properties"])
    for name in ("store_timestamp", "born_timestamp"):
        shown[name] = round(row[name].timestamp() * 1000)
    return shown


COLUMNS = [
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "store_timestamp",
    "born_timestamp",
    "flag",
    "sys_flag",
    "body_crc",
    "reconsume_times",
    "prepared_transaction_offset",
    "body",
    "properties",
    "tags",
    "keys",
    "uniq_key",
    "offset_msg_id",
]


def publish(store: Path, confirm: int, **more: Any) -> None:
    """Write a point as a node would."""
    values = {
        "durable": confirm,
        "min_offset": 0,
        "broker_name": "golden",
        "generation": "i",
        **more,
    }
    folder = store / OWN_FOLDER
    folder.mkdir(exist_ok=True)
    (folder / POINT).write_bytes(render_point(Point(confirm=confirm, **values)))
