"""Certificates for nodes and clients in tests and measurements."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from attrs import define, field
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID = 90.0
"""Days."""

ADDRESS = "127.0.0.1"


@define
class Authority:
    """A root whose certificates nodes and clients show."""

    folder: Path
    name: str = "root"
    _key: ec.EllipticCurvePrivateKey = field(
        factory=lambda: ec.generate_private_key(ec.SECP256R1()), init=False
    )

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        made = _builder(self.name, self.name, self._key, VALID).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.root.write_bytes(_pem(made, self._key))

    @property
    def root(self) -> Path:
        return self.folder / f"{self.name}.pem"

    def certificate(
        self, name: str, *, days: float = VALID, address: str = ADDRESS, file: str = ""
    ) -> tuple[Path, Path]:
        """Make a key and a certificate of this root; what was made by that name before is replaced.

        @param days: How long it is valid; below 0 it has ended.
        @param address: What else it names.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = _builder(name, self.name, key, days).add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False
        )
        return _written(self.folder, file or name, key, _pem(made, self._key))


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a key and its own certificate."""
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    made = _builder("broker-a", "broker-a", key, VALID).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    return _written(folder, "cert", key, _pem(made, key))


def _builder(
    name: str, issuer: str, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(made: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey) -> bytes:
    return made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _written(
    folder: Path, name: str, key: ec.EllipticCurvePrivateKey, pem: bytes
) -> tuple[Path, Path]:
    key_path, path = folder / f"{name}.key", folder / f"{name}.crt"
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    path.write_bytes(pem)
    return key_path, path
