"""What the bench of sets makes of what its clients saw."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from lab.bench import set_load
from lab.bench.set_load import Ack, SetLoad
from lab.bench.switches import Switch, _rows
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command


class FakeRemote:
    """A member that knows of an offset, or of none."""

    def __init__(self, known: int | None) -> None:
        self.known = known

    def __call__(self, port: int) -> FakeRemote:
        return self

    def __enter__(self) -> FakeRemote:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is kept."""

    def ask(self, command: Command) -> Command:
        if self.known is None:
            return command.answer(ResponseCode.QUERY_NOT_FOUND, "no")
        answer = command.answer()
        answer.ext = {"offset": str(self.known)}
        return answer


class LoadTests(SynchronousTestCase):
    """A load that is over."""

    def test_after(self) -> None:
        """A write counts that another member answered after the kill, not what was still read of
        the old one.
        """
        load = SetLoad([1, 2])
        load.acks += [Ack(1.0, 1), Ack(2.1, 1), Ack(3.5, 2), Ack(3.0, 2)]
        self.assertEqual(load.after(2.0, 1), 3.0)
        self.assertIsNone(load.after(4.0, 1))

    def test_repeated(self) -> None:
        """What is repeated is counted from the offset that the successor knows to the last one that
        was committed before the kill.
        """
        load = SetLoad([1, 2])
        load.committed += [10.0, 10.5, 11.0, 12.0, 13.0]
        for known, seconds in ((4, 0.0), (9, 0.0), (3, 1.0), (1, 2.0), (0, 2.0), (None, 2.0)):
            with patch.object(set_load, "Remote", FakeRemote(known)):
                self.assertEqual(load.repeated(2, 12.5), seconds, known)


class RowTests(SynchronousTestCase):
    """The table."""

    def rows(self, **ours: Any) -> dict[str, bool | None]:
        values = {"killed": 0.5, "whole": 1.0, "repeated": 0.5, "parted": 15.0, "idle": 0.5}
        java = Switch(killed=0.6, whole=14.0, repeated=0.0, parted=14.0, idle=4.0)
        rows = _rows({"Java": [java], "ours": [Switch(**{**values, **ours})]})
        return dict(zip(values, (row.met for row in rows), strict=True))

    def test_goals(self) -> None:
        """Each is a limit; writes go on no later than with stock members besides."""
        self.assertEqual(set(self.rows().values()), {True})
        for name, value in (("killed", 0.7), ("whole", 2.1), ("parted", 21.0), ("idle", 1.1)):
            met = self.rows(**{name: value})
            self.assertEqual([each for each, well in met.items() if not well], [name])
