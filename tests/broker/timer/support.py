"""A master that delivers timer messages, on a clock that the test moves."""

from __future__ import annotations

from typing import Any

from rmqha.broker.broker import Broker
from rmqha.wire.log.record import Record
from rmqha.wire.names import TIMER_TOPIC
from rmqha.wire.remoting.command import Command
from tests.broker.support import NOW, SEND_V2, BrokerTestCase, sending


class TimerTestCase(BrokerTestCase):
    """What is sent at L{NOW} or later, and what comes."""

    jump = 0
    number = 0

    def begin(self, **settings: Any) -> Broker:
        """Open the store, and deliver."""
        broker = self.broker(**settings)
        if broker.writer is not None:
            broker.schedule.start()
            broker.timers.start()
        self.passes(0.02)
        return broker

    def now(self) -> int:
        """The wall clock, in milliseconds."""
        return NOW + round(self.clock.seconds() * 1000) + self.jump

    def stop(self) -> None:
        self.successResultOf(self.serving.timers.stop())
        self.successResultOf(self.serving.schedule.stop())
        self.close_store(self.serving.store)

    def kill(self) -> None:
        """End without a word."""
        self.serving.timers._cancel()
        self.close_store(self.serving.store)

    def again(self, **settings: Any) -> Broker:
        """Stop cleanly, and begin anew."""
        self.stop()
        return self.begin(**settings)

    def send(self, body: bytes, topic: str = "T", code: int = SEND_V2, **more: str) -> Command:
        """Send a message with some properties."""
        self.number += 1
        told = {"UNIQ_KEY": f"U{self.number}", "TAGS": "A"} | more
        answer = self.client().ask(code, sending(topic, properties=told), body)
        assert answer is not None
        return answer

    def later(self, body: bytes, ms: int, **more: str) -> Command:
        """Send one that is to come later."""
        answer = self.send(body, TIMER_DELAY_MS=str(ms), **more)
        self.assertEqual(answer.code, 0, answer.remark)
        return answer

    def passes(self, seconds: float) -> None:
        """Let time pass, each millisecond by itself."""
        self.clock.pump([0.001] * round(seconds * 1000))

    def skips(self, seconds: float) -> None:
        """Let time pass in larger steps."""
        self.clock.pump([0.05] * round(seconds * 20))
        self.passes(0.01)

    def records(self, topic: str = "T", queue_id: int = 0) -> list[Record]:
        lookup = self.serving.lookup
        first, end = lookup.bounds(topic, queue_id) or (0, 0)
        found = [lookup.by_queue_offset(topic, queue_id, at) for at in range(first, end)]
        return [record for record in found if record is not None]

    def got(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id)]

    def waiting(self) -> list[Record]:
        return self.records(TIMER_TOPIC)
