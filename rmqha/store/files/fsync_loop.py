"""What the thread of L{FsyncThread<rmqha.store.files.fsync_thread.FsyncThread>} does.

This module is compiled (C{setup.py}), and of use only so: the loop never holds the interpreter's
lock, so neither it nor the reactor's thread waits for the other to let go of it.
"""

from __future__ import annotations

import cython
from cython.cimports.libc.errno import EINTR, errno
from cython.cimports.posix.unistd import fdatasync, read, write


def serve(asked: cython.int, told: cython.int) -> None:
    """Make durable what is asked for, until nobody can ask any more.

    @param asked: A pipe that gives descriptors of files, as C has them (C{int}).
    @param told: A pipe that takes what became of each in turn: 0, or the error's number.
    """
    size: cython.Py_ssize_t = cython.sizeof(cython.int)
    file: cython.int = 0
    error: cython.int = 0
    got: cython.Py_ssize_t
    heard: cython.bint = True
    with cython.nogil:
        while heard:
            got = read(asked, cython.address(file), size)
            if got < 0 and errno == EINTR:
                continue
            if got != size:
                break
            error = EINTR
            while error == EINTR:
                error = errno if fdatasync(file) < 0 else 0
            while heard and write(told, cython.address(error), size) < 0:
                # Without this answer the next ones would be taken for others'.
                heard = errno == EINTR
