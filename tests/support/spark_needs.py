"""What tests of Spark need beside the extra C{pipeline}."""

from __future__ import annotations

import os
from unittest import SkipTest

from rmqha.pipeline.errors import JavaMissing
from rmqha.pipeline.spark.session import java_home


def not_idle() -> None:
    """Let workers of this process and its children take their share, also when it is busy."""
    os.environ["RMQHA_PRIORITY"] = "normal"


not_idle()


def why_no_java() -> str:
    """Why Spark cannot be started here; empty if it can."""
    try:
        java_home(os.environ)
    except JavaMissing as missing:
        return str(missing)
    return ""


def need_java() -> None:
    """Skip a test if there is no Java for Spark.

    It is called in C{setUp}: a class's own C{skip}, empty too, would hide its module's.
    """
    if why := why_no_java():
        raise SkipTest(why)
