"""Stores to measure with: valid records of any size, made quickly."""

from __future__ import annotations

import os
from pathlib import Path

from rmqha.logfiles.listing import file_name
from rmqha.wire.log.encode import blank, encode, place
from rmqha.wire.log.properties import encode as encode_properties
from rmqha.wire.log.record import Message
from rmqha.wire.names import TAGS, UNIQUE_KEY, WAIT

STORED = 1_700_000_000_000
"""Store time of the first record, in milliseconds since 1970; one more each record."""


def message(topic: str, queue_id: int, body: bytes, key: str) -> Message:
    """A producer's message with a unique key and a tag."""
    return Message(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=encode_properties({UNIQUE_KEY: key, WAIT: "true", TAGS: "TagA"}),
        born_timestamp=STORED,
        born_host=("127.0.0.1", 40000),
        store_host=("127.0.0.1", 10911),
    )


def write_log(
    folder: Path, total: int, *, file_size: int, bodies: tuple[int, ...], queues: int = 8
) -> int:
    """Fill a commit log folder with records of some body sizes, used in turn.

    @return: The log's end.
    """
    folder.mkdir(parents=True)
    templates = []
    for size in bodies:
        record = encode(
            message("BenchTopic", 0, os.urandom(size), "0" * 32), max_message_size=4 << 20
        )
        templates.append((record, record.index(b"0" * 32)))
    number = offset = 0
    full = False
    while not full:
        buffer = bytearray(file_size)
        start, position = offset, 0
        while True:
            record, key = templates[number % len(templates)]
            full = offset + len(record) > total
            if full or position + len(record) + 8 > file_size:
                break
            record[key : key + 32] = b"%032X" % number
            record[12:16] = (number % queues).to_bytes(4, "big")
            place(
                record,
                queue_offset=number // queues,
                offset=offset,
                store_timestamp=STORED + number,
            )
            buffer[position : position + len(record)] = record
            position += len(record)
            offset += len(record)
            number += 1
        if not full:
            buffer[position : position + 8] = blank(file_size - position)
            offset = start + file_size
        (folder / file_name(start)).write_bytes(buffer)
    return offset
