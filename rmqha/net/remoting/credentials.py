"""
What this node's own requests are signed with: a file like mqadmin's C{tools.yml}.

Source: docs/guide/access-control.rst.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from attrs import frozen

from rmqha.errors import ConfigError
from rmqha.wire.remoting.signature import Credentials


@frozen
class CredentialsInvalid(ConfigError):
    """
    A file of credentials cannot be used.

    @ivar path: The file.
    @ivar reason: What is wrong; never a secret.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def read_credentials(path: Path | None) -> Credentials | None:
    """
    Read such a file.

    @param path: C{None} for none.
    @raise CredentialsInvalid: If it cannot be read, or lacks C{accessKey} or C{secretKey}.
    """
    if path is None:
        return None
    try:
        content: Any = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise CredentialsInvalid(str(path), error.strerror or str(error)) from None
    except yaml.YAMLError:
        # Its own text quotes the line, where the secret may stand.
        raise CredentialsInvalid(str(path), "this is not YAML") from None
    given = content if isinstance(content, dict) else {}
    texts = [given.get(name) for name in ("accessKey", "secretKey", "securityToken")]
    access_key, secret_key, token = ("" if text is None else str(text) for text in texts)
    if not access_key or not secret_key:
        raise CredentialsInvalid(str(path), "accessKey and secretKey must stand there")
    return Credentials(access_key, secret_key, token)
