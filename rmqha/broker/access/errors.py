"""
What is wrong with a file of accounts.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.errors import ConfigError


@frozen
class AclInvalid(ConfigError):
    """
    Accounts cannot be used as they are written.

    @ivar where: The file, or the account in it.
    @ivar reason: What is wrong there; never a secret.
    """

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"
