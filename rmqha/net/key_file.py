"""Files with keys and secrets, read without waiting for anything: a node looks at them while it
runs.

Only a regular file is read.  A pipe would be waited for, and whoever waits does not see that
another file has taken its place.

In YAML a text without quotes may be a number or a date.  In these files it is what is written
there: a secret of digits has no other form.  Words of truth and of nothing keep their meanings.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rmqha.errors import ConfigError

_KEPT = ("bool", "merge", "null")

MOST = 16 << 20
"""Most bytes of such a file."""


class KeyFileInvalid(ConfigError):
    """A file of keys cannot be used as it is.

    @ivar where: The file, or a place in it.
    @ivar reason: What is wrong there; never a secret.
    """

    sentence = "{where}: {reason}"
    where: str
    reason: str


class _Texts(yaml.SafeLoader):  # type: ignore[misc]
    """Takes nothing for a number or a date that does not say so."""

    yaml_implicit_resolvers = {
        first: [(tag, words) for tag, words in known if tag.rpartition(":")[2] in _KEPT]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_regular(path: Path) -> bytes:
    """What stands in a regular file.

    @raise KeyFileInvalid: If it is none, or cannot be read.
    """
    with understood(path):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise KeyFileInvalid(str(path), "this is no regular file")
            if found.st_size > MOST:
                raise KeyFileInvalid(str(path), f"this has more than {MOST} bytes")
            with open(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(fd)


def texts_in(raw: bytes, path: Path) -> Any:
    """What YAML makes of it.

    @raise KeyFileInvalid: If it is none.
    """
    with understood(path):
        try:
            return yaml.load(raw, _Texts)
        except yaml.YAMLError as error:
            # Its own text quotes the line, where a secret may stand.
            mark = getattr(error, "problem_mark", None)
            where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
            raise KeyFileInvalid(where, "this is not YAML") from None


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Whatever goes wrong with a file is said of that file, and tells no secret.

    @raise KeyFileInvalid: For every other error.
    """
    try:
        yield
    except KeyFileInvalid:
        raise
    except OSError as error:
        raise KeyFileInvalid(str(path), error.strerror or str(error)) from error
    except Exception as error:
        kind = type(error).__name__
        raise KeyFileInvalid(str(path), f"this cannot be understood ({kind})") from None
