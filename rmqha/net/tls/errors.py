"""What can be wrong with certificates: in our own files, and with a peer's."""

from __future__ import annotations

from rmqha.errors import RmqhaError


class TlsFilesInvalid(RmqhaError):
    """A key or certificates cannot be used.

    @ivar reason: What is wrong with it; never what stands in it.
    """

    sentence = "{path}: {reason}"
    path: str
    reason: str


class TlsRefused(RmqhaError):
    """A connection ended because of TLS, or because it spoke none.

    @ivar reason: One word for the counters: C{clear-text}, C{tls-disabled}, C{tls-certificate},
        C{tls-no-certificate}, C{tls-handshake} or C{stock-master}.
    @ivar detail: What happened, in words; the subject is the peer.
    """

    sentence = "{detail}"
    reason: str
    detail: str
