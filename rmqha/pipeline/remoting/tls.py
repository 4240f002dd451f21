"""TLS of plain sockets, by the same keys as that of nodes and of mqadmin.

Source: docs/guide/tls.rst.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from attrs import define, field

from rmqha.config.load import load_tls
from rmqha.config.settings import TlsSettings


@define(eq=False)
class SocketTls:
    """What one producer shows to brokers and name servers, and whom it believes.

    @ivar settings: The keys.
    """

    settings: TlsSettings
    _context: ssl.SSLContext = field(init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self._context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = settings.auth_server and settings.check_names
        if not settings.auth_server:
            context.verify_mode = ssl.CERT_NONE
        elif settings.client_trusted is not None:
            context.load_verify_locations(settings.client_trusted)
        if settings.client_cert is not None:
            context.load_cert_chain(settings.client_cert, settings.client_key)

    @classmethod
    def read(cls, path: Path | None) -> SocketTls | None:
        """Read the keys, and the files that they name.

        @param path: A file like mqadmin's C{tls.config.file}; C{None} for clear text.
        @raise ConfigProblems: If it is wrong.
        @raise OSError: If a certificate or key cannot be used.
        """
        settings = None if path is None else load_tls(path)
        return cls(settings) if settings is not None and settings.enabled else None

    def wrap(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """Shake hands.

        @param host: Whom it is connected to.
        @raise OSError: If that fails; the socket is closed then.
        """
        try:
            return self._context.wrap_socket(plain, server_hostname=host)
        except OSError:
            plain.close()
            raise
