"""Tests for L{rmqha.controller.other_members}."""

from __future__ import annotations

from rmqha.controller.other_members import MemberLabels, ends_of, labels_of
from rmqha.errors import BodyInvalid, ControllerRefused, RemotingUnreachable, RequestRefused
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from tests.controller.fake_controllers import FakeControllers
from tests.controller.test_group import B, GroupTestCase, refused, said

SET = (
    b'{"replicasInfoTable":{"a":{"inSyncReplicas":[{"alive":true,"brokerAddress":"10.0.0.1:10911",'
    b'"brokerId":1,"brokerName":"a"}],"masterAddress":"10.0.0.1:10911","masterBrokerId":1,'
    b'"masterEpoch":1,"notInSyncReplicas":[{"alive":false,"brokerAddress":"10.0.0.2:10911",'
    b'"brokerId":2,"brokerName":"a"}],"syncStateSetEpoch":2}}}'
)
EPOCHS = (
    b'{"brokerId":2,"brokerName":"a","clusterName":"C","epochList":[{"endOffset":66215,"epoch":1,'
    b'"startOffset":0},{"endOffset":9223372036854775807,"epoch":2,"startOffset":66215}],'
    b'"maxOffset":344675}'
)
MEMBER = "10.0.0.2:10911"


class MembersTests(GroupTestCase):
    def test_all(self) -> None:
        """Members are told whether they are in sync, live or not; the question names the set."""
        self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = said({}, SET)
        found = self.successResultOf(self.group.members())
        self.assertEqual(found, {1: "10.0.0.1:10911", 2: "10.0.0.2:10911"})
        self.assertEqual(bytes(self.controllers.asked[-1][1].body), b'["a"]')

    def test_unknown_set(self) -> None:
        """A set that the controller does not know has none."""
        self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = said({}, b'{"replicasInfoTable":{}}')
        self.assertEqual(self.successResultOf(self.group.members()), {})

    def test_refused(self) -> None:
        """A refusal, and what cannot be read, are said with who answered."""
        for handler in (refused(1), said({}, b"[")):
            self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = handler
            error = self.failureResultOf(self.group.members(), ControllerRefused).value
            self.assertIn(B, str(error))


class LabelsTests(GroupTestCase):
    """What a member's log is filed under."""

    def setUp(self) -> None:
        super().setUp()
        self.member = FakeControllers((MEMBER,), MEMBER)

    def test_labels(self) -> None:
        """Starts are told, oldest first, and where the log ends."""
        self.member.handlers[Code.GET_BROKER_EPOCH_CACHE] = said({}, EPOCHS)
        found = self.result(labels_of(self.member, MEMBER, "a"))
        labels = (EpochLabel(1, 0), EpochLabel(2, 66215))
        self.assertEqual(found, MemberLabels(labels, 344675))

    def test_not_told(self) -> None:
        """A refusal, another set's member, an unreadable answer and nobody there are errors."""
        code = Code.GET_BROKER_EPOCH_CACHE
        for handler, error in ((refused(1), RequestRefused), (said({}, b"{}"), BodyInvalid)):
            self.member.handlers[code] = handler
            self.failed(labels_of(self.member, MEMBER, "a"), error)
        self.member.handlers[code] = said({}, EPOCHS)
        self.failed(labels_of(self.member, MEMBER, "b"), RequestRefused)
        self.member.gone.add(MEMBER)
        self.failed(labels_of(self.member, MEMBER, "a"), RemotingUnreachable)

    def test_ends(self) -> None:
        """Of those that answer, where their logs end; of others, and unknown ones, nothing."""
        self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = said({}, SET)
        self.member.handlers[Code.GET_BROKER_EPOCH_CACHE] = said({}, EPOCHS)
        self.member.gone.add("10.0.0.1:10911")
        self.assertEqual(self.result(ends_of(self.group, self.member, "a", (1, 2, 3))), {2: 344675})
        self.assertEqual(self.result(ends_of(self.group, self.member, "a", ())), {})
