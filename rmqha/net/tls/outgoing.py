"""TLS of the connections that we make."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from zope.interface import implementer

from rmqha.net.tls.identity import TlsIdentity


@frozen(kw_only=True)
class OutgoingTls:
    """Whether connections begin with TLS, and whom we believe then.

    @ivar identity: What we show, and the roots that we believe; C{None} is clear text.
    @ivar believe_all: Whether servers' certificates are not looked at.
    @ivar names: Whether a server's has to have the name or address that was dialled.
    """

    identity: TlsIdentity | None = None
    believe_all: bool = False
    names: bool = False

    def wrap(self, host: str, endpoint: IStreamClientEndpoint) -> IStreamClientEndpoint:
        """The endpoint to connect with.

        @param host: Whom it connects to.
        @param endpoint: Connects in clear text.
        """
        if self.identity is None:
            return endpoint
        return TlsEndpoint(partial(self._creator, host), endpoint)

    def _creator(self, host: str) -> Any:
        """What makes the TLS side of one connection, of the files as they are now."""
        assert self.identity is not None, "asked of connections with TLS alone"
        material = self.identity.material
        if self.names:
            return material.client_of(host)
        return material.client(believe_all=self.believe_all)


IN_CLEAR_TEXT = OutgoingTls()


@implementer(IStreamClientEndpoint)
@frozen
class TlsEndpoint:
    """Connects with what the files say at that moment.

    @ivar creator: Makes the TLS side of a connection.
    """

    creator: Callable[[], Any]
    endpoint: IStreamClientEndpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        wrapped = wrapClientTLS(self.creator(), self.endpoint)
        connecting: Deferred[IProtocol] = wrapped.connect(protocolFactory)
        return connecting
