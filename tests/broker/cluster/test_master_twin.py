"""A master's look for another one of its name."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.cluster.master_twin import PERIOD, LiveMaster, MasterTwinCheck, TwinSearch
from rmqha.errors import RemotingUnreachable
from rmqha.ha.master_epoch import EpochJournal, HigherMaster, MasterEpochs
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds
from rmqha.health import HealthProbe
from tests.support.logs import now

OURS, THERE, ELSEWHERE = "10.0.0.5:10911", "10.0.0.6:10911", "10.0.0.7:10911"
SERVERS = ("10.0.0.9:9876", "10.0.0.10:9876")


class Cluster:
    """Name servers and their brokers of our name by id, and who lives at the addresses."""

    def __init__(self) -> None:
        self.listed: dict[str, dict[int, str]] = {}
        self.frozen: set[str] = set()
        self.living: dict[str, BrokerIdentity] = {}
        self.asked: list[str] = []

    def ask(self, server: str, timeout: float) -> Deferred[Any]:
        if server in self.frozen:
            return Deferred()
        if server not in self.listed:
            return fail(RemotingUnreachable(server, "refused"))
        return succeed(self.listed[server])

    def who(self, address: str) -> Deferred[MasterBounds]:
        self.asked.append(address)
        if address not in self.living:
            return fail(RemotingUnreachable(address, "refused"))
        return succeed(MasterBounds(0, 9, 1, self.living[address]))

    def lists(self, *masters: str) -> None:
        self.listed = {
            server: {0: master, 1: "10.0.0.8:10911"}
            for server, master in zip(SERVERS, masters, strict=False)
        }


def master(epoch: int = 0, **values: Any) -> BrokerIdentity:
    """A master of ours."""
    return BrokerIdentity(**{"name": "broker-a", "id": 0, "run_id": "other", **values}, epoch=epoch)


class TwinCase(SynchronousTestCase):
    """Tests with a master of epoch 2."""

    def setUp(self) -> None:
        self.cluster = Cluster()
        self.clock = Clock()
        self.epochs = MasterEpochs(self.mktemp(), now, EpochJournal(number=2))  # type: ignore[arg-type]
        self.search = TwinSearch(
            members=self.cluster,  # type: ignore[arg-type]
            name="broker-a",
            address=OURS,
            run_id=self.epochs.run_id,
            ask=self.cluster.who,
        )


class SearchTests(TwinCase):
    def found(self, *known: str) -> list[LiveMaster]:
        return self.successResultOf(Deferred.fromCoroutine(self.search.look(SERVERS, known)))

    def test_alone(self) -> None:
        """Name servers that list nobody, or this one, or do not answer."""
        for masters in ((), (OURS,), (OURS, OURS)):
            self.cluster.lists(*masters)
            self.assertEqual(self.found(), [])
        self.assertEqual(self.cluster.asked, [])

    def test_dead(self) -> None:
        """An address that does not answer is no master."""
        self.cluster.lists(THERE)
        self.assertEqual((self.found(), self.cluster.asked), ([], [THERE]))

    def test_live(self) -> None:
        """Each address is asked once, whoever lists it."""
        self.cluster.lists(THERE, ELSEWHERE)
        self.cluster.living = {THERE: master(2), ELSEWHERE: master(7)}
        expected = [LiveMaster(address=THERE, epoch=2), LiveMaster(address=ELSEWHERE, epoch=7)]
        self.assertEqual(self.found(THERE), expected)
        self.assertEqual(self.cluster.asked, [THERE, ELSEWHERE])

    def test_remembered(self) -> None:
        """One that was found before is asked again, though no name server lists it."""
        self.cluster.lists(OURS)
        self.cluster.living = {THERE: master(2)}
        self.assertEqual(self.found(THERE), [LiveMaster(address=THERE, epoch=2)])

    def test_frozen(self) -> None:
        """R4: who one name server lists is asked, and told of, while another stands still; that
        there is no other one is known when all have had their time.
        """
        self.cluster.lists(THERE, OURS)
        self.cluster.frozen.add(SERVERS[1])
        self.cluster.living = {THERE: master(2), ELSEWHERE: master(7)}
        met: list[LiveMaster] = []
        looking = Deferred.fromCoroutine(self.search.look(SERVERS, (ELSEWHERE,), met.append))
        self.assertEqual([(one.address, one.epoch) for one in met], [(ELSEWHERE, 7), (THERE, 2)])
        self.assertNoResult(looking)

    def test_stock(self) -> None:
        """A stock master tells nothing of itself, and counts as never promoted."""
        self.cluster.lists(THERE)
        self.cluster.living = {THERE: BrokerIdentity()}
        self.assertEqual(self.found(), [LiveMaster(address=THERE, epoch=0)])

    def test_others(self) -> None:
        """This process at another address, a slave, and a broker of another name are none."""
        self.cluster.lists(THERE)
        for who in (
            master(2, run_id=self.epochs.run_id),
            master(2, id=1),
            master(2, name="broker-b"),
        ):
            self.cluster.living = {THERE: who}
            self.assertEqual(self.found(), [])


class CheckTests(TwinCase):
    """What a running master makes of it."""

    def setUp(self) -> None:
        super().setUp()
        self.met: list[HigherMaster] = []
        self.errors: list[str] = []
        self.check = MasterTwinCheck(
            search=self.search,
            servers=lambda: SERVERS,
            epochs=self.epochs,
            met=self.met.append,
            clock=self.clock,
        )
        self.check.start()
        self.addCleanup(self.check.stop)

        def observe(event: Any) -> None:
            if event["log_level"] is LogLevel.error:
                self.errors.append(event["twin"])

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def look(self, epoch: int | None) -> list[str]:
        """Another one with this epoch comes: names of what makes the master unhealthy."""
        self.cluster.lists(THERE)
        self.cluster.living = {} if epoch is None else {THERE: master(epoch)}
        self.clock.advance(PERIOD)
        return [reason.name for reason in self.check.health() if HealthProbe.HEALTH in reason.fails]

    def test_equal(self) -> None:
        """One with the same epoch is an error, once, and makes both unhealthy."""
        for _ in range(3):
            self.assertEqual(self.look(2), ["twin"])
        (error,) = self.errors
        self.assertEqual(error, self.check.twin)
        self.assertIn(f"{THERE} is a live master of broker-a too, with the same", error)

    def test_lower(self) -> None:
        """One with a lower epoch is its own trouble, and is said."""
        self.assertEqual(self.look(1), [])
        self.assertIn("the lower master epoch 1, ours is 2", self.errors[0])

    def test_higher(self) -> None:
        """A higher one is told of: it stops the writes."""
        self.look(3)
        self.assertEqual([(one.epoch, one.address) for one in self.met], [(3, THERE)])
        self.assertIn("the higher master epoch 3", self.check.twin)

    def test_frozen(self) -> None:
        """R4: a higher one stops the writes while a name server stands still."""
        self.cluster.frozen.add(SERVERS[1])
        self.look(3)
        self.assertEqual([(one.epoch, one.address) for one in self.met], [(3, THERE)])

    def test_gone(self) -> None:
        """When it answers no more, all is well."""
        self.look(2)
        self.assertEqual((self.look(None), self.check.twin), ([], ""))
        self.assertEqual((self.look(2), len(self.errors)), (["twin"], 2))

    def test_flips(self) -> None:
        """Of two with one epoch a name server lists the last: the other one is not forgotten."""
        self.look(2)
        self.cluster.lists(OURS)
        self.clock.advance(PERIOD)
        self.assertIn(THERE, self.check.twin)

    def test_stopped(self) -> None:
        """What comes after the end is not looked at."""
        answer: Deferred[MasterBounds] = Deferred()
        self.search.ask = lambda address: answer
        self.look(9)
        self.check.stop()
        answer.callback(MasterBounds(0, 9, 1, master(9)))
        self.assertEqual(self.met, [])
