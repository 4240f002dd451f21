"""Stores of a stock 5.3.3 broker, with messages that were handed out."""

from __future__ import annotations

from pathlib import Path

from lab.harness import golden
from rmqha.config.broker_settings import BrokerSettings
from tests.broker.pop.support import PopTestCase, bodies, records
from tests.broker.support import NOW
from tests.broker.timer.test_stock_stores import SIZES

FOLDER = Path(__file__).resolve().parents[2] / "data" / "pop"

KILLED = 1_795_581_586_626


class StockStoreTests(PopTestCase):
    """What is not done with comes again, and nothing else."""

    broker_settings = BrokerSettings(name="BN", cluster="C", ip1="10.0.0.9", ip2="10.0.0.9")

    def open(self, name: str, at: int) -> None:
        """Go on with one at a time."""
        golden.unpack(FOLDER / f"store-{name}.tar.xz", self.root.parent)
        self.jump = at - NOW
        self.begin(sizes=SIZES)
        self.who = self.client()

    def all_of(self, group: str, topic: str) -> dict[str, int]:
        """What a group is handed until nothing comes: bodies, and how often they came before."""
        found: dict[str, int] = {}
        for _ in range(20):
            answer = self.pop(
                consumerGroup=group, topic=topic, queueId=-1, invisibleTime=99_000_000
            )
            for record in records(answer) if not answer.code else ():
                assert record.body.decode() not in found, record.body
                found[record.body.decode()] = record.reconsume_times
        return found

    def test_killed(self) -> None:
        """Killed with messages done with, open, changed and in the retry topic."""
        self.open("killed", KILLED)
        self.skips(1)
        new = self.all_of("G", "T")
        self.assertEqual(new, {"t11": 0, "t13": 0, "t15": 0})
        self.stop()
        self.jump += 200_000
        self.begin(sizes=SIZES)
        self.who = self.client()
        self.skips(2)
        again = dict.fromkeys(("t6", "t8", "t10", "t12", "t14", "t9"), 1)
        self.assertEqual(self.all_of("G", "T"), again | {"t3": 2})

    def test_in_order(self) -> None:
        """What was handed out in order and not acknowledged is handed out again: a stock broker
        that is killed has not written who had it.
        """
        self.open("killed", KILLED)
        self.skips(1)
        place = {"consumerGroup": "GO", "topic": "O", "queueId": -1, "order": "true"}
        self.assertEqual(
            bodies(self.pop(**place, attemptId="x")), [b"o1", b"o2", b"o3", b"o4", b"o5"]
        )

    def test_long_ago(self) -> None:
        """All times are over when it starts."""
        self.open("killed", KILLED + 400_000)
        self.skips(2)
        again = dict.fromkeys(("t6", "t8", "t10", "t12", "t14", "t9"), 1)
        self.assertEqual(self.all_of("G", "T"), again | {"t11": 0, "t13": 0, "t15": 0} | {"t3": 2})

    def test_stopped(self) -> None:
        """All was done with."""
        self.open("stopped", KILLED + 1_000_000)
        self.skips(2)
        self.assertEqual(self.all_of("G", "T"), {})

    def test_slave(self) -> None:
        """A slave's store, promoted."""
        self.open("slave-stopped", KILLED + 10_000_000)
        self.skips(2)
        self.assertEqual(
            self.all_of("G", "T"),
            dict.fromkeys(("m7", "m8", "m9"), 0) | dict.fromkeys(("m5", "m6", "m1", "m2"), 1),
        )
        self.assertEqual(
            sorted(self.got("TT")), [b"timer110", b"timer150", b"timer170", b"timer190", b"timer30"]
        )
