"""What stock brokers asked controllers, asked of a member, and what slaves of 5.x ask."""

from __future__ import annotations

import json
from struct import unpack
from typing import Any, cast

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.cluster.later_slaves import LaterSlaves
from rmqha.broker.cluster.stock_followers import MOST, StockFollowers
from rmqha.controller.coordinator import ElectedMember, SetState
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.handlers import Registry
from rmqha.wire.ha_v2 import FOLLOWERS
from rmqha.wire.remoting.bodies.controller import ElectedMaster, SyncStateSet
from rmqha.wire.remoting.bodies.later_slaves import TimerCheckpoint, TimerMetrics
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import ControllerResponseCode as Refusal
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder
from rmqha.wire.remoting.headers.slave import HaInfo
from rmqha.wire.remoting.json_body import read
from tests.broker.support import NOW, BrokerTestCase, Client
from tests.support.controller_captures import lines

HERE, MASTER, JAVA = "10.0.0.1:10911", "10.0.0.2:10911", "127.0.0.1:35200"
RUN = "control-run1"
NUMBER = FOLLOWERS + 7


def recorded(code: int, **fields: object) -> Command:
    """What a member of Java's sent, with some other fields."""
    line = next(
        each for each in reversed(lines(RUN)) if (each["dir"], each["code"]) == ("request", code)
    )
    (command,) = FrameDecoder().receive(bytes.fromhex(line["hex"]))
    given = {name: str(value) for name, value in fields.items()}
    return evolve(command, ext=command.ext | given)


def answered(code: int) -> set[str]:
    """The fields of what controllers answered to it when they led, and there was a master."""
    found = set[str]()
    for each in lines(RUN):
        if (each["dir"], each["code"]) == ("response", code) and not each["header"]["code"]:
            found |= set(each["header"].get("extFields", ()))
    return found


