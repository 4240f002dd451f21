"""What the text behind a key may be, and how it becomes a value of ours and back.

Numbers are read as C{Integer.parseInt} reads them: an optional sign and digits.
Unlike RocketMQ, which silently keeps its default, we refuse what does not parse.
Where RocketMQ clamps a number, so do we, and say so.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Self

from attrs import frozen

from rmqha.wire.store_layout import UNIT_SIZE

Network = IPv4Network | IPv6Network

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LEVELS = re.compile(r"[0-9]{1,9}[smhd]( [0-9]{1,9}[smhd])*", re.ASCII)
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII)
_SEPARATORS = re.compile(r"[,;]")


@frozen
class Kind:
    """One kind of value.

    @ivar allowed: What is allowed, in words that follow C{is not allowed:}.
    @ivar parse: The value of a text, in seconds, bytes or ratios; what is not allowed is a
        C{ValueError}.
    @ivar show: A value as it would be written into the file.
    @ivar note: How a legal text is read differently from what it says, or C{""}.
    """

    allowed: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    note: Callable[[str], str] = lambda text: ""


def number(text: str, low: int, high: int) -> int:
    """The number of a text.

    @raise ValueError: If it is none, or not between two bounds, both included.
    """
    if _NUMBER.fullmatch(text) is None or len(text) > 20 or not low <= int(text) <= high:
        raise ValueError(text)
    return int(text)


def whole(low: int, high: int = INT_MAX, unit: str = "") -> Kind:
    """A whole number between two bounds, both included.

    @param unit: What is counted, for messages.
    """
    return Kind(_whole(low, high, unit), lambda text: number(text, low, high))


def _whole(low: int, high: int, unit: str) -> str:
    return f"a whole number{unit and f' of {unit}'} from {low} to {high}"


def millis(low: int = 1, high: int = INT_MAX) -> Kind:
    """Milliseconds in the file, float seconds inside."""
    return Kind(
        _whole(low, high, "milliseconds"),
        lambda text: number(text, low, high) / 1000,  # dividing keeps 500 at exactly 0.5
        lambda value: str(round(value * 1000)),
    )


HOURS = Kind(
    _whole(1, INT_MAX, "hours"),
    lambda text: number(text, 1, INT_MAX) * 3600.0,
    lambda value: str(round(value / 3600)),
)
"""Hours in the file, float seconds inside."""


def percent(low: int, high: int) -> Kind:
    """A percentage that RocketMQ clamps to two bounds, and that becomes a ratio."""

    def clamped(text: str) -> int:
        return min(max(number(text, -INT_MAX - 1, INT_MAX), low), high)

    def note(text: str) -> str:
        read = clamped(text)
        return "" if int(text) == read else f"is read as {read}, as RocketMQ does"

    return Kind(
        f"a whole percentage; below {low} is {low}, above {high} is {high}",
        lambda text: clamped(text) / 100,
        lambda value: str(round(value * 100)),
        note,
    )


def _units(text: str) -> int:
    return -(-number(text, 1, INT_MAX) // UNIT_SIZE) * UNIT_SIZE


def _rounded(text: str) -> str:
    size = _units(text)
    if size == int(text):
        return ""
    return f"is read as {size}, whole units of {UNIT_SIZE} bytes, as RocketMQ does"


QUEUE_FILE = Kind(_whole(1, INT_MAX, "bytes"), _units, note=_rounded)
"""A consume queue file's size: RocketMQ rounds it up to whole units."""


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


SWITCH = Kind("true or false", _switch, lambda value: "true" if value else "false")
"""C{true} or C{false}, in any case."""


def choice(words: type[StrEnum]) -> Kind:
    """One of the words of an enumeration, exactly as they are written."""
    return Kind("one of " + ", ".join(words), words)


