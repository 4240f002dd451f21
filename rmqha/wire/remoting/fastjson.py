"""JSON as RocketMQ's Java writes and reads it, with fastjson's habits.

Java writes the keys of a map as JSON values of their own type: whole numbers without
quotes, objects as objects.  It reads that, single quotes, names without quotes, commas
too many, comments and numbers with a type letter.  So do we, through three doors: a
fast one for standard JSON, the same after numeric keys were put into quotes, and a
slow one for the rest.  Source: docs/protocol/remoting.md, JSON habits.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import orjson
from attrs import define

from rmqha.errors import RmqhaError

MAX_DEPTH = 64
"""How deep objects and arrays may lie in each other; RocketMQ's deepest body has 8."""

SLOW_LIMIT = 256 * 1024
"""Most bytes the slow door takes; it reads about 2 MB in a second."""


class JsonInvalid(RmqhaError):
    """A text is no JSON, not even by fastjson's rules."""

    sentence = "invalid JSON at character {position}: {reason}"
    position: int
    reason: str


@define
class SlowlyRead:
    """How much went through the slow door, for who has to see that it does not take all the time.

    @ivar size: Bytes, of all texts so far.
    """

    size: int = 0


slowly_read = SlowlyRead()
"""Of this process."""

#: A whole number where a key stands.  Put into quotes inside a text it would end that
#: text before a digit, which no JSON allows: the fast door cannot misread it.
_NUMERIC_KEY = re.compile(rb"(?<=[{,])(-?[0-9]+)(?=:)")

_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|' r"'[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_NUMBER = re.compile(r"([+-]?[0-9]+)(\.[0-9]*)?([eE][+-]?[0-9]+)?[BSLFD]?(?![\w$])")
_WORD = re.compile(r"[A-Za-z_$@][\w$@.]*")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
}


class ObjectKey(str):
    """A key that is an object: its JSON text, which is written without quotes."""

    __slots__ = ()


def loads(data: bytes | memoryview) -> Any:
    """Read JSON.

    @return: What C{json.loads} would give.  Keys are texts: numbers without quotes become
        their digits, objects an L{ObjectKey}.
    @raise JsonInvalid: If Java could not read it either.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    data = bytes(data)
    try:
        return orjson.loads(_NUMERIC_KEY.sub(rb'"\1"', data))
    except orjson.JSONDecodeError as error:
        if len(data) > SLOW_LIMIT:
            raise JsonInvalid(error.pos, error.msg) from None
        slowly_read.size += len(data)
        return _Reader(data.decode("utf-8", "replace")).whole()


def dumps(value: object, *, numeric_keys: Literal["bare", "quoted"] = "quoted") -> bytes:
    """Write JSON, without blanks.

    @param numeric_keys: How keys that are whole numbers are written.  An L{ObjectKey} never
        has quotes.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # keys that are no texts, or a value that cannot be written
        return _written(value, numeric_keys == "bare").encode()


def _written(value: object, bare: bool) -> str:
    if isinstance(value, dict):
        members = (
            f"{_written_key(key, bare)}:{_written(member, bare)}" for key, member in value.items()
        )
        return f"{{{','.join(members)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join([_written(member, bare) for member in value])}]"
    return orjson.dumps(value).decode()


def _written_key(key: object, bare: bool) -> str:
    if isinstance(key, ObjectKey):
        return key
    if isinstance(key, int):
        return str(int(key)) if bare else f'"{int(key)}"'
    return orjson.dumps(key).decode()


@define
class _Reader:
    """The slow door.

    @ivar text: All of it.
    @ivar at: How far it is read.
    """

    text: str
    at: int = 0

    def whole(self) -> Any:
        value = self._value(0)
        self._blanks()
        if self.at < len(self.text):
            raise self._wrong("unexpected text after the value")
        return value

    def _wrong(self, reason: str) -> JsonInvalid:
        return JsonInvalid(self.at, reason)

    def _blanks(self) -> None:
        found = _SPACE.match(self.text, self.at)
        if found is not None:
            self.at = found.end()

    def _peek(self) -> str:
        """The next character that means something; C{""} at the end."""
        self._blanks()
        return self.text[self.at : self.at + 1]

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def _value(self, depth: int) -> Any:
        character = self._peek()
        if character == "{":
            return self._object(depth + 1)
        if character == "[":
            return self._array(depth + 1)
        if character in ("'", '"'):
            return self._string()
        if (found := self._take(_NUMBER)) is not None:
            return _number(found)
        word = self._word()
        if word in _WORDS:
            return _WORDS[word]
        if word in ("Set", "TreeSet") and self._peek() == "[":
            return self._array(depth + 1)
        raise self._wrong(f"{word[:32]!r} is not a value" if word else "expected a value")

    def _word(self) -> str:
        found = self._take(_WORD)
        return "" if found is None else found.group()

    def _string(self) -> str:
        found = self._take(_STRING)
        if found is None:
            raise self._wrong("unterminated string")
        inner = found.group()[1:-1]
        return inner if "\\" not in inner else _unescaped(inner)

    def _enter(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._wrong(f"objects nested more than {MAX_DEPTH} deep")
        self.at += 1

    def _more(self, closing: str) -> bool:
        """Pass commas, and the closing bracket if it comes."""
        while self._peek() == ",":
            self.at += 1
        if self._peek() != closing:
            return True
        self.at += 1
        return False

    def _array(self, depth: int) -> list[Any]:
        self._enter(depth)
        members = []
        while self._more("]"):
            members.append(self._value(depth))
            if self._peek() not in (",", "]"):
                raise self._wrong("expected , or ] after a member")
        return members

    def _object(self, depth: int) -> dict[str, Any]:
        self._enter(depth)
        members = {}
        while self._more("}"):
            key = self._key(depth)
            if self._peek() != ":":
                raise self._wrong("expected : after a key")
            self.at += 1
            members[key] = self._value(depth)
            if self._peek() not in (",", "}"):
                raise self._wrong("expected , or } after a member")
        return members

    def _key(self, depth: int) -> str:
        character = self._peek()
        if character in ("'", '"'):
            return self._string()
        if character == "{":
            return ObjectKey(dumps(self._object(depth + 1)).decode())
        if (found := self._take(_NUMBER)) is not None:
            return str(_number(found))
        if word := self._word():
            return word
        raise self._wrong("expected a key")


def _number(found: re.Match[str]) -> int | float:
    whole, fraction, exponent = found.groups()
    try:
        if fraction is None and exponent is None:
            number = int(whole)
            # A longer one is what the fast door makes of it: else it could not be written.
            return number if -(1 << 63) <= number < 1 << 64 else float(whole)
        return float(f"{whole}{fraction or ''}{exponent or ''}")
    except ValueError:
        raise JsonInvalid(found.start(), "a number with too many digits") from None


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        wide, narrow, single = found.groups()
        if single is not None:
            return _ESCAPED.get(single, single)
        return chr(int(wide or narrow, 16))

    # A pair of surrogates is one character; half a pair is none.
    raw = _ESCAPE.sub(one, text).encode("utf-16-le", "surrogatepass")
    return raw.decode("utf-16-le", "replace")
