"""Verdicts about requests, and white remote addresses."""

from __future__ import annotations

from typing import Any

import yaml
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.access.access_control import AccessControl
from rmqha.broker.access.accounts import AccessTable
from rmqha.broker.access.acl_file import read_accounts
from rmqha.broker.access.errors import AclInvalid
from rmqha.broker.access.needs import AccountNeed
from rmqha.broker.access.remote_addresses import RemoteAddresses
from rmqha.errors import AccessDenied
from rmqha.wire.remoting.command import Command
from tests.broker.support import BrokerTestCase
from tests.support.access_table import PLAIN_ACL, access_rows, credentials

WHITE, OTHER = "10.10.103.9", "127.0.0.1"


def table(content: Any = None) -> AccessTable:
    """The accounts of the table of requests, or others."""
    return read_accounts(PLAIN_ACL) if content is None else AccessTable.read(content)


class AccessControlTests(BrokerTestCase):
    def setUp(self) -> None:
        """Accounts, and what a broker's requests need."""
        super().setUp()
        self.needs = self.broker().needs
        accounts = table()
        self.access = AccessControl(table=lambda: accounts)

    def verdict(self, command: Command, host: str = OTHER) -> str:
        try:
            self.access.check(host, command, self.needs[command.code])
        except AccessDenied as error:
            self.assertEqual(error.code, 1)
            begin = "org.apache.rocketmq.acl.common.AclException: "
            self.assertTrue((error.remark or "").startswith(begin), error.remark)
            return "denied"
        return "allowed"

    def test_table(self) -> None:
        """Each request of the table is allowed or denied as it stands there."""
        rows = access_rows()
        self.assertGreaterEqual(len(rows), 100)
        self.assertEqual(
            [], [row.what for row in rows if self.verdict(row.request()) != row.verdict]
        )
        self.assertEqual(self.access.refused, sum(row.verdict == "denied" for row in rows))

    def test_white(self) -> None:
        """From an address that is white for all everything is allowed, signed or not."""
        for row in access_rows():
            self.assertEqual("allowed", self.verdict(row.request(), WHITE), row.what)

    def test_nothing_stated(self) -> None:
        """A request of which nothing is stated passes for nobody, an administrator neither."""
        command = Command(code=28)
        credentials("operator").sign(command)
        need = AccountNeed(said="nothing")
        error = self.assertRaises(AccessDenied, self.access.check, OTHER, command, need)
        self.assertEqual(error.reason, "nothing is stated of what it needs")

    def test_unknown(self) -> None:
        """Who asks does not learn whether there is an account; who reads the log does."""
        told = []
        for account in ("producer", "stranger"):
            command = evolve(access_rows()[0], account=account, signed="wrongly").request()
            error = self.assertRaises(
                AccessDenied, self.access.check, OTHER, command, self.needs[command.code]
            )
            told.append((str(error.remark).replace(account, "..."), error.reason))
        self.assertEqual(told[0][0], told[1][0])
        self.assertNotEqual(told[0][1], told[1][1])

    def test_unique_key(self) -> None:
        """A query by unique key may be signed with the field that says so, or without it."""
        ext = {
            "topic": "Orders",
            "key": "K",
            "maxNum": "1",
            "beginTimestamp": "0",
            "endTimestamp": "9",
        }
        for before, after in (
            ({"_UNIQUE_KEY_QUERY": "true"}, {}),
            ({}, {"_UNIQUE_KEY_QUERY": "true"}),
        ):
            command = Command(code=12, ext=ext | before)
            credentials("consumer").sign(command)
            command.ext |= after
            self.assertEqual("allowed", self.verdict(command))

    def test_odd(self) -> None:
        """What nobody sends is refused as well as anything else."""
        for ext in (
            {"AccessKey": "producer", "Signature": "\u00e4\ud800"},
            {"AccessKey": "\ud800", "Signature": ""},
            {"Signature": "x"},
        ):
            self.assertEqual("denied", self.verdict(Command(code=310, ext=ext)))


