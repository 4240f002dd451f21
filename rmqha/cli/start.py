"""The C{rmqha} command, before what it needs is imported."""

from __future__ import annotations

import sys


def start() -> None:
    """Run it.  Ctrl-C ends the imports in one line too."""
    try:
        from rmqha.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("rmqha: interrupted\n")
        sys.exit(130)
    main()
