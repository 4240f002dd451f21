"""A key and certificates, read from PEM files, and the OpenSSL contexts that are made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from OpenSSL import SSL, crypto
from twisted.internet.error import VerifyError
from twisted.internet.ssl import (
    Certificate,
    CertificateOptions,
    PrivateCertificate,
    optionsForClientTLS,
    trustRootFromCertificates,
)

from rmqha.config.settings import ClientAuth
from rmqha.net.key_file import KeyFileInvalid, read_regular
from rmqha.net.tls.errors import TlsFilesInvalid
from rmqha.net.tls.refusals import keep_verdicts

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@frozen
class TlsFiles:
    """What is configured.

    @ivar key: Our private key, PEM without a password; C{None} if we show no certificate.
    @ivar certificates: Our certificate and what lies between it and its root, PEM.
    @ivar trusted: The roots of peers' certificates, PEM; C{None} looks at none.
    """

    key: Path | None = None
    certificates: Path | None = None
    trusted: Path | None = None

    def __iter__(self) -> Iterator[Path]:
        return (path for path in (self.key, self.certificates, self.trusted) if path is not None)


@define(eq=False)
class TlsMaterial:
    """What the files say.

    @ivar own: Our key with our certificate.
    @ivar between: The certificates between ours and its root.
    @ivar roots: Whom we believe; empty believes everybody.
    """

    own: PrivateCertificate | None = None
    between: list[Certificate] = field(factory=list)
    roots: list[Certificate] = field(factory=list)

    @classmethod
    def read(cls, files: TlsFiles) -> TlsMaterial:
        """Read them; blocking.

        @raise TlsFilesInvalid: If one cannot be used.
        """
        material = cls()
        if files.key is not None and files.certificates is not None:
            chain = _certificates(files.certificates)
            try:
                pair = _read(files.key) + b"\n" + chain[0].dumpPEM()
                material.own = PrivateCertificate.loadPEM(pair)
            except VerifyError:
                raise TlsFilesInvalid(
                    str(files.key), f"the key does not belong to {files.certificates}"
                ) from None
            except (crypto.Error, ValueError, TypeError):
                # Their own texts may say what stands in it.
                raise TlsFilesInvalid(
                    str(files.key), "this is not a private key in PEM without a password"
                ) from None
            material.between = chain[1:]
        if files.trusted is not None:
            material.roots = _certificates(files.trusted)
        return material

    @property
    def expires(self) -> datetime | None:
        """When the first of those that we show is valid no more."""
        if self.own is None:
            return None
        ends: list[datetime] = [
            each.original.to_cryptography().not_valid_after_utc
            for each in (self.own, *self.between)
        ]
        return min(ends)

    def _shown(self) -> dict[str, Any]:
        if self.own is None:
            return {}
        return {
            "privateKey": self.own.privateKey.original,
            "certificate": self.own.original,
            "extraCertChain": [link.original for link in self.between],
        }

    def server(self, asked: ClientAuth = ClientAuth.NONE) -> SSL.Context:
        """What a port shows, and whom it wants to see.

        @param asked: Whether clients are asked for certificates of L{roots}.
        """
        verifying: dict[str, Any] = {}
        if asked is not ClientAuth.NONE:
            verifying = {
                "verify": True,
                "caCerts": [root.original for root in self.roots],
                "requireCertificate": asked is ClientAuth.REQUIRE,
            }
        context = CertificateOptions(**self._shown(), **verifying).getContext()
        keep_verdicts(context)
        return context

    def client(self, *, believe_all: bool = False) -> CertificateOptions:
        """What we show to servers, and which we believe.

        @param believe_all: Whether L{roots} do not matter.
        """
        verifying: dict[str, Any] = {}
        if self.roots and not believe_all:
            verifying = {"trustRoot": trustRootFromCertificates(self.roots)}
        options = CertificateOptions(**self._shown(), **verifying)
        keep_verdicts(options.getContext())
        return options

    def client_of(self, host: str) -> Any:
        """The same, of one server that has to have its name or address in its certificate."""
        between = [link.original for link in self.between]
        return optionsForClientTLS(
            host,
            trustRootFromCertificates(self.roots),
            self.own,
            extraCertificateOptions={"extraCertChain": between} if self.own else None,
        )


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except KeyFileInvalid as error:
        raise TlsFilesInvalid(str(path), error.reason) from error.__cause__


def _certificates(path: Path) -> list[Certificate]:
    try:
        found = [Certificate.loadPEM(pem) for pem in _PEM.findall(_read(path))]
    except (crypto.Error, ValueError):
        raise TlsFilesInvalid(str(path), "a certificate in it cannot be read") from None
    if not found:
        raise TlsFilesInvalid(str(path), "there is no certificate in it")
    return found


def seconds_left(expires: datetime | None, now: float) -> float | None:
    """How long a certificate is still valid.

    @param now: Seconds since 1970.
    """
    return None if expires is None else (expires - datetime.fromtimestamp(now, UTC)).total_seconds()
