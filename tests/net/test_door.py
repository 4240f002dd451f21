"""Tests for L{rmqha.net.door}: who comes in, and how all leave."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.door import FAREWELL, LEAVING, Door, host_of, peer_of


class Played:
    """A connection that notes how it is closed, and goes at once when asked to, or not."""

    def __init__(
        self,
        door: Door[Any],
        host: str = "10.0.0.1",
        *,
        leaves: bool = False,
        expected: bool = False,
    ) -> None:
        self.host = host
        self.transport = StringTransport()
        self.door = door
        self.leaves = leaves
        self.closed: list[tuple[str, bool]] = []
        door.entered(self, expected=expected)

    def close(self, reason: str, error: Exception | None = None, *, gently: bool = False) -> None:
        self.closed.append((reason, gently))
        if self.leaves:
            self.door.left(self)


class DoorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.lines: list[str] = []
        self.log = Logger(observer=lambda event: self.lines.append(formatEvent(event)))
        self.most = 2
        self.door = self.new_door()

    def new_door(self, strangers: int = 0) -> Door[Any]:
        """A door for as many as C{most} says."""
        return Door(
            clock=self.clock,
            log=self.log,
            most=lambda: self.most,
            allowed=[ip_network("10.0.0.0/8")],
            strangers=strangers,
        )

    def test_another_list(self) -> None:
        """When the list changes who is not in it any more goes, and who is in it now may come."""
        old, kept = Played(self.door, "10.1.0.1"), Played(self.door, "10.2.0.1")
        self.door.allow([ip_network("10.2.0.0/16"), ip_network("192.0.2.0/24")])
        self.assertEqual(([("not-allowed", False)], []), (old.closed, kept.closed))
        self.door.left(old)
        self.assertFalse(self.door.admits("10.1.0.1"))
        self.assertTrue(self.door.admits("192.0.2.7"))

    def test_names(self) -> None:
        """A host is its address as IPv4 where it is one; a peer has the port too."""
        for address, host, peer in (
            (IPv4Address("TCP", "10.0.0.1", 5), "10.0.0.1", "10.0.0.1:5"),
            (IPv6Address("TCP", "::ffff:10.0.0.1", 5), "10.0.0.1", "10.0.0.1:5"),
            (IPv6Address("TCP", "fe80::1", 5), "fe80::1", "[fe80::1]:5"),
            (None, "None", "None"),
        ):
            self.assertEqual((host_of(address), peer_of(address)), (host, peer))
        self.assertIn("s", peer_of(UNIXAddress("s")))

    def test_refusals(self) -> None:
        """Each has its reason, is counted, and gives a line."""
        self.assertTrue(self.door.admits("10.0.0.1"))
        self.assertFalse(self.door.admits("192.0.2.1"))
        self.assertFalse(self.door.admits("10.0.0.1", lambda: "upstream"))
        first, second = Played(self.door), Played(self.door)
        self.door.known(first)
        self.door.known(second)
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

    def test_strangers_make_room(self) -> None:
        """When it is full the stranger that came first goes, and who is known stays."""
        first, known, second = (Played(self.door) for _ in range(3))
        self.most = 3
        self.door.known(known)
        self.assertTrue(self.door.admits("10.0.0.2"))
        third = Played(self.door, "10.0.0.2")
        self.assertEqual(first.closed, [("crowded-out", False)])
        self.assertTrue(self.door.admits("10.0.0.3"))
        self.assertEqual((len(second.closed), len(third.closed)), (1, 0))
        for gone in (first, second):
            self.door.left(gone)
        self.door.known(third)
        self.assertTrue(self.door.admits("10.0.0.3"))
        self.door.known(Played(self.door))
        self.assertFalse(self.door.admits("10.0.0.3"))
        self.assertEqual((known.closed, third.closed), ([], []))
        self.assertEqual(self.door.closed, {"too-many": 1})
        self.assertIn("Closed an old connection of 10.0.0.1 to make room", self.lines[0])

    def test_a_crowd_makes_room_for_itself(self) -> None:
        """A10: who comes alone stays, however soon the many of one address come back."""
        self.most = 5
        probe = Played(self.door, "10.9.0.1")
        crowd = [Played(self.door, "10.6.6.6", leaves=True) for _ in range(4)]
        for _ in range(20):
            self.assertTrue(self.door.admits("10.6.6.6"))
            crowd.append(Played(self.door, "10.6.6.6", leaves=True))
        self.assertEqual([], probe.closed)
        self.assertEqual(20, sum(bool(each.closed) for each in crowd))
        self.assertEqual(20, sum(bool(each.closed) for each in crowd[:20]))
        other = Played(self.door, "10.9.0.2")
        self.assertTrue(self.door.admits("10.9.0.3"))
        self.assertEqual(([], []), (probe.closed, other.closed))

    def test_strangers_of_one_address(self) -> None:
        """One address has so many strangers at most, however much room there is."""
        self.most = 100
        door = self.new_door(strangers=2)
        first, second, other = (
            Played(door, host, leaves=True) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2")
        )
        self.assertTrue(door.admits("10.0.0.2"))
        self.assertTrue(door.admits("10.0.0.1"))
        self.assertEqual([len(each.closed) for each in (first, second, other)], [1, 0, 0])
        door.known(second)
        Played(door), Played(door)
        self.assertTrue(door.admits("10.0.0.1"))
        self.assertEqual(second.closed, [])

    def test_who_is_expected_goes_for_its_like_only(self) -> None:
        """A connection from where a friend comes from makes no room for others."""
        door = self.new_door(strangers=1)
        friend, _ = Played(door, expected=True), Played(door, "10.0.0.2")
        self.assertTrue(door.admits("10.0.0.3"))
        self.assertEqual(friend.closed, [])
        door.known(Played(door, "10.0.0.3"))
        self.assertFalse(door.admits("10.0.0.4"))
        self.assertTrue(door.admits("10.0.0.1"))
        self.assertEqual(friend.closed, [("crowded-out", False)])

    def test_who_goes_takes_a_turn(self) -> None:
        """In one turn only a few go for others: the sockets of those who go are still open."""
        self.most = 20
        leaving = [Played(self.door) for _ in range(20)]
        admitted = 0
        while self.door.admits("10.0.0.1"):
            Played(self.door)
            admitted += 1
        self.assertEqual(admitted, LEAVING)
        for each in leaving:
            if each.closed:
                self.door.left(each)
        self.assertTrue(self.door.admits("10.0.0.1"))

    def test_relief(self) -> None:
        """A door without strangers asks the one that shares its limit."""
        other = self.new_door()
        self.door.relief = other.expel
        self.most = 0
        self.assertFalse(self.door.admits("10.0.0.1"))
        stranger = Played(other)
        self.assertTrue(self.door.admits("10.0.0.1"))
        self.assertEqual(stranger.closed, [("crowded-out", False)])

    def test_nothing_is_kept(self) -> None:
        """Of who has left nothing is remembered."""
        door = self.new_door(strangers=2)
        for number in range(20):
            door.left(Played(door, f"10.0.1.{number}"))
        self.assertEqual((door._of_host, door._strangers, door._leaving), ({}, {}, set()))

    def test_stop(self) -> None:
        """All close gently, or are cut off in time; each who stops it is told when all are gone."""
        quick, slow = Played(self.door, leaves=True), Played(self.door)
        over, again = self.door.stop(), self.door.stop()
        self.assertEqual((quick.closed, list(self.door.inside)), ([("stopped", True)], [slow]))
        self.clock.advance(FAREWELL)
        self.assertTrue(slow.transport.disconnected)
        self.assertNoResult(over)
        self.door.left(slow)
        self.successResultOf(over)
        self.successResultOf(again)
        self.successResultOf(self.door.stop())

    def test_stop_when_all_leave(self) -> None:
        """Nothing is left waiting when all leave at once."""
        Played(self.door, leaves=True)
        self.successResultOf(self.door.stop(gently=False))
        self.assertEqual(self.clock.getDelayedCalls(), [])
