"""How requests are signed where brokers have access control.

A signature covers the values of all fields, in the order of their names, and the body.  Code,
number and names of fields are not covered, and there is no time in it: who has read a request can
send it again, and values may be moved from one field into the next.  So it tells who sent a
request, on a network that nobody else reads; TLS does the rest.

Source: docs/protocol/remoting.md, Access control.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Collection, Mapping

from attrs import field, frozen

from rmqha.wire.remoting.command import Command

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
"""The fields that a signed request has besides its own."""


@frozen
class Credentials:
    """Who signs.

    @ivar access_key: The account's name; it goes with each request.
    @ivar secret_key: What the account and the broker know; it is never sent.
    @ivar security_token: Goes with each request too, if there is one.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def sign(self, command: Command) -> None:
        """Add to a request who sends it.  Signing twice is the same as once."""
        ext = command.ext
        ext[ACCESS_KEY] = self.access_key
        if self.security_token:
            ext[SECURITY_TOKEN] = self.security_token
        ext[SIGNATURE] = signature(ext, command.body, self.secret_key)


def signature(
    ext: Mapping[str, str], body: bytes | memoryview, secret_key: str, without: Collection[str] = ()
) -> str:
    """The signature of a request: HMAC with SHA-1, in Base64.

    @param ext: Its fields; a signature among them does not count.
    @param without: Names of further fields that do not count.
    """
    # Java writes what UTF-8 cannot carry in the same way, and orders by halves of characters.
    signed = hmac.new(secret_key.encode(errors="replace"), digestmod="sha1")
    for name in sorted(ext, key=None if all(map(str.isascii, ext)) else _in_utf16):
        if name != SIGNATURE and name not in without:
            signed.update(ext[name].encode(errors="replace"))
    signed.update(body)
    return b64encode(signed.digest()).decode()


def _in_utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
