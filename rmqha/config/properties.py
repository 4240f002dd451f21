"""Java's C{.properties} text, read the way a Java broker reads its C{broker.conf}.

The rules are those of C{java.util.Properties}: the first unescaped C{=}, C{:} or
blank ends the key; a line ending in an odd number of backslashes goes on in the
next one, whose leading blanks are dropped; C{#} and C{!} start a comment only as
the first character of a line.  A comment behind a value is part of the value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from attrs import frozen

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}


@frozen
class Entry:
    """One key and its value.

    @ivar key: The key, escapes resolved.
    @ivar value: The value, escapes resolved; trailing blanks are kept, as in Java.
    @ivar line: Number of the line it starts on, from 1.
    @ivar fault: What makes the line unusable, or C{""}.
    """

    key: str
    value: str
    line: int
    fault: str = ""


def decode(raw: bytes) -> str:
    """The text of a file that may be UTF-8 (as people write it) or Latin-1 (as Java reads it).

    @param raw: The file's bytes; a byte order mark is dropped.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def parse(text: str) -> list[Entry]:
    """All entries in the order of the file; a repeated key is repeated here.

    @param text: The whole file.
    """
    return [_entry(logical, line) for logical, line in _logical_lines(text)]


def commented(text: str, keys: Collection[str]) -> str:
    """The same text with the lines of some keys as comments, ended by a line's end.

    @param text: The whole file.
    """
    first = {entry.line for entry in parse(text) if entry.key in keys}
    lines: list[str] = []
    inside = False
    for number, line in enumerate(_LINE_END.split(text), 1):
        inside = number in first or (inside and _continues(lines[-1]))
        lines.append(f"#{line}" if inside else line)
    return "\n".join(lines).rstrip("\n") + "\n"


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Lines with their continuations joined, without comments and blank lines."""
    pending = ""
    first = 0  # the line a continued one started on, 0: none is open
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not first:
            if not line or line[0] in "#!":
                continue
            pending, first = "", number
        if _continues(line):
            pending += line[:-1]
            continue
        pending += line
        if pending:
            yield pending, first
        first = 0
    if first and pending:
        yield pending, first


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _entry(logical: str, line: int) -> Entry:
    key_end = _key_end(logical)
    rest = logical[key_end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    try:
        return Entry(_unescape(logical[:key_end]), _unescape(rest), line)
    except ValueError as error:
        return Entry(logical[:key_end], rest, line, str(error))


def _key_end(logical: str) -> int:
    position = 0
    while position < len(logical):
        char = logical[position]
        if char == "\\":
            position += 1  # whatever follows is part of the key
        elif char in "=:" or char in _BLANKS:
            break
        position += 1
    return min(position, len(logical))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            if char != "\\":
                out.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            match = _UNICODE.match(text, position)
            if match is None:
                raise ValueError(
                    f"\\u{text[position : position + 4]} is not \\u and four hex digits"
                )
            out.append(chr(int(match.group(), 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Java writes characters beyond 0xFFFF as two escapes, a surrogate pair.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
