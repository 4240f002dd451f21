"""Who is in the SyncStateSet, and below which offset all of it holds the log."""

from __future__ import annotations

from twisted.logger import LogLevel

from rmqha.errors import ControllerRefused, ControllerUnanswered, DiskFull, NoController
from rmqha.ha.master.transfer import PutStatus
from rmqha.wire.remoting.codes import ControllerResponseCode
from tests.ha.elected.cases import EPOCH, OWN, SLAVE, THIRD, SetCase, at
from tests.support.log_lines import log_lines

UNANSWERED = ControllerUnanswered("c:1", 1001, "no answer in 3 s")
UNREACHED = NoController(("c:1",), "connection refused")


def refused(code: ControllerResponseCode) -> ControllerRefused:
    """The controller says no."""
    return ControllerRefused("c:1", code, "no")


class MembersTests(SetCase):
    def ids(self) -> set[int]:
        return set(self.in_sync.state.in_sync)

    def test_enters(self) -> None:
        """A member enters with the report that reaches the end of the log."""
        protocol, _ = self.fed()
        self.ack(protocol, 24_999)
        self.assertEqual(self.coordinator.asked, [])
        self.ack(protocol, 25_000)
        self.assertEqual((self.coordinator.asked, self.ids()), ([{OWN, SLAVE}], {OWN, SLAVE}))

    def test_one_after_the_other(self) -> None:
        """One change is asked for at a time."""
        self.coordinator.patient = True
        self.caught_up(SLAVE)
        self.caught_up(THIRD)
        self.assertEqual(self.coordinator.asked, [{OWN, SLAVE}])
        self.coordinator.answer()
        self.assertEqual(self.coordinator.asked[1:], [{OWN, SLAVE, THIRD}])
        self.coordinator.answer()
        self.assertEqual(self.ids(), {OWN, SLAVE, THIRD})

    def test_enters_under_load(self) -> None:
        """One that is a little behind at every moment, as under load all are, enters as soon as it
        has what was there a moment ago; confirm waits for it meanwhile.
        """
        protocol, _ = self.fed()
        for _ in range(5):
            self.log.put(bytes(1000))
            self.clock.advance(0.02)
            confirm = self.master.confirm
            self.ack(protocol, self.log.end - 1000)
            if self.coordinator.asked:
                break
        self.assertEqual(self.coordinator.asked, [{OWN, SLAVE}])
        self.assertLessEqual(confirm, self.log.end - 1000)

    def test_goal_is_not_reached(self) -> None:
        """Confirm does not wait for one that does not get there."""
        protocol, _ = self.fed()
        self.log.put(bytes(1000))
        self.ack(protocol, 25_500)
        self.log.put(bytes(1000))
        self.assertEqual(self.master.confirm, 26_000)
        self.pass_time(3.0)
        self.assertEqual(self.master.confirm, 27_000)
        self.log.put(bytes(1000))
        self.assertEqual((self.master.confirm, self.coordinator.asked), (28_000, []))
        self.pass_time(8.0, 1.0)
        self.log.put(bytes(1000))
        self.assertEqual(self.master.confirm, 29_000, "it is far behind, and has no goal")

    def test_goal_is_given_once_in_a_while(self) -> None:
        """One that did not reach its goal keeps confirm waiting no second time at once."""
        protocol, _ = self.fed()
        self.log.put(bytes(1000))
        self.ack(protocol, 25_500)
        self.pass_time(1.5, 0.5)
        self.log.put(bytes(1000))
        self.ack(protocol, 26_500)
        self.assertEqual(self.master.confirm, 27_000)

    def test_goal_has_its_time(self) -> None:
        """A goal holds while there is time for it, and to reach it is enough."""
        protocol, _ = self.fed()
        self.log.put(bytes(1000))
        self.ack(protocol, 25_500)
        self.in_sync.look()
        self.log.put(bytes(1000))
        self.ack(protocol, 26_000)
        self.assertEqual(self.coordinator.asked, [{OWN, SLAVE}])

    def test_leaves_with_its_connection(self) -> None:
        """A member whose connection ends leaves at once."""
        protocol, _ = self.caught_up()
        self.lose(protocol)
        self.assertEqual((self.coordinator.asked[1:], self.ids()), ([{OWN}], {OWN}))

    def test_leaves_late(self) -> None:
        """Who lacks what is older than C{haMaxTimeSlaveNotCatchup} leaves, an idle one does not."""
        protocol, _ = self.caught_up()
        other, _ = self.caught_up(THIRD)
        for _ in range(20):
            self.pass_time(1.0, 1.0)
            for each in (protocol, other):
                self.ack(each, 25_000)
        self.assertEqual(self.ids(), {OWN, SLAVE, THIRD})
        self.put()
        for _ in range(14):
            self.pass_time(1.0, 1.0)
            self.ack(protocol)
            self.ack(other, 25_000)
        self.assertEqual(self.ids(), {OWN, SLAVE, THIRD})
        for _ in range(3):
            self.pass_time(1.0, 1.0)
            self.ack(protocol)
            self.ack(other, 25_000)
        self.assertEqual(self.ids(), {OWN, SLAVE})

    def test_leaves_and_comes_back(self) -> None:
        """One that left because it lagged, and has caught up since, enters once, and stays."""
        protocol, _ = self.caught_up()
        self.put()
        self.pass_time(17.0, 1.0)
        self.assertEqual(self.coordinator.asked, [{OWN, SLAVE}, {OWN}])
        self.ack(protocol)
        self.assertEqual(self.coordinator.asked[2:], [{OWN, SLAVE}])

    def test_one_that_never_comes(self) -> None:
        """A master started again in its epoch gives those in the set time to come."""
        self.build(ids=(OWN, SLAVE, THIRD))
        self.caught_up()
        self.pass_time(14.0, 1.0)
        self.assertEqual(self.coordinator.asked, [])
        self.pass_time(3.0, 1.0)
        self.assertEqual(self.coordinator.asked, [{OWN, SLAVE}])

    def test_time_to_come_begins_with_the_epoch(self) -> None:
        """That time does not count from the start of the process."""
        self.build(ids=(OWN, SLAVE))
        self.master.end()
        self.clock.advance(100.0)
        self.again()
        self.pass_time(10.0, 1.0)
        self.assertEqual(self.coordinator.asked, [])
        self.pass_time(7.0, 1.0)
        self.assertEqual(self.coordinator.asked, [{OWN}])

    def test_who_holds(self) -> None:
        """All members that may count hold a part of the log, or, where there is none but us, any
        that is connected; how far they have come is told in the same way.
        """
        self.coordinator.patient = True
        self.assertEqual((self.in_sync.reach(), self.in_sync.hold(0, 25_000)), (-1, False))
        protocol, _ = self.fed()
        self.ack(protocol, 24_000)
        self.assertEqual((self.in_sync.reach(), self.in_sync.hold(0, 24_000)), (24_000, True))
        self.assertFalse(self.in_sync.hold(0, 24_001))
        self.ack(protocol, 25_000)
        self.assertEqual(self.in_sync.members, {OWN, SLAVE})
        self.assertEqual((self.in_sync.reach(), self.in_sync.hold(0, 25_000)), (25_000, True))
        self.caught_up(THIRD)
        self.lose(protocol)
        self.assertEqual((self.in_sync.reach(), self.in_sync.hold(0, 25_000)), (-1, False))

    def test_enters_beside_one_that_is_away(self) -> None:
        """One enters although another that is in has not come yet."""
        self.build(ids=(OWN, THIRD))
        protocol, _ = self.fed()
        self.ack(protocol)
        self.assertEqual(self.coordinator.asked, [{OWN, SLAVE, THIRD}])

    def test_no_end(self) -> None:
        """Once ended, nothing is asked for, and what comes is passed over."""
        self.coordinator.patient = True
        self.caught_up()
        self.master.end()
        self.coordinator.answer()
        self.assertEqual((self.ids(), self.coordinator.asked), ({OWN}, [{OWN, SLAVE}]))
        self.master.in_sync.told(at(OWN, EPOCH, OWN, SLAVE, set_epoch=9))
        self.assertEqual(self.ids(), {OWN})


