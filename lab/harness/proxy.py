"""A bad network between two nodes: a TCP proxy in its own process, told what to do.

Each direction has its own faults: C{up} is what the slave says, C{down} what the master
sends.  They are changed at any time, for connections that are there and for new ones::

    delay    seconds every piece is late
    rate     most bytes a second
    split    [least, most] bytes of the pieces that are passed on, chosen by the seed
    swallow  take everything and pass nothing on
    hold     take nothing: the sender is made to wait
    cut      end the connection after so many bytes of it
    flip     [offset, bit]: turn one bit of a connection over, once

Beside faults, text is swapped for other text of the same length, so that who tells an address tells
one behind another proxy; and clients are barred by what they say.

Run by L{Proxy}; the child is C{python -m lab.harness.proxy PORT HOST PORT SEED}.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from pathlib import Path
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import ClientFactory, Protocol, ServerFactory, connectionDone
from twisted.internet.stdio import StandardIO
from twisted.python.failure import Failure

from lab.harness.json_child import Commands, Piped
from lab.harness.ports import free_ports

#: Bytes that may wait in one direction before the sender is held up.
MOST_WAITING = 1 << 16

DIRECTIONS = ("up", "down")


class Flow:
    """One direction of one connection: bytes come in, are spoiled, and go on."""

    def __init__(self, bridge: Bridge, direction: str) -> None:
        self.bridge, self.direction = bridge, direction
        self.faults: dict[str, Any] = bridge.faults[direction]
        self.queue: deque[tuple[float, bytes]] = deque()
        self.waiting = self.passed = self.seen = 0
        self.free = 0.0
        self.held = False
        self.timer: Any = None
        self.source: End | None = None
        self.target: End | None = None
        self.ended: bool = False

    def came(self, data: bytes) -> None:
        flip = self.faults.get("flip")
        if flip is not None and self.seen <= flip[0] < self.seen + len(data):
            spoiled = bytearray(data)
            spoiled[flip[0] - self.seen] ^= 1 << flip[1]
            data = bytes(spoiled)
            del self.faults["flip"]
        if self is self.bridge.up and self.bridge.is_barred(data):
            self.bridge.cut()
            return
        self.seen += len(data)
        for old, new in self.bridge.network.swaps[self.direction].items():
            data = data.replace(old, new)
        due = self.bridge.reactor.seconds()
        if rate := self.faults.get("rate"):
            due = self.free = max(self.free, due) + len(data) / rate
        due += self.faults.get("delay", 0.0)
        self.queue.append((due, data))
        self.waiting += len(data)
        self.run()

    def finish(self) -> None:
        """The one side has said all: end the other when it has it."""
        self.ended = True
        self.run()

    def run(self) -> None:
        if self.timer is not None and self.timer.active():
            self.timer.cancel()
        self.timer = None
        target = self.target
        if target is None or target.transport is None:
            return
        now = self.bridge.reactor.seconds()
        pieces = 0
        while self.queue and not self.faults.get("hold"):
            due, data = self.queue[0]
            if due > now:
                self._later(due - now)
                break
            if self.faults.get("split") and pieces == 200:
                self._later(0)
                break
            pieces += 1
            size = self._piece(len(data))
            if size < 0:
                self.bridge.cut()
                return
            if not self.faults.get("swallow"):
                size = target.take(data[:size])
                if size == 0:
                    break  # it is full; it will call us
            self.passed += size
            self.waiting -= size
            if size == len(data):
                self.queue.popleft()
            else:
                self.queue[0] = (due, data[size:])
        if self.ended and not self.queue and not self.faults.get("swallow"):
            target.transport.loseConnection()
        self._hold_up()

    def _piece(self, size: int) -> int:
        split = self.faults.get("split")
        if split is not None:
            size = min(size, self.bridge.random.randint(*split))
        cut = self.faults.get("cut")
        if cut is not None:
            if self.passed >= cut:
                return -1
            size = min(size, cut - self.passed)
        return size

    def _later(self, delay: float) -> None:
        self.timer = self.bridge.reactor.callLater(delay, self.run)

    def _hold_up(self) -> None:
        held = self.waiting > MOST_WAITING or bool(self.faults.get("hold"))
        if held is not self.held and self.source is not None and self.source.transport is not None:
            self.held = held
            if held:
                self.source.transport.pauseProducing()
            else:
                self.source.transport.resumeProducing()


class End(Protocol):
    """One socket of the proxy: what it hears goes C{into}, what it says comes C{out} of a flow."""

    def __init__(self, into: Flow, out: Flow) -> None:
        self.into, self.out = into, out
        self.lost = False

    def connectionMade(self) -> None:
        """Pass on what waited for us."""
        self.transport.setTcpNoDelay(True)
        self.transport.registerProducer(self, True)
        self.paused = False
        self.into.source = self.out.target = self
        self.out.run()

    def take(self, data: bytes) -> int:
        """Send bytes as a segment of their own, if there is room for them."""
        if self.paused:
            return 0
        self.transport.write(data)
        if self.out.faults.get("split"):
            # Now, or Twisted would put it together with the next.
            self.transport.doWrite()
        return len(data)

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        """Called by Twisted: the transport takes bytes again."""
        self.paused = False
        self.out.run()

    def stopProducing(self) -> None:
        """Called by Twisted: the transport takes no bytes any more."""
        self.paused = True

    def dataReceived(self, data: bytes) -> None:
        self.into.came(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the other side, unless the network is one that does not."""
        self.lost = True
        self.into.bridge.lost(self, well=reason.check(ConnectionDone) is not None)


