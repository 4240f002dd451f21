"""Brokers come, say that they live, and go.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.errors import RequestRefused
from rmqha.namesrv.brokers import EXPIRY, BrokerRegistration, Registered
from rmqha.namesrv.kv import ORDER_TOPICS, KvConfig
from rmqha.namesrv.routes import RouteTable
from rmqha.net.remoting.client import split_address
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Answer
from rmqha.net.remoting.needs import ANY_PEER, BROKERS, Stated
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies import register
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.route import MemberGroup, MemberGroupAnswer
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.namesrv import (
    BrokerRequest,
    DataVersionAnswer,
    RegisterBrokerAnswer,
    RegisterBrokerRequest,
)
from rmqha.wire.remoting.headers.slave import BrokerHeartbeatRequest, MemberGroupRequest


@define(eq=False)
class Registrations:
    """Answers what brokers say of themselves."""

    table: RouteTable
    kv: KvConfig
    clock: IReactorTime

    _log = Logger()

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.REGISTER_BROKER: (BROKERS, self.register),
            RequestCode.UNREGISTER_BROKER: (BROKERS, self.unregister),
            RequestCode.QUERY_DATA_VERSION: (BROKERS, self.data_version),
            RequestCode.BROKER_HEARTBEAT: (BROKERS, self.beat),
            RequestCode.GET_BROKER_MEMBER_GROUP: (ANY_PEER, self.members),
        }

    def register(self, connection: RemotingProtocol, command: Command) -> Answer:
        """103: a broker is there."""
        header = from_ext(RegisterBrokerRequest, command.ext)
        if header.body_crc32 and header.body_crc32 != register.checksum(command.body):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        _check(header)
        body = register.read(command.body, version=command.version, compressed=header.compressed)
        topics = body.topic_config_serialize_wrapper
        silence = header.heartbeat_timeout_millis or 0
        found = self.table.register(
            BrokerRegistration(
                cluster=header.cluster_name,
                name=header.broker_name,
                id=header.broker_id,
                address=header.broker_addr,
                ha_address=header.ha_server_addr,
                topics=topics.topic_config_table.values(),
                version=topics.data_version,
                filter_servers=body.filter_server_list,
                acting_master=header.enable_acting_master,
                expiry=silence / 1000 if silence > 0 else EXPIRY,
                channel=connection,
                epoch=header.master_epoch or 0,
            ),
            self.clock.seconds(),
        )
        self._tell(header, found, connection)
        if found.refused and header.master_epoch is None:
            # A stock master reads nothing of masters in an answer, but logs an error.
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the master of {header.broker_name} is {found.master}, by its master epoch "
                f"{found.epoch}; {header.broker_addr} is not in the routes",
            )
        order = self.kv.table(ORDER_TOPICS)
        return command.answer(
            header=RegisterBrokerAnswer(
                ha_server_addr=found.ha,
                master_addr=found.master,
                master_epoch=None if header.master_epoch is None else found.epoch,
            ),
            body=b"" if order is None else json_body.write(order),
        )

    def _tell(
        self, header: RegisterBrokerRequest, found: Registered, connection: RemotingProtocol
    ) -> None:
        who = {"name": header.broker_name, "id": header.broker_id, "address": header.broker_addr}
        epoch = header.master_epoch or 0
        if found.refused:
            if found.new:
                self._log.error(
                    "Two live masters of {name}: {address} (master epoch {epoch}, from {peer}) is "
                    "not in the routes, {master} has the higher master epoch {higher}; stop "
                    "{address}, or start it as a slave",
                    epoch=epoch,
                    master=found.master,
                    higher=found.epoch,
                    peer=connection.address,
                    **who,
                )
        elif found.replaced is not None and found.replaced_epoch < epoch:
            self._log.error(
                "Two live masters of {name}: {address} (master epoch {epoch}, from {peer}) "
                "replaces {before}, which has the lower master epoch {lower}; stop {before}, or "
                "start it as a slave",
                epoch=epoch,
                before=found.replaced,
                lower=found.replaced_epoch,
                peer=connection.address,
                **who,
            )
        elif found.replaced is not None:
            self._log.error(
                "Two live brokers register as {name} (id {id}): {address} (from {peer}) replaces "
                "{before}; one of them has a wrong brokerName or brokerId",
                before=found.replaced,
                peer=connection.address,
                **who,
            )
        elif found.new:
            self._log.info("Broker {name} (id {id}) registered, it is at {address}", **who)

    def unregister(self, connection: RemotingProtocol, command: Command) -> Answer:
        """104: a broker leaves.  It is believed for its own address alone."""
        header = from_ext(BrokerRequest, command.ext)
        gone = self.table.unregister(header.broker_name, header.broker_id, header.broker_addr)
        self._log.info(
            "Broker {name} (id {id}) unregistered, it was at {address}"
            if gone
            else "{peer} unregisters broker {name} (id {id}) at {address}, not registered: ignored",
            name=header.broker_name,
            id=header.broker_id,
            address=header.broker_addr,
            peer=connection.address,
        )
        return None

    def data_version(self, connection: RemotingProtocol, command: Command) -> Answer:
        """322: a broker asks whether it has to register again."""
        header = from_ext(BrokerRequest, command.ext)
        version = json_body.read(DataVersion, command.body)
        known = self.table.seen(header.broker_addr, version, self.clock.seconds())
        return command.answer(
            header=DataVersionAnswer(changed=known != version),
            body=b"" if known is None else json_body.write(known),
        )

    def beat(self, connection: RemotingProtocol, command: Command) -> Answer:
        """904: a broker of 5.x lives."""
        header = from_ext(BrokerHeartbeatRequest, command.ext)
        self.table.beat(header.broker_addr, self.clock.seconds())
        return None

    def members(self, connection: RemotingProtocol, command: Command) -> Answer:
        """901: a broker of 5.x asks for those of its name."""
        header = from_ext(MemberGroupRequest, command.ext)
        data = self.table.members(header.broker_name)
        group = MemberGroup(
            broker_name=header.broker_name,
            cluster=header.cluster_name,
            broker_addrs={} if data is None else data.broker_addrs,
        )
        return command.answer(body=json_body.write(MemberGroupAnswer(broker_member_group=group)))


def _check(header: RegisterBrokerRequest) -> None:
    """What goes into every client's routes has to be something."""
    for name, value in (("brokerName", header.broker_name), ("clusterName", header.cluster_name)):
        if not value.strip():
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{name} is empty")
    if header.broker_id < 0:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"brokerId is {header.broker_id}")
    if (header.master_epoch or 0) < 0:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"masterEpoch is {header.master_epoch}")
    try:
        split_address(header.broker_addr)
    except ValueError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"brokerAddr: {error}"[:256]) from None
