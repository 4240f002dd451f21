"""The brokers of our name, as name servers know them.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from rmqha.errors import RequestRefused
from rmqha.net.remoting.client import RemotingClient
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.route import ClusterInfo
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command


class Members:
    """Asks name servers who else has a broker's name."""

    def __init__(self, client: RemotingClient, name: str, cluster: str) -> None:
        """@param name: The brokers' name.
        @param cluster: Their cluster; others of that name are none of ours.
        """
        self._client = client
        self._name = name
        self._cluster = cluster

    def ask(self, server: str, timeout: float) -> Deferred[dict[int, str]]:
        """Ask one of them: who asks several need not wait for the slowest.

        @param timeout: Seconds.
        @return: The brokers' addresses by id.  Fails with one of
            L{UNREACHED<rmqha.net.remoting.client.UNREACHED>}.
        """
        return Deferred.fromCoroutine(self._ask(server, timeout))

    async def _ask(self, server: str, timeout: float) -> dict[int, str]:
        request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await self._client.request(server, request, timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark, request.code)
        found = json_body.read(ClusterInfo, answer.body).broker_addr_table.get(self._name)
        if found is None or found.cluster not in (None, self._cluster):
            return {}
        return found.broker_addrs
