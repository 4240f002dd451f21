"""Who may connect, or ask for something: lists of addresses and networks.

Each port has one, C{clientAllowedPeers}, C{haAllowedPeers} and C{adminPortAllowedPeers}; two more
say who may change something, C{adminAllowedPeers} and C{namesrvAllowedPeers}.  The HA port has no
other way to tell friends: eight bytes from an honest-looking peer are an acknowledgement there.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network


class Allowed:
    """Decide by a peer's address.  An empty list permits every peer.

    @ivar _networks: The networks, addresses being networks of one.
    """

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = tuple(networks)

    def change(self, networks: Iterable[Network]) -> None:
        """Decide by another list from now on."""
        self._networks = tuple(networks)

    def permits(self, address: str) -> bool:
        """Say whether a peer may stay.

        @param address: The peer's IPv4 or IPv6 address as text.  An IPv4 peer of an IPv6 socket
            (C{::ffff:10.0.0.1}) is matched as IPv4; a zone (C{%eth0}) does not matter.  Text that
            is no address is permitted only where every peer is.
        """
        if not self._networks:
            return True
        try:
            ip = _plain(ip_address(address.partition("%")[0]))
        except ValueError:
            return False
        # A network of the other IP version contains nothing; `in` says so by itself.
        return any(ip in network for network in self._networks)


def _plain(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return ip
