"""The two kinds of headers, against known bytes and against odd ones."""

from __future__ import annotations

from struct import pack

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import HeaderTooCostly, HeaderUndecodable
from rmqha.wire.remoting import frame
from rmqha.wire.remoting.codes import LanguageCode
from rmqha.wire.remoting.command import MOST_FIELDS, Command, SerializeType
from rmqha.wire.remoting.frame import (
    LOOSE_LIMIT,
    FrameDecoder,
    decode_binary,
    encode,
    encode_binary,
)

#: GET_MAX_OFFSET of queue 1 of topic T1, asked and answered, as a broker of 4.9.8 did.
JSON_REQUEST = bytes.fromhex("0000006e 0000006a") + (
    b'{"code":30,"extFields":{"queueId":"1","topic":"T1"},"flag":0,"language":"PYTHON",'
    b'"opaque":7,"version":409}'
)
BINARY_REQUEST = bytes.fromhex(
    "00000034 01000030 001e 03 0199 00000007 00000000 00000000 0000001b"
    "0005 746f706963 00000002 5431 0007 71756575654964 00000001 31"
)
BINARY_ANSWER = bytes.fromhex(
    "00000026 01000022 0000 00 0199 00000007 00000001 00000000 0000000d"
    "0006 6f6666736574 00000001 34"
)


def json(text: str) -> Command:
    """The command of a JSON header."""
    return frame.decode_json(text.encode())


class Golden(SynchronousTestCase):
    def test_json(self) -> None:
        """A known JSON request says what it says."""
        (command,) = FrameDecoder().receive(JSON_REQUEST)
        self.assertEqual(Command(code=30, opaque=7, ext={"queueId": "1", "topic": "T1"}), command)

    def test_binary(self) -> None:
        """A known binary request and its answer, both ways, bit for bit."""
        request = Command(
            code=30, opaque=7, ext={"topic": "T1", "queueId": "1"}, serialize=SerializeType.ROCKETMQ
        )
        answer = Command(
            code=0,
            opaque=7,
            flag=1,
            language=LanguageCode.JAVA,
            ext={"offset": "4"},
            serialize=SerializeType.ROCKETMQ,
        )
        for command, raw in ((request, BINARY_REQUEST), (answer, BINARY_ANSWER)):
            self.assertEqual([command], FrameDecoder().receive(raw))
            self.assertEqual(raw, encode(command))


