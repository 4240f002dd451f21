"""Damage at rest, in files that neither a start nor a slave's comparison looks at."""

from __future__ import annotations

import random
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab.harness.nodes import Node
from lab.harness.remote import Remote, pull, send
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.scan import scan
from rmqha.wire.log.layout import BODY_AT, PHYSICAL_OFFSET_AT
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from tests.faults.harness import BRISK, FaultTestCase
from tests.support import damage
from tests.support.client import make_group

TOPIC, GROUP = "Cold", "cold"

SIZE = 1 << 18
"""Size of each file of these logs."""

BODY = 1500

MESSAGES = 1500
"""Nine files."""

KEYS: dict[str, object] = {
    **BRISK,
    "mappedFileSizeCommitLog": SIZE,
    "brokerIP1": "127.0.0.1",
    "scrubBytesPerSecond": 64 << 20,
    "scrubInterval": 200,
}
"""A pass takes no time, and the next one follows at once."""


class ColdCase(FaultTestCase):
    """A SYNC master and a slave with the same log."""

    def start(self, **keys: object) -> tuple[Node, Node]:
        """Start both, and store messages, all of which are acknowledged."""
        told = {**KEYS, **keys}
        master = Node(self.folder, "master", **{**told, "brokerRole": "SYNC_MASTER"})
        self._processes.append(master)
        master.start()
        slave = self.slave(
            master.address, **told, haMasterClientAddress=f"127.0.0.1:{master.port}"
        ).start()
        slave.until_synced(0)
        make_group(f"127.0.0.1:{master.port}", GROUP)
        with Remote(master.port) as client:
            answers = client.ask_all(
                [send(TOPIC, self.body(number), 0) for number in range(MESSAGES)]
            )
            self.assertEqual({ResponseCode.SUCCESS}, {answer.code for answer in answers})
        slave.until_synced(master.status()["maxOffset"])
        for node in (master, slave):
            end = node.status()["maxOffset"]
            node.until(lambda status, end=end: status["dispatchedOffset"] == end, "dispatched")
        return master, slave

    def body(self, number: int) -> bytes:
        return random.Random(number).randbytes(BODY)

    def starts(self, node: Node) -> list[int]:
        """Where the messages stand in the log."""
        log = OfflineLog(node.root)
        found = [start for _, block in scan(log, 0, log.end) for start in block.start.tolist()]
        log.close()
        self.assertGreaterEqual(len(found), MESSAGES)
        return found[-MESSAGES:]

    def file_of(self, node: Node, offset: int) -> Path:
        return node.root / "commitlog" / f"{offset - offset % SIZE:020d}"

    def overwrite(self, node: Node, offset: int, data: bytes) -> None:
        damage.overwrite(self.file_of(node, offset), offset % SIZE, data)
        self.tell(f"{len(data)} bytes at {offset} of the {node.name}")

    def pulled(self, node: Node) -> tuple[dict[int, bytes], dict[int, str]]:
        """Pull the whole queue, passing over what cannot be had: bodies, and why not, by number."""
        got: dict[int, bytes] = {}
        refused: dict[int, str] = {}
        offset = 0
        with Remote(node.port) as client:
            while offset < MESSAGES:
                answer = client.ask(pull(TOPIC, GROUP, offset))
                if answer.code == ResponseCode.SUCCESS:
                    got.update(self.read(answer))
                    offset = int(answer.ext["nextBeginOffset"])
                else:
                    self.assertEqual(ResponseCode.SYSTEM_ERROR, answer.code, answer.remark)
                    refused[offset] = answer.remark or ""
                    offset += 1
        return got, refused

    def read(self, answer: Command) -> dict[int, bytes]:
        """Read an answer as a client does: it believes each size."""
        data, place, found = bytes(answer.body), 0, {}
        while place < len(data):
            size = int.from_bytes(data[place : place + 4], "big", signed=True)
            self.assertTrue(88 < size <= len(data) - place, "wild bytes")
            number = int.from_bytes(data[place + 20 : place + 28], "big")
            found[number] = data[place + BODY_AT : place + BODY_AT + BODY]
            place += size
        return found

    def scrubbed(self, node: Node, faults: int) -> list[dict[str, Any]]:
        """Wait until a node's scrubber knows so many bad places."""
        status = node.until(
            lambda status: status["scrub"]["faultCount"] == faults, f"{faults} cold faults"
        )
        return list(status["scrub"]["faults"])

    def rmqha(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return self.ended(*arguments, code=None)


class MasterTests(ColdCase):
    """An old file of a running master is damaged."""

    def test_named_and_not_served(self) -> None:
        """The scrubber names each place, once in the log; health says so.  Consumers get every
        message that is whole, and an error that names the file for each that is not.
        """
        master, slave = self.start()
        starts = self.starts(master)
        second, fourth, sixth = (
            self.random.choice([start for start in starts if start // SIZE == row])
            for row in (1, 3, 5)
        )
        self.assertEqual(200, master.health())
        # A hole, bytes of elsewhere, and a bit of a body.
        self.overwrite(master, second + 40, bytes(4096))
        self.overwrite(master, fourth, self.file_of(master, 0).read_bytes()[7000:9000])
        damage.flip(self.file_of(master, sixth), sixth % SIZE + BODY_AT + 99)
        found = self.scrubbed(master, 3)
        self.assertEqual(
            [str(self.file_of(master, fault["offset"])) for fault in found],
            [fault["file"] for fault in found],
        )
        self.assertEqual(503, master.health())
        lines = [line for line in master.log().splitlines() if "Damage at rest" in line]
        self.assertEqual(3, len(lines), lines)
        passes = master.status()["scrub"]["readBytes"]
        master.until(
            lambda status: status["scrub"]["readBytes"] > passes + 3 * starts[-1], "more passes"
        )
        self.assertEqual(3, master.log().count("Damage at rest"))

        written = ((second + 40, 4096), (fourth, 2000), (sixth, BODY_AT + 100))
        harmed = {
            number
            for number, (start, end) in enumerate(pairwise((*starts, starts[-1] + SIZE)))
            if any(start < place + size and place < end for place, size in written)
        }
        got, refused = self.pulled(master)
        self.assertEqual(harmed, set(refused))
        for number, remark in refused.items():
            self.assertIn(str(self.file_of(master, starts[number])), remark)
        wrong = [number for number, body in got.items() if body != self.body(number)]
        self.assertEqual([], wrong)
        self.assertEqual(set(range(MESSAGES)) - harmed, set(got))
        self.assertEqual(len(harmed), master.status()["servedFaults"])
        # The slave has them all.
        self.assertEqual(MESSAGES, len(self.pulled(slave)[0]))

    def test_not_yet_scrubbed(self) -> None:
        """What the scrubber has not come to is not served either, if it is no record."""
        master, _ = self.start(scrubBytesPerSecond=0)
        starts = self.starts(master)
        harmed = sorted(self.random.sample(range(50, MESSAGES - 50), 12))
        for number in harmed:
            size = self.random.choice((8, 200, 1200))
            self.overwrite(master, starts[number], self.random.randbytes(size))
        moved = harmed[0] - 20
        data = self.file_of(master, starts[moved]).read_bytes()
        place = starts[moved] % SIZE + PHYSICAL_OFFSET_AT
        wrong = int.from_bytes(data[place : place + 8], "big") + 1
        self.overwrite(master, starts[moved] + PHYSICAL_OFFSET_AT, wrong.to_bytes(8, "big"))
        got, refused = self.pulled(master)
        self.assertEqual({*harmed, moved}, set(refused))
        self.assertEqual({*range(MESSAGES)} - {*harmed, moved}, set(got))
        self.assertEqual([], [number for number in got if got[number] != self.body(number)])
        self.assertEqual(13, master.status()["servedFaults"])

    def test_after_a_restart(self) -> None:
        """A node started again says at once what it knew, however far the scrubber is."""
        master, _ = self.start()
        start = self.starts(master)[MESSAGES // 2]
        damage.flip(self.file_of(master, start), start % SIZE + BODY_AT)
        self.scrubbed(master, 1)
        master.term()
        master.keys["scrubInterval"] = 3_600_000
        before = len(master.log())
        master.start()
        (fault,) = self.scrubbed(master, 1)
        self.assertEqual(start, fault["offset"])
        self.assertIn("Damage at rest", master.log()[before:])


class PromoteTests(ColdCase):
    """A slave with an old damage, whose master is about to be replaced."""

    def test_refused(self) -> None:
        """Its promotion is refused, with the place, unless one says otherwise."""
        master, slave = self.start(scrubBytesPerSecond=0)
        start = self.random.choice(self.starts(slave)[100:400])
        damage.flip(self.file_of(slave, start), start % SIZE + BODY_AT + 5)
        master.term()
        slave.term()
        refused = self.rmqha("promote", slave.root)
        self.assertEqual(1, refused.returncode, refused.stdout)
        self.assertIn(f"at {start}: body crc", refused.stderr)
        done = self.rmqha("promote", slave.root, "--unverified")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("was not verified", done.stderr)


class ComparisonTests(ColdCase):
    """An old bit that no CRC covers turns over on a running slave's disk, and nobody scrubs it."""

    def test_named(self) -> None:
        """The idle slave names it with its byte; replication and acknowledged writes go on."""
        master, slave = self.start(scrubBytesPerSecond=0)
        starts = self.starts(slave)
        row = self.random.randrange(100, 900)
        at = starts[row + 1] - 2
        damage.flip(self.file_of(slave, at), at % SIZE)
        before = slave.status()["upstream"]
        found = slave.until(
            lambda status: status["comparison"]["differences"], "a cold difference"
        )["comparison"]["differences"]
        self.assertEqual(
            [(at, str(self.file_of(slave, at)))], [(each["offset"], each["file"]) for each in found]
        )
        self.assertIn(
            "checksum kept of the first says that the master's is right", found[0]["reason"]
        )
        self.assertEqual(503, slave.health())
        self.assertEqual(1, slave.log().count("Cold difference"))
        upstream = slave.status()["upstream"]
        self.assertEqual(
            ("in-sync", before["reconnects"]), (upstream["state"], upstream["reconnects"])
        )
        self.assertEqual(1, len(master.status()["replicas"]))
        with Remote(master.port) as client:
            answer = client.ask(send(TOPIC, b"one more", 0))
            self.assertEqual(ResponseCode.SUCCESS, answer.code, answer.remark)
        damage.flip(self.file_of(slave, at), at % SIZE)
        slave.until(lambda status: not status["comparison"]["differences"], "it is mended")


class VersionTests(ColdCase):
    """Two logs that differ: whose disk was it?"""

    def differing(self, place: int) -> tuple[Node, Node, int, str]:
        """A stopped master's disk turns a bit of a record over, at a place from its start or end;
        and where
        the record begins, and the slave's reason.
        """
        master, slave = self.start(scrubBytesPerSecond=0)
        starts = self.starts(master)
        # Not in the files that a start of the master would look at.
        row = self.random.randrange(300, 900)
        start, end = starts[row], starts[row + 1]
        master.term()
        damage.flip(self.file_of(master, start), (start if place >= 0 else end) % SIZE + place)
        self.tell(f"the record at {start}, byte {place}")
        master.start()
        slave.until_upstream("diverged")
        status = slave.until(
            lambda status: "records decode" in status["upstream"]["reason"], "a verdict"
        )
        return master, slave, start, status["upstream"]["reason"]

    def kept(self, node: Node, start: int) -> dict[str, bytes]:
        folder = node.root / "rmqha" / "quarantine"
        found = sorted(folder.glob(f"{start:020d}-*"))
        self.assertEqual(2, len(found), found)
        return {path.name.split(".")[1]: path.read_bytes() for path in found}

    def test_properties(self) -> None:
        """A bit that no CRC covers: the slave's checksum says that its own is right; both stay."""
        master, slave, start, reason = self.differing(-2)
        self.assertIn("the checksum kept of the first says that ours is right", reason)
        kept = self.kept(slave, start)
        self.assertEqual(1, sum(a != b for a, b in zip(*kept.values(), strict=True)))
        self.assertEqual(1, slave.log().count("the checksum kept of the first says"))
        told = self.rmqha(
            "diverge",
            slave.root,
            "--against",
            f"127.0.0.1:{master.ha_port}",
            "--client-port",
            master.port,
        )
        self.assertEqual(1, told.returncode, told.stderr)
        self.assertIn(
            f"the checksum kept of the first says that {slave.root} is right", told.stdout
        )

    def test_body(self) -> None:
        """A body's bit is the master's, says the slave; only what it does not doubt is served."""
        _, slave, start, reason = self.differing(BODY_AT + 7)
        self.assertRegex(reason, r"\d+ of \d+ records decode on both sides, 1 only on ours")
        self.assertEqual(start, int(min(self.kept_names(slave)).split("-")[0]))
        number = self.starts(slave).index(start)
        got, refused = self.pulled(slave)
        self.assertEqual([*range(number)], sorted(got))
        self.assertEqual([*range(number, MESSAGES)], sorted(refused))
        for remark in refused.values():
            self.assertIn("is not served: diverged: ", remark)
        with Remote(slave.port) as client:
            fields = {"offset": str(start)}
            answer = client.ask(Command(code=RequestCode.VIEW_MESSAGE_BY_ID, ext=fields))
            self.assertIn("diverged", answer.remark or "")

    def kept_names(self, node: Node) -> list[str]:
        return [path.name for path in (node.root / "rmqha" / "quarantine").iterdir()]
