"""Our side of the control plane, and stock controllers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from lab.harness.nodes import until
from lab.stock.brokers import BOOT
from lab.stock.controllers import BlockingClient, StockController, controllers
from rmqha.controller.coordinator import ElectedMember, SetState
from rmqha.controller.group import ControllerGroup
from rmqha.errors import ControllerRefused, NoController
from rmqha.wire.remoting.codes import ControllerResponseCode
from rmqha.wire.remoting.headers.controller import (
    DEFAULT_PRIORITY,
    NO_EPOCH,
    MemberHeartbeatRequest,
)
from tests.interop.cases import InteropTestCase

T = TypeVar("T")
SET, CLUSTER = "scripted", "interop"
FIRST, SECOND = "127.0.0.1:1", "127.0.0.1:2"
"""Where two members say that they are; nobody asks them."""


class ControllerTests(InteropTestCase):
    """Members that are scripts, and controllers as they are published."""

    version = "5.3.3"
    roles = "scripted members, stock controllers"

    def group(self, members: list[StockController]) -> ControllerGroup:
        """Start controllers, and wait until one leads."""
        for each in members:
            self._processes.append(each)
            each.launch()
        client = BlockingClient()
        self.addCleanup(client.close)
        group = ControllerGroup(
            addresses=tuple(each.address for each in members),
            client=client,
            cluster=CLUSTER,
            name=SET,
            now_ms=lambda: int(time.time() * 1000),
        )
        until(lambda: self.led(group), "a controller leads", BOOT, tell=members[0].tail)
        return group

    def led(self, group: ControllerGroup) -> bool:
        """Whether one leads, and answers: for some moments it says that it does not."""
        with contextlib.suppress(NoController):
            return self.result(group.next_id()) > 0
        return False

    def result(self, asked: Deferred[T] | Coroutine[Any, Any, T]) -> T:
        if not isinstance(asked, Deferred):
            asked = Deferred.fromCoroutine(asked)
        found: list[Any] = []
        asked.addBoth(found.append)
        (answer,) = found
        if hasattr(answer, "raiseException"):
            answer.raiseException()
        result: T = answer
        return result

    def refused(self, asked: Deferred[T] | Coroutine[Any, Any, T]) -> int:
        with self.assertRaises(ControllerRefused) as raised:
            self.result(asked)
        return raised.exception.code

    def beat(self, group: ControllerGroup, number: int, address: str, end: int) -> None:
        """A sign of life of a member."""
        group.beat(
            MemberHeartbeatRequest(
                cluster_name=CLUSTER,
                broker_addr=address,
                broker_name=SET,
                broker_id=number,
                epoch=NO_EPOCH,
                max_offset=end,
                confirm_offset=0,
                heartbeat_timeout_mills=10_000,
                election_priority=DEFAULT_PRIORITY,
            )
        )

    def join(self, group: ControllerGroup, address: str) -> int:
        """Make a member, and return its id."""
        number = self.result(group.next_id())
        self.result(group.apply(number, f"{address};1"))
        self.result(group.apply(number, f"{address};1"))
        self.result(group.register(number, address))
        self.beat(group, number, address, 0)
        return number

    def test_one(self) -> None:
        """Two members join, the first is elected and takes the second into the SyncStateSet, the
        second is designated; each refusal has its code.
        """
        group = self.group(controllers(self.folder, 1))
        with self.scenario("join, elect, alter the SyncStateSet, designate"):
            unknown = ControllerResponseCode.BROKER_METADATA_NOT_EXIST
            self.assertEqual(self.refused(group.current()), unknown)
            self.assertEqual(self.join(group, FIRST), 1)
            master = ElectedMember(1, FIRST)
            alone = SetState(master=master, master_epoch=1, in_sync=frozenset({1}), set_epoch=1)
            self.assertEqual(self.result(group.elect(1)), alone)
            self.assertEqual(self.result(group.current()), alone)
            self.assertEqual(self.join(group, SECOND), 2)
            # There is one, and that is a success.
            self.assertEqual(self.result(group.elect(2)), alone)
            both = self.result(group.alter(alone, frozenset({1, 2})))
            self.assertEqual((both.in_sync, both.set_epoch), (frozenset({1, 2}), 2))
            self.assertEqual(self.result(group.current()), both)
            handed = self.result(group.elect(2, designated=True))
            self.assertEqual(handed.master, ElectedMember(2, SECOND))
            self.assertEqual((handed.master_epoch, handed.in_sync), (2, frozenset({2})))
            self.assertEqual(
                self.refused(group.alter(both, frozenset({1}))),
                ControllerResponseCode.INVALID_MASTER,
            )
            self.assertEqual(
                self.refused(group.alter(handed, frozenset({2, 9}))),
                ControllerResponseCode.INVALID_REPLICAS,
            )
            self.assertEqual(
                self.refused(group.apply(1, "another;2")), ControllerResponseCode.BROKER_ID_INVALID
            )

    def test_three(self) -> None:
        """Of three controllers the leader is killed: its successor knows what was decided."""
        members = controllers(self.folder, 3)
        group = self.group(members)
        with self.scenario("the controller that leads is killed"):
            self.assertEqual(self.join(group, FIRST), 1)
            before = self.result(group.elect(1))
            leader = group.leader
            (killed,) = (each for each in members if each.address == leader)
            killed.kill9()

            def another() -> bool:
                self.beat(group, 1, FIRST, 0)
                with contextlib.suppress(NoController, ControllerRefused):
                    return self.result(group.current()).master == before.master
                return False

            until(another, "another controller leads", BOOT, tell=members[0].tail, pause=0.5)
            self.assertNotEqual(group.leader, leader)
            self.assertEqual(self.result(group.current()).master_epoch, before.master_epoch)
