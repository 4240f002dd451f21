"""Tests for L{lab.bench.without_child}: a node that is said to count nothing counts nothing."""

from __future__ import annotations

from lab.bench.without_child import REPLACED
from rmqha.wire.remoting.codes import RequestCode
from tests.broker.support import SEND_V2, BrokerTestCase, sending


class UncountedTests(BrokerTestCase):
    def counted(self) -> tuple[int, int, int]:
        """Timed writes, messages that came, and kinds of timed requests, after two requests."""
        serving = self.broker()
        serving.counts.watch(serving.store.queues)
        client = self.client()
        sent = client.ask(SEND_V2, sending("T"), b"x")
        client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        self.clock.advance(0.01)
        self.assertEqual(getattr(sent, "code", None), 0)
        self.assertIsNotNone(serving.lookup.by_queue_offset("T", 0, 0))
        counts, calls = serving.counts, serving.registry.calls
        return counts.puts_took.all().count, len(counts.each("TOPIC_PUT_NUMS")), len(calls.took)

    def test_nothing(self) -> None:
        """Writes are stored and answered as ever, and leave no trace in what monitors are told."""
        for owner, name, instead in REPLACED:
            self.patch(owner, name, instead)
        self.assertEqual(self.counted(), (0, 0, 0))

    def test_as_it_is(self) -> None:
        """A broker as it is counts all of these."""
        self.assertTrue(all(self.counted()))
