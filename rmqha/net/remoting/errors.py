"""What may happen to a request that a node has made."""

from __future__ import annotations

from twisted.internet.error import ConnectionLost

from rmqha.errors import RmqhaError


class ConnectionEnded(ConnectionLost, RmqhaError):
    """The connection ended before the answer came.

    @ivar address: Host and port of the peer.
    @ivar cause: Why it ended: one word, or what the peer did.
    """

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(address, cause)
        self.address = address
        self.cause = cause

    def __str__(self) -> str:
        return f"the connection to {self.address} ended: {self.cause}"
