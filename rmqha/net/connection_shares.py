"""How many connections the ports of a process may have.

Each connection takes a file descriptor, and so does each file.  A process that lets in as many
peers as come has none left for its own files: then it can neither flush nor make the next file of
its log.  So what its files need is taken off first, and of the rest a part is the HA port's, so
that clients cannot shut replicas out.

Source: docs/states.rst, File descriptors.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

OWN = 128
"""Files kept for what is not a connection to us and not a part of the store: tables while they are
written, connections to other nodes, the admin port, peers on their way out."""

SHARE = 4
"""The store takes at most so much that one in C{SHARE} is left for connections, what is kept for
L{OWN} is at most such a part, and so is what is the HA port's alone."""

MOST_CLIENTS = 65_536
"""Most connections of clients, where nothing else is said."""


@define(kw_only=True)
class ConnectionShares:
    """How a process's limit of open files is shared out.

    @ivar files: That limit (RLIMIT_NOFILE).
    @ivar stored: How many files the store may have open now.
    @ivar clients_wanted: Most connections of clients, C{clientMaxConnections}; 0 is as many as
        there may be.
    @ivar ha_wanted: Most connections to the HA port, C{haMaxConnections}; 0 where there is none.
    """

    files: int
    clients_wanted: int = 0
    ha_wanted: int = 0
    stored: Callable[[], int] = lambda: 0

    @property
    def own(self) -> int:
        """Files kept for the process itself."""
        return min(OWN, self.files // SHARE)

    @property
    def connections(self) -> int:
        return max(self.files - self.own - self.stored(), self.files // SHARE)

    @property
    def ha(self) -> int:
        return min(self.ha_wanted, max(1, self.connections // SHARE))

    @property
    def clients(self) -> int:
        """Most connections of clients, to all their ports."""
        return min(self.clients_wanted or MOST_CLIENTS, max(1, self.connections - self.ha))

    def unmet(self) -> list[str]:
        """What was asked for and cannot be had, in words for the log."""
        found = []
        if self.ha < self.ha_wanted:
            found.append(f"haMaxConnections={self.ha_wanted} is lowered to {self.ha}")
        if self.clients < self.clients_wanted:
            found.append(f"clientMaxConnections={self.clients_wanted} is lowered to {self.clients}")
        needed = self.own + self.stored() + self.connections
        if needed > self.files:
            found.append(
                f"the store's files may need {self.stored()}, and old ones cannot be read "
                "while there is none left"
            )
        return found

    def status(self) -> dict[str, int]:
        """C{connectionLimits} of C{/status}."""
        found = {"clients": self.clients}
        return found | {"ha": self.ha} if self.ha_wanted else found
