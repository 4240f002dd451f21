"""TLS of a command that connects to the ports of nodes."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from rmqha.config.load import load_tls
from rmqha.net.tls.node_tls import outgoing, replication, replication_identity, requests_identity
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls


@frozen(kw_only=True)
class ToolTls:
    """How a command connects.

    @ivar requests: To client ports, name servers and controllers.
    @ivar dialling: To HA ports.
    """

    requests: OutgoingTls = IN_CLEAR_TEXT
    dialling: OutgoingTls = IN_CLEAR_TEXT


def read_tool_tls(path: Path | None) -> ToolTls:
    """Read how, from a file like mqadmin's C{tls.config.file}.

    @param path: C{None} for clear text.
    @raise ConfigProblems: If that file is wrong.
    @raise TlsFilesInvalid: If one that it names is.
    """
    if path is None:
        return ToolTls()
    settings = load_tls(path)
    requests = requests_identity(settings) if settings.enabled else None
    ha = replication_identity(settings) if settings.ha_enabled else None
    for identity in (requests, ha):
        if identity is not None:
            identity.load()
    return ToolTls(requests=outgoing(requests, settings), dialling=replication(ha, settings))
