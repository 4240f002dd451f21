"""Accounts as administrators see them and change them: 50 to 54; and what those of RocketMQ 5 are
told, which has users and ACLs in their place.

Source: docs/protocol/remoting.md, Access control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.access.accounts import AccessTable
from rmqha.broker.access.acl_file import AclFile
from rmqha.broker.access.needs import CHANGES, Stated
from rmqha.broker.access.remote_addresses import patterns
from rmqha.broker.state import BrokerState
from rmqha.errors import RequestRefused
from rmqha.net.key_file import KeyFileInvalid
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting import fastjson, json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.access import AclConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.admin import (
    AccessKeyRequest,
    AclConfigRequest,
    AclVersionAnswer,
    GlobalWhiteAddressesRequest,
)

OFF = "access control is off here: aclEnable"
"""What is said of accounts where there are none."""

USERS_OF_5 = frozenset(RequestCode(code) for code in range(3001, 3011))
"""Requests about users and ACLs of RocketMQ 5."""

_LISTS = ("topicPerms", "groupPerms")


@define(eq=False)
class AclRequests:
    """Answers them.

    @ivar file: The accounts; C{None} where there is no access control.
    """

    state: BrokerState
    file: AclFile | None

    _log = Logger()

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: (CHANGES, self.update),
            RequestCode.DELETE_ACL_CONFIG: (CHANGES, self.delete),
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: (CHANGES, self.version),
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (CHANGES, self.update_white),
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: (CHANGES, self.show),
            **dict.fromkeys(USERS_OF_5, (CHANGES, self.of_5)),
        }

    def update(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """50: make an account, or change what is said of one."""
        header = command.custom(AclConfigRequest)
        # Whether it is an administrator's is always said, the rest only where it is to change.
        row: dict[str, Any] = {
            name: text.split(",") if name in _LISTS else text
            for name, text in to_ext(header).items()
            if text
        } | {"admin": header.admin}
        return self._changed(
            lambda table: table.with_account(row, self.state.now_ms()),
            ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
            connection,
            f"changed account {header.access_key}",
        )

    def delete(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """51: remove an account."""
        name = command.custom(AccessKeyRequest).access_key
        return self._changed(
            lambda table: table.without_account(name, self.state.now_ms()),
            ResponseCode.DELETE_ACL_CONFIG_FAILED,
            connection,
            f"removed account {name}",
        )

    def update_white(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """53: say anew from where everything is taken."""
        failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        header = command.custom(GlobalWhiteAddressesRequest)
        other = header.acl_file_full_path
        if self.file is not None and other and other != str(self.file.path):
            raise RequestRefused(failed, f"the accounts are in {self.file.path}, not in {other}")
        white = patterns(header.global_white_addrs)
        return self._changed(
            lambda table: table.with_white(white, self.state.now_ms()),
            failed,
            connection,
            f"set globalWhiteRemoteAddresses to {','.join(white) or 'none'}",
        )

    def version(self, connection: RemotingProtocol, command: Command) -> Answer:
        """52: which state of the file is in force."""
        file = self._in_force(ResponseCode.SYSTEM_ERROR)
        version = json_body.to_json(file.table.version)
        return command.answer(
            header=AclVersionAnswer(
                version=fastjson.dumps(version).decode(),
                all_acl_file_version=fastjson.dumps({str(file.path): version}).decode(),
                broker_name=self.state.name,
                broker_addr=self.state.settings.broker.address,
                cluster_name=self.state.cluster,
            )
        )

    def show(self, connection: RemotingProtocol, command: Command) -> Answer:
        """54: all accounts, without their secret keys."""
        table = self._in_force(ResponseCode.SYSTEM_ERROR).table
        rows = tuple(account.shown for account in table.accounts.values())
        shown = AclConfig(global_white_addrs=table.white_texts, plain_access_configs=rows)
        return command.answer(body=json_body.write(shown))

    def of_5(self, connection: RemotingProtocol, command: Command) -> Answer:
        """3001 to 3010: there is nothing like it here."""
        return command.answer(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {command.code} not supported: this broker has no users and ACLs as "
            "RocketMQ 5 has, but the accounts of RocketMQ 4 (aclEnable, updateAclConfig)",
        )

    def _in_force(self, code: ResponseCode) -> AclFile:
        if self.file is None:
            raise RequestRefused(code, OFF)
        return self.file

    def _changed(
        self,
        change: Callable[[AccessTable], AccessTable],
        failed: ResponseCode,
        connection: RemotingProtocol,
        what: str,
    ) -> Deferred[Answer]:
        """Change the file.

        @param failed: The answer's code if that is impossible.
        @param what: What was done, for the log.
        """

        def done(_: None) -> None:
            self._log.info("{who} {what}", who=connection.address, what=what)

        def not_done(failure: Failure) -> None:
            failure.trap(KeyFileInvalid, OSError)
            raise RequestRefused(failed, failure.getErrorMessage())

        return self._in_force(failed).change(change).addCallbacks(done, not_done)