class JsonHeaders(SynchronousTestCase):
    def test_least(self) -> None:
        """What is absent or null is 0 or nothing."""
        command = json('{"code":34,"remark":null,"extFields":null}')
        self.assertEqual(
            (34, 0, 0, 0), (command.code, command.opaque, command.flag, command.version)
        )
        self.assertEqual((None, {}), (command.remark, command.ext))

    def test_fields_become_texts(self) -> None:
        """Numbers and booleans, as C++ and Node send them, are the texts Java would send."""
        command = json(
            '{"code":1,"extFields":{"a":-5,"b":true,"c":false,"d":null,"e":"x","f":1.5}}'
        )
        self.assertEqual({"a": "-5", "b": "true", "c": "false", "e": "x", "f": "1.5"}, command.ext)

    def test_languages(self) -> None:
        """A language comes by name or by number; an unknown one is OTHER."""
        for value, language in (
            ('"GO"', LanguageCode.GO),
            ("1", LanguageCode.CPP),
            ('"KLINGON"', LanguageCode.OTHER),
            ("99", LanguageCode.OTHER),
            ("null", LanguageCode.OTHER),
            ("[]", LanguageCode.OTHER),
        ):
            self.assertEqual(language, json(f'{{"code":1,"language":{value}}}').language, value)

    def test_control_characters(self) -> None:
        """Property strings come with raw or escaped control characters, and leave escaped."""
        for text in ("KEYS\x01k\x02", "KEYS\\u0001k\\u0002"):
            command = json(f'{{"code":310,"extFields":{{"i":"{text}"}}}}')
            self.assertEqual({"i": "KEYS\x01k\x02"}, command.ext)
            self.assertIn(b"KEYS\\u0001k\\u0002", frame.encode_json(command))

    def test_lenient(self) -> None:
        """What Java reads although it is no standard JSON is read."""
        command = json("{'code':105, opaque: \"7\", extFields:{topic:'T',},}")
        self.assertEqual((105, 7, {"topic": "T"}), (command.code, command.opaque, command.ext))

    def test_not_utf8(self) -> None:
        """Bytes that are not UTF-8 do not cost the connection."""
        command = frame.decode_json(b'{"code":1,"remark":"\xff"}')
        self.assertEqual("\N{REPLACEMENT CHARACTER}", command.remark)

    def test_refused(self) -> None:
        """What is no header is refused, and said why."""
        for text, reason in (
            ("", "expected a value"),
            ("[]", "not a JSON object"),
            ("7", "not a JSON object"),
            ('{"code":1', "expected , or }"),
            ('{"code":2147483648}', "32 bits"),
            ('{"code":1e400}', "not a number"),
            ('{"code":"x"}', "'x' is not a number"),
            ('{"code":true}', "not a number"),
            ('{"opaque":[]}', "not a number"),
            ('{"extFields":[]}', "extFields"),
            ("[" * 8_000, "objects nested more than"),
            ('{"remark":' + "[" * 300 + "]" * 300 + "}", "Recursion limit"),
            ('{"extFields":{"a":' + "[" * 300 + "]" * 300 + "}}", "Recursion limit"),
            ('{"code":1}{"code":2}', "unexpected text after the value"),
            ('{"version":' + "9" * 5000 + "}", "number"),
        ):
            self.assertIn(reason, str(self.assertRaises(HeaderUndecodable, json, text)))

    def test_too_costly(self) -> None:
        """A long header is read if it is standard JSON, and none with thousands of fields."""
        fields = ",".join(f"'k{number}':'v'" for number in range(1000))
        loose = f"{{'code':1,'extFields':{{{fields}}}}}"
        self.assertGreater(len(loose), LOOSE_LIMIT)
        error = self.assertRaises(HeaderTooCostly, json, loose)
        self.assertEqual((error.size, error.limit), (len(loose), LOOSE_LIMIT))
        self.assertEqual(1000, len(json(loose.replace("'", '"')).ext))
        short = ",".join(fields.split(",")[:500])
        self.assertEqual(500, len(json(f"{{'extFields':{{{short}}}}}").ext))
        many = ",".join(f'"k{number}":"v"' for number in range(MOST_FIELDS + 1))
        error = self.assertRaises(HeaderTooCostly, json, f'{{"extFields":{{{many}}}}}')
        self.assertEqual((error.size, error.limit), (MOST_FIELDS + 1, MOST_FIELDS))


class BinaryHeaders(SynchronousTestCase):
    HEADER = BINARY_REQUEST[8:]

    def test_too_costly(self) -> None:
        """Nor one in binary, whatever the names of its fields are."""
        for count, same in ((MOST_FIELDS, False), (MOST_FIELDS + 1, False), (40_000, True)):
            fields = b"".join(
                pack(">h4si", 4, b"%04x" % (0 if same else number), 0) for number in range(count)
            )
            header = self.HEADER[:13] + pack(">ii", 0, len(fields)) + fields
            if count > MOST_FIELDS:
                self.assertRaises(HeaderTooCostly, decode_binary, header)
            else:
                self.assertEqual(count, len(decode_binary(header).ext))

    def test_lengths(self) -> None:
        """A length that leads out of the header, or is negative, is refused."""
        for at, raw in (
            (13, b"\xff\xff\xff\xff"),  # the remark's
            (13, b"\x00\x00\x00\x1c"),
            (17, b"\x00\x00\x00\x1a"),  # all fields'
            (17, b"\xff\xff\xff\xff"),
            (21, b"\xff\xff"),  # the first name's
            (21, b"\x00\x7f"),
            (28, b"\xff\xff\xff\xff"),  # the first value's
            (28, b"\x7f\xff\xff\xff"),
        ):
            broken = self.HEADER[:at] + raw + self.HEADER[at + len(raw) :]
            self.assertRaises(HeaderUndecodable, decode_binary, broken)

    def test_cut(self) -> None:
        """A header that ends early is refused, wherever."""
        for size in range(len(self.HEADER)):
            self.assertRaises(HeaderUndecodable, decode_binary, self.HEADER[:size])

    def test_unknown_language(self) -> None:
        """A language nobody knows is OTHER."""
        header = self.HEADER[:2] + b"\xc8" + self.HEADER[3:]
        self.assertIs(LanguageCode.OTHER, decode_binary(header).language)

    @given(st.dictionaries(st.text(), st.text()), st.text())
    def test_any_text(self, ext: dict[str, str], remark: str) -> None:
        """Any text goes through; an empty remark is none."""
        command = Command(code=1, ext=ext, remark=remark, serialize=SerializeType.ROCKETMQ)
        found = decode_binary(encode_binary(command))
        self.assertEqual((ext, remark or None), (found.ext, found.remark))
