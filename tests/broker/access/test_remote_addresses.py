"""White remote addresses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.access.errors import AclInvalid
from rmqha.broker.access.remote_addresses import RemoteAddresses

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
