"""Which master a slave follows when name servers name another."""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import RemotingUnreachable
from rmqha.ha.slave.choice import MasterChoice, NamedMaster, PresentMaster, Verdict, choose
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds

OURS, OTHER = "10.0.0.6:10912", "10.0.0.5:10912"
CLIENT = "10.0.0.5:10911"
PATIENCE = 20.0


class VerdictTests(SynchronousTestCase):
    """The decision by itself; this log follows master epoch 2."""

    def verdict(
        self,
        epoch: int | None,
        silent: float | None,
        *,
        address: str = OTHER,
        present: str = OURS,
        trusted: str = "",
    ) -> Verdict:
        return choose(
            NamedMaster(address=address, epoch=epoch),
            PresentMaster(address=present, silent=silent),
            number=2,
            trusted=trusted,
            patience=PATIENCE,
        )

    def test_same(self) -> None:
        """The present one may be named with any epoch."""
        for epoch in (None, 0, 2, 3):
            self.assertIs(self.verdict(epoch, 0.0, address=OURS), Verdict.SAME)

    def test_live(self) -> None:
        """One that is heard is left for a higher epoch alone."""
        for silent in (0.0, PATIENCE - 0.1):
            self.assertIs(self.verdict(3, silent), Verdict.FOLLOW)
            for epoch in (None, 2):
                self.assertIs(self.verdict(epoch, silent), Verdict.STAY)

    def test_silent(self) -> None:
        """One silent for long, or never proven, is left for any that is not older."""
        for silent in (None, PATIENCE, 1e6):
            for epoch in (None, 2, 3):
                self.assertIs(self.verdict(epoch, silent), Verdict.FOLLOW)

    def test_lower(self) -> None:
        """An older master is never followed, not even by a slave without one."""
        for silent in (None, 0.0, 1e6):
            self.assertIs(self.verdict(1, silent), Verdict.REFUSE)
        self.assertIs(self.verdict(1, None, present=""), Verdict.REFUSE)

    def test_none(self) -> None:
        """A slave without a master follows the first that is named."""
        self.assertIs(self.verdict(None, None, present=""), Verdict.FOLLOW)

    def test_trusted(self) -> None:
        """The one that an operator has decided for is followed, whatever it is."""
        self.assertIs(self.verdict(0, 0.0, trusted=OTHER), Verdict.FOLLOW)
        self.assertIs(self.verdict(0, 0.0, trusted="10.0.0.7:10912"), Verdict.REFUSE)


class ChoiceTests(SynchronousTestCase):
    """A slave whose master answers; its log follows master epoch 1."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.heard = 0.0
        self.number = 1
        self.address = OURS
        self.followed: list[NamedMaster] = []
        self.asked: list[str] = []
        self.refused: list[str] = []
        self.answer: Deferred[MasterBounds] | MasterBounds | Exception
        self.answer = RemotingUnreachable(CLIENT, "refused")
        self.choice = MasterChoice(
            present=lambda: PresentMaster(
                address=self.address, silent=self.clock.seconds() - self.heard
            ),
            number=lambda: self.number,
            trusted="",
            patience=PATIENCE,
            ask=self.ask,
            follow=self.follow,
            refuse=self.refused.append,
            clock=self.clock,
        )
        self.addCleanup(self.ended)

    def ended(self) -> None:
        self.choice.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def ask(self, address: str) -> Deferred[MasterBounds]:
        self.asked.append(address)
        if isinstance(self.answer, Exception):
            return fail(self.answer)
        return self.answer if isinstance(self.answer, Deferred) else succeed(self.answer)

    def follow(self, named: NamedMaster) -> None:
        self.followed.append(named)
        self.address = named.address

    def hear(self, epoch: int | None = None, address: str = OTHER) -> None:
        self.choice.hear(NamedMaster(address=address, client=CLIENT, epoch=epoch))

    def says(self, epoch: int) -> None:
        """What the named one says of itself."""
        identity = BrokerIdentity(name="a", id=0, epoch=epoch)
        self.answer = MasterBounds(0, 9, 1, identity)

    def test_stays(self) -> None:
        """A stock name server names another: that one is asked, and the slave stays and says so."""
        for answer in (None, 1):
            if answer is not None:
                self.says(answer)
            self.hear()
            self.assertEqual(self.followed, [])
            self.assertIn(OTHER, self.choice.other)
            self.assertIn(f"staying with {OURS}", self.choice.other)
        self.assertEqual(self.asked, [CLIENT, CLIENT])

    def test_named_again(self) -> None:
        """When its own is named again, nothing is wrong any more."""
        self.hear()
        self.hear(address=OURS)
        self.assertEqual(self.choice.other, "")
        self.clock.advance(100)
        self.assertEqual([one.address for one in self.followed], [OURS])

    def test_higher(self) -> None:
        """One with a higher epoch is followed at once, whoever tells the epoch."""
        self.hear(2)
        self.assertEqual(([one.address for one in self.followed], self.asked), ([OTHER], []))
        self.address = OURS
        self.says(2)
        self.hear()
        self.assertEqual(len(self.followed), 2)

    def test_says_less(self) -> None:
        """What it says of itself goes before what name servers remember of it."""
        self.says(0)
        self.hear(1)
        self.assertEqual(self.followed, [])
        self.assertIn("is not followed: this log follows master epoch 1", self.choice.other)
        self.assertEqual(self.refused, [], "its own answers")

    def test_only_an_older_one(self) -> None:
        """Where its own is gone, an older one that is named is told with the way out."""
        self.says(0)
        self.clock.advance(PATIENCE)
        self.hear(0)
        self.assertEqual((self.followed, len(self.refused)), ([], 1))
        for word in ("rmqha promote --epoch 2", f"haTrustMaster={OTHER}"):
            self.assertIn(word, self.refused[0])

    def test_silence(self) -> None:
        """The present one falls silent: after its time the other one is followed, without being
        named again; one that is heard meanwhile is kept.
        """
        self.says(1)
        self.hear()
        self.clock.advance(15)
        self.heard = self.clock.seconds()
        self.clock.advance(15)
        self.assertEqual(self.followed, [])
        self.clock.advance(6)
        self.assertEqual([one.address for one in self.followed], [OTHER])
        self.assertEqual(self.choice.other, "")

    def test_latest(self) -> None:
        """What is named while one is asked is what counts."""
        slow: Deferred[MasterBounds] = Deferred()
        self.answer = slow
        self.hear()
        self.hear(address=OURS)
        self.hear(address="10.0.0.7:10912")
        self.says(2)
        slow.callback(MasterBounds(0, 9, 1))
        self.assertEqual(self.followed[-1].address, "10.0.0.7:10912")
        self.assertNotIn(OTHER, [one.address for one in self.followed])

    def test_stopped(self) -> None:
        """What comes after the end decides nothing."""
        slow: Deferred[MasterBounds] = Deferred()
        self.answer = slow
        self.hear()
        self.choice.stop()
        slow.callback(MasterBounds(0, 9, 1, BrokerIdentity(epoch=5)))
        self.hear(5)
        self.assertEqual(self.followed, [])

    def test_bug(self) -> None:
        """What goes wrong in asking is in the log, and the next word is heard."""
        self.answer = ZeroDivisionError()
        self.hear()
        self.flushLoggedErrors(ZeroDivisionError)
        self.says(2)
        self.hear()
        self.assertEqual(len(self.followed), 1)
