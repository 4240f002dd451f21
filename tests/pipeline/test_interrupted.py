"""Ctrl-C on a command that has a session of Spark."""

from __future__ import annotations

import logging
import os
import signal

from pyspark.core import context
from twisted.trial.unittest import SynchronousTestCase

from rmqha.cli.spark.common import interruptible


class InterruptibleTests(SynchronousTestCase):
    def test_quiet(self) -> None:
        """Ctrl-C ends the block at once, does not come to PySpark's handler, and what Py4J logs
        then is not shown; later all is as before.
        """
        theirs = context.signal
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        asked: list[int] = []
        with self.assertRaises(KeyboardInterrupt), interruptible():
            context.signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                self.assertFalse(logging.getLogger().isEnabledFor(logging.CRITICAL))
        self.assertEqual([], asked)
        self.assertIs(theirs, context.signal)
        self.assertIs(signal.default_int_handler, signal.getsignal(signal.SIGINT))
        self.assertTrue(logging.getLogger().isEnabledFor(logging.CRITICAL))

    def test_deaf(self) -> None:
        """What a script runs in the background stays deaf to it."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
        self.assertIs(signal.SIG_IGN, signal.getsignal(signal.SIGINT))
