"""JSON with fastjson's habits."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.remoting.fastjson import MAX_DEPTH, SLOW_LIMIT, JsonInvalid, ObjectKey, dumps, loads
from tests.support.frames import every_frame

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers(-99, 99).map(str), inner, max_size=4)
    ),
    max_leaves=10,
)
#: Looks like numeric keys where there are none.
TRICKY = st.text(alphabet='{},:0123"\\-[] a')


class Reading(SynchronousTestCase):
    def test_habits(self) -> None:
        """Each habit of fastjson's reader, one by one."""
        for text, value in (
            ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
            ('{"t":{-1:{2:3}}}', {"t": {"-1": {"2": 3}}}),
            ("{ 0 : 1 , 1 : 2 }", {"0": 1, "1": 2}),
            ("{'a':'it\\'s'}", {"a": "it's"}),
            ("{a:1,$b_2:2}", {"a": 1, "$b_2": 2}),
            ('{"a":1,,"b":2,}', {"a": 1, "b": 2}),
            ("[1,2,]", [1, 2]),
            ('{"a":12L,"b":1.5F,"c":7B}', {"a": 12, "b": 1.5, "c": 7}),
            (
                '{"@type":"java.util.HashMap","a":Set[1,2],"b":TreeSet[]}',
                {"@type": "java.util.HashMap", "a": [1, 2], "b": []},
            ),
            ('{/* c */"a":1, // d\n "b":undefined}', {"a": 1, "b": None}),
            ('"raw \x01 control"', "raw \x01 control"),
            ("'\\u4e2d\\x41\\ud83d\\ude00\\n\\q'", "中A😀\nq"),
            ("'\\ud800'", "\N{REPLACEMENT CHARACTER}"),
            ("{true:1}", {"true": 1}),
            ("[-1.5e3,.5]", None),
            ("  [ ]  ", []),
            ("{,}", {}),
        ):
            if value is None:
                self.assertRaises(JsonInvalid, loads, text.encode())
            else:
                self.assertEqual(value, loads(text.encode()), text)
        self.assertTrue(math.isnan(loads(b"[NaN]")[0]))

    def test_object_keys(self) -> None:
        """A key that is an object becomes its text, known as such."""
        found = loads(b'{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":4}}')
        ((key, value),) = found.items()
        self.assertIsInstance(key, ObjectKey)
        self.assertEqual('{"brokerName":"b","queueId":0,"topic":"T"}', key)
        self.assertEqual({"maxOffset": 4}, value)

    def test_texts_that_look_like_keys(self) -> None:
        """Numbers inside texts are left alone."""
        for text in ('{0:"{1:2,3:4}"}', '{"{1:":0,2:3}', '[{5:",6:"}]', '{0:"\\",1:"}'):
            found = json.dumps(loads(text.encode()))
            quoted = text.replace("{0:", '{"0":').replace(",2:3", ',"2":3').replace("{5:", '{"5":')
            self.assertEqual(json.loads(quoted), json.loads(found), text)

    def test_refused(self) -> None:
        """What Java could not read either is refused with its place."""
        for text in (
            "",
            " ",
            "{",
            "[1",
            '"a',
            "{1}",
            "{a 1}",
            "[1 2]",
            "12 13",
            "nothing",
            "1.2.3",
            "-",
        ):
            error = self.assertRaises(JsonInvalid, loads, text.encode())
            self.assertIn(f"character {error.position}", str(error))

    def test_long_numbers(self) -> None:
        """A number of more than 64 bits is read, and can be written, whichever door it comes by."""
        long = "9" * 30
        for text in (f"[{long}]", f"[{long},]", f"{{a:[{long}]}}", f"{{{{'a':{long}}}:1}}"):
            self.assertIn(b"1e+30", dumps(loads(text.encode())), text)
        most, least = (1 << 64) - 1, -(1 << 63)
        self.assertEqual([most, least], loads(f"[{most},{least},]".encode()))

    def test_depth(self) -> None:
        """Odd JSON may not be deep, however it is nested."""
        deep = MAX_DEPTH + 1
        for text in ("[" * deep, "{a:" * deep, "{" * 100_000):
            self.assertRaises(JsonInvalid, loads, text.encode())

    def test_large_and_odd(self) -> None:
        """The slow door is not open to large texts; numeric keys do not need it."""
        members = ",".join(f'{number}:"x"' for number in range(SLOW_LIMIT // 8))
        self.assertEqual(SLOW_LIMIT // 8, len(loads(f"{{{members}}}".encode())))
        self.assertRaises(JsonInvalid, loads, f"{{{members},'a':1}}".encode())

    @given(VALUES)
    def test_standard(self, value: object) -> None:
        """Standard JSON is read as anybody reads it."""
        self.assertEqual(value, loads(json.dumps(value).encode()))

    @given(st.dictionaries(st.integers(-99, 99), TRICKY), TRICKY)
    def test_numeric_keys_among_tricky_texts(self, table: dict[int, str], text: str) -> None:
        """Numeric keys are told from everything that looks like them."""
        value = {text: [text, table], "t": table}
        plain = {text: [text, _quoted(table)], "t": _quoted(table)}
        self.assertEqual(plain, loads(dumps(value, numeric_keys="bare")))
        self.assertEqual(plain, json.loads(dumps(value)))

    @given(TRICKY | st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
    def test_garbage(self, text: str) -> None:
        """Any text is a value or no JSON."""
        try:
            loads(text.encode())
        except JsonInvalid:
            pass


class Writing(SynchronousTestCase):
    def test_keys(self) -> None:
        """Numeric keys are bare or quoted as asked; an object is never quoted."""
        table = {"t@g": {0: 12, 1: 7}}
        self.assertEqual(b'{"t@g":{0:12,1:7}}', dumps(table, numeric_keys="bare"))
        self.assertEqual(b'{"t@g":{"0":12,"1":7}}', dumps(table))
        key = ObjectKey('{"queueId":0}')
        for numeric_keys in ("bare", "quoted"):
            self.assertEqual(b'{{"queueId":0}:7}', dumps({key: 7}, numeric_keys=numeric_keys))

    def test_numeric_texts_keep_their_quotes(self) -> None:
        """A topic called 5 is no number."""
        self.assertEqual(b'{"5":{5:"5"}}', dumps({"5": {5: "5"}}, numeric_keys="bare"))


class CapturedBodies(SynchronousTestCase):
    def test_every_json_body(self) -> None:
        """Every captured body that is JSON is read, and reads the same after writing it."""
        read = 0
        for name, frame in every_frame():
            if frame.body[:1] in (b"{", b"["):
                value = loads(frame.body)
                self.assertEqual(value, loads(dumps(value)), name)
                read += 1
        self.assertGreater(read, 1000)


def _quoted(table: dict[int, str]) -> dict[str, str]:
    return {str(key): value for key, value in table.items()}