def _some(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


TEXT = Kind("any text", str)
SOME_TEXT = Kind("a text that is not empty", _some)


def _levels(text: str) -> str:
    if _LEVELS.fullmatch(text) is None:
        raise ValueError(text)
    return text


LEVELS = Kind("numbers with s, m, h or d, single blanks between them, like 1s 5s 1m", _levels)
"""The delays of C{messageDelayLevel}."""


def _hours_of_day(text: str) -> tuple[int, ...]:
    chosen = tuple(number(part.strip(), 0, 23) for part in text.split(";") if part.strip())
    if not chosen:
        raise ValueError(text)
    return chosen


HOURS_OF_DAY = Kind(
    "hours of the day, 0 to 23, separated by ;",
    _hours_of_day,
    lambda value: ";".join(f"{hour:02d}" for hour in value),
)


def _path(text: str) -> Path:
    if "\0" in text:
        raise ValueError(text)
    try:
        return Path(text.replace("${user.home}", str(Path.home()))).expanduser().absolute()
    except RuntimeError:  # the home of a user who is not there
        raise ValueError(text) from None


def _folder(text: str) -> Path:
    if not text or "," in text or ":" in text:
        raise ValueError(text)
    return _path(text)


FOLDER = Kind("one folder (several, separated by ',' or ':', are not supported)", _folder)
"""One folder; C{~} and C{${user.home}} are the user's home, and a relative path
becomes absolute at once, because a daemon changes its working directory.
"""

SOME_FILE = Kind("one file", lambda text: _path(_some(text)))
"""One file.  As with L{FOLDER}, a relative path becomes absolute at once."""

FILE = Kind(
    "one file, or nothing",
    lambda text: _path(text) if text else None,
    lambda value: "" if value is None else str(value),
)


def _permission(text: str) -> int:
    found = number(text, 2, 6)
    if found % 2:
        raise ValueError(text)
    return found


PERMISSION = Kind("2 (writing), 4 (reading) or 6 (both)", _permission)
"""C{brokerPermission}: 4 is reading, 2 is writing."""


def _endpoint(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = str(ip_address(host[1:-1]))
    elif ":" in host:
        host = str(ip_address(host))
    if not colon or not host or re.search(r"[\s/,;\[\]]", host):
        raise ValueError(text)
    return host, number(port, 1, 65535)


def _shown_endpoint(value: tuple[str, int] | None) -> str:
    if value is None:
        return ""
    host, port = value
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


ENDPOINT = Kind("host:port, port 1 to 65535", _endpoint, _shown_endpoint)
"""C{host:port}, or nothing; an IPv6 host may stand in brackets."""

CLIENT_ADDRESS = Kind(
    f"{ENDPOINT.allowed}; or off",
    lambda text: None if text.lower() == "off" else _endpoint(text),
    lambda value: _shown_endpoint(value) or "off",
)
"""C{host:port}, or C{off} (nothing means the same)."""


def _endpoints(text: str) -> str:
    for part in text.split(";"):
        _endpoint(part.strip())
    return text


ENDPOINTS = Kind("host:port, several separated by ;", _endpoints)
"""Any number of C{host:port}, kept as they were written."""


def _address(text: str) -> str:
    return str(ip_address(text))


SOME_ADDRESS = Kind("an IPv4 or IPv6 address", _address)
ADDRESS = Kind("an IPv4 or IPv6 address, or nothing", lambda text: text and _address(text))


class NamedAddress(str):
    """The address of a host that was given by its name."""

    name: str

    def __new__(cls, address: str, name: str) -> Self:
        made = super().__new__(cls, address)
        made.name = name
        return made


def _host_address(text: str) -> str:
    # Of what has no letter behind its last dot resolvers make addresses that nobody meant.
    if not _NAME.fullmatch(text.lower()) or not text.rpartition(".")[2][:1].isalpha():
        return _address(text)
    try:
        rows = socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(text) from error
    return NamedAddress(str(min(rows)[4][0]), text)


HOST_ADDRESS = Kind(
    "an IPv4 or IPv6 address, or a name that this host finds one for",
    _host_address,
    lambda value: value.name if isinstance(value, NamedAddress) else str(value),
)
"""An IP address, or the name of a host, looked up when the file is read: IPv4 first."""


def _host_names(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip().lower() for part in _SEPARATORS.split(text) if part.strip())
    if not all(_NAME.fullmatch(part) for part in parts):
        raise ValueError(text)
    return parts


HOST_NAMES = Kind("names of hosts, separated by , or ;", _host_names, ",".join)
"""Names of hosts, in small letters."""


def _plain(network: Network) -> Network:
    """IPv4 where IPv6 writes it as C{::ffff:10.0.0.0/104}: peers are matched as IPv4."""
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is None or network.prefixlen < 96:
        return network
    return IPv4Network((mapped, network.prefixlen - 96))


def _networks(text: str) -> tuple[Network, ...]:
    parts = [part.strip() for part in _SEPARATORS.split(text)]
    found: list[Network] = [_plain(ip_network(part)) for part in parts if part]
    if text.strip() and not found:
        raise ValueError("it names nobody, and an empty list is everybody")
    return tuple(found)


NETWORKS = Kind(
    "addresses or CIDR networks, separated by , or ;",
    _networks,
    lambda value: ",".join(map(str, value)),
)
