"""Popping in order."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.tables.pop_order import FORGOTTEN, MOST, NotTaken, PopOrder, count_info
from rmqha.wire.remoting import fastjson, json_body
from rmqha.wire.remoting.bodies.pop_order import OrderTable
from tests.support.machines import run_machine

FRAMES = Path(__file__).resolve().parents[2] / "data" / "pop" / "frames-order.jsonl.gz"

T, G = "O", "GO"

GOLDEN = (
    b'{"table":{"O@GO":{0:{"a":"a1","cm":5,"i":6000,"l":1795579132373,"o":[0,1,2],"oc":{},'
    b'"ot":{1:1795579135388},"popTime":1795579132372}}}}'
)
"""What a stock broker had in its file after the first acks of the frames."""


class OrderTestCase(SynchronousTestCase):
    """One queue."""

    def setUp(self) -> None:
        self.order = PopOrder()
        self.told: list[tuple[str, int]] = []
        self.order.changed.append(lambda key, queue_id: self.told.append((key, queue_id)))

    def pop(self, now: int, *offsets: int, attempt: str | None = "a", invisible: int = 6000) -> str:
        return self.order.on_pop(
            T, G, 0, now=now, pop_time=now, invisible=invisible, attempt=attempt, offsets=offsets
        )

    def ack(self, offset: int, pop_time: int) -> int | NotTaken:
        return self.order.ack(T, G, 0, offset, pop_time)

    def blocked(self, now: int, attempt: str | None = "other") -> bool:
        return self.order.blocked(T, G, 0, now, attempt)


class FramesTests(OrderTestCase):
    """What a stock broker of 5.3.3 answered, at the times at which it did."""

    def test_frames(self) -> None:
        """Blocks, counts and offsets are the same, and so is its file in between."""
        frames = {
            frame["n"]: frame
            for frame in map(json.loads, gzip.decompress(FRAMES.read_bytes()).splitlines())
        }

        def popped(n: int) -> str:
            said, asked = frames[n]["respHeader"]["extFields"], frames[n]["ext"]
            now = int(said["popTime"])
            self.assertFalse(self.blocked(now, asked["attemptId"]), frames[n]["name"])
            _, _, offsets = said["msgOffsetInfo"].split()
            counts = self.order.on_pop(
                T,
                G,
                0,
                now=now + 1,
                pop_time=now,
                invisible=int(asked["invisibleTime"]),
                attempt=asked["attemptId"],
                offsets=[int(offset) for offset in offsets.split(",")],
            )
            self.assertEqual(counts, said["orderCountInfo"], frames[n]["name"])
            return str(now)

        popped(1)
        self.assertTrue(self.blocked(frames[2]["ext"]["bornTime"], "a2"))
        first = int(popped(3))
        self.assertEqual(self.ack(0, first), 1)
        self.assertEqual(self.ack(2, first), 1)
        changed = frames[7]["respHeader"]["extFields"]
        visible = int(changed["popTime"]) + int(changed["invisibleTime"])
        self.assertIsNone(self.order.change(T, G, 0, 1, first, visible))
        self.assertEqual(fastjson.loads(self.written()), fastjson.loads(GOLDEN))
        self.assertEqual(self.order.free_at(T, G, 0), visible)
        second = int(popped(8))
        self.assertEqual(self.ack(1, second), 2)
        self.assertEqual(self.ack(4, 1), NotTaken.STALE)
        self.assertEqual(self.ack(4, second), NotTaken.FOREIGN)
        self.assertEqual([self.ack(offset, second) for offset in (2, 3)], [3, 4])
        self.assertIsNone(self.order.free_at(T, G, 0))
        third = frames[13]["ext"]["bornTime"]
        # In between somebody popped and acknowledged the fifth message.
        self.pop(third - 1, 4)
        self.assertTrue(self.blocked(third, "b2"))
        self.assertEqual(self.ack(4, third - 1), 5)
        popped(13)
        now = int(frames[14]["respHeader"]["extFields"]["popTime"])
        self.assertTrue(self.blocked(now - 200, "b3"))
        popped(14)

    def written(self) -> bytes:
        return json_body.write(self.order.table(), numeric_keys="bare")

    def test_golden(self) -> None:
        """Stock's file is read, and written again as it is."""
        table = json_body.read(OrderTable, GOLDEN)
        for key, batches in table.table.items():
            for queue_id, batch in batches.items():
                self.order.put(key, queue_id, batch)
        self.assertTrue(self.blocked(1795579135387))
        self.assertFalse(self.blocked(1795579135388))
        self.assertEqual(self.ack(1, 1795579132372), 3)
        self.order.put("O@GO", 0, table.table["O@GO"][0])
        self.assertEqual(fastjson.loads(self.written()), fastjson.loads(GOLDEN))


