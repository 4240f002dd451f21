"""The C{rmqha} command, before what it needs is imported."""

from __future__ import annotations

import atexit
import gc
import sys


def start() -> None:
    """Run it.  Ctrl-C ends the imports in one line too.

    No garbage is looked for in what is imported, neither now nor at the end: that was a third of
    what a short command takes.
    """
    gc.disable()
    try:
        from rmqha.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("rmqha: interrupted\n")
        sys.exit(130)
    gc.freeze()
    gc.enable()
    atexit.register(gc.freeze)
    main()
