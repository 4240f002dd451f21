"""
What other members of a set, and administrators, ask a member at its client port: where its HA port
is while it is master (906), and the epoch labels of its log (1007).

Members find their master's HA port by the first, and decide by the second what of a log is proven.

Source: docs/protocol/controller.rst, Requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from attrs import define, frozen

from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Answer, Handler
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.remoting.bodies.controller import LAST_END, EpochCache, EpochRange
from rmqha.wire.remoting.codes import ControllerRequestCode, RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.slave import HaInfo
from rmqha.wire.remoting.json_body import write

MASTER = 0
"""The C{brokerId} of a master in routes and answers."""


@frozen(kw_only=True)
class MemberNow:
    """
    What a member can say of itself at one moment.

    @ivar number: Its C{brokerId} as routes have it: L{MASTER}, or its controller id.
    @ivar ha_address: C{host:port} of its HA port.
    @ivar labels: Of its log, oldest first.
    @ivar end: Where its log ends.
    @ivar flushed: How far it is on disk.
    """

    number: int
    ha_address: str
    labels: tuple[EpochLabel, ...]
    end: int
    flushed: int


@define(eq=False, kw_only=True)
class MemberAnswers:
    """
    Answers them.

    @ivar cluster: The set's cluster.
    @ivar name: The set's C{brokerName}.
    @ivar address: C{host:port} of the client port.
    @ivar now: Tells how it is.
    """

    cluster: str
    name: str
    address: str
    now: Callable[[], MemberNow]

    def handlers(self) -> Mapping[RequestCode | ControllerRequestCode, Handler]:
        """
        Functions by request code.
        """
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.ha_info,
            ControllerRequestCode.GET_BROKER_EPOCH_CACHE: self.epochs,
        }

    def ha_info(self, connection: RemotingProtocol, command: Command) -> Answer:
        """
        906: where is your HA port?  Who is not master answers nothing.
        """
        now, answer = self.now(), command.answer()
        if now.number == MASTER:
            answer.ext = to_ext(
                HaInfo(
                    master_ha_address=now.ha_address,
                    master_flush_offset=now.flushed,
                    master_address=self.address,
                )
            )
        return answer

    def epochs(self, connection: RemotingProtocol, command: Command) -> Answer:
        """
        1007: what is your log filed under?
        """
        now = self.now()
        ends = [after.start for _, after in pairwise(now.labels)] + [LAST_END]
        ranges = tuple(
            EpochRange(epoch=each.label, start_offset=each.start, end_offset=end)
            for each, end in zip(now.labels, ends, strict=False)
        )
        told = EpochCache(
            cluster_name=self.cluster,
            broker_name=self.name,
            broker_id=now.number,
            epoch_list=ranges,
            max_offset=now.end,
        )
        return command.answer(body=write(told))
