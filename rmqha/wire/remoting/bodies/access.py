"""Accounts, as an administrator is shown them.

Source: docs/protocol/remoting.md, Access control.
"""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class PlainAccessConfig:
    """One account.

    @ivar topic_perms: C{NAME=PERMISSION} of each topic that has one of its own.
    @ivar group_perms: The same of groups.
    """

    access_key: str
    secret_key: str = ""
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] = ()
    group_perms: tuple[str, ...] = ()


@frozen(kw_only=True)
class AclConfig:
    """Answers code 54."""

    global_white_addrs: tuple[str, ...] = ()
    plain_access_configs: tuple[PlainAccessConfig, ...] = ()
