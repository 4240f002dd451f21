"""Tests for L{rmqha.wire.log.layout}."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address
from typing import Any

import numpy as np
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.wire.log.layout import (
    BODY_AT,
    FIELDS,
    HEAD_MOST,
    HOSTS_BYTE_AT,
    IP6_EXTRA,
    MIN_RECORD,
    STRING_LENGTHS,
    born_extra,
    store_extra,
    struct_of,
)
from rmqha.wire.log.sys_flag import IP6_HOSTS

#: What RocketMQ's own decoder calls the fields that are not named alike.
NAMES = {
    "size": "size",
    "body_crc": "bodyCRC",
    "queue_id": "queueId",
    "flag": "flag",
    "queue_offset": "queueOffset",
    "physical_offset": "storedPhysicalOffset",
    "sys_flag": "sysFlag",
    "born_timestamp": "bornTimestamp",
    "store_timestamp": "storeTimestamp",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
    "body_length": "bodyLength",
}


class GoldenTests(SynchronousTestCase):
    """The table against records that RocketMQ wrote."""

    def test_every_field(self) -> None:
        """At the table's place of each field stands what RocketMQ's decoder says of it."""
        kinds: Counter[int] = Counter()
        for version, name in golden.ARCHIVES:
            folder = golden.store(version, name) / "commitlog"
            files = {int(path.name): path.read_bytes() for path in folder.iterdir()}
            for line in golden.jsonl(version, golden.truth(name, "expected.jsonl")):
                if line.get("blank") or line.get("torn"):
                    continue
                place = line["physicalOffset"] % golden.LOG_FILE_SIZE
                data = files[line["physicalOffset"] - place]
                self.one(data[place : place + line["size"]], line)
                kinds[line["sysFlag"] & IP6_HOSTS] += 1
        self.assertEqual({0, IP6_HOSTS}, kinds.keys() & {0, IP6_HOSTS}, kinds)

    def one(self, record: bytes, line: dict[str, Any]) -> None:
        flags = line["sysFlag"]
        for ours, theirs in NAMES.items():
            self.assertEqual(line[theirs], self.number(record, ours, flags), ours)
        for host, extra in (("born", born_extra(flags)), ("store", store_extra(flags))):
            start, end = (FIELDS[f"{host}_{part}"].offset(flags) for part in ("ip", "port"))
            self.assertEqual(FIELDS[f"{host}_ip"].size + extra, end - start)
            there = line[f"{host}Host"]
            self.assertEqual(ip_address(there["ip"]).packed, record[start:end])
            self.assertEqual(there["port"], self.number(record, f"{host}_port", flags))
        self.assertEqual(flags & IP6_HOSTS, record[HOSTS_BYTE_AT] & IP6_HOSTS)

    def number(self, record: bytes, name: str, flags: int) -> int:
        field = FIELDS[name]
        at = field.offset(flags)
        signed = field.kind.startswith("i")
        return int.from_bytes(record[at : at + field.size], "big", signed=signed)


class TableTests(SynchronousTestCase):
    def test_sizes(self) -> None:
        """The sizes of docs/protocol/store.rst: 88 bytes before the body, 91 at least."""
        self.assertEqual((88, 112, 91), (BODY_AT, HEAD_MOST, MIN_RECORD))
        self.assertEqual(MIN_RECORD, BODY_AT + STRING_LENGTHS)
        self.assertEqual(BODY_AT, sum(field.size for field in FIELDS.values()))

    def test_arrays(self) -> None:
        """Offsets of many records are those of each of them."""
        flags = np.array([0, 0x10, 0x20, 0x30, -1, 0x718], np.int32)
        for field in FIELDS.values():
            self.assertEqual(
                [field.offset(flag) for flag in flags.tolist()],
                np.broadcast_to(field.offset(flags), flags.shape).tolist(),
            )
        self.assertEqual(
            [0, IP6_EXTRA, 0, IP6_EXTRA, IP6_EXTRA, IP6_EXTRA], born_extra(flags).tolist()
        )

    def test_struct_passes_over_fields(self) -> None:
        """A struct of some fields reads them where they are, from any start."""
        record = bytes(range(BODY_AT))
        for start, names in (
            (0, ("body_crc", "physical_offset", "sys_flag")),
            (FIELDS["queue_offset"].at, ("queue_offset", "physical_offset")),
            (0, ("store_ip", "body_length")),
        ):
            expected = [
                int.from_bytes(record[FIELDS[name].place], "big", signed=True) for name in names
            ]
            self.assertEqual(
                expected, list(struct_of(*names, start=start).unpack_from(record, start))
            )
