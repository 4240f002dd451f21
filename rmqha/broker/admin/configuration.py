"""The configuration as administrators see it, and change it while the broker runs.

Source: docs/protocol/remoting.md, Administration.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from attrs import define
from twisted.logger import Logger

from rmqha.broker.access.needs import CHANGES_BY_TEXT, READS, Stated
from rmqha.broker.state import BrokerState
from rmqha.broker.tables.current_settings import LISTS
from rmqha.config.load import describe
from rmqha.errors import RequestRefused
from rmqha.net.allowed_peers import Allowed
from rmqha.net.remoting import config_changes
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.admin import VersionAnswer

FOR_TOOLS = {"filterServerNums": "0", "clientCallbackExecutorThreads": str(os.cpu_count())}
"""Keys without meaning here that mqadmin's exports do not do without: how many filter servers the
broker has, and how many processors there are."""

ADMIN_PEERS = "adminAllowedPeers"
"""The key that names who may send such requests."""

USE_TLS = "useTLS"
"""Stock brokers' name of C{tlsEnable}, which those exports read."""


@define(eq=False)
class BrokerConfiguration:
    """Answers requests 25 and 26."""

    state: BrokerState

    _log = Logger()

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: (CHANGES_BY_TEXT, self.update),
            RequestCode.GET_BROKER_CONFIG: (READS, self.get),
        }

    def update(self, connection: RemotingProtocol, command: Command) -> Answer:
        """25: change some keys until the next start."""
        texts = config_changes.asked(command)
        settings = self.state.current.settings
        lists = LISTS.intersection(texts)
        if lists and not (settings.admin.allowed_peers or settings.access.enabled):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"{', '.join(sorted(lists))}: every peer could open what the lists close, as "
                "neither adminAllowedPeers nor aclEnable says who may administer",
            )
        changes = self.state.current.change(texts)
        config_changes.tell(self._log, connection.address, changes)
        peers = self.state.current.settings.admin.allowed_peers
        if ADMIN_PEERS in texts and not Allowed(peers).permits(connection.host):
            self._log.warn(
                "adminAllowedPeers no longer names {host}, from where it was set: the next change "
                "comes from one of those that it names, or with the file (SIGHUP)",
                host=connection.host,
            )
        return None

    def get(self, connection: RemotingProtocol, command: Command) -> Answer:
        """26: all keys as they are."""
        texts = {row.key: row.value for row in describe(self.state.current.settings)} | FOR_TOOLS
        texts[USE_TLS] = texts["tlsEnable"]
        body = "".join(f"{key}={text}\n" for key, text in texts.items()).encode()
        version = json_body.write(self.state.topics.version).decode()
        return command.answer(header=VersionAnswer(version=version), body=body)
