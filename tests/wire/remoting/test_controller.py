"""Tests for C{rmqha.wire.remoting}'s controller headers and bodies, with stock ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from attrs import AttrsInstance, frozen
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import HeaderFieldInvalid
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.bodies.controller import (
    ElectedMaster,
    EpochCache,
    EpochRange,
    SyncStateData,
    SyncStateSet,
)
from rmqha.wire.remoting.bodies.route import MemberGroup
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import ControllerResponseCode, RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import Long, from_ext, to_ext
from rmqha.wire.remoting.frame import FrameDecoder
from rmqha.wire.remoting.headers import controller as headers
from rmqha.wire.remoting.json_body import read, write
from tests.support.controller_captures import CONTROL, lines

Kind = type[Any] | None

STOCK = 479
"""The version of 5.3.3."""


@frozen(kw_only=True)
class CleanBrokerDataRequest:
    """Code 1011: an administrator takes members out of a set.

    @ivar broker_controller_ids_to_clean: Ids with semicolons between; absent is the whole set.
    """

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Long


SHAPES: dict[int, tuple[Kind, Kind, Kind, Kind]] = {
    Code.ALTER_SYNC_STATE_SET: (
        headers.AlterSyncStateSetRequest,
        SyncStateSet,
        headers.AlterSyncStateSetAnswer,
        SyncStateSet,
    ),
    Code.ELECT_MASTER: (headers.ElectMasterRequest, None, headers.ElectMasterAnswer, ElectedMaster),
    Code.REGISTER_BROKER: (
        headers.RegisterMemberRequest,
        None,
        headers.RegisterMemberAnswer,
        SyncStateSet,
    ),
    Code.GET_REPLICA_INFO: (
        headers.ReplicaInfoRequest,
        None,
        headers.ReplicaInfoAnswer,
        SyncStateSet,
    ),
    Code.GET_METADATA_INFO: (None, None, headers.MetadataInfoAnswer, None),
    Code.GET_SYNC_STATE_DATA: (None, None, None, SyncStateData),
    Code.GET_BROKER_EPOCH_CACHE: (None, None, None, EpochCache),
    Code.NOTIFY_BROKER_ROLE_CHANGED: (headers.RoleChangedRequest, SyncStateSet, None, None),
    Code.CLEAN_BROKER_DATA: (CleanBrokerDataRequest, None, None, None),
    Code.GET_NEXT_BROKER_ID: (headers.NextBrokerIdRequest, None, headers.NextBrokerIdAnswer, None),
    Code.APPLY_BROKER_ID: (headers.ApplyBrokerIdRequest, None, headers.ApplyBrokerIdAnswer, None),
    RequestCode.BROKER_HEARTBEAT: (headers.MemberHeartbeatRequest, None, None, None),
}
"""Header and body of each request, then of its answer."""

ADMINISTRATORS = {Code.GET_SYNC_STATE_DATA, Code.GET_BROKER_EPOCH_CACHE, Code.CLEAN_BROKER_DATA}
"""What no member asks; here scripts did."""


def captured() -> Iterator[tuple[int, bool, Command]]:
    """Request code, whether it is an answer, and what was sent."""
    for name in CONTROL:
        for line in lines(name):
            (command,) = FrameDecoder().receive(bytes.fromhex(line["hex"]))
            yield line["code"], line["dir"] == "response", command


class CapturedTests(SynchronousTestCase):
    """Whatever was said can be read, and is written so."""

    def header(self, kind: Kind, command: Command) -> None:
        if kind is not None:
            self.assertEqual(to_ext(from_ext(kind, command.ext)), command.ext)

    def body(self, kind: Kind, command: Command) -> None:
        if kind is not None:
            value: AttrsInstance = read(kind, command.body)
            written = write(value, numeric_keys="bare")
            self.assertEqual(fastjson.loads(written), fastjson.loads(command.body))

    def test_all(self) -> None:
        """Requests, and answers that are a success or say that the master still exists."""
        seen: Counter[tuple[int, bool]] = Counter()
        for code, answer, command in captured():
            header, body = SHAPES[code][2:] if answer else SHAPES[code][:2]
            if not answer and command.version < STOCK:
                continue  # a script's, which leaves out what it may
            if answer and command.code not in (0, ControllerResponseCode.MASTER_STILL_EXIST):
                ControllerResponseCode(command.code)
                continue
            self.header(header, command)
            self.body(body, command)
            seen[code, answer] += 1
        asked = {code for code, answer in seen if not answer}
        self.assertEqual(asked, set(SHAPES) - ADMINISTRATORS)

    def test_refusals(self) -> None:
        """The codes of refusals that were seen, with the requests that they answer."""
        seen = {
            (code, command.code)
            for code, answer, command in captured()
            if answer and command.code not in (0, ControllerResponseCode.MASTER_STILL_EXIST)
        }
        altered = {answer for code, answer in seen if code == Code.ALTER_SYNC_STATE_SET}
        self.assertEqual(altered, {2000, 2001, 2002, 2003, 2013})
        self.assertIn((Code.ELECT_MASTER, ControllerResponseCode.ELECT_MASTER_FAILED), seen)
        self.assertIn((Code.GET_REPLICA_INFO, ControllerResponseCode.NOT_LEADER), seen)


class VectorTests(SynchronousTestCase):
    def test_elected(self) -> None:
        """Keys that are ids come without quotes."""
        text = (
            b'{"brokerMemberGroup":{"brokerAddrs":{1:"127.0.0.1:35100"},"brokerName":"a",'
            b'"cluster":"C"},"syncStateSet":[1]}'
        )
        found = read(ElectedMaster, text)
        group = MemberGroup(broker_name="a", cluster="C", broker_addrs={1: "127.0.0.1:35100"})
        self.assertEqual(found, ElectedMaster(broker_member_group=group, sync_state_set=(1,)))
        self.assertEqual(read(ElectedMaster, b'{"syncStateSet":[2,1]}').sync_state_set, (2, 1))

    def test_epochs(self) -> None:
        """The newest epoch of a log is open."""
        text = (
            b'{"brokerId":0,"brokerName":"a","clusterName":"C","epochList":[{"endOffset":'
            b'9223372036854775807,"epoch":1,"startOffset":0}],"maxOffset":1535}'
        )
        cache = EpochCache(
            cluster_name="C",
            broker_name="a",
            broker_id=0,
            epoch_list=(EpochRange(epoch=1, start_offset=0),),
            max_offset=1535,
        )
        self.assertEqual(read(EpochCache, text), cache)

    def test_nobody_leads(self) -> None:
        """A controller that knows no leader leaves out who it is."""
        ext = {"isLeader": "false", "peers": "n0:h:1;n1:h:2;", "group": "g"}
        answer = from_ext(headers.MetadataInfoAnswer, ext)
        self.assertIsNone(answer.controller_leader_address)
        self.assertFalse(answer.is_leader)

    def test_missing(self) -> None:
        """A role change that does not say in which epoch is refused by name."""
        with self.assertRaises(HeaderFieldInvalid) as raised:
            from_ext(headers.RoleChangedRequest, {"masterBrokerId": "1"})
        self.assertIn("masterEpoch", str(raised.exception))
