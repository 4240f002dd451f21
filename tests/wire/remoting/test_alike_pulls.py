"""Tests for L{AlikePulls<rmqha.wire.remoting.frame.AlikePulls>}."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import HeaderFieldInvalid, HeaderUndecodable
from rmqha.wire.remoting import frame
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.frame import AlikePulls, FrameDecoder
from rmqha.wire.remoting.headers.pull import PullMessageRequest

JAVA = (
    '{"code":11,"extFields":{"queueId":"3","maxMsgNums":"32","sysFlag":"3","commitOffset":"7",'
    '"suspendTimeoutMillis":"15000","subVersion":"1795","consumerGroup":"g","queueOffset":"40",'
    '"topic":"T"},"flag":0,"language":"JAVA","opaque":12,"serializeTypeCurrentRPC":"JSON",'
    '"version":399}'
)
"""As a Java client writes it."""

NUMBERS = st.sampled_from(
    [
        "0",
        '"0"',
        "1",
        '"8"',
        '"123456789012345678"',
        "2147483647",
        "2147483648",
        '"007"',
        "007",
        "-1",
        '"-1"',
        '""',
        "null",
        "1.5",
        "1e3",
        '"x"',
        '"9999999999999999999"',
        "true",
    ]
)
MEMBERS = st.lists(
    st.tuples(st.sampled_from(["opaque", "queueOffset", "commitOffset", "x"]), NUMBERS), max_size=5
)


def header(inner: list[tuple[str, str]], outer: list[tuple[str, str]], topic: str) -> bytes:
    """A pull's header with more members in fields and itself; the last of two counts."""

    def members(added: list[tuple[str, str]]) -> str:
        return "".join(f',"{name}":{value}' for name, value in added)

    before, after = JAVA.replace('"topic":"T"', f'"topic":"{topic}"').split("},")
    return f"{before}{members(inner)}}},{after[:-1]}{members(outer)}}}".encode()


HEADERS = st.builds(
    header,
    MEMBERS,
    MEMBERS,
    st.sampled_from(["T", 'a\\"opaque\\":5,\\"queueOffset\\":\\"1', "\\\\", "opaque", "é"]),
)


def usual(data: bytes) -> Command | None:
    """What the usual reader makes of it, if it is a header."""
    try:
        return frame._decode(data)
    except HeaderUndecodable:
        return None


class AlikePullsTests(SynchronousTestCase):
    """Reading a header by one that was read before."""

    def setUp(self) -> None:
        self.pulls = AlikePulls()

    def same(self, data: bytes) -> bool:
        """Whether it is read here, and then as the usual reader would."""
        found = self.pulls.read(data)
        if found is None:
            return False
        wanted = usual(data)
        self.assertEqual(found, wanted)
        assert wanted is not None
        for _ in range(2):
            try:
                header = from_ext(PullMessageRequest, wanted.ext)
            except HeaderFieldInvalid:
                with self.assertRaises(HeaderFieldInvalid):
                    found.custom(PullMessageRequest)
            else:
                self.assertEqual(found.custom(PullMessageRequest), header)
        return True

    def test_alike(self) -> None:
        """After one pull of a queue the next ones are read."""
        first = JAVA.encode()
        self.assertFalse(self.same(first))
        self.pulls.learn(first, frame._decode(first))
        self.assertTrue(self.same(first))
        other = JAVA.replace(":12,", ":13,").replace('"40"', '"123456789012345678"')
        self.assertTrue(self.same(other.replace('"7"', '"0"').encode()))
        self.assertFalse(self.same(JAVA.replace('"T"', '"U"').encode()))

    @given(st.lists(HEADERS, min_size=2, max_size=4))
    @example([header([], [("opaque", "5")], "T"), header([], [("opaque", "6")], "T")])
    @example([header([("opaque", "5")], [], "T"), header([("opaque", "6")], [], "T")])
    @example([header([("queueOffset", "5")], [], "T"), header([("queueOffset", '"5"')], [], "T")])
    @example([header([("queueOffset", '"-1"')], [], "T")] * 2)
    @example([header([], [("opaque", "-1")], "T")] * 2)
    def test_never_otherwise(self, headers: list[bytes]) -> None:
        """Whatever was learned, and whatever comes: what is read is what the usual reader reads."""
        pulls = self.pulls = AlikePulls()
        for data in headers:
            self.same(data)
            command = usual(data)
            if command is not None:
                pulls.learn(data, command)
        for data in headers:
            self.same(data)

    def test_decoys(self) -> None:
        """A header in which a number may be another than it seems is left to the usual reader."""
        quoted = JAVA.replace('"topic":"T"', '"topic":"T","a":\'opaque\'')
        for odd in (
            JAVA.replace('"opaque":12', '"opaque":12,"opaque" :12'),
            JAVA.replace('"queueOffset":"40"', '"queueOffset" :"40"').replace(
                '"flag"', '"queueOffset":40,"flag"'
            ),
            JAVA.replace('"opaque":12', '"opaque":12,"op\\u0061que":12'),
            JAVA.replace('"code":11,', '"code" :310,').replace('"flag"', '"x":{"code":11,},"flag"'),
            quoted,
        ):
            try:
                command = frame._decode(odd.encode())
            except HeaderUndecodable:
                continue
            self.pulls.learn(odd.encode(), command)
            self.assertFalse(self.same(odd.encode()), odd)

    def test_bodies(self) -> None:
        """Nothing is kept of what comes with a header."""
        self.patch(frame, "pulls", self.pulls)
        data = JAVA.encode()
        size = len(data) + 4 + 9
        data = size.to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + b"ownbody!!"
        (command,) = FrameDecoder().receive(data)
        command.ext["queueOffset"] = "changed"
        self.assertEqual(command.body, b"ownbody!!")
        (known,) = self.pulls._known.values()
        self.assertEqual((known.command.body, known.command.ext["queueOffset"]), (b"", "40"))

    @given(st.integers(0, 1 << 70), st.integers(0, 1 << 70), st.integers(0, 1 << 40))
    def test_numbers(self, queue_offset: int, commit_offset: int, opaque: int) -> None:
        """Numbers of any size are read as they are, or left to the usual reader."""
        first = JAVA.encode()
        self.pulls.learn(first, frame._decode(first))
        data = JAVA.replace('"40"', f'"{queue_offset}"').replace('"7"', f'"{commit_offset}"')
        fits = max(queue_offset, commit_offset) < 10**18 and opaque < 1 << 31
        self.assertEqual(self.same(data.replace(":12,", f":{opaque},").encode()), fits)

    def test_bounded(self) -> None:
        """Only so many are remembered, and only short ones."""
        self.patch(frame, "MOST", 3)
        for number in range(5):
            data = JAVA.replace('"T"', f'"T{number}"').encode()
            self.pulls.learn(data, frame._decode(data))
        self.assertEqual(len(self.pulls._known), 2)
        long = JAVA.replace('"T"', f'"{"T" * frame.LONGEST}"').encode()
        self.pulls.learn(long, frame._decode(long))
        self.assertFalse(self.same(long))

    def test_through_the_codec(self) -> None:
        """The second pull has its custom header; one with a wrong field is refused."""
        self.patch(frame, "pulls", self.pulls)
        frame.decode_json(JAVA.encode())
        again = frame.decode_json(JAVA.encode())
        self.assertEqual(again.custom(PullMessageRequest).queue_offset, 40)
        wrong = frame.decode_json(JAVA.replace('"32"', '"many"').encode())
        with self.assertRaises(HeaderFieldInvalid):
            wrong.custom(PullMessageRequest)
