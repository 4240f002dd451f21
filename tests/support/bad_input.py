"""What may stand in a request that should not, and what may not be said about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_type_hints

from attrs import NOTHING, AttrsInstance, define, field, fields
from twisted.logger import LogEvent, LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import Long, to_ext, wire_name

TEXTS = (
    "",
    " ",
    "abc",
    "-1",
    "1.5",
    "NaN",
    "0x10",
    "1_000",
    "\u00b2",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "9" * 5000,
    "x" * 127,
    "x" * 300,
    "x" * 40_000,
    "a@b",
    "%RETRY%",
    "../../etc",
    "\0\1\2",
    "\u00ff\u4e2d\U0001f600",
    "%s {0} {name}",
)
"""What a field may say instead."""

BODIES = (
    b"",
    b"garbage",
    b"\xff\xfe\x00",
    b"{",
    b"{}",
    b"[]",
    b"[1]",
    b"null",
    b"7",
    b'"text"',
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b"[" * 300 + b"]" * 300,
    b"[" * 50_000,
    b"{" * 50_000,
    b'{"clientID":[],"consumerGroup":{},"mqSet":7,"groupName":[],"topicName":{}}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":[1]}],"producerDataSet":{}}',
    b'{"groupName":"%s"}' % (b"g" * 300),
    b'{"groupName":"a b"}',
    b'{"groupName":"g","retryMaxTimes":' + b"9" * 400 + b"}",
    b'{"groupName":"g","later":' + b"[" * 300 + b"]" * 300 + b"}",
    b'{"topicConfigList":[{"topicName":"a b"}]}',
    b'{"topicConfigList":[null,7]}',
    b'{"queueDatas":[{"brokerName":[]}]}',
    b"listenPort=abc\nmaxMessageSize=-1\nnonsense",
    b"x" * 200_000,
)
"""What a body may be instead."""

CLASS_NAME = re.compile(r"^[A-Za-z_]*(Error|Exception|Fault|Warning|Exit)\b(: |$)")


def good_fields(header: type[AttrsInstance] | None, values: Mapping[str, Any]) -> dict[str, str]:
    """A header's fields, by attribute, as they should be; the others are 0, or C{"x"}."""
    if header is None:
        return {}
    given = {
        attribute.alias: values.get(
            attribute.name, "x" if _kind(header, attribute.name) is str else 0
        )
        for attribute in fields(header)
    }
    return to_ext(header(**given))


def bad_fields(
    header: type[AttrsInstance] | None, good: Mapping[str, str]
) -> Iterator[tuple[str, str | None, dict[str, str], bool]]:
    """One field after the other, missing or as in L{TEXTS}: its name, what it says now, all of the
    fields, and whether this must be refused as no value of its type.
    """
    for attribute in () if header is None else fields(header):
        name, kind = wire_name(attribute), _kind(header, attribute.name)
        mandatory = attribute.default is NOTHING
        left = {other: text for other, text in good.items() if other != name}
        yield name, None, left, mandatory
        for text in TEXTS:
            yield name, text, left | {name: text}, not _fits(kind, text, mandatory)


def _kind(header: type[AttrsInstance] | None, attribute: str) -> Any:
    assert header is not None, "it has fields"
    hint = get_type_hints(header, include_extras=True)[attribute]
    if hint in (str, int, Long, bool, float):
        return hint
    return next(kind for kind in get_args(hint) if kind is not type(None))


def _fits(kind: Any, text: str, mandatory: bool) -> bool:
    if kind is str or (not text and not mandatory):
        return True
    if kind is bool:
        return bool(text)
    if kind is float:
        return True
    bits = 63 if kind is Long else 31
    return bool(re.fullmatch(r"[+-]?[0-9]{1,30}", text)) and -(1 << bits) <= int(text) < 1 << bits


@define
class Complaints:
    """Log lines that say that we are at fault, not who asked."""

    events: list[LogEvent] = field(factory=list)

    @classmethod
    def of(cls, case: SynchronousTestCase) -> Complaints:
        complaints = cls()
        globalLogPublisher.addObserver(complaints)
        case.addCleanup(globalLogPublisher.removeObserver, complaints)
        return complaints

    def __call__(self, event: LogEvent) -> None:
        if "log_failure" in event or event["log_level"] >= LogLevel.error:
            self.events.append(event)


def assert_told(
    case: SynchronousTestCase, answer: Command, said: str, *, field: str | None = None
) -> None:
    """An answer tells a person what is wrong, in words that are not Python's.

    @param said: What was asked, for this test's own message.
    @param field: The field that has to be named, if it was no value of its type.
    """
    remark = answer.remark or ""
    case.assertIsNone(CLASS_NAME.match(remark), f"{said}: {remark}")
    case.assertLessEqual(len(remark), 1024, said)
    if field is not None:
        case.assertEqual(answer.code, 1, f"{said}: {remark}")
        case.assertIn(f"the custom field <{field}> is null", remark, said)
    elif answer.code:
        case.assertTrue(remark, f"{said}: {answer.code} and not a word")


def shown(code: int, name: str | None, value: object) -> str:
    """A request, for a test's message."""
    return f"{code} {RequestCode(code).name}, {name}={str(value)[:60]!r}"
