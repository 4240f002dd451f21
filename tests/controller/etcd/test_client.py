"""Tests for L{rmqha.controller.etcd.client}."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any
from unittest.mock import patch

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import RequestGenerationFailed
from twisted.web.server import Request

from rmqha.controller.etcd.client import (
    PAUSE,
    EtcdClient,
    EtcdRefused,
    EtcdUnanswered,
    EtcdWatch,
    NoEtcd,
    below,
    encoded,
)
from tests.controller.etcd.fake_etcd import FakeEtcd

ONE, TWO = "10.1.0.1:2379", "10.1.0.2:2379"
PUT: dict[str, Any] = {
    "compare": [],
    "success": [{"request_put": {"key": encoded("/s/a"), "value": encoded("x")}}],
}


class EtcdCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.etcd = FakeEtcd(self.clock)
        self.client = self.etcd.client(ONE, TWO)

    def ask(self, path: str, body: dict[str, Any], **how: Any) -> Deferred[Any]:
        return Deferred.fromCoroutine(self.client.ask(path, body, **how))

    def result(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """What came of it, at once."""
        return self.successResultOf(Deferred.fromCoroutine(asked))


class AskTests(EtcdCase):
    def test_next_member(self) -> None:
        """One that is not there is left for the next, from then on first; changes are repeated."""
        self.etcd.gone = {ONE}
        for _ in range(2):
            self.successResultOf(self.ask("kv/txn", PUT, changes=True))
        self.assertEqual([address for address, _ in self.etcd.asked], [ONE, TWO, TWO])
        self.assertEqual((self.client.failures, self.client.answering), ({ONE: 1}, TWO))

    def test_none(self) -> None:
        """Without any nothing was changed."""
        self.etcd.gone = {ONE, TWO}
        error = self.failureResultOf(self.ask("kv/txn", PUT, changes=True), NoEtcd).value
        self.assertIn(f"no etcd of {ONE}, {TWO} answers: {TWO}: Connection was refused", str(error))

    def test_dark(self) -> None:
        """A host that takes no connection and refuses none is left in time; nothing arrived."""
        self.etcd.dark = {ONE}
        asked = self.ask("kv/txn", PUT, changes=True)
        self.clock.advance(self.client.patience)
        self.successResultOf(asked)
        self.etcd.dark = {ONE, TWO}
        asked = self.ask("kv/txn", PUT, changes=True)
        self.clock.pump([self.client.patience] * 2)
        error = self.failureResultOf(asked, NoEtcd).value
        self.assertIn("no answer in time", str(error))

    def test_late(self) -> None:
        """A change not answered in time is not made twice; the next one is asked of another."""
        self.etcd.late = {"kv/txn"}
        asked = self.ask("kv/txn", PUT, changes=True)
        self.clock.advance(self.client.patience)
        error = self.failureResultOf(asked, EtcdUnanswered).value
        self.assertEqual(str(error), f"etcd at {ONE} did not answer: no answer in time")
        self.assertEqual((self.etcd.revision, len(self.etcd.asked)), (2, 1))
        self.assertEqual(self.client.address, TWO)

    def test_late_question(self) -> None:
        """What changes nothing is asked of the next."""
        self.etcd.late = {"kv/range"}
        asked = self.ask("kv/range", {"key": encoded("/s/a")})
        self.clock.advance(self.client.patience)
        self.etcd.late = set()
        self.assertNoResult(asked)
        self.etcd.late = {"kv/range"}
        self.clock.advance(self.client.patience)
        self.failureResultOf(asked, NoEtcd)
        self.assertEqual([address for address, _ in self.etcd.asked], [ONE, TWO])

    def test_given_up_while_written(self) -> None:
        """A request that ends while it is written failed as any other."""
        failed = RequestGenerationFailed([Failure(CancelledError())])
        with patch.object(EtcdClient, "_post", lambda *args, **how: fail(failed)):
            self.failureResultOf(self.ask("kv/range", {"key": encoded("/s/a")}), NoEtcd)
            self.failureResultOf(self.ask("kv/txn", PUT, changes=True), EtcdUnanswered)

    def test_no_quorum(self) -> None:
        """A change that a member without a quorum gives up may be made by others."""
        self.etcd.refused = {"kv/txn": (503, "etcdserver: request timed out")}
        self.failureResultOf(self.ask("kv/txn", PUT, changes=True), EtcdUnanswered)
        self.etcd.refused = {"kv/range": (503, "etcdserver: no leader")}
        error = self.failureResultOf(self.ask("kv/range", {"key": ""}), NoEtcd).value
        self.assertIn("no leader", str(error))

    def test_refused(self) -> None:
        """Another no is a no."""
        full = "etcdserver: mvcc: database space exceeded"
        self.etcd.refused = {"kv/txn": (429, full)}
        error = self.failureResultOf(self.ask("kv/txn", PUT, changes=True), EtcdRefused).value
        self.assertEqual((error.code, error.remark), (429, full))

    def test_account(self) -> None:
        """A token is asked for once, and again when it is over."""
        self.etcd.account = ("rmqha", "secret")
        self.client = self.etcd.client(ONE, account=lambda: ("rmqha", "secret"))
        self.successResultOf(self.ask("kv/txn", PUT))
        self.etcd.token = "t2"
        self.successResultOf(self.ask("kv/txn", PUT))
        paths = [path for _, path in self.etcd.asked]
        auth = "auth/authenticate"
        self.assertEqual(paths, [auth, "kv/txn", "kv/txn", auth, "kv/txn"])

    def test_wrong_password(self) -> None:
        """It is told."""
        self.etcd.account = ("rmqha", "secret")
        self.client = self.etcd.client(ONE, account=lambda: ("rmqha", "wrong"))
        error = self.failureResultOf(self.ask("kv/txn", PUT), EtcdRefused).value
        self.assertEqual(error.remark, "authentication failed")

    def test_no_json(self) -> None:
        """What is no gateway is none; a refusal in plain text is one."""
        self.etcd.said = lambda *_: b"[1]"  # type: ignore[method-assign]
        self.failureResultOf(self.ask("kv/txn", PUT), NoEtcd)

        def said(request: Request, status: int, answer: Any) -> bytes:
            request.setResponseCode(400)
            return b"CommonName of client\n"

        self.etcd.said = said  # type: ignore[method-assign]
        error = self.failureResultOf(self.ask("kv/txn", PUT), EtcdRefused).value
        self.assertEqual((error.code, error.remark), (400, "CommonName of client"))


class WatchTests(EtcdCase):
    def setUp(self) -> None:
        super().setUp()
        self.told = 0
        self.watch = self.watching(self.client)

    def watching(self, client: EtcdClient) -> EtcdWatch:
        def told() -> None:
            self.told += 1

        watch = EtcdWatch(client=client, keys=below("/s/"), told=told)
        watch.start()
        self.addCleanup(watch.stop)
        return watch

    def change(self) -> None:
        flush = self.etcd.flush
        self.etcd.kv_txn(PUT)
        flush()

    def test_told(self) -> None:
        """At its beginning, and of each change."""
        self.assertEqual(self.told, 1)
        self.change()
        self.assertEqual(self.told, 2)

    def test_goes_on(self) -> None:
        """A connection that ends is followed by another one, from the next revision on."""
        self.change()
        self.etcd.hang_up()
        self.clock.advance(PAUSE)
        self.assertEqual(self.etcd.began, [0, self.etcd.revision + 1])

    def test_next_member(self) -> None:
        """It goes on at another member while that one is away."""
        self.etcd.gone = {ONE}
        self.etcd.hang_up()
        self.clock.pump([PAUSE] * 2)
        self.assertEqual([a for a, _ in self.etcd.asked], [ONE, ONE, TWO])

    def test_compacted(self) -> None:
        """Where etcd has forgotten what was there it begins anew, and all is read again."""
        self.etcd.compacted = 9
        self.etcd.hang_up()
        told = self.told
        self.clock.advance(PAUSE)
        self.assertGreater(self.told, told)
        self.etcd.flush()
        self.clock.advance(PAUSE)
        self.assertEqual(self.etcd.began, [0, 2, 0])

    def test_silent_member(self) -> None:
        """One that answers no requests is left, though its connection does not end."""
        self.client.leave(ONE)
        self.watch.look()
        self.assertEqual([a for a, _ in self.etcd.asked], [ONE, TWO])
        self.watch.look()
        self.assertEqual(len(self.etcd.asked), 2)

    def test_stop_while_connecting(self) -> None:
        """What was cancelled does not go on, whatever its request ends as."""
        self.etcd.dark = {ONE, TWO}
        self.etcd.hang_up()
        self.clock.advance(PAUSE)
        self.watch.stop()
        self.etcd.dark = set()
        self.clock.pump([PAUSE] * 4)
        self.assertEqual(self.etcd.began, [0])

    def test_stop(self) -> None:
        """Nothing is begun again."""
        self.watch.stop()
        self.clock.advance(PAUSE * 2)
        self.assertEqual(self.etcd.began, [0])