class OutcomeTests(SetCase):
    def setUp(self) -> None:
        """A member has caught up; its entry was asked for."""
        self.build()
        self.coordinator.patient = True
        self.protocol, _ = self.caught_up()
        self.assertEqual(self.in_sync.members, {OWN, SLAVE})

    def test_not_reached(self) -> None:
        """A change that did not reach the controller was not made; it is asked for again soon."""
        self.coordinator.refuse(UNREACHED)
        self.assertEqual(self.in_sync.members, {OWN})
        self.ack(self.protocol)
        self.assertEqual(len(self.coordinator.asked), 1)
        self.pass_time(2.0)
        self.assertEqual(self.coordinator.asked[1:], [{OWN, SLAVE}])

    def test_refused(self) -> None:
        """The same holds for a refused one, for example for a member whose heartbeat is late."""
        self.coordinator.refuse(refused(ControllerResponseCode.BROKER_NOT_ALIVE))
        self.assertEqual((self.in_sync.members, self.superseded), ({OWN}, 0))
        self.pass_time(2.0)
        self.assertEqual(self.coordinator.asked[1:], [{OWN, SLAVE}])

    def test_set_epoch_has_moved(self) -> None:
        """A refusal because of the set epoch asks what the set is."""
        self.coordinator.state = at(OWN, EPOCH, OWN, THIRD, set_epoch=5)
        self.coordinator.refuse(refused(ControllerResponseCode.FENCED_SYNC_STATE_SET_EPOCH))
        self.assertEqual(self.in_sync.state, self.coordinator.state)

    def test_superseded(self) -> None:
        """A refusal because another one leads is told to who made us."""
        for code in (
            ControllerResponseCode.INVALID_MASTER,
            ControllerResponseCode.FENCED_MASTER_EPOCH,
        ):
            self.setUp()
            self.coordinator.refuse(refused(code))
            self.assertEqual(self.superseded, 1)

    def test_unanswered_and_made(self) -> None:
        """A change not answered counts on both sides, until the controller tells it is made."""
        self.coordinator.down = UNREACHED
        self.coordinator.refuse(UNANSWERED, made=True)
        self.assertEqual(self.in_sync.members, {OWN, SLAVE})
        self.assertEqual(self.in_sync.state.in_sync, {OWN})
        self.assertEqual(self.master.status()["mayAlsoBe"], [[OWN, SLAVE]])
        self.coordinator.down = None
        self.pass_time(1.1)
        self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE})
        self.assertEqual(self.master.status()["mayAlsoBe"], [])

    def test_unanswered_and_late(self) -> None:
        """However long the controller tells the old set, the change may still be on its way: both
        count, and the member that it takes in has what is acknowledged.
        """
        self.coordinator.refuse(UNANSWERED)
        before = self.coordinator.state
        self.lose(self.protocol)
        self.pass_time(3600.0, 1.0)
        self.assertEqual(self.in_sync.members, {OWN, SLAVE})
        self.fed(THIRD)
        self.ack(next(iter(self.factory.door.inside)))
        written = self.put()
        self.ack(next(iter(self.factory.door.inside)))
        self.assertTrue(self.coordinator.made(before, frozenset({OWN, SLAVE})))
        self.pass_time(4.0)
        self.assertIs(self.successResultOf(written), PutStatus.FLUSH_SLAVE_TIMEOUT)

    def test_provoked(self) -> None:
        """A change that was not answered is asked for again, although the member that it takes in
        is away: one of the two is made, the other one comes too late, and the member leaves at
        once.
        """
        self.coordinator.refuse(UNANSWERED)
        before = self.coordinator.state
        self.lose(self.protocol)
        self.pass_time(2.0)
        self.assertEqual(self.coordinator.asked[1:], [{OWN, SLAVE}])
        self.coordinator.answer()
        self.assertFalse(self.coordinator.made(before, frozenset({OWN, SLAVE})))
        self.assertEqual(self.coordinator.asked[2:], [{OWN}])
        self.coordinator.answer()
        self.assertEqual(self.in_sync.members, {OWN})

    def test_provoked_until_it_is_told(self) -> None:
        """Where nobody else is in, what was refused is asked for again, until it is known."""
        self.coordinator.refuse(UNANSWERED)
        self.lose(self.protocol)
        self.pass_time(2.0)
        self.coordinator.refuse(refused(ControllerResponseCode.BROKER_NOT_ALIVE))
        self.pass_time(2.0)
        self.assertEqual(self.coordinator.asked[1:], [{OWN, SLAVE}, {OWN, SLAVE}])

    def test_provoked_beside_a_dead_member(self) -> None:
        """The controller does not take in a dead member: another leaves, and the change is void."""
        self.coordinator.answer()
        third, _ = self.caught_up(THIRD)
        self.coordinator.refuse(UNANSWERED)
        before = self.coordinator.state
        self.lose(third)
        self.pass_time(2.0)
        self.coordinator.refuse(refused(ControllerResponseCode.BROKER_NOT_ALIVE))
        self.pass_time(2.0)
        self.assertEqual(self.coordinator.asked[2:], [{OWN, SLAVE, THIRD}, {OWN}])
        self.assertEqual(self.in_sync.members, {OWN, SLAVE, THIRD})
        self.coordinator.answer()
        self.assertFalse(self.coordinator.made(before, frozenset({OWN, SLAVE, THIRD})))
        self.assertEqual(self.coordinator.asked[4:], [{OWN, SLAVE}])
        self.coordinator.answer()
        self.assertEqual(self.in_sync.members, {OWN, SLAVE})
        self.assertEqual(self.master.status()["mayAlsoBe"], [])

    def test_not_provoked_with_an_emptied_member(self) -> None:
        """A member that comes back with less than it had is not asked for."""
        self.coordinator.refuse(UNANSWERED)
        self.lose(self.protocol)
        self.fed(SLAVE)
        self.pass_time(0.5)
        self.pass_time(5.0, 1.0)
        self.assertEqual(self.coordinator.asked, [{OWN, SLAVE}])

    def test_unanswered_and_asked_again(self) -> None:
        """A later change ends the doubt: the one on its way names a set epoch that is over."""
        self.coordinator.refuse(UNANSWERED)
        self.pass_time(1.5)
        self.assertEqual(self.coordinator.asked[1:], [{OWN, SLAVE}])
        self.coordinator.answer()
        self.assertEqual(self.master.status()["mayAlsoBe"], [])
        self.assertEqual(self.in_sync.members, {OWN, SLAVE})

    def test_asked_before_a_restart(self) -> None:
        """What the process before had asked for counts: the controller may make it, and elect."""
        self.coordinator.waiting.clear()
        self.again([frozenset({OWN, THIRD})])
        self.assertEqual(self.in_sync.members, {OWN, THIRD})
        self.assertEqual(self.master.status()["mayAlsoBe"], [[OWN, THIRD]])
        self.fed(SLAVE, self.log.end)
        written = self.put()
        self.ack(next(iter(self.factory.door.inside)))
        self.assertNoResult(written)
        self.pass_time(4.0)
        self.assertIs(self.successResultOf(written), PutStatus.FLUSH_SLAVE_TIMEOUT)
        self.coordinator.state = at(OWN, EPOCH, OWN, THIRD, set_epoch=2)
        self.pass_time(1.5)
        self.assertEqual(self.in_sync.state.in_sync, {OWN, THIRD})

    def test_asked_before_and_not_made(self) -> None:
        """That is provoked as well."""
        self.coordinator.waiting.clear()
        self.again([frozenset({OWN, THIRD})])
        self.pass_time(1.5)
        self.assertEqual(self.coordinator.asked[1:], [{OWN, THIRD}])
        self.assertEqual(self.in_sync.members, {OWN, THIRD})

    def test_not_written_down(self) -> None:
        """A change for which there is no room on our disk was not asked for."""
        self.coordinator.refuse(DiskFull("/store", 1))
        self.assertEqual(self.master.status()["mayAlsoBe"], [])

    def test_told(self) -> None:
        """What the controller tells meanwhile is taken if it is newer, and of our epoch."""
        self.master.in_sync.told(at(OWN, EPOCH, OWN, THIRD, set_epoch=4))
        self.assertEqual(self.in_sync.members, {OWN, SLAVE, THIRD})
        self.master.in_sync.told(at(OWN, EPOCH, OWN, set_epoch=3))
        self.master.in_sync.told(at(SLAVE, EPOCH, OWN, set_epoch=9))
        self.assertEqual((self.in_sync.state.in_sync, self.superseded), ({OWN, THIRD}, 0))
        self.master.in_sync.told(at(SLAVE, EPOCH + 1, SLAVE, set_epoch=9))
        self.assertEqual((self.superseded, self.in_sync.state.in_sync), (1, {OWN, THIRD}))

    def test_surprise(self) -> None:
        """An error of ours does not end the asking."""
        self.coordinator.refuse(RuntimeError("a bug"))
        self.pass_time(1.5)
        self.assertEqual(self.coordinator.asked[1:], [{OWN, SLAVE}])


