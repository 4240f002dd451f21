"""Why a broker or a name server could not be asked."""

from __future__ import annotations

from rmqha.errors import PipelineError


class RemotingClosed(PipelineError):
    """A peer closed the connection before it answered, or sent an answer that cannot be decoded."""

    sentence = "{address} did not answer request {request}: {reason}"
    address: str
    request: int
    reason: str


class NameServersSilent(PipelineError):
    """No name server gives an answer that can be used.

    @ivar name_servers: The name servers that were asked, with C{;} between.
    """

    sentence = "no name server of {name_servers} answers: {reason}"
    name_servers: str
    reason: str


class NoBrokers(PipelineError):
    """The name servers know no broker to read from.

    @ivar name_servers: The name servers that were asked, with C{;} between.
    @ivar cluster: The cluster that is meant; C{None} for all.
    """

    name_servers: str
    cluster: str | None

    def __str__(self) -> str:
        whose = f" of cluster {self.cluster}" if self.cluster else ""
        return f"no broker{whose} is registered at {self.name_servers}"


class BrokerUnplaced(PipelineError):
    """A pattern cannot say where a broker's store is."""

    sentence = (
        "nothing says where the store of broker {broker!r} is: its {name} is "
        "{value!r}, and no folder has that name"
    )
    broker: str
    name: str
    value: str
