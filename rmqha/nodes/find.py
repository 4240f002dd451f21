"""The nodes of a cluster, as a name server knows them.

A name server tells where clients connect to a broker.  Its admin port is told to nobody; by
default it is three above (docs/guide/configuration.rst).
"""

from __future__ import annotations

from attrs import frozen

from rmqha.config.settings import ADMIN_PORT_STEP
from rmqha.config.values import ENDPOINT
from rmqha.net.remoting.client import RemotingClient, split_address
from rmqha.wire.remoting.bodies.route import ClusterInfo
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import read


def admin_of(address: str) -> str:
    """Where a node's admin port is by default.

    @param address: Where its clients connect.
    @raise ValueError: If that is no address.
    """
    host, port = split_address(address)
    return ENDPOINT.show((host, port + ADMIN_PORT_STEP))


@frozen
class KnownBroker:
    """A broker as a name server knows it.

    @ivar address: Where its clients connect.
    """

    name: str
    id: int
    cluster: str
    address: str


def brokers_in(info: ClusterInfo) -> list[KnownBroker]:
    """All brokers, masters before their slaves."""
    return [
        KnownBroker(name, number, broker.cluster or "", address)
        for name, broker in sorted(info.broker_addr_table.items())
        for number, address in sorted(broker.broker_addrs.items())
    ]


async def known_to(server: str, client: RemotingClient) -> list[str]:
    """Ask a name server for its brokers.

    @param server: Where its clients connect.
    @return: Where the clients of each connect, masters before their slaves.
    @raise ValueError: If what answers is no name server.
    """
    known = brokers_in(await cluster_of(server, client))
    return list(dict.fromkeys(broker.address for broker in known))


async def cluster_of(server: str, client: RemotingClient) -> ClusterInfo:
    """Ask a name server for its brokers.

    @raise ValueError: If what answers is no name server.
    """
    answer = await client.request(server, Command.request(RequestCode.GET_BROKER_CLUSTER_INFO))
    if answer.code != ResponseCode.SUCCESS:
        raise ValueError(f"{server} is not a name server: {answer.remark}")
    return read(ClusterInfo, answer.body)
