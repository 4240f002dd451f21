"""What this node's own requests are signed with: a file like mqadmin's C{tools.yml}.

Source: docs/guide/access-control.rst.
"""

from __future__ import annotations

from pathlib import Path

from rmqha.net.key_file import KeyFileInvalid, read_regular, texts_in
from rmqha.wire.remoting.signature import Credentials


def read_credentials(path: Path | None) -> Credentials | None:
    """Read such a file.

    @param path: C{None} for none.
    @raise KeyFileInvalid: If it cannot be read, or lacks C{accessKey} or C{secretKey}.
    """
    if path is None:
        return None
    content = texts_in(read_regular(path), path)
    given = content if isinstance(content, dict) else {}
    texts = [given.get(name) or "" for name in ("accessKey", "secretKey", "securityToken")]
    access_key, secret_key, token = texts
    if not access_key or not secret_key or not all(isinstance(text, str) for text in texts):
        raise KeyFileInvalid(str(path), "accessKey and secretKey must stand there, as texts")
    return Credentials(access_key, secret_key, token)
