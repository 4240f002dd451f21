"""What a broker takes for its own where the file says nothing."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rmqha.config import broker_settings
from rmqha.config.broker_settings import local_address

INTERFACES = {"lo": "127.0.0.1", "idle0": "", "eth0": "10.0.0.7", "eth1": "10.1.0.7"}


class Unrouted(socket.socket):
    """A socket of a host without a default route."""

    def connect(self, address: Any) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")


class LocalAddressTests(SynchronousTestCase):
    def unrouted(self, interfaces: dict[str, str]) -> None:
        """Be on a host without a default route, which has these interfaces."""

        def ask(asked: socket.socket, request: int, name: bytes) -> bytes:
            address = interfaces[name.rstrip(b"\0").decode()]
            if not address:
                raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
            return name[:16] + struct.pack("HH4s", 2, 0, socket.inet_aton(address)) + bytes(8)

        self.patch(broker_settings, "ioctl", ask)
        self.patch(broker_settings.socket, "if_nameindex", lambda: list(enumerate(interfaces, 1)))
        self.patch(broker_settings.socket, "socket", Unrouted)

    def test_no_default_route(self) -> None:
        """In a closed network, or a container's without a gateway, it is the address that others
        there reach, and not the loopback one, which two brokers would both register.
        """
        self.unrouted(INTERFACES)
        self.assertEqual("10.0.0.7", local_address())

    def test_no_network(self) -> None:
        """A host by itself has its loopback address."""
        self.unrouted({"lo": "127.0.0.1", "idle0": ""})
        self.assertEqual("127.0.0.1", local_address())

    def test_real(self) -> None:
        """The system itself answers with an address that can be bound."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            for address in (local_address(), *broker_settings.interface_addresses(asked)):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
                    bound.bind((address, 0))
