"""etcd, where it coordinates a set of members.

L{rmqha.config.settings} tells how these settings are written.
"""

from __future__ import annotations

import re
from pathlib import Path

from attrs import frozen

from rmqha.config.keys import Origin, key
from rmqha.config.values import Endpoint, FilePath, Integer, Kind, Text

_SEPARATORS = re.compile(r"[;,]")


@frozen
class EtcdAddresses(Kind):
    """Client ports of etcd's members."""

    allowed = "host:port, several separated by ; or ,"

    def parse(self, text: str) -> tuple[str, ...]:
        found = tuple(part.strip() for part in _SEPARATORS.split(text) if part.strip())
        for each in found:
            Endpoint().parse(each)
        return found

    def show(self, value: tuple[str, ...]) -> str:
        return ";".join(value)


@frozen(kw_only=True)
class EtcdSettings:
    """How a node asks etcd, with controllerType=etcd."""

    addresses: tuple[str, ...] = key("etcdAddresses", EtcdAddresses(), "", origin=Origin.OURS)
    """The client ports of etcd's members, host:port, several separated by ; or ,."""

    prefix: str = key("etcdPrefix", Text(empty=False), "/rmqha", origin=Origin.OURS)
    """What the keys of all sets begin with; brokerClusterName and brokerName follow."""

    lease: int = key("etcdLeaseSeconds", Integer(2, 600, "seconds"), "10", origin=Origin.OURS)
    """How long a member that gives no sign of life is taken to be alive. No other one is elected
    before, and its writes are acknowledged a little shorter than that."""

    user: str = key("etcdUser", Text(), "", origin=Origin.OURS)
    """Who the node is to etcd, where etcd's authentication is on."""

    password: Path | None = key("etcdPasswordFile", FilePath(), "", origin=Origin.OURS)
    """The file with the password of etcdUser. A change of it counts at the next login."""
