"""What the text behind a key may be, and how it becomes a value of ours and back.

Numbers are read as C{Integer.parseInt} reads them: an optional sign and digits.
Unlike RocketMQ, which silently keeps its default, we refuse what does not parse.
Where RocketMQ clamps a number, so do we, and say so.
"""

from __future__ import annotations

import re
import socket
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


class Kind:
    """One kind of value."""

    @property
    def allowed(self) -> str:
        """What is allowed, in words that follow C{is not allowed:}."""
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        """The value, in seconds, bytes or ratios.

        @raise ValueError: If the text is not L{allowed}.
        """
        raise NotImplementedError

    def show(self, value: Any) -> str:
        """A value as it would be written into the file."""
        return str(value)

    def note(self, text: str) -> str:
        """How a legal text is read differently from what it says, or C{""}."""
        return ""


@frozen
class Integer(Kind):
    """A whole number between two bounds, both included.

    @ivar unit: What is counted, for messages.
    """

    low: int
    high: int = INT_MAX
    unit: str = ""

    @property
    def allowed(self) -> str:
        unit = f" of {self.unit}" if self.unit else ""
        return f"a whole number{unit} from {self.low} to {self.high}"

    def number(self, text: str) -> int:
        """The number as it is written in the file."""
        if _NUMBER.fullmatch(text) is None or len(text) > 20:
            raise ValueError(text)
        number = int(text)
        if not self.low <= number <= self.high:
            raise ValueError(text)
        return number

    def parse(self, text: str) -> Any:
        return self.number(text)


@frozen
class Millis(Integer):
    """Milliseconds in the file, float seconds inside."""

    low: int = 1
    high: int = INT_MAX
    unit: str = "milliseconds"

    def parse(self, text: str) -> Any:
        return self.number(text) / 1000  # dividing keeps 500 at exactly 0.5

    def show(self, value: Any) -> str:
        return str(round(value * 1000))


@frozen
class Hours(Integer):
    """Hours in the file, float seconds inside."""

    low: int = 1
    high: int = INT_MAX
    unit: str = "hours"

    def parse(self, text: str) -> Any:
        return self.number(text) * 3600.0

    def show(self, value: Any) -> str:
        return str(round(value / 3600))


@frozen
class Percent(Kind):
    """A percentage that RocketMQ clamps to two bounds, and that becomes a ratio."""

    low: int
    high: int

    @property
    def allowed(self) -> str:
        return (
            f"a whole percentage; below {self.low} is {self.low}, above {self.high} is {self.high}"
        )

    def _clamped(self, text: str) -> tuple[int, int]:
        number = Integer(-INT_MAX - 1).number(text)
        return number, min(max(number, self.low), self.high)

    def parse(self, text: str) -> Any:
        return self._clamped(text)[1] / 100

    def show(self, value: Any) -> str:
        return str(round(value * 100))

    def note(self, text: str) -> str:
        number, clamped = self._clamped(text)
        return "" if number == clamped else f"is read as {clamped}, as RocketMQ does"


