"""
Why a broker or a name server could not be asked.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.errors import PipelineError


@frozen
class RemotingClosed(PipelineError):
    """
    A peer closed the connection before it answered, or sent an answer that cannot be decoded.

    @ivar address: The peer, C{host:port}.
    @ivar request: The request's code.
    @ivar reason: What happened.
    """

    address: str
    request: int
    reason: str

    def __str__(self) -> str:
        return f"{self.address} did not answer request {self.request}: {self.reason}"


@frozen
class NameServersSilent(PipelineError):
    """
    No name server gives an answer that can be used.

    @ivar name_servers: The name servers that were asked, with C{;} between.
    @ivar reason: Why not the last one.
    """

    name_servers: str
    reason: str

    def __str__(self) -> str:
        return f"no name server of {self.name_servers} answers: {self.reason}"
