"""Why a TLS connection ended: OpenSSL's errors in the words of an operator.

OpenSSL says only that a certificate was not accepted.  Why it was not is known while it is
verified, and kept here until the connection's end is told.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet.interfaces import ISSLTransport
from twisted.python.failure import Failure

from rmqha.net.tls.errors import TlsRefused

_FAULTS = {
    code: name.removeprefix("ERR_").replace("_", " ").lower()
    for name, code in vars(SSL.X509VerificationCodes).items()
    if name.startswith("ERR_")
}

_refused: WeakKeyDictionary[SSL.Connection, str] = WeakKeyDictionary()

_SHOWN_TO_US = "certificate verify failed"
_NONE_SHOWN = "peer did not return a certificate"
_WE_SHOW_NONE = "certificate required"
_NOT_OURS = ("certificate", "unknown ca", "decrypt error")
"""Alerts about a certificate; the last where two roots have one name, and another key."""

_NOT_TLS = (
    "wrong version number",
    "http request",
    "record layer failure",
    "packet length too long",
)


def keep_verdicts(context: SSL.Context) -> None:
    """Have it remembered why a certificate was not accepted."""

    def verified(
        connection: SSL.Connection, certificate: Any, code: int, depth: int, accepted: int
    ) -> bool:
        if not accepted:
            # The first is the cause; what follows are its consequences.
            fault = _FAULTS.get(code, f"error {code}")
            _refused.setdefault(connection, f"{fault} (of {_name(certificate)})")
        return bool(accepted)

    context.set_verify(context.get_verify_mode(), verified)


def _name(certificate: Any) -> str:
    return certificate.to_cryptography().subject.rfc4514_string() or "a certificate without a name"


def tls_refusal(transport: Any, reason: Failure) -> TlsRefused | None:
    """What the end of a connection has to do with TLS; asked in C{connectionLost}.

    @param transport: The connection's.
    @param reason: What its protocol is told.
    @return: C{None} if it has nothing to do with it.
    """
    if not ISSLTransport.providedBy(transport):
        return None
    handle: Any = transport.getHandle()  # type: ignore[attr-defined]
    error = reason.value
    if isinstance(error, VerificationError):
        return TlsRefused("tls-certificate", "its certificate is of another host")
    if isinstance(error, SSL.Error):
        return _of(error, handle)
    if is_shaking_hands(transport):
        return TlsRefused("tls-handshake", "it closed the connection during the TLS handshake")
    return None


def is_shaking_hands(transport: Any) -> bool:
    """Whether a handshake was begun on a connection and is not over: what was said on it since then
    the peer has not read.
    """
    if not ISSLTransport.providedBy(transport):
        return False
    handle: Any = transport.getHandle()  # type: ignore[attr-defined]
    if not isinstance(handle, SSL.Connection):
        return False
    return handle.get_finished() is None or handle.get_peer_finished() is None


def _of(error: SSL.Error, handle: Any) -> TlsRefused:
    texts = [str(each[-1]) for each in error.args[0]] if error.args else []
    text = ", ".join(texts) or type(error).__name__
    if _SHOWN_TO_US in text:
        verdict = _refused.get(handle, text) if isinstance(handle, SSL.Connection) else text
        return TlsRefused("tls-certificate", f"its certificate is not accepted: {verdict}")
    if _NONE_SHOWN in text:
        return TlsRefused("tls-no-certificate", "it shows no certificate")
    if _WE_SHOW_NONE in text:
        return TlsRefused("tls-no-certificate", "it wants a certificate, and we have none")
    if "alert" in text and any(word in text for word in _NOT_OURS):
        return TlsRefused("tls-certificate", f"it does not accept our certificate: {text}")
    if any(word in text for word in _NOT_TLS):
        return TlsRefused("tls-handshake", f"it does not speak TLS: {text}")
    return TlsRefused("tls-handshake", f"the TLS handshake failed: {text}")