class Bridge:
    """One connection through the proxy, and what its client said first."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.reactor = network.reactor
        self.random = network.random
        # A flip is for one connection; the rest is shared, and changes as it is told.
        self.faults = network.faults
        self.up, self.down = Flow(self, "up"), Flow(self, "down")
        self.client = End(self.up, self.down)
        self.server = End(self.down, self.up)
        self.silent = False
        self.first = b""

    def is_barred(self, piece: bytes = b"") -> bool:
        """Whether its client is one that gets nothing through, by what it says or said first."""
        self.first = self.first or piece
        return any(text in said for said in (self.first, piece) for text in self.network.bars)

    def lost(self, end: End, *, well: bool) -> None:
        """One side's connection ended: end the other."""
        other = self.server if end is self.client else self.client
        if self.client.lost and self.server.lost:
            self.network.bridges.discard(self)
        if self.silent or self.network.parted or other.lost or other.transport is None:
            return
        if well:
            end.into.finish()
        else:
            other.transport.abortConnection()

    def cut(self) -> None:
        """End both sides at once."""
        for end in (self.client, self.server):
            if end.transport is not None and not end.lost:
                end.transport.abortConnection()

    def half_open(self, keep: str) -> None:
        """End one side without a word to the other, C{client} or C{server}, which is kept."""
        self.silent = True
        goes = self.server if keep == "client" else self.client
        if goes.transport is not None and not goes.lost:
            goes.transport.abortConnection()


class Outgoing(ClientFactory):
    """Makes the connection from the proxy to the master."""

    noisy = False

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge

    def buildProtocol(self, addr: Any) -> End:
        return self.bridge.server

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        """The master refused the connection: end the slave's."""
        self.bridge.server.lost = True
        if self.bridge.client.transport is not None:
            self.bridge.client.transport.abortConnection()


