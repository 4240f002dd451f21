"""What slaves of 5.x ask besides the tables: 60, 61 and 906.

A slave that is told "not supported" writes a stack trace every three seconds, in which its other
troubles are lost.

Source: docs/protocol/remoting.md, Brokers among themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define

from rmqha.broker.access.needs import ANY_ACCOUNT, Stated
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.later_slaves import TimerCheckpoint, TimerMetrics
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.slave import HaInfo


@define(eq=False, kw_only=True)
class LaterSlaves:
    """Answers them.

    @ivar address: Where clients find this broker.
    @ivar ha_address: Where its slaves do.
    @ivar log_end: How far its log is on disk, in bytes.
    @ivar master: Whether it has slaves to tell of that.
    @ivar takes_tokens: Whether these are members of a set, and may prove their connections.
    @ivar timers_at: How far timer messages are.
    @ivar timers_by_topic: How many wait.
    """

    address: Callable[[], str]
    ha_address: Callable[[], str]
    log_end: Callable[[], int]
    master: bool
    takes_tokens: bool
    timers_at: Callable[[], TimerCheckpoint]
    timers_by_topic: Callable[[], TimerMetrics]

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: (ANY_ACCOUNT, self.timers_done),
            RequestCode.GET_TIMER_METRICS: (ANY_ACCOUNT, self.timers_waiting),
            RequestCode.EXCHANGE_BROKER_HA_INFO: (ANY_ACCOUNT, self.ha_info),
        }

    def timers_done(self, connection: RemotingProtocol, command: Command) -> Answer:
        """60: how far timer messages are."""
        return command.answer(body=self.timers_at().encode())

    def timers_waiting(self, connection: RemotingProtocol, command: Command) -> Answer:
        """61: how many wait, by topic."""
        return command.answer(body=json_body.write(self.timers_by_topic()))

    def ha_info(self, connection: RemotingProtocol, command: Command) -> Answer:
        """906: where a master's slaves connect, and what is on its disk.  What another broker says
        of itself here is not taken over: our slaves hear of their master from name servers.
        """
        if not self.master:
            return command.answer(header=HaInfo())
        told = HaInfo(
            takes_tokens=self.takes_tokens or None,
            master_address=self.address(),
            master_ha_address=self.ha_address(),
            master_flush_offset=self.log_end(),
        )
        return command.answer(header=told)
