"""Why a job of Spark's failed, in one line.

What is raised in a task, or in a process that plans, reaches the caller as an exception of
PySpark with the traceback as its text.  Its last error of ours is the reason; without one,
the last of Python's is; without any traceback, the first line of Spark's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rmqha.pipeline.errors import JobFailed

_OURS = re.compile(r"^\W*rmqha\.(?:\w+\.)*errors\.\w+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^\W*Traceback \(most recent call last\):\s*$", re.MULTILINE)
_RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:: (.*))?$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")


def reason_of(error: BaseException) -> str:
    """The reason of an exception of PySpark's."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    traceback = _PYTHON.search(text)
    if traceback is not None:
        raised = list(_RAISED.finditer(text, traceback.end()))
        if raised:
            return raised[-1][0].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _CONDITION.sub("", lines[0]) if lines else type(error).__name__


def is_ours(error: BaseException) -> bool:
    """Whether something of rmqha raised an exception of PySpark's, and not a process that was
    lost.
    """
    return _OURS.search(str(error)) is not None


@contextmanager
def reasons() -> Iterator[None]:
    """Turn exceptions of PySpark's into L{JobFailed} with the reason while a block runs.

    @raise JobFailed: Instead of them.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise JobFailed(reason_of(error)) from error
