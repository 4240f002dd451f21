"""When a master takes no more writes because another one has a higher master epoch."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, fail, succeed

from rmqha.broker.cluster.fencing import CHECK_EVERY, Fencing
from rmqha.config.values import NETWORKS
from rmqha.errors import RemotingUnreachable
from rmqha.ha.master_epoch import EpochJournal, HigherMaster
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds
from rmqha.net.allowed_peers import Allowed
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.headers.slave import EpochClaim
from tests.broker.support import SEND_V2, BrokerTestCase, sending

THERE = "10.0.0.6:10911"
OTHER = HigherMaster(3, THERE, "told by a name server")
CLAIM = EpochClaim(broker_name="broker-a", master_epoch=3, master_addr=THERE)


def bounds(epoch: int, name: str = "broker-a") -> MasterBounds:
    """What a broker says of itself."""
    return MasterBounds(0, 9, 1, BrokerIdentity(name=name, id=0, epoch=epoch))


class FencingTests(BrokerTestCase):
    def setUp(self) -> None:
        super().setUp()
        broker = self.broker()
        broker.epochs.become(broker.epochs.journal.raised(0, 2))
        self.asked: list[str] = []
        self.answer: Any = succeed(bounds(3))
        self.fencing = broker.fencing
        self.fencing.ask = self.ask

    def ask(self, address: str) -> Deferred[MasterBounds]:
        self.asked.append(address)
        answer: Deferred[MasterBounds] = self.answer
        return answer

    def code(self) -> int:
        answer = self.client().ask(SEND_V2, sending("T"), b"body")
        assert answer is not None
        return answer.code

    def fenced(self) -> bool:
        """Whether writes are refused; then everything else is as it has to be."""
        store, registration = self.serving.store, self.serving.registration
        if not store.state:
            self.assertEqual((self.code(), registration.suspended), (ResponseCode.SUCCESS, ""))
            return False
        self.assertEqual(store.state, "fenced")
        self.assertIn(THERE, store.reason)
        self.assertIn("ours is 2", store.reason)
        self.assertEqual(self.code(), ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual(registration.suspended, store.reason)
        kept = EpochJournal.read(self.root).fenced_by
        assert kept is not None
        self.assertEqual((kept.epoch, kept.address), (3, THERE))
        return True

    def test_met(self) -> None:
        """A higher one stops the writes, an equal or a lower one does not."""
        for epoch in (1, 2):
            self.fencing.on_higher(evolve(OTHER, epoch=epoch))
            self.assertFalse(self.fenced())
        self.fencing.on_higher(OTHER)
        self.assertTrue(self.fenced())

    def test_reads(self) -> None:
        """What can be read can be read."""
        self.assertEqual(self.code(), ResponseCode.SUCCESS)
        self.fencing.on_higher(OTHER)
        self.assertEqual(self.record("T").body, b"body")

    def test_kept(self) -> None:
        """One that starts again is fenced from its first moment, until it was promoted."""
        self.fencing.on_higher(OTHER)
        epochs = self.serving.epochs
        for journal, expected in ((epochs.journal, "fenced"), (epochs.journal.raised(0), "")):
            self.close_store(self.serving.store)
            again = self.broker()
            again.epochs.become(journal)
            again.fencing.start()
            self.assertEqual(again.store.state, expected)

    def test_claim_confirmed(self) -> None:
        """Another broker tells of a higher master: that master is asked, and confirms it."""
        self.fencing.on_claim("10.0.0.7", CLAIM)
        self.assertEqual(self.asked, [THERE])
        self.assertTrue(self.fenced())
        self.fencing.on_claim("10.0.0.7", CLAIM)
        self.assertEqual(self.asked, [THERE])

    def test_claim_by_request(self) -> None:
        """It comes with request 28, which is answered too; of another name it is nothing."""
        told = {"brokerName": "broker-b", "masterEpoch": "3", "masterAddr": THERE}
        for name, expected in (("broker-b", []), ("broker-a", [THERE])):
            answer = self.client().ask(28, told | {"brokerName": name})
            assert answer is not None
            self.assertEqual((answer.code, self.asked), (ResponseCode.SUCCESS, expected))
        self.assertTrue(self.fenced())

    def test_fields_of_others(self) -> None:
        """A client may send fields of its own with 28."""
        for told in ({"x": "y"}, {"brokerName": "broker-a", "masterEpoch": "x"}):
            answer = self.client().ask(28, told)
            assert answer is not None
            self.assertEqual(answer.code, ResponseCode.SUCCESS)
        self.assertFalse(self.fenced())

    def test_claim_not_confirmed(self) -> None:
        """A stranger's word alone stops no master, but is said, and not looked at all the time."""
        for wrong in (
            fail(RemotingUnreachable(THERE, "refused")),
            succeed(bounds(2)),
            succeed(bounds(9, "broker-b")),
        ):
            self.answer = wrong
            self.fencing.on_claim("10.0.0.7", CLAIM)
            self.fencing.on_claim("10.0.0.7", CLAIM)
            self.clock.advance(CHECK_EVERY)
            self.assertFalse(self.fenced())
            self.assertIn(THERE, self.serving.status()["doubtedClaim"])
        self.assertEqual(len(self.asked), 3)

    def test_claim_of_a_replica(self) -> None:
        """Where replicas are named, one is believed when its master cannot be reached from here."""
        self.fencing.replicas = Allowed(NETWORKS.parse("10.0.0.7"))
        self.answer = fail(RemotingUnreachable(THERE, "refused"))
        self.fencing.on_claim("10.0.0.8", CLAIM)
        self.assertEqual(self.asked, [])
        self.assertFalse(self.fenced())
        self.fencing.on_claim("10.0.0.7", CLAIM)
        self.assertTrue(self.fenced())

    def test_claims_of_nothing(self) -> None:
        """One that is not higher, or names no address, is not looked at."""
        self.fencing.on_claim("10.0.0.7", evolve(CLAIM, master_epoch=2))
        self.fencing.on_claim("10.0.0.7", evolve(CLAIM, master_addr="nowhere"))
        self.assertEqual(self.asked, [])

    def test_one_check_at_a_time(self) -> None:
        """Many claims make one question."""
        self.answer = Deferred()
        for _ in range(100):
            self.fencing.on_claim("10.0.0.7", CLAIM)
            self.clock.advance(CHECK_EVERY)
        self.assertEqual(self.asked, [THERE])
        self.answer.callback(bounds(3))
        self.assertTrue(self.fenced())

    def test_bug(self) -> None:
        """What goes wrong in a check is in the log, and the next claim is checked."""
        self.answer = fail(ZeroDivisionError())
        self.fencing.on_claim("10.0.0.7", CLAIM)
        self.flushLoggedErrors(ZeroDivisionError)
        self.clock.advance(CHECK_EVERY)
        self.answer = succeed(bounds(3))
        self.fencing.on_claim("10.0.0.7", CLAIM)
        self.assertTrue(self.fenced())


class SlaveTests(BrokerTestCase):
    def test_claim(self) -> None:
        """It takes no writes anyway: what others tell of masters is not looked at."""
        broker = self.broker(slave=True)
        self.patch(Fencing, "on_claim", lambda *said: 1 / 0)
        told = {"brokerName": "broker-a", "masterEpoch": "3", "masterAddr": THERE}
        answer = self.client().ask(28, told)
        assert answer is not None
        self.assertEqual((answer.code, broker.store.state), (ResponseCode.SUCCESS, ""))
