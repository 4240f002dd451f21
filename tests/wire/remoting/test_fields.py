"""Custom headers: typed values from texts and back."""

from __future__ import annotations

from attrs import fields, frozen
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import HeaderFieldInvalid
from rmqha.wire.remoting.fields import Long, ext, from_ext, to_ext, wire_name
from rmqha.wire.remoting.headers.admin import DeleteGroupRequest
from rmqha.wire.remoting.headers.send import SendMessageRequest, SendMessageV2Request
from tests.support.frames import every_frame
from tests.support.request_headers import REQUESTS

#: Fields that stock peers add to anybody's header, and that nobody here reads.
TOLERATED = {"ReqT", "bname"}


@frozen(kw_only=True)
class Example:
    """A header with everything in it."""

    topic: str
    queue_id: int
    queue_offset: Long
    ratio: float = 0.0
    unit_mode: bool = False
    key: str | None = ext("THE_KEY", None)
    limit: Long | None = None


LEAST = {"topic": "T", "queueId": "1", "queueOffset": "2"}


class Fields(SynchronousTestCase):
    def test_names_and_types(self) -> None:
        """Names are in camel case or given; values are texts as Java writes them."""
        header = Example(topic="T", queue_id=-1, queue_offset=1 << 62, unit_mode=True, key="k")
        sent = {
            "topic": "T",
            "queueId": "-1",
            "queueOffset": str(1 << 62),
            "ratio": "0.0",
            "unitMode": "true",
            "THE_KEY": "k",
        }
        self.assertEqual(sent, to_ext(header))
        self.assertEqual(header, from_ext(Example, sent))

    def test_absent(self) -> None:
        """What is absent is its default, and fields nobody declared do not matter."""
        header = from_ext(Example, {**LEAST, "unitMode": "", "limit": "", "bname": "b"})
        self.assertEqual(Example(topic="T", queue_id=1, queue_offset=2), header)

    def test_booleans(self) -> None:
        """C{true} is true however it is written, everything else is false."""
        for text, value in (("true", True), ("TRUE", True), ("1", False), ("maybe", False)):
            self.assertIs(value, from_ext(Example, {**LEAST, "unitMode": text}).unit_mode)

    def test_missing(self) -> None:
        """A mandatory field that is missing is named as the peer knows it."""
        for name in LEAST:
            some = {key: value for key, value in LEAST.items() if key != name}
            error = self.assertRaises(HeaderFieldInvalid, from_ext, Example, some)
            self.assertEqual(f"the custom field <{name}> is null", str(error))

    def test_wrong(self) -> None:
        """A value of another type is named, mandatory or not, and no number is guessed."""
        for name, text in (
            ("queueId", "x"),
            ("queueId", "2147483648"),
            ("queueId", "-2147483649"),
            ("queueId", " 1"),
            ("queueId", "1_0"),
            ("queueId", "1.0"),
            ("queueId", "\N{SUPERSCRIPT TWO}"),
            ("queueId", "-"),
            ("queueId", "9" * 10_000),
            ("queueOffset", "9223372036854775808"),
            ("limit", "much"),
            ("ratio", "half"),
        ):
            sent = {**LEAST, name: text}
            error = self.assertRaises(HeaderFieldInvalid, from_ext, Example, sent)
            self.assertIn(f"<{name}>", str(error))
            self.assertIn(text[:10], str(error))
            self.assertLess(len(str(error)), 200)

    @given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
    def test_any_number(self, small: int, large: int) -> None:
        """Every number of its size goes through."""
        header = Example(topic="", queue_id=small, queue_offset=large)
        self.assertEqual(header, from_ext(Example, to_ext(header)))

    def test_short_names(self) -> None:
        """The short form of a send is the long one in every attribute."""
        short = {wire_name(attribute) for attribute in fields(SendMessageV2Request)}
        self.assertEqual(set("abcdefghijklmn"), short)
        header = from_ext(
            SendMessageV2Request,
            dict(zip("abcdefgh", ["g", "T", "D", "4", "0", "0", "9", "0"], strict=True)),
        )
        self.assertIsInstance(header, SendMessageRequest)
        self.assertEqual(("g", "T", 4, 9), _some(header))
        self.assertNotIn("topic", to_ext(header))

    def test_either_name_deletes_offsets(self) -> None:
        """4.9 and 5.x ask for a group's offsets to go by different names."""
        for sent, expected in (
            ({}, False),
            ({"removeOffset": "true"}, True),
            ({"cleanOffset": "true"}, True),
        ):
            header = from_ext(DeleteGroupRequest, {"groupName": "g", **sent})
            self.assertIs(expected, header.with_offsets)


def _some(header: SendMessageRequest) -> tuple[object, ...]:
    return (
        header.producer_group,
        header.topic,
        header.default_topic_queue_nums,
        header.born_timestamp,
    )


class CapturedFields(SynchronousTestCase):
    def test_every_header(self) -> None:
        """Every captured request and good answer is read, and says the same when written."""
        for name, frame in every_frame():
            headers = REQUESTS[frame.request_code]
            if frame.is_answer and frame.note["code"]:
                continue
            header = headers.answer if frame.is_answer else headers.request
            sent = frame.ext
            if header is None:
                continue
            ours = to_ext(from_ext(header, sent))
            known = {key: value for key, value in sent.items() if key in ours}
            self.assertEqual(set(), set(sent) - set(known) - TOLERATED, name)
            self.assertEqual(known, {key: ours[key] for key in known}, name)

    def test_every_header_class(self) -> None:
        """Every class of the table can be read: what is missing from nothing is named."""
        for code, headers in REQUESTS.items():
            for cls in (headers.request, headers.answer):
                if cls is None:
                    continue
                try:
                    from_ext(cls, {})
                except HeaderFieldInvalid as error:
                    self.assertEqual(cls.__name__, error.header, str(code))
