"""
TLS and clear text on one port, told apart by a connection's first byte (C{tlsMode}).

RocketMQ makes a certificate of its own where none is configured and its clients then trust
anything; here a port without a certificate speaks no TLS.

Source: docs/protocol/remoting.md, TLS.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from attrs import field, frozen
from twisted.internet.ssl import (
    Certificate,
    CertificateOptions,
    PrivateCertificate,
    trustRootFromCertificates,
)

from rmqha.config.settings import ClientAuth, RemotingSettings, TlsMode

HANDSHAKE = 0x16
"""
The first byte of a TLS connection.  In clear text it would begin a frame of 369 MB, far above
any limit.
"""

HANDSHAKE_TIMEOUT = 10.0
"""Seconds a handshake may take; the default of the library RocketMQ uses."""

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@frozen
class TlsGate:
    """
    Decide by the first byte.

    @ivar mode: What is accepted.
    @ivar context: Our certificate; C{None} has permissive accept clear text alone.
    """

    mode: TlsMode = TlsMode.PERMISSIVE
    context: Any = field(default=None)

    def __attrs_post_init__(self) -> None:
        if self.mode is TlsMode.ENFORCING and self.context is None:
            raise ValueError("tlsMode enforcing needs a certificate")

    def refusal(self, hello: bool) -> str:
        """
        Why a connection cannot stay: a reason for the counters, empty when it may.

        @param hello: Whether it begins with L{HANDSHAKE}.
        """
        if not hello:
            return "clear-text" if self.mode is TlsMode.ENFORCING else ""
        speaks = self.mode is not TlsMode.DISABLED and self.context is not None
        return "" if speaks else "tls-disabled"


def configured_gate(settings: RemotingSettings) -> TlsGate:
    """
    What the configuration says.

    @raise OSError: If a file cannot be read.
    """
    if settings.tls_key is None or settings.tls_cert is None:
        return TlsGate(settings.tls)
    asked = settings.tls_client_auth is not ClientAuth.NONE
    context = server_context(
        settings.tls_key,
        settings.tls_cert,
        settings.tls_trusted if asked else None,
        required=settings.tls_client_auth is ClientAuth.REQUIRE,
    )
    return TlsGate(settings.tls, context)


def server_context(
    key: Path, certificates: Path, trusted: Path | None = None, *, required: bool = False
) -> CertificateOptions:
    """
    What a port shows, and whom it wants to see.

    @param key: The private key, PEM without a password.
    @param certificates: Our certificate and what lies between it and its root, PEM.
    @param trusted: The roots of our clients' certificates, PEM; C{None} asks for none.
    @param required: Whether a client without a certificate is refused.
    @raise OSError: If a file cannot be read.
    """
    chain = _certificates(certificates)
    own = PrivateCertificate.loadPEM(key.read_bytes() + b"\n" + chain[0].dumpPEM())
    asked: dict[str, Any] = {}
    if trusted is not None:
        roots = [root.original for root in _certificates(trusted)]
        asked = {"verify": True, "caCerts": roots, "requireCertificate": required}
    return CertificateOptions(
        privateKey=own.privateKey.original,
        certificate=own.original,
        extraCertChain=[link.original for link in chain[1:]],
        **asked,
    )


def client_context(trusted: Path | None = None) -> CertificateOptions:
    """
    Whom a client of ours believes.  Names are not compared: brokers are addresses.

    @param trusted: The roots of the servers' certificates, PEM; C{None} believes every server, as
        stock clients do.
    """
    if trusted is None:
        return CertificateOptions()
    return CertificateOptions(trustRoot=trustRootFromCertificates(_certificates(trusted)))


def _certificates(path: Path) -> list[Certificate]:
    found = [Certificate.loadPEM(pem) for pem in _PEM.findall(path.read_bytes())]
    if not found:
        raise ValueError(f"no certificate in {path}")
    return found
