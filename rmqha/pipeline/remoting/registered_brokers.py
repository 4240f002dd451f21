"""The brokers of a cluster, as its name servers know them.

A name server forgets a broker two minutes after its last sign of life.  What that broker has
stored is there all the same, so a reader that has begun with its log goes on with it.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from logging import getLogger
from pathlib import Path

from attrs import define, field

from rmqha.pipeline.remoting.errors import NameServersSilent
from rmqha.pipeline.remoting.name_servers import FRESH, NameServerClient, read_answer
from rmqha.pipeline.remoting.peers import Peers
from rmqha.pipeline.remoting.tls import SocketTls
from rmqha.wire.remoting.bodies.route import BrokerData, ClusterInfo
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command

TIMEOUT = 3.0
"""Seconds to connect to a name server, and to wait for its answer."""

_log = getLogger(__name__)


@define(eq=False)
class RegisteredBrokers:
    """Asks for brokers, at most every L{FRESH} seconds: a stream may look many times a second.

    @ivar name_servers: C{host:port} of each.
    @ivar cluster: The only cluster whose brokers are meant; C{None} for all.
    @ivar tls_config_file: The file of the keys of TLS, if name servers take nothing else.
    """

    name_servers: tuple[str, ...]
    cluster: str | None = None
    tls_config_file: Path | None = None
    clock: Callable[[], float] = time.monotonic
    _registered: Mapping[str, BrokerData] | None = field(default=None, init=False)
    _seen: dict[str, BrokerData] = field(factory=dict, init=False)
    _until: float = field(default=0.0, init=False)

    def registered(self) -> Mapping[str, BrokerData]:
        """The brokers by name; those of before while no name server answers.

        @raise NameServersSilent: If none has answered yet.
        @raise ConfigProblems: If the file of TLS is wrong.
        @raise OSError: If one that it names is.
        """
        if self._registered is None or self.clock() >= self._until:
            try:
                self._registered = self._asked()
            except NameServersSilent as error:
                if self._registered is None:
                    raise
                _log.warning("%s; reading from the brokers that were known before", error)
            self._seen.update(self._registered)
            self._until = self.clock() + FRESH
        return self._registered

    def with_known(self, names: Iterable[str]) -> dict[str, BrokerData]:
        """The same and brokers that are read from already, though no name server knows them now."""
        found = dict(self.registered())
        for name in names:
            if name not in found:
                bare = BrokerData(broker_name=name, cluster=self.cluster)
                found[name] = self._seen.get(name, bare)
        return found

    def _asked(self) -> dict[str, BrokerData]:
        with Peers(TIMEOUT, tls=SocketTls.read(self.tls_config_file)) as peers:
            request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            found = NameServerClient(self.name_servers, peers).ask(request, _cluster_info)
        return {
            name: broker
            for name, broker in sorted(found.broker_addr_table.items())
            if self.cluster in (None, broker.cluster)
        }


def _cluster_info(answer: Command) -> ClusterInfo:
    return read_answer(ClusterInfo, answer, RequestCode.GET_BROKER_CLUSTER_INFO)
