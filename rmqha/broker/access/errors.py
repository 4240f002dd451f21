"""What is wrong with a file of accounts."""

from __future__ import annotations

from rmqha.net.key_file import KeyFileInvalid


class AclInvalid(KeyFileInvalid):
    """Accounts cannot be used as they are written."""