@frozen
class QueueFile(Integer):
    """A consume queue file's size: RocketMQ rounds it up to whole units."""

    def parse(self, text: str) -> Any:
        return -(-self.number(text) // UNIT_SIZE) * UNIT_SIZE

    def note(self, text: str) -> str:
        size = self.parse(text)
        if size == self.number(text):
            return ""
        return f"is read as {size}, whole units of {UNIT_SIZE} bytes, as RocketMQ does"


@frozen
class Switch(Kind):
    """C{true} or C{false}, in any case."""

    allowed = "true or false"

    def parse(self, text: str) -> Any:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"

    def show(self, value: Any) -> str:
        return "true" if value else "false"


@frozen
class Choice(Kind):
    """One of the words of an enumeration, exactly as they are written."""

    words: type[StrEnum]

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(self.words)

    def parse(self, text: str) -> Any:
        return self.words(text)


@frozen
class Text(Kind):
    """Any text."""

    empty: bool = True

    @property
    def allowed(self) -> str:
        return "any text" if self.empty else "a text that is not empty"

    def parse(self, text: str) -> Any:
        if not text and not self.empty:
            raise ValueError(text)
        return text


@frozen
class Levels(Kind):
    """The delays of C{messageDelayLevel}."""

    allowed = "numbers with s, m, h or d, single blanks between them, like 1s 5s 1m"

    def parse(self, text: str) -> Any:
        if _LEVELS.fullmatch(text) is None:
            raise ValueError(text)
        return text


@frozen
class HoursOfDay(Kind):
    """Hours of the day, separated by C{;}."""

    allowed = "hours of the day, 0 to 23, separated by ;"

    def parse(self, text: str) -> Any:
        hour = Integer(0, 23)
        chosen = tuple(hour.number(part.strip()) for part in text.split(";") if part.strip())
        if not chosen:
            raise ValueError(text)
        return chosen

    def show(self, value: Any) -> str:
        return ";".join(f"{hour:02d}" for hour in value)


def _path(text: str) -> Path:
    try:
        return Path(text.replace("${user.home}", str(Path.home()))).expanduser().absolute()
    except RuntimeError:  # the home of a user who is not there
        raise ValueError(text) from None


@frozen
class Folder(Kind):
    """One folder; C{~} and C{${user.home}} are the user's home, and a relative path
    becomes absolute at once, because a daemon changes its working directory.
    """

    allowed = "one folder (several, separated by ',' or ':', are not supported)"

    def parse(self, text: str) -> Any:
        if not text or "," in text or ":" in text or "\0" in text:
            raise ValueError(text)
        return _path(text)


@frozen
class FilePath(Kind):
    """One file.  As with L{Folder}, a relative path becomes absolute at once."""

    empty: bool = True

    @property
    def allowed(self) -> str:
        return "one file" + (", or nothing" if self.empty else "")

    def parse(self, text: str) -> Any:
        if "\0" in text or not (text or self.empty):
            raise ValueError(text)
        return _path(text) if text else None

    def show(self, value: Any) -> str:
        return "" if value is None else str(value)


@frozen
class Permission(Kind):
    """C{brokerPermission}: 4 is reading, 2 is writing."""

    allowed = "2 (writing), 4 (reading) or 6 (both)"

    def parse(self, text: str) -> Any:
        number = Integer(2, 6).number(text)
        if number % 2:
            raise ValueError(text)
        return number


@frozen
class Endpoint(Kind):
    """C{host:port}, or nothing; an IPv6 host may stand in brackets."""

    allowed = "host:port, port 1 to 65535"

    def parse(self, text: str) -> Any:
        if not text:
            return None
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = str(ip_address(host[1:-1]))
        elif ":" in host:
            host = str(ip_address(host))
        if not colon or not host or re.search(r"[\s/,;\[\]]", host):
            raise ValueError(text)
        return host, Integer(1, 65535).number(port)

    def show(self, value: Any) -> str:
        if value is None:
            return ""
        host, port = value
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@frozen
class ClientAddress(Endpoint):
    """C{host:port}, or C{off} (nothing means the same)."""

    allowed = f"{Endpoint.allowed}; or off"

    def parse(self, text: str) -> Any:
        return None if text.lower() == "off" else super().parse(text)

    def show(self, value: Any) -> str:
        return super().show(value) or "off"


@frozen
class Endpoints(Kind):
    """Any number of C{host:port}, separated by C{;}, kept as they were written."""

    allowed = "host:port, several separated by ;"

    def parse(self, text: str) -> Any:
        one = Endpoint()
        for part in text.split(";"):
            one.parse(part.strip())
        return text


@frozen
class Address(Kind):
    """An IP address."""

    empty: bool = True

    @property
    def allowed(self) -> str:
        return "an IPv4 or IPv6 address" + (", or nothing" if self.empty else "")

    def parse(self, text: str) -> Any:
        return "" if self.empty and not text else str(ip_address(text))


class NamedAddress(str):
    """The address of a host that was given by its name."""

    name: str

    def __new__(cls, address: str, name: str) -> Self:
        made = super().__new__(cls, address)
        made.name = name
        return made


@frozen
class HostAddress(Address):
    """An IP address, or the name of a host, looked up when the file is read: IPv4 first."""

    allowed = "an IPv4 or IPv6 address, or a name that this host finds one for"

    def parse(self, text: str) -> Any:
        # Of what has no letter behind its last dot resolvers make addresses that nobody meant.
        if not _NAME.fullmatch(text.lower()) or not text.rpartition(".")[2][:1].isalpha():
            return super().parse(text)
        try:
            rows = socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ValueError(text) from error
        return NamedAddress(str(min(rows)[4][0]), text)

    def show(self, value: Any) -> str:
        return value.name if isinstance(value, NamedAddress) else str(value)


@frozen
class HostNames(Kind):
    """Names of hosts, separated by C{,} or C{;}, in small letters."""

    allowed = "names of hosts, separated by , or ;"

    def parse(self, text: str) -> Any:
        parts = tuple(part.strip().lower() for part in _SEPARATORS.split(text) if part.strip())
        if not all(_NAME.fullmatch(part) for part in parts):
            raise ValueError(text)
        return parts

    def show(self, value: Any) -> str:
        return ",".join(value)


def _plain(network: Network) -> Network:
    """IPv4 where IPv6 writes it as C{::ffff:10.0.0.0/104}: peers are matched as IPv4."""
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is None or network.prefixlen < 96:
        return network
    return IPv4Network((mapped, network.prefixlen - 96))


@frozen
class Networks(Kind):
    """Addresses and CIDR networks, separated by C{,} or C{;}."""

    allowed = "addresses or CIDR networks, separated by , or ;"

    def parse(self, text: str) -> Any:
        parts = [part.strip() for part in _SEPARATORS.split(text)]
        found: list[Network] = [_plain(ip_network(part)) for part in parts if part]
        if text.strip() and not found:
            raise ValueError("it names nobody, and an empty list is everybody")
        return tuple(found)

    def show(self, value: Any) -> str:
        return ",".join(str(network) for network in value)