class Network(ServerFactory):
    """Everything between the slaves and one master."""

    noisy = False

    def __init__(self, reactor: Any, target: tuple[str, int], seed: str) -> None:
        self.reactor, self.target = reactor, target
        self.random = random.Random(seed)
        self.faults: dict[str, dict[str, Any]] = {name: {} for name in DIRECTIONS}
        self.swaps: dict[str, dict[bytes, bytes]] = {name: {} for name in DIRECTIONS}
        self.bridges: set[Bridge] = set()
        self.refusing = self.parted = False
        self.bars: list[bytes] = []
        self.connections = 0
        self.commands = Commands(
            reactor,
            {
                "set": self.set,
                "cut": self.cut,
                "half-open": self.half_open,
                "refuse": self.refuse,
                "part": self.part,
                "bar": self.bar,
                "swap": self.swap,
                "stats": self.stats,
            },
        )

    def buildProtocol(self, addr: Any) -> End | None:
        if self.refusing:
            return None
        self.connections += 1
        bridge = Bridge(self)
        self.bridges.add(bridge)
        self.reactor.connectTCP(*self.target, Outgoing(bridge), timeout=5)
        return bridge.client

    def set(self, number: int, direction: str, **faults: Any) -> str:
        """Replace the faults of a direction, or of both."""
        for name in DIRECTIONS if direction == "both" else (direction,):
            self.faults[name].clear()
            self.faults[name].update(faults)
        for bridge in tuple(self.bridges):
            bridge.up.run()
            bridge.down.run()
        return "set"

    def cut(self, number: int) -> int:
        """End all connections at once."""
        count = len(self.bridges)
        for bridge in tuple(self.bridges):
            bridge.cut()
        return count

    def half_open(self, number: int, keep: str) -> int:
        """Let one side of every connection disappear; the other learns nothing."""
        for bridge in tuple(self.bridges):
            bridge.half_open(keep)
        return len(self.bridges)

    def refuse(self, number: int, on: bool) -> bool:
        """Refuse all connections, or accept them again."""
        self.refusing = on
        return on

    def part(self, number: int, on: bool) -> bool:
        """Let nothing through at all, not even that a side has gone; or everything again."""
        self.parted = self.refusing = on
        self.set(number, "both", hold=on)
        if not on:
            for bridge in tuple(self.bridges):
                if bridge.client.lost or bridge.server.lost:
                    bridge.cut()
        return on

    def bar(self, number: int, texts: list[str]) -> int:
        """End each connection whose client says one of some texts, from now on."""
        self.bars = [text.encode() for text in texts]
        ended = [bridge for bridge in self.bridges if bridge.is_barred()]
        for bridge in ended:
            bridge.cut()
        return len(ended)

    def swap(self, number: int, direction: str, old: str, new: str) -> str:
        """Pass other text on, of the same length; it has to come in one piece."""
        self.swaps[direction][old.encode()] = new.encode()
        return new

    def stats(self, number: int) -> dict[str, Any]:
        """How many there were, how many there are, and what has passed of those."""
        return {
            "connections": self.connections,
            "open": len(self.bridges),
            "up": sum(bridge.up.passed for bridge in self.bridges),
            "down": sum(bridge.down.passed for bridge in self.bridges),
        }


class Proxy(Piped):
    """The parent's side, and the address where slaves connect to."""

    def __init__(
        self,
        folder: Path,
        target: tuple[str, int],
        seed: object = 0,
        address: tuple[str, int] | None = None,
    ) -> None:
        super().__init__("proxy", folder / "proxy.log")
        self.target = target
        self.seed = seed
        self.address = address or ("127.0.0.1", free_ports(1)[0])

    def start(self) -> Proxy:
        """Start it, and wait until it listens."""
        told = map(str, (*self.address, *self.target, self.seed))
        self.open([sys.executable, "-m", "lab.harness.proxy", *told])
        self.until_news("ready")
        return self

    def set(self, direction: str, **faults: Any) -> None:
        """Replace the faults of C{up}, C{down} or C{both}; none of them heals it."""
        self.do("set", direction=direction, **faults)

    def cut(self) -> int:
        """End all connections at once, and say how many there were."""
        return int(self.do("cut"))

    def half_open(self, keep: str) -> None:
        """Let a side of every connection disappear; the C{client} (slave) or C{server} stays."""
        self.do("half-open", keep=keep)

    def refuse(self, on: bool) -> None:
        """Refuse all connections, or accept them again."""
        self.do("refuse", on=on)

    def part(self, on: bool) -> None:
        """Part the two sides, none of which learns what becomes of the other; or heal it."""
        self.do("part", on=on)

    def bar(self, *texts: str) -> None:
        """Let nobody through who says one of some texts, in one piece; without any, all."""
        self.do("bar", texts=texts)

    def swap(self, direction: str, old: str, new: str) -> None:
        """Pass C{new} on for C{old}, of the same length, from now on."""
        if len(old) != len(new):
            raise ValueError(f"{old} and {new} are not of one length")
        self.do("swap", direction=direction, old=old, new=new)

    def stats(self) -> dict[str, Any]:
        """C{connections} so far, C{open} ones, and bytes C{up} and C{down} of those."""
        found: dict[str, Any] = self.do("stats")
        return found


def main(arguments: list[str]) -> int:
    """Run the proxy in this process, driven by the parent."""
    from twisted.internet import reactor as installed

    reactor: Any = installed
    interface, port, host, target, seed = arguments
    network = Network(reactor, (host, int(target)), seed)
    StandardIO(network.commands, reactor=reactor)
    reactor.listenTCP(int(port), network, interface=interface)
    reactor.callWhenRunning(network.commands.say, None, news="ready")
    reactor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
