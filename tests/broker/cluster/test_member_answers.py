"""
What a member of a set is asked at its client port.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.cluster.member_answers import MemberAnswers, MemberNow
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.codes import ControllerRequestCode, RequestCode
from rmqha.wire.remoting.command import Command

EPOCHS = (
    '{"brokerId":0,"brokerName":"a","clusterName":"C","epochList":[{"endOffset":66215,"epoch":1,'
    '"startOffset":0},{"endOffset":9223372036854775807,"epoch":2,"startOffset":66215}],'
    '"maxOffset":344675}'
)


class MemberAnswersTests(SynchronousTestCase):
    """
    A member with the labels 1 from 0 and 2 from 66 215.
    """

    def setUp(self) -> None:
        """
        It is master.
        """
        self.now = MemberNow(
            number=0,
            ha_address="10.0.0.1:10912",
            labels=(EpochLabel(1, 0), EpochLabel(2, 66_215)),
            end=344_675,
            flushed=344_000,
        )
        self.answers = MemberAnswers(
            cluster="C", name="a", address="10.0.0.1:10911", now=lambda: self.now
        )

    def ask(self, code: RequestCode | ControllerRequestCode) -> Any:
        """
        Ask it.
        """
        answer = self.answers.handlers()[code](None, Command.request(code))  # type: ignore[arg-type]
        return answer

    def test_ha_info(self) -> None:
        """
        A master tells its ports, and how much of its log is on disk; another member nothing.
        """
        self.assertEqual(
            self.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).ext,
            {
                "masterHaAddress": "10.0.0.1:10912",
                "masterFlushOffset": "344000",
                "masterAddress": "10.0.0.1:10911",
            },
        )
        self.now = evolve(self.now, number=2)
        answer = self.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
        self.assertEqual((answer.code, answer.ext), (0, {}))

    def test_epochs(self) -> None:
        """
        Labels are told as stock members do: each ends where the next one starts, the last nowhere.
        """
        code = ControllerRequestCode.GET_BROKER_EPOCH_CACHE
        self.assertEqual(fastjson.loads(self.ask(code).body), fastjson.loads(EPOCHS.encode()))
        self.now = evolve(self.now, labels=())
        self.assertEqual(fastjson.loads(self.ask(code).body)["epochList"], [])
