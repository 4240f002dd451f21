"""What a slave of 5.x asks besides the tables."""

from __future__ import annotations

import json
from struct import unpack
from typing import Any, cast

from rmqha.broker.cluster.later_slaves import LaterSlaves
from rmqha.wire.remoting.bodies.later_slaves import TimerCheckpoint, TimerMetrics
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.slave import HaInfo
from tests.broker.support import NOW, BrokerTestCase


class LaterSlavesTests(BrokerTestCase):
    def ask(self, code: RequestCode, *, slave: bool = False) -> Command:
        """What it answers to such a slave, which sends no fields."""
        self.broker(slave=slave, ip1="192.0.2.1", ip2="192.0.2.2", listen_port=10911)
        answer = self.client().ask(code)
        assert answer is not None
        self.assertEqual(answer.code, 0, answer.remark)
        return answer

    def test_timers_done(self) -> None:
        """All timer messages up to now are delivered: seven numbers, as stock brokers have them."""
        answer = self.ask(RequestCode.GET_TIMER_CHECK_POINT)
        self.assertEqual(unpack(">7q", answer.body), (NOW, 0, 0, 0, 0, 0, 0))

    def test_timers_waiting(self) -> None:
        """None waits."""
        body = json.loads(bytes(self.ask(RequestCode.GET_TIMER_METRICS).body))
        self.assertEqual(body["timingCount"], {})
        self.assertIn("dataVersion", body)

    def test_ha_info(self) -> None:
        """A master says where its slaves connect, and how much of its log is on disk."""
        answer = self.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
        self.assertEqual(
            answer.ext,
            {
                "masterAddress": "192.0.2.1:10911",
                "masterHaAddress": "192.0.2.2:10912",
                "masterFlushOffset": "0",
            },
        )

    def test_ha_info_of_a_set(self) -> None:
        """The master of a set says that members may tell it tokens."""
        part = LaterSlaves(
            address=lambda: "a:1",
            ha_address=lambda: "a:2",
            log_end=lambda: 7,
            master=True,
            takes_tokens=True,
            timers_at=TimerCheckpoint,
            timers_by_topic=TimerMetrics,
        )
        answer = part.ha_info(cast(Any, None), Command.request(RequestCode.EXCHANGE_BROKER_HA_INFO))
        assert isinstance(answer, Command)
        self.assertIs(answer.custom(HaInfo).takes_tokens, True)

    def test_ha_info_of_a_slave(self) -> None:
        """A slave has nothing to say of itself as a master."""
        self.assertEqual(self.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, slave=True).ext, {})
