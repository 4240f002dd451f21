"""Whether a load of pops and acks keeps its books right: what is said of a broker rests on them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, cast

from attrs import define, field
from twisted.trial.unittest import SynchronousTestCase

from lab.harness.remote import Remote
from rmqha.broker.pop.handles import PopHandle
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command
from tests.support.pop_load import PopLoad

BODY = b"000001"


@define
class Broker:
    """Answers acks with the next of some codes; a connection breaks instead of C{None}."""

    codes: list[int | None] = field(factory=list)

    def ask_all(self, asked: Sequence[Command]) -> list[Command]:
        code = self.codes.pop(0)
        if code is None:
            raise EOFError
        return [command.answer(code) for command in asked]


class BooksTests(SynchronousTestCase):
    def acked(self, *codes: int | None) -> set[bytes]:
        """What is lost by the books if a message that came once is acknowledged so often."""
        load, broker = PopLoad(random=Random(1)), Broker([*codes])
        load.books.sent.add(BODY)
        handle = PopHandle.decode("0 0 1 0 0 broker-a 0 0", 0, 0)
        for code in codes:
            told: Any = [(BODY, handle, "Popped")]
            if code is None:
                self.assertRaises(EOFError, load._acknowledge, cast("Remote", broker), told)
            else:
                load._acknowledge(cast("Remote", broker), told)
        return load.books.lost

    def test_refused(self) -> None:
        """Of a refused ack nothing is stored, so the message has to come again."""
        self.assertEqual({BODY}, self.acked(ResponseCode.SYSTEM_BUSY))

    def test_refused_behind_an_unanswered_one(self) -> None:
        """Who was not answered may have been heard: a refusal of the second ack says nothing of the
        first.
        """
        self.assertEqual(set(), self.acked(None, ResponseCode.SYSTEM_BUSY))
