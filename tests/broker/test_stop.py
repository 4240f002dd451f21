"""Tests for the stop of a L{rmqha.broker.broker.Broker}."""

from __future__ import annotations

from typing import Any

from rmqha.broker.ports import ClientPorts
from rmqha.errors import ShutdownFailed
from rmqha.net.connection_shares import ConnectionShares
from tests.broker.support import BrokerTestCase


class StopTests(BrokerTestCase):
    """A stop with a part that cannot stop."""

    def test_failing_part(self) -> None:
        """A part that fails to stop keeps no other from it; its name is in the error."""
        parts = {
            "long polling": "_holds",
            "statistics": "counts",
            "the check for a duplicate broker id": "siblings",
            "registration": "registration",
            "delayed messages": "schedule",
            "transaction checks": "transactions",
            "metadata sync": "metadata",
            "Topics": "topics",
        }
        for name, attribute in parts.items():
            broker = self.broker()
            stopped: list[str] = []
            for other, place in parts.items():
                self.trace(stopped, other, getattr(broker, place))
            self.patch(type(getattr(broker, attribute)), "stop", lambda _: 1 // 0)
            error = self.failureResultOf(broker.stop(), ShutdownFailed).value
            inner = name in ("transaction checks", "metadata sync", "Topics")
            self.assertEqual(error.steps, ("tables",) if inner else (name,))
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
            self.assertEqual(sorted(stopped), sorted(set(parts) - {name}))
            self.doCleanups()
            self.setUp()

    def test_nothing_is_left(self) -> None:
        """A store outlives a broker where a role changes: it tells nothing to a stopped one."""
        broker = self.broker()
        store = broker.store
        places = store.dispatcher.on_units, store.dispatcher.on_pause, store.log.flush_listeners
        shares = ConnectionShares(files=1024)
        broker.start(ClientPorts(broker.settings.remoting, 0, self.clock, shares))
        self.successResultOf(broker.stop())
        theirs = [each for place in places for each in place if "rmqha.broker" in each.__module__]
        self.assertEqual(theirs, [])

    def trace(self, stopped: list[str], name: str, part: Any) -> None:
        real = type(part).stop

        def stop(part: Any) -> Any:
            if name not in stopped:
                stopped.append(name)
            return real(part)

        self.patch(type(part), "stop", stop)