class StockFollowersTests(SynchronousTestCase):
    """Member 2 leads set C{a} of cluster C{C} in master epoch 4, with member 1 in sync."""

    def setUp(self) -> None:
        """A connection to member 1."""
        master = ElectedMember(2, MASTER)
        in_sync = frozenset({1, 2})
        self.state: SetState | None = SetState(
            master=master, master_epoch=4, in_sync=in_sync, set_epoch=9
        )
        self.addresses: dict[int, str] = {}
        followers = StockFollowers(
            cluster="C",
            name="a",
            address=HERE,
            state=lambda: self.state,
            addresses=self.addresses,
        )
        registry = Registry()
        for code, (_, handler) in followers.handlers().items():
            registry.register(code, handler)
        self.client = Client(Connections(Clock(), registry, ConnectionLimits()))

    def ask(self, code: int, **fields: Any) -> Command:
        command = recorded(code, **fields)
        self.client.send(command)
        (answer,) = self.client.heard()
        self.assertEqual(answer.opaque, command.opaque)
        return answer

    def told(self, code: int, **fields: Any) -> dict[str, str]:
        """The fields of an answer, which are those of a controller's."""
        answer = self.ask(code, **fields)
        self.assertEqual((0, answered(code)), (answer.code, set(answer.ext)), answer.remark)
        return answer.ext

    def refused(self, code: int, **fields: Any) -> tuple[int, str]:
        answer = self.ask(code, **fields)
        self.assertEqual({}, answer.ext)
        return answer.code, answer.remark or ""

    def test_start(self) -> None:
        """A broker that starts is told to ask us, which id it has, and who is master."""
        told = self.told(Code.GET_METADATA_INFO)
        self.assertEqual((HERE, "true"), (told["controllerLeaderAddress"], told["isLeader"]))
        number = int(self.told(Code.GET_NEXT_BROKER_ID)["nextBrokerId"])
        self.assertTrue(FOLLOWERS <= number < 1 << 31, number)
        self.told(Code.APPLY_BROKER_ID, appliedBrokerId=number)
        for code in (Code.REGISTER_BROKER, Code.GET_REPLICA_INFO):
            told = self.told(code, brokerId=number)
            named = told["masterBrokerId"], told["masterAddress"], told["masterEpoch"]
            self.assertEqual(("2", MASTER, "4"), named)
            found = read(SyncStateSet, self.ask(code, brokerId=number).body)
            self.assertEqual(((1, 2), 9), (found.sync_state_set, found.sync_state_set_epoch))
        self.assertEqual({number: "127.0.0.1:35100"}, self.addresses)

    def test_no_master(self) -> None:
        """Where nobody leads it is told of nobody, and must not be elected."""
        assert self.state is not None
        self.state = evolve(self.state, master=None)
        for code in (Code.REGISTER_BROKER, Code.GET_REPLICA_INFO):
            ext = self.ask(code, brokerId=NUMBER).ext
            self.assertNotIn("masterBrokerId", ext)
            self.assertNotIn("masterAddress", ext)
        self.not_elected()

    def not_elected(self, **fields: object) -> None:
        code, why = self.refused(Code.ELECT_MASTER, brokerId=NUMBER, **fields)
        self.assertEqual(Refusal.ELECT_MASTER_FAILED, code)
        self.assertIn("only its members are elected", why)

    def test_master_is_back(self) -> None:
        """One that was started while nobody led asks for nothing but an election: it is told who is
        master.  An administrator's wish is refused all the same.
        """
        answer = self.ask(Code.ELECT_MASTER, brokerId=NUMBER)
        self.assertEqual(Refusal.MASTER_STILL_EXIST, answer.code)
        self.assertEqual(answered(Code.ELECT_MASTER), set(answer.ext))
        named = answer.ext["masterBrokerId"], answer.ext["masterAddress"], answer.ext["masterEpoch"]
        self.assertEqual(("2", MASTER, "4"), named)
        self.assertEqual((1, 2), read(ElectedMaster, answer.body).sync_state_set)
        self.not_elected(designateElect="true")

    def test_etcd_is_away(self) -> None:
        """A member that does not know what is decided says that another one leads."""
        self.state = None
        told = self.ask(Code.GET_METADATA_INFO).ext
        self.assertEqual("false", told["isLeader"])
        self.assertNotIn("controllerLeaderAddress", told)
        for code in (Code.REGISTER_BROKER, Code.GET_REPLICA_INFO):
            refused, why = self.refused(code, brokerId=NUMBER)
            self.assertEqual(Refusal.NOT_LEADER, refused)
            self.assertIn("does not hear of etcd", why)
        self.assertEqual({}, self.addresses)

    def test_sync_state_set(self) -> None:
        """It changes no SyncStateSet."""
        code, why = self.refused(Code.ALTER_SYNC_STATE_SET)
        self.assertEqual(Refusal.INVALID_MASTER, code)
        self.assertIn("its master alone changes the SyncStateSet", why)

    def test_id_of_a_member(self) -> None:
        """A broker with the id of a member, as of a set with controllers, is told what to do."""
        for asked, name, refusal in (
            (Code.APPLY_BROKER_ID, "appliedBrokerId", Refusal.BROKER_ID_INVALID),
            (Code.REGISTER_BROKER, "brokerId", Refusal.BROKER_NEED_TO_BE_REGISTERED),
        ):
            code, why = self.refused(asked, **{name: 2})
            self.assertEqual(refusal, code)
            self.assertIn("2 is no id of a broker that follows", why)

    def test_other_set(self) -> None:
        """A broker of another set is told where it is."""
        for code in (
            Code.GET_NEXT_BROKER_ID,
            Code.APPLY_BROKER_ID,
            Code.REGISTER_BROKER,
            Code.GET_REPLICA_INFO,
        ):
            refused, why = self.refused(code, brokerName="b", brokerId=NUMBER)
            self.assertEqual(Refusal.BROKER_METADATA_NOT_EXIST, refused)
            self.assertIn("member of set a of cluster C", why)

    def test_signs_of_life(self) -> None:
        """They say where it is, which is all; only so many are known."""
        beat = RequestCode.BROKER_HEARTBEAT
        for ext in ({"brokerId": 2}, {"brokerId": NUMBER, "brokerName": "b"}):
            self.client.send(recorded(beat, **ext))
            self.assertEqual({}, self.addresses)
        for number in range(NUMBER, NUMBER + MOST + 1):
            self.client.send(recorded(beat, brokerId=number, brokerAddr=JAVA))
        self.assertEqual([], self.client.heard())
        self.assertEqual([JAVA] * MOST, list(self.addresses.values()))
        self.assertNotIn(NUMBER, self.addresses)


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
