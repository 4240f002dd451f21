"""Processes that step back for everybody else on their host: work on a log may run beside a broker,
which has to answer while it does.
"""

from __future__ import annotations

import ctypes
import os
import platform
from enum import StrEnum
from logging import getLogger

NICEST = 19

VARIABLE = "RMQHA_PRIORITY"
"""Of the environment: C{normal} there is C{normal} for all that the process does."""

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
"""The number of the system call, which has no function in libc."""

_THIS_THREAD, _IDLE_CLASS = 1, 3 << 13

_log = getLogger(__name__)


class Priority(StrEnum):
    """Whether work takes processors and disks only when nobody else on the host wants them."""

    IDLE = "idle"
    NORMAL = "normal"


def step_back(priority: Priority) -> None:
    """Let this thread run, and read, only when nothing else on the host wants to.

    Without special rights there is no way back, so it is for processes that do nothing else.
    """
    if Priority.NORMAL in (priority, os.environ.get(VARIABLE)):
        return
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, NICEST)
    except OSError as error:
        _log.info("cannot lower the priority: %s", error)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None).syscall(number, _THIS_THREAD, 0, _IDLE_CLASS)
