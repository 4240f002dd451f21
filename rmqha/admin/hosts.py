"""By which names the admin port may be asked.

Source: docs/guide/ports.rst.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Self

from attrs import frozen


@frozen
class OwnNames:
    """The names of this machine that somebody may ask for.  An address needs no name, and one
    without a dot no web page can have for its own.
    """

    _names: frozenset[str]

    @classmethod
    def of(cls, further: Iterable[str]) -> Self:
        """This host's names, and others."""
        return cls(frozenset({socket.gethostname().lower(), *further}))

    def include(self, host: str) -> bool:
        """Whether it may be asked by a name, or by an address; empty is nothing said.

        @param host: As the request has it, without the port.
        """
        name = host.lower().removesuffix(".")
        return "." not in name or name in self._names or is_address(name)


def is_address(host: str) -> bool:
    """Whether a host is said by its address."""
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    """Whether a host is this machine, by an address or the one name that means nothing else."""
    return host == "localhost" or (is_address(host) and ip_address(host.strip("[]")).is_loopback)
