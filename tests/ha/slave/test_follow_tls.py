"""A slave that is to speak TLS, and masters that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.logger import LogLevel, formatEvent

from lab.harness.certificates import Authority
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds
from rmqha.net.tls.identity import TlsIdentity
from rmqha.net.tls.material import TlsFiles
from rmqha.net.tls.outgoing import OutgoingTls
from rmqha.store.log.commit_log import CommitLog
from tests.support.following import SIZES, ThreeFilesCase
from tests.support.log_lines import log_events

HELLO = 0x16

UNSURE = "connecting", "probing", "bootstrapping"
"""States in which a slave concludes nothing."""


class TlsTests(ThreeFilesCase):
    """A slave with C{haTlsEnable=true} whose log is the master's."""

    def setUp(self) -> None:
        """The master's client port answers what the test says."""
        super().setUp()
        self.answer: MasterBounds | None = None
        self.asked = 0
        folder = Path(self.mktemp())
        identity = TlsIdentity(
            "replication", "of replication", TlsFiles(trusted=Authority(folder).root)
        )
        identity.load()
        self.tls = OutgoingTls(identity=identity)
        self.lines = log_events(self)

    def warnings(self) -> list[str]:
        return [formatEvent(line) for line in self.lines if line["log_level"] is LogLevel.warn]

    def ask(self) -> Deferred[MasterBounds]:
        self.asked += 1
        if self.answer is None:
            return fail(ConnectionRefusedError())
        return succeed(self.answer)

    def bounds(self, run_id: str = "") -> MasterBounds:
        """Those of the master's log, with the run id of a broker of ours."""
        identity = BrokerIdentity(name="broker-a", id=0, run_id=run_id)
        return MasterBounds(0, self.theirs.end, 5, identity)

    def begin(self, mine: CommitLog | None = None, **more: Any) -> None:
        """Follow, with TLS over a connection that is played by hand."""
        puppet = self.endpoint
        wrapped: Any = self.tls.wrap("10.0.0.1", puppet)
        self.endpoint = wrapped
        self.follow(self.copied(self.theirs) if mine is None else mine, **more)
        self.endpoint = puppet
        self.turn()

    def refused(self) -> dict[str, int]:
        found: dict[str, int] = self.follower.sync.status(0)["tlsRefusals"]
        return found

    def test_stock_master(self) -> None:
        """A master whose client port is a stock broker's hears nothing; a warning has the key."""
        self.answer = self.bounds()
        self.begin(bounds=self.ask)
        self.assertIdleFor(60)
        self.assertState("connecting")
        self.assertIn("it is a stock broker: haTlsEnable=true", self.follower.sync.reason)
        self.assertEqual(self.refused(), {"stock-master": self.asked})
        self.assertGreater(self.asked, 2)
        (warning,) = self.warnings()
        self.assertIn("Replication from 10.0.0.1:10912: ", warning)
        self.assertIn("haTlsEnable=true", warning)

    def test_stock_master_restarts(self) -> None:
        """Its HA port is open before its client port is, and hears nothing then either, whatever
        was there when the slave asked last, and if the slave has only just started.
        """
        for before in (self.bounds(), self.bounds("a1"), None):
            self.answer = before
            self.begin(bounds=self.ask)
            if self.endpoint.waiting:
                self.accept().close()
            refused = self.refused()
            self.answer = None
            self.assertIdleFor(60)
            self.assertState("connecting")
            self.assertIn("its client port did not answer", self.follower.sync.reason)
            self.assertEqual(self.refused(), refused)
            self.answer = self.bounds("a2")
            self.assertEqual(self.accept(within=60).transport.value()[0], HELLO)
            self.stop()

    def test_moves(self) -> None:
        """Of a master at another place nothing is known before its client port has answered."""
        self.answer = self.bounds("a1")
        self.begin(bounds=self.ask)
        self.accept()
        self.answer = None
        wrapped: Any = self.tls.wrap("10.0.0.2", self.endpoint)
        self.follower.dial(wrapped, "10.0.0.2:10912", self.ask, "10.0.0.2:10911")
        self.assertIdleFor(60)
        self.answer = self.bounds()
        self.assertIdleFor(60)
        self.answer = self.bounds("b1")
        self.accept(within=60)

    def test_ours(self) -> None:
        """A master of ours hears a handshake begin; so does one that is not to be asked."""
        self.answer = self.bounds("a1")
        for ask in (self.ask, None):
            self.begin(bounds=ask)
            self.assertEqual(self.accept().transport.value()[0], HELLO)
            self.stop()

    def test_closes(self) -> None:
        """A clear-text port of ours closes: a line has the wrong key, and the log stays."""
        self.begin()
        self.accept().close()
        self.assertIn("haTlsEnable=true", self.follower.sync.reason)
        self.assertIn("closed the connection during the TLS", self.follower.sync.reason)
        self.assertEqual(self.refused(), {"tls-handshake": 1})
        self.assertEqual((self.mine.end, self.repairs), (self.theirs.end, []))

    def test_stock_port_echoes(self) -> None:
        """A stock HA port's frames are no handshake: its silence says nothing of the logs."""
        mine = self.copied(self.theirs, sum(SIZES[:3]))
        for log in (mine, self.log()):
            self.lines.clear()
            self.begin(log, accept_unproven=True)
            for _ in range(3):
                connection = self.accept(within=40)
                hello = connection.transport.value()
                for _ in range(30):
                    connection.heartbeat(int.from_bytes(hello[:8], "big"))
                    self.passes(1.0)
                    state = self.follower.sync.state.value
                    self.assertIn(state, UNSURE, self.follower.sync.reason)
                    if not connection.open:
                        break
                self.assertFalse(connection.open)
                self.assertIn("haTlsEnable=true", self.follower.sync.reason)
            self.assertEqual(self.refused(), {"tls-handshake": 3})
            warnings = self.warnings()
            self.assertEqual(len(warnings), 3, warnings)
            self.assertTrue(all("haTlsEnable=true" in each for each in warnings))
            self.assertEqual(self.repairs, [])
            self.stop()
