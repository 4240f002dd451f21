"""Tests for L{rmqha.controller.overview}."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from rmqha.controller.overview import Overview, look, members
from rmqha.errors import ControllerRefused
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from tests.controller.test_group import A, B, C, GroupTestCase, refused, said
from tests.controller.test_other_members import SET


class OverviewTests(GroupTestCase):
    """Three controllers, of which the second leads, and a set."""

    def seen(self, *names: str, body: bytes = SET) -> Overview:
        self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = said({}, body)
        return self.result(look(self.group, names))

    def test_well(self) -> None:
        """All controllers are asked, the sets by one question of who leads."""
        seen = self.seen("a")
        self.assertEqual([each.leader for each in seen.controllers], [B, B, B])
        self.assertEqual([each.leads for each in seen.controllers], [False, True, False])
        self.assertEqual((seen.leader, list(seen.problems())), (B, []))
        found = seen.sets["a"]
        assert found is not None
        self.assertEqual(
            [(each.broker_id, each.alive) for each in members(found)], [(1, True), (2, False)]
        )
        self.assertEqual(self.controllers.codes()[-1], (B, Code.GET_SYNC_STATE_DATA))

    def test_frozen(self) -> None:
        """R4: all are asked at once, so that the slowest alone is waited for."""
        self.controllers.frozen |= set(self.group.addresses)
        Deferred.fromCoroutine(look(self.group, ()))
        self.assertEqual([A, B, C], [address for address, _ in self.controllers.codes()])

    def test_without_sets(self) -> None:
        """Nobody is asked for sets where none is named."""
        self.assertEqual(dict(self.seen().sets), {})
        self.assertNotIn((B, Code.GET_SYNC_STATE_DATA), self.controllers.codes())

    def test_some_gone(self) -> None:
        """Of a controller that is not there is told why; the others are enough."""
        self.controllers.gone.add(A)
        self.controllers.silent.add(C)
        seen = self.seen("a")
        self.assertIn("connection refused", seen.controllers[0].trouble)
        self.assertTrue(seen.controllers[2].trouble)
        self.assertEqual(list(seen.problems()), [])

    def test_no_leader(self) -> None:
        """Without a leader there is nothing to ask, and that is said."""
        self.controllers.leader = ""
        seen = self.seen("a")
        self.assertEqual((seen.leader, dict(seen.sets)), ("", {}))
        (problem,) = seen.problems()
        self.assertIn("no controller leads", problem)

    def test_problems(self) -> None:
        """A set that is not known, one without a master, and one whose master is dead."""
        (problem,) = self.seen("b").problems()
        self.assertEqual(problem, "the controllers know no set b")
        without = SET.replace(b'"masterAddress":"10.0.0.1:10911","masterBrokerId":1,', b"")
        (problem,) = self.seen("a", body=without).problems()
        self.assertEqual(problem, "set a has no master")
        (problem,) = self.seen("a", body=SET.replace(b'"alive":true', b'"alive":false')).problems()
        self.assertEqual(problem, "set a has a master that is not alive: id 1")

    def test_refused(self) -> None:
        """A refusal is an error."""
        self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = refused(1)
        self.failed(look(self.group, ["a"]), ControllerRefused)
