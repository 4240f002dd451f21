"""The store of a shop in three days of January 2026: what the guide's recipes read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import Factory, define, field

from rmqha.wire.log import properties
from rmqha.wire.log.encode import blank, encode, place
from rmqha.wire.log.record import Message
from rmqha.wire.log.sys_flag import COMMIT
from tests.support.rows import publish

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"

FILE_SIZE = 16 << 10
"""Bytes of a log file: the store has some, so that reads of it have several tasks."""

START = int(datetime(2026, 1, 29, tzinfo=UTC).timestamp() * 1000)
HOUR = 3_600_000
PATIENCE = 5
"""Milliseconds between a message's birth and its place in the log."""

BROKER = "broker-a"
CUSTOMERS = ("c1", "c2", "c3")
ORDERS = 72
"""One an hour.  The fortieth has a body that is no JSON."""

GARBLED = 40
COMMITTED = {"billing": 9, "shipping": 18}
"""Queue offsets that groups have committed in each of the four queues of C{orders}, which
have 18 orders each."""


@define
class Shop:
    """Writes the log."""

    root: Path
    end: int = 0
    _places: dict[tuple[str, int], int] = Factory(dict)
    _file: bytearray = field(factory=bytearray)

    def put(
        self,
        topic: str,
        body: bytes,
        at: int,
        pairs: dict[str, str] | None = None,
        queue_id: int = 0,
        **more: Any,
    ) -> tuple[int, int]:
        """Append a message of a time: its physical and its queue offset."""
        serial = sum(self._places.values())
        unique = {"UNIQ_KEY": f"7F00000100002A139F16{serial:012X}"}
        host = {"born_host": ("10.0.0.7", 40000), "store_host": ("10.0.0.5", 10911)}
        message = Message(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=properties.encode(unique | (pairs or {})),
            born_timestamp=at - PATIENCE,
            **host,
            **more,
        )
        record = encode(message, max_message_size=FILE_SIZE)
        if len(self._file) + len(record) + 8 > FILE_SIZE:
            self._roll()
        queue_offset = self._places.get((topic, queue_id), 0)
        self._places[topic, queue_id] = queue_offset + 1
        offset = self.end
        place(record, queue_offset=queue_offset, offset=offset, store_timestamp=at)
        self._file += record
        self.end += len(record)
        return offset, queue_offset

    def _roll(self) -> None:
        left = FILE_SIZE - len(self._file)
        self._file += blank(left).ljust(left, b"\0")
        self.end += left
        self._save()
        self._file = bytearray()

    def _save(self) -> None:
        start = self.end - len(self._file)
        file = self.root / "commitlog" / f"{start:020d}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(self._file).ljust(FILE_SIZE, b"\0"))

    def close(self) -> None:
        """Write what is left, and tell readers how far the log is final."""
        self._save()
        publish(self.root, self.end, broker_name=BROKER)


def shop(root: Path) -> tuple[Path, int]:
    """Make the store: its root, and an offset amid its log, between records."""
    made, middle = Shop(root), 0
    for number in range(ORDERS):
        at = START + number * HOUR
        if number == ORDERS // 2:
            middle = made.end
        made.put("orders", order(number), at, keys(number, "created"), number % 4)
        for click in range(3):
            made.put("clicks", b"/item/%d" % (number + click), at + 60_000 * click)
        if number % 12 == 0:
            _pay(made, number // 12, at)
    made.close()
    offsets = {
        f"orders@{group}": {str(queue): place for queue in range(4)}
        for group, place in COMMITTED.items()
    }
    (root / "config").mkdir()
    text = json.dumps({"offsetTable": offsets})
    (root / "config" / "consumerOffset.json").write_text(text, encoding="utf-8")
    return root, middle


def order(number: int) -> bytes:
    """The body of an order."""
    if number == GARBLED:
        return b"not an order"
    customer, amount = CUSTOMERS[number % 3], f"{10 + number}.50"
    return json.dumps({"id": 1000 + number, "customer": customer, "amount": amount}).encode()


def keys(number: int, tag: str) -> dict[str, str]:
    """The properties of an order."""
    return {"KEYS": f"order-{1000 + number} {CUSTOMERS[number % 3]}", "TAGS": tag}


def _pay(made: Shop, number: int, at: int) -> None:
    """A payment is a transaction; of six, two are rolled back, and the last is open."""
    pairs = {
        "KEYS": f"payment-{number}",
        "PGROUP": "cashiers",
        "REAL_TOPIC": "payments",
        "REAL_QID": "0",
        "TRAN_MSG": "true",
        "UNIQ_KEY": f"7F00000100002A139F17{number:012X}",
    }
    body = b'{"payment": %d}' % number
    half, place = made.put(HALF, body, at, pairs)
    if number == 5:
        return
    if number not in (1, 4):
        whole = {"sys_flag": COMMIT, "prepared_transaction_offset": half}
        made.put("payments", body, at + 200, pairs, **whole)
    made.put(OP, str(place).encode(), at + 250, {"TAGS": "d"})
