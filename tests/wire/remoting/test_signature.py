"""Signatures of requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.signature import Credentials, signature

#: What a stock 4.9 client signed.
FIELDS = {
    "a": "pg",
    "b": "topicB",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1",
    "h": "0",
    "i": "TAGS\x01x",
    "k": "false",
    "m": "false",
}


class SignatureTests(SynchronousTestCase):
    def test_stock(self) -> None:
        """A request is signed as a stock client signs it."""
        command = Command(code=310, ext=dict(FIELDS), body=b"hello")
        Credentials("RocketMQ", "12345678").sign(command)
        self.assertEqual(
            command.ext,
            {**FIELDS, "AccessKey": "RocketMQ", "Signature": "+tvb8OrKPe8WJRDIF0QKXoPcKAI="},
        )

    def test_again(self) -> None:
        """A request that is sent again is signed again, and has the same signature."""
        command = Command(code=310, ext=dict(FIELDS), body=b"hello")
        credentials = Credentials("RocketMQ", "12345678", "token")
        credentials.sign(command)
        before = dict(command.ext)
        credentials.sign(command)
        self.assertEqual((before, before["SecurityToken"]), (command.ext, "token"))

    def test_secrets(self) -> None:
        """The secret key is in no text of ours."""
        self.assertNotIn("12345678", repr(Credentials("RocketMQ", "12345678", "12345678")))

    def test_order(self) -> None:
        """Names are in Java's order, by UTF-16: beyond 16 bits before the last within."""
        told = {"b": "2", "\U0001f600": "3", "\uff5e": "4", "a": "1"}
        in_order = {"1": "1", "2": "2", "3": "3", "4": "4"}
        self.assertEqual(signature(told, b"", "12345678"), signature(in_order, b"", "12345678"))

    def test_half_a_character(self) -> None:
        """What UTF-8 cannot carry is signed as Java signs it, in a secret key too."""
        for half in ("\ud800", "\udfff"):
            self.assertEqual(
                signature({"a": half, half: ""}, b"", f"secret{half}"),
                signature({"a": "?", half: ""}, b"", "secret?"),
            )

    @given(st.dictionaries(st.text(), st.text()), st.binary(), st.text(min_size=1))
    def test_any(self, ext: dict[str, str], body: bytes, secret: str) -> None:
        """Whatever is in a request it can be signed, fields in any order, a view as bytes."""
        backwards = dict(reversed(ext.items()))
        self.assertEqual(
            signature(ext, body, secret), signature(backwards, memoryview(body), secret)
        )