class ConfirmTests(SetCase):
    """Below it every member holds the log."""

    def test_alone(self) -> None:
        """Of a master that is alone it is the end of its log, and told before frames go out."""
        self.assertEqual(self.master.confirm, 25_000)
        moved: list[int] = []
        self.master.confirm_moved.append(lambda: moved.append(self.master.confirm))
        self.put(300)
        self.assertEqual(moved, [25_300])

    def test_smallest(self) -> None:
        """With members it is the smallest acknowledgement of them."""
        first, _ = self.caught_up()
        second, _ = self.caught_up(THIRD)
        self.put(300)
        self.assertEqual(self.master.confirm, 25_000)
        self.ack(first)
        self.assertEqual(self.master.confirm, 25_000)
        self.ack(second, 25_200)
        self.assertEqual(self.master.confirm, 25_200)
        self.ack(second)
        self.assertEqual(self.master.confirm, 25_300)

    def test_flushed_only(self) -> None:
        """Where only flushed bytes are sent, nothing else is confirmed."""
        self.build(send_flushed_only=True)
        self.put(300)
        self.assertEqual(self.master.confirm, 25_000)
        self.log.flush()
        self.assertEqual(self.master.confirm, 25_300)

    def test_without_a_connection(self) -> None:
        """It stays while a member of the set has no connection, and never goes down."""
        self.coordinator.patient = True
        protocol, _ = self.caught_up()
        self.coordinator.answer()
        self.put(300)
        self.lose(protocol)
        self.assertEqual(self.coordinator.asked[1:], [{OWN}])
        self.put(300)
        self.assertEqual(self.master.confirm, 25_000)
        self.assertFalse(self.in_sync.connected)
        self.coordinator.answer()
        self.assertEqual(self.master.confirm, 25_600)
        self.assertTrue(self.in_sync.connected)

    def test_ended(self) -> None:
        """A report after the epoch confirms nothing: the log may be another's by then."""
        protocol, _ = self.caught_up()
        self.put(300)
        self.in_sync.close()
        self.ack(protocol)
        self.assertEqual(self.master.confirm, 25_000)

    def test_known_from_before(self) -> None:
        """A master that is started again begins where the store knows it to be."""
        self.build(ids=(OWN, SLAVE))
        self.assertEqual(self.master.confirm, 0)
        self.in_sync.confirm = 20_000
        self.fed(report=0)
        self.assertEqual(self.master.confirm, 20_000)


class LogTests(SetCase):
    def test_repeated_failures(self) -> None:
        """With controllers away the log says so once, and again after a change was made."""
        lines = log_lines(self, least=LogLevel.warn)
        self.coordinator.patient = True
        self.caught_up()
        for _ in range(5):
            self.coordinator.refuse(UNREACHED)
            self.pass_time(2.0)
        self.assertEqual(
            lines,
            [
                "The change of the SyncStateSet from [1] to [1, 2] did not reach the controller: "
                + str(UNREACHED)
            ],
        )

    def test_listener_that_fails(self) -> None:
        """An error of one who follows confirm does not fail the write that moved it."""

        def fail() -> None:
            raise RuntimeError("a bug")

        self.master.confirm_moved.append(fail)
        self.put()
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
