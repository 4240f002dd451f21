"""
The nodes of a cluster, as a name server knows them.

A name server tells where clients connect to a broker.  Its admin port is told to nobody; by
default it is three above (docs/guide/configuration.rst).
"""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTCP

from rmqha.config.settings import ADMIN_PORT_STEP
from rmqha.config.values import Endpoint
from rmqha.net.remoting.client import RemotingClient, split_address
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls
from rmqha.wire.remoting.bodies.route import ClusterInfo
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import read


def admin_of(address: str) -> str:
    """
    Where a node's admin port is by default.

    @param address: Where its clients connect.
    @raise ValueError: If that is no address.
    """
    host, port = split_address(address)
    return Endpoint().show((host, port + ADMIN_PORT_STEP))


def nodes_in(info: ClusterInfo) -> list[str]:
    """
    The admin ports of all brokers, masters before their slaves.
    """
    found = []
    for _, broker in sorted(info.broker_addr_table.items()):
        found += [admin_of(at) for _, at in sorted(broker.broker_addrs.items())]
    return list(dict.fromkeys(found))


async def known_to(
    server: str, reactor: IReactorTCP, tls: OutgoingTls = IN_CLEAR_TEXT
) -> list[str]:
    """
    Ask a name server for its brokers.

    @param server: Where its clients connect.
    @return: The admin ports of all, the name server's own first.
    @raise ValueError: If what answers is no name server.
    """
    client = RemotingClient(reactor, tls=tls)
    try:
        answer = await client.request(server, Command.request(RequestCode.GET_BROKER_CLUSTER_INFO))
    finally:
        await client.close()
    if answer.code != ResponseCode.SUCCESS:
        raise ValueError(f"{server} is not a name server: {answer.remark}")
    return [admin_of(server), *nodes_in(read(ClusterInfo, answer.body))]
