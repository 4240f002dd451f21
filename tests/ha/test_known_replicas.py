"""Tests for L{rmqha.ha.known_replicas}."""

from __future__ import annotations

import json
from typing import Any

from rmqha.ha import known_replicas
from rmqha.ha.known_replicas import KnownReplicas
from tests.support.logs import Held, LogTestCase, now

A, B = "10.0.0.2", "10.0.0.3"


class KnownReplicasTests(LogTestCase):
    """Where the replicas of a run were."""

    def setUp(self) -> None:
        self.root = self.folder()
        self.known = self.loaded()

    def loaded(self, in_thread: Any = now) -> KnownReplicas:
        """As a master's start does."""
        return KnownReplicas.load(self.root, in_thread)

    def written(self) -> Any:
        """What is on the disk."""
        return json.loads((self.root / "rmqha" / "replicas.json").read_text())["replicas"]

    def test_new(self) -> None:
        """A new store knows none, and writes nothing before there is one."""
        self.assertEqual(self.known.ports, {})
        self.successResultOf(self.known.close())
        self.assertFalse((self.root / "rmqha").exists())

    def test_joined(self) -> None:
        """An address is written once, when a replica has acknowledged something."""
        held = Held()
        known = self.loaded(held)
        for _ in range(5):
            known.joined(A)
        self.assertEqual(len(held.calls), 1)
        held.work()
        self.assertEqual((self.written(), held.calls), ({A: []}, []))
        self.assertEqual(self.loaded().ports, {A: []})

    def test_one_write_at_a_time(self) -> None:
        """What joins meanwhile is written behind it, together."""
        held = Held()
        known = self.loaded(held)
        for host in (A, B, "10.0.0.4"):
            known.joined(host)
        closed = known.close()
        self.assertNoResult(closed)
        held.work()
        self.assertEqual((list(self.written()), len(held.calls)), ([A], 1))
        held.work()
        self.assertEqual(list(self.written()), [A, B, "10.0.0.4"])
        self.successResultOf(closed)

    def test_ports(self) -> None:
        """Ports that slaves tell count for addresses of replicas, in any order, shared or not."""
        self.known.listens(A, 10912)
        self.assertEqual(self.known.ports, {})
        self.known.joined(A)
        self.assertEqual(self.written(), {A: [10912]})
        self.known.listens(A, 10915)
        self.known.listens(A, 10912)
        self.known.listens(B, 1)
        self.assertEqual(self.written(), {A: [10912, 10915]})
        for port in range(1, 20):
            self.known.listens(A, port)
        self.assertEqual(self.written()[A], list(range(12, 20)))

    def test_crash(self) -> None:
        """After a crash those of the run before are known too, with their ports."""
        self.known.joined(A)
        self.known.listens(A, 7)
        again = self.loaded()
        again.joined(B)
        self.assertEqual(self.loaded().ports, {A: [7], B: []})
        again.joined(A)
        self.assertEqual(self.loaded().ports, {A: [7], B: []})

    def test_clean_stop(self) -> None:
        """A clean stop forgets who was not there; but a run that nobody joined forgets nobody."""
        self.known.joined(A)
        self.known.joined(B)
        again = self.loaded()
        self.successResultOf(again.close())
        self.assertEqual(list(self.loaded().ports), [A, B])
        again = self.loaded()
        again.joined(B)
        self.successResultOf(again.close())
        self.assertEqual(list(self.loaded().ports), [B])

    def test_bounded(self) -> None:
        """Who calls from ever more addresses fills neither memory nor disk."""
        self.patch(known_replicas, "MOST_KNOWN", 3)
        for number in range(10):
            self.known.listens(f"10.0.1.{number}", 1)
            self.known.joined(f"10.0.0.{number}")
        self.assertEqual((len(self.known.ports), len(self.known._told)), (3, 3))

    def test_unreadable(self) -> None:
        """A file that cannot be read names nobody, and is written anew."""
        for text in ("garbage", '{"replicas": 7}', '{"replicas": {"a": 1}}', '{"replicas": [1]}'):
            (self.root / "rmqha").mkdir(exist_ok=True)
            (self.root / "rmqha" / "replicas.json").write_text(text)
            known = self.loaded()
            self.assertEqual(known.ports, {})
            known.joined(A)
            self.assertEqual(self.written(), {A: []})

    def test_no_room(self) -> None:
        """What cannot be written is told, and tried again with the next."""

        def full(function: Any, table: Any) -> Any:
            def fail() -> None:
                raise OSError("no room")

            return now(fail)

        known = self.loaded(full)
        known.joined(A)
        known.in_thread = now
        known.joined(B)
        self.assertEqual(self.written(), {A: [], B: []})
