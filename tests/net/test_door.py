"""
Tests for L{rmqha.net.door}: who comes in, and how all leave.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.door import FAREWELL, Door, host_of, peer_of


class Played:
    """
    A connection that notes how it is closed.

    @ivar leaves: Whether it goes at once when it is asked to.
    """

    def __init__(self, door: Door[Any], *, leaves: bool = False) -> None:
        self.transport = StringTransport()
        self.door = door
        self.leaves = leaves
        self.closed: list[tuple[str, bool]] = []
        door.entered(self)

    def close(self, reason: str, error: Exception | None = None, *, gently: bool = False) -> None:
        """
        Note it.
        """
        self.closed.append((reason, gently))
        if self.leaves:
            self.door.left(self)


class DoorTests(SynchronousTestCase):
    """
    A door for two.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.lines: list[str] = []
        log = Logger(observer=lambda event: self.lines.append(formatEvent(event)))
        self.door: Door[Any] = Door(self.clock, log, 2, [ip_network("10.0.0.0/8")])

    def test_names(self) -> None:
        """
        A host is its address as IPv4 where it is one; a peer has the port too.
        """
        for address, host, peer in (
            (IPv4Address("TCP", "10.0.0.1", 5), "10.0.0.1", "10.0.0.1:5"),
            (IPv6Address("TCP", "::ffff:10.0.0.1", 5), "10.0.0.1", "10.0.0.1:5"),
            (IPv6Address("TCP", "fe80::1", 5), "fe80::1", "[fe80::1]:5"),
            (None, "None", "None"),
        ):
            self.assertEqual((host_of(address), peer_of(address)), (host, peer))
        self.assertIn("s", peer_of(UNIXAddress("s")))

    def test_refusals(self) -> None:
        """
        Each has its reason, is counted, and gives a line.
        """
        self.assertTrue(self.door.admits("10.0.0.1"))
        self.assertFalse(self.door.admits("192.0.2.1"))
        self.assertFalse(self.door.admits("10.0.0.1", lambda: "upstream"))
        first, _ = Played(self.door), Played(self.door)
        self.assertFalse(self.door.admits("10.0.0.1"))
        self.door.left(first)
        self.assertTrue(self.door.admits("10.0.0.1"))
        self.door.shut()
        self.assertFalse(self.door.admits("10.0.0.1"))
        self.assertEqual(
            self.door.closed, {"not-allowed": 1, "upstream": 1, "too-many": 1, "stopped": 1}
        )
        self.assertEqual(
            self.lines,
            [
                "Refused a connection from 192.0.2.1: not-allowed (open connections: 0)",
                "Refused a connection from 10.0.0.1: upstream (open connections: 0)",
                "Refused a connection from 10.0.0.1: too-many (open connections: 2)",
                "Refused a connection from 10.0.0.1: stopped (open connections: 1)",
            ],
        )

    def test_stop(self) -> None:
        """
        All are closed gently, and who does not leave in time is cut off; each who stops it is
        told when the last has gone.
        """
        quick, slow = Played(self.door, leaves=True), Played(self.door)
        over, again = self.door.stop(), self.door.stop()
        self.assertEqual(quick.closed, [("stopped", True)])
        self.assertEqual(list(self.door.inside), [slow])
        self.clock.advance(FAREWELL)
        self.assertTrue(slow.transport.disconnected)
        self.assertNoResult(over)
        self.door.left(slow)
        self.successResultOf(over)
        self.successResultOf(again)
        self.successResultOf(self.door.stop())

    def test_stop_when_all_leave(self) -> None:
        """
        Nothing is left waiting when all leave at once.
        """
        Played(self.door, leaves=True)
        self.successResultOf(self.door.stop(gently=False))
        self.assertEqual(self.clock.getDelayedCalls(), [])