class AccessTableTests(SynchronousTestCase):
    def test_written(self) -> None:
        """What is read and written says the same."""
        before = table()
        again = AccessTable.read(yaml.safe_load(yaml.safe_dump(before.content())))
        self.assertEqual(before, again)

    def test_wrong(self) -> None:
        """What is not understood is refused with its place, and never with a secret."""
        account = {"accessKey": "producer", "secretKey": "s3cret-key"}
        for content, said in (
            (None, "mapping"),
            ([], "mapping"),
            ({"accounts": {}}, "list"),
            ({"accounts": ["x"]}, "account 1"),
            ({"accounts": [{"accessKey": "short", "secretKey": "s3cret-key"}]}, "7 characters"),
            ({"accounts": [{"accessKey": "producer", "secretKey": "s3cret"}]}, "7 characters"),
            ({"accounts": [account, account]}, "twice"),
            ({"accounts": [account | {"admin": "yes"}]}, "admin"),
            ({"accounts": [account | {"topicPerms": "A=PUB"}]}, "list of texts"),
            ({"accounts": [account | {"topicPerms": ["A"]}]}, "'A'"),
            ({"accounts": [account | {"groupPerms": ["A=PUB=SUB"]}]}, "'A=PUB=SUB'"),
            ({"accounts": [account | {"defaultTopicPerm": 1.5}]}, "must be a text"),
            ({"accounts": [account | {"whiteRemoteAddress": "10.0"}]}, "'10.0'"),
            ({"globalWhiteRemoteAddresses": "10.0.0.1"}, "list of texts"),
        ):
            error = self.assertRaises(AclInvalid, AccessTable.read, content)
            self.assertIn(said, str(error))
            self.assertNotIn("s3cret", str(error))
        self.assertNotIn("12345678", repr(table()))

    def test_changes(self) -> None:
        """An account is made, changed where it is said, and removed; each is another version."""
        before = table()
        made = before.with_account({"accessKey": "newcomer", "secretKey": "newcomer-key"}, 5)
        self.assertEqual(set(made.accounts) - set(before.accounts), {"newcomer"})
        changed = made.with_account({"accessKey": "newcomer", "admin": True}, 6)
        self.assertTrue(changed.accounts["newcomer"].admin)
        self.assertEqual(changed.accounts["newcomer"].secret_key, "newcomer-key")
        gone = changed.without_account("newcomer", 7).with_white(("10.0.0.1",), 8)
        self.assertEqual(gone.accounts, before.accounts)
        self.assertTrue(gone.white.contain("10.0.0.1"))
        self.assertEqual((gone.version.counter, gone.version.timestamp), (4, 8))
        self.assertRaises(AclInvalid, gone.without_account, "newcomer", 9)
        self.assertRaises(AclInvalid, gone.with_account, {"accessKey": "incomplete"}, 9)
        self.assertRaises(AclInvalid, gone.with_white, ("10.0",), 9)


#: Patterns, an address that each contains, and one that it does not.
CASES = (
    ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
    ("10.0.0.*", "10.0.0.255", "10.0.1.0"),
    ("10.0.*.*", "10.0.9.9", "10.1.0.0"),
    ("10.0.0.5-9", "10.0.0.9", "10.0.0.10"),
    ("10.0.5-9.*", "10.0.7.1", "10.0.10.1"),
    ("10.0.5-9.7", "10.0.6.7", "10.0.6.8"),
    ("10.*.*.*", "10.9.9.9", "11.0.0.0"),
    ("10.0.0.{1,9}", "10.0.0.9", "10.0.0.5"),
    ("10.0.0.1,10.0.0.{4,5}", "10.0.0.5", "10.0.0.2"),
    ("::1", "::1", "::2"),
    ("2001:db8::{1,a}", "2001:db8::a", "2001:db8::b"),
    ("2001:db8:*", "2001:db8:1::7", "2001:db9::1"),
    ("2001:db8::1-ff", "2001:db8::fe", "2001:db8::100"),
)


class RemoteAddressesTests(SynchronousTestCase):
    def test_patterns(self) -> None:
        """A pattern is where it says, and nowhere else."""
        for text, inside, outside in CASES:
            addresses = RemoteAddresses.parse(text)
            self.assertTrue(addresses.contain(inside), text)
            self.assertFalse(addresses.contain(outside), text)

    def test_everybody(self) -> None:
        """Stars alone are everybody, by both versions of IP."""
        for text in ("*", "*.*.*.*", "*:*:*:*:*:*:*:*"):
            for host in ("10.0.0.7", "::1"):
                self.assertTrue(RemoteAddresses.parse(text).contain(host))

    def test_nobody(self) -> None:
        """An empty text is nobody, and what is no address is nowhere."""
        self.assertFalse(RemoteAddresses.parse(" ").contain("10.0.0.7"))
        self.assertFalse(RemoteAddresses.parse("*").contain("somewhere"))

    def test_others(self) -> None:
        """A pattern of one version of IP contains nobody of the other."""
        self.assertFalse(RemoteAddresses.parse("0.0.*.*").contain("::"))
        self.assertFalse(RemoteAddresses.parse("::*").contain("0.0.0.0"))

    def test_wrong(self) -> None:
        """What is no pattern is refused by its text."""
        for text in (
            "10.0.0",
            "10.*",
            "10.0-1.*",
            "10.0.1-3",
            "*.0.0.1",
            "10.0.0.0.1",
            "10.0.0.256",
            "10.0.0.9-5",
            "10.{1,2}.0.1",
            "10.0.0.x",
            "10",
            "10.0.0.1/8",
            "2001:db8:1",
            "::1::2:3:4:5:6:7:8:9",
            "::fffff",
            "10.0.0.{1,2",
        ):
            error = self.assertRaises(AclInvalid, RemoteAddresses.parse, text)
            self.assertIn(text.split(",")[0], str(error))

    @given(st.text(alphabet="0123456789abf.:*-{},"))
    def test_any(self, text: str) -> None:
        """A text is a pattern or refused, and a pattern can be asked for any address."""
        try:
            addresses = RemoteAddresses.parse(text)
        except AclInvalid:
            return
        self.assertIn(addresses.contain("10.0.0.7"), (True, False))
        self.assertIn(addresses.contain("2001:db8::7"), (True, False))