class OrderTests(OrderTestCase):
    """What the frames do not show."""

    def test_no_attempt(self) -> None:
        """Who has no attempt id is kept from the queue as others are."""
        self.pop(100, 0, attempt=None)
        self.assertTrue(self.blocked(100, None))

    def test_again(self) -> None:
        """A second acknowledgement changes nothing, and says the same."""
        self.pop(100, 5, 6)
        self.assertEqual(self.ack(6, 100), 5)
        del self.told[:]
        self.assertEqual(self.ack(6, 100), 5)
        self.assertEqual(self.told, [])
        self.assertEqual(self.ack(5, 100), 7)
        self.assertFalse(self.blocked(101))

    def test_sooner(self) -> None:
        """A change to now frees a message, and its queue if it was the last."""
        self.pop(100, 0, 1)
        self.order.change(T, G, 0, 0, 100, 150)
        self.assertTrue(self.blocked(6099))
        self.order.change(T, G, 0, 1, 100, 150)
        self.assertFalse(self.blocked(150))
        self.assertEqual(self.order.change(T, G, 0, 2, 100, 150), NotTaken.FOREIGN)
        self.assertEqual(self.order.change(T, G, 0, 1, 99, 150), NotTaken.STALE)
        self.assertEqual(self.order.change(T, G, 7, 1, 100, 150), NotTaken.STALE)

    def test_counts(self) -> None:
        """Each delivery to another attempt counts; the least is for clients of old."""
        self.assertEqual(self.pop(1, 0, 1, attempt="a"), "0 0 0")
        self.assertEqual(self.pop(9000, 0, 1, attempt="b"), "0 qo0%0 1;0 qo0%1 1;0 0 1")
        self.assertEqual(self.pop(9001, 0, 1, attempt="b"), "0 qo0%0 1;0 qo0%1 1;0 0 1")
        self.assertEqual(self.pop(20000, 1, 2, attempt="c"), "0 qo0%1 2;0 0 0")
        found = self.order.get(T, G, 0)
        assert found is not None
        self.assertEqual(count_info(3, found), "0 qo3%1 2;0 3 0")

    def test_refused(self) -> None:
        """No batch is empty, too large, or in disorder."""
        for offsets in ((), (1, 1), (2, 1), tuple(range(MOST + 1))):
            with self.assertRaises(ValueError):
                self.pop(1, *offsets)
        self.assertEqual(self.told, [])

    def test_forgotten(self) -> None:
        """What is of no use any more goes, and nothing else."""

        def fill() -> None:
            for topic in ("T", "U"):
                for group in ("g", "h"):
                    self.order.on_pop(
                        topic,
                        group,
                        1,
                        now=1000 if group == "g" else 2000,
                        pop_time=1000,
                        invisible=10,
                        attempt="a",
                        offsets=[4, 7],
                    )

        def left() -> set[str]:
            return set(self.order.batches)

        fill()
        self.order.forget_topic("T")
        self.assertEqual(left(), {"U@g", "U@h"})
        self.order.forget_group("g")
        self.assertEqual(left(), {"U@h"})
        self.order.forget("U", "h", 1)
        self.order.forget("U", "h", 1)
        self.assertEqual(left(), set())
        fill()
        self.order.sweep(1000 + FORGOTTEN + 1)
        self.assertEqual(left(), {"T@h", "U@h"})
        self.order.bring_back(lambda topic, queue_id: 8 if topic == "T" else 7)
        self.assertEqual(left(), {"T@h"})
        self.order.bring_back(lambda topic, queue_id: None)
        self.assertEqual(left(), {"T@h"})
        self.order.put("T@h", 1, None)
        self.assertEqual(left(), set())
        self.assertEqual(self.told[-1], ("T@h", 1))


