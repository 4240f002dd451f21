"""The table of requests for access control, in tests of ours and of stock brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from attrs import field, frozen

from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.signature import Credentials

FOLDER = Path(__file__).parents[1] / "data" / "access"
PLAIN_ACL = FOLDER / "plain_acl.yml"

#: How rows are signed, and what becomes of the request behind that.
WELL, WITHOUT, WRONGLY = "well", "without", "wrongly"


@frozen(kw_only=True)
class AccessRow:
    """One request of an account, or of none.

    @ivar signed: C{well}, C{without}, C{wrongly}, C{with token}, or what is changed afterwards.
    @ivar verdict: C{allowed} or C{denied}.
    @ivar stock: What a stock broker says, if that is something else.
    """

    what: str
    account: str | None
    code: int
    ext: dict[str, str]
    body: Any
    signed: str
    verdict: str
    stock: str = field()

    @stock.default
    def _the_same(self) -> str:
        return self.verdict

    def request(self) -> Command:
        body = self.body if isinstance(self.body, str) else json.dumps(self.body)
        command = Command(
            code=self.code,
            version=401,
            ext=dict(self.ext),
            body=b"" if self.body is None else body.encode(),
        )
        if self.account is None:
            return command
        if self.signed == WITHOUT:
            command.ext["AccessKey"] = self.account
            return command
        secret = "another-secret" if self.signed == WRONGLY else secrets().get(self.account, "")
        token = "a-token" if self.signed == "with token" else ""
        Credentials(self.account, secret, token).sign(command)
        if self.signed == "body changed":
            command.body = b"hellO"
        elif self.signed == "field changed":
            command.ext["b"] = "Payments"
        elif self.signed == "field added":
            command.ext["l"] = "0"
        return command


def access_rows() -> list[AccessRow]:
    """The table."""
    found = json.loads((FOLDER / "requests.json").read_text(encoding="utf-8"))
    return [AccessRow(**row) for row in found]


def secrets() -> dict[str, str]:
    """The secret keys of all accounts."""
    accounts = yaml.safe_load(PLAIN_ACL.read_bytes())["accounts"]
    return {account["accessKey"]: str(account["secretKey"]) for account in accounts}


def credentials(account: str) -> Credentials:
    """What an account signs with."""
    return Credentials(account, secrets()[account])