class Naive:
    """The same by its definition: one row a message."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []
        self.pop_time = -1
        self.attempt: str | None = None

    def blocked(self, now: int, attempt: str | None) -> bool:
        if attempt is not None and attempt == self.attempt:
            return False
        return any(not row["acked"] and now < row["visible"] for row in self.rows)

    def pop(self, now: int, invisible: int, attempt: str | None, offsets: list[int]) -> None:
        again = attempt is not None and attempt == self.attempt
        before = {row["offset"]: row["given"] + (not again) for row in self.rows}
        self.rows = [
            {"offset": at, "acked": 0, "visible": now + invisible, "given": before.get(at, 0)}
            for at in offsets
        ]
        self.pop_time, self.attempt = now, attempt

    def find(self, offset: int, pop_time: int) -> dict[str, int] | NotTaken:
        if not self.rows or pop_time != self.pop_time:
            return NotTaken.STALE
        found = [row for row in self.rows if row["offset"] == offset]
        return found[0] if found else NotTaken.FOREIGN

    def next(self) -> int:
        waiting = [row["offset"] for row in self.rows if not row["acked"]]
        return min(waiting, default=self.rows[-1]["offset"] + 1)

    def free_at(self) -> int | None:
        return max((row["visible"] for row in self.rows if not row["acked"]), default=None)


class OrderMachine(RuleBasedStateMachine):
    """Pops, acknowledgements and changes at any times, and the table written and read between."""

    ATTEMPTS = st.sampled_from([None, "a", "b"])

    def __init__(self) -> None:
        super().__init__()
        self.order, self.naive, self.now, self.committed = PopOrder(), Naive(), 1000, 0

    @rule(by=st.integers(1, 50))
    def passes(self, by: int) -> None:
        self.now += by

    @rule(
        attempt=ATTEMPTS, invisible=st.integers(0, 60), gaps=st.lists(st.integers(1, 3), max_size=4)
    )
    def pops(self, attempt: str | None, invisible: int, gaps: list[int]) -> None:
        blocked = self.order.blocked(T, G, 0, self.now, attempt)
        assert blocked == self.naive.blocked(self.now, attempt)
        if blocked:
            return
        offsets = [self.committed]
        for gap in gaps:
            offsets.append(offsets[-1] + gap)
        text = self.order.on_pop(
            T,
            G,
            0,
            now=self.now,
            pop_time=self.now,
            invisible=invisible,
            attempt=attempt,
            offsets=offsets,
        )
        self.naive.pop(self.now, invisible, attempt, offsets)
        rows = [f"0 qo0%{row['offset']} {row['given']}" for row in self.naive.rows if row["given"]]
        least = min(row["given"] for row in self.naive.rows)
        assert text == ";".join([*rows, f"0 0 {least}"])
        self.now += 1

    @rule(step=st.integers(0, 8), stale=st.booleans())
    def acks(self, step: int, stale: bool) -> None:
        offset, pop_time = self.committed + step, self.naive.pop_time - stale
        expected: Any = self.naive.find(offset, pop_time)
        if not isinstance(expected, NotTaken):
            expected["acked"] = 1
            expected = self.naive.next()
        found = self.order.ack(T, G, 0, offset, pop_time)
        assert found == expected
        if isinstance(found, int):
            assert found >= self.committed
            self.committed = found

    @rule(step=st.integers(0, 8), visible=st.integers(0, 80))
    def changes(self, step: int, visible: int) -> None:
        offset = self.committed + step
        expected = self.naive.find(offset, self.naive.pop_time)
        found = self.order.change(T, G, 0, offset, self.naive.pop_time, self.now + visible)
        if isinstance(expected, NotTaken):
            assert found == expected
        else:
            assert found is None
            expected["visible"] = self.now + visible

    @rule()
    def looks(self) -> None:
        assert self.order.free_at(T, G, 0) == self.naive.free_at()

    @precondition(lambda self: self.naive.rows)
    @rule()
    def starts_again(self) -> None:
        text = json_body.write(self.order.table(), numeric_keys="bare")
        self.order = PopOrder(json_body.read(OrderTable, text).table)


class MachineTests(SynchronousTestCase):
    """The table against its definition."""

    def test_any_order(self) -> None:
        """Whatever is popped, acknowledged and put off, and read again between."""
        run_machine(OrderMachine, count=60, steps=50)
