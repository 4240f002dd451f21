"""
rmqha in less than a minute: a name server, a master with a real broker's store, an empty slave,
and a stock client that sends and reads while the slave is killed; then all is compared.

Run it with C{make demo}.  It exits with 1 when anything is not as it should be.
"""

from __future__ import annotations

import os
import sys
import time

from rich.console import Console

from lab.demo.story import Story
from lab.demo.traffic import why_not
from lab.harness.nodes import end_all


def main() -> int:
    """
    Run the demo.

    @return: The exit code.
    """
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100
    console = Console(width=wide, soft_wrap=False)
    reason = why_not()
    if reason:
        console.print(
            "The demo needs RocketMQ's C++ client, which is not installed here: its wheel is for "
            f"x86-64 Linux with glibc and libstdc++. {reason}\n"
            "Nothing was tried. All else works without it; `make test` needs no such client.",
            highlight=False,
        )
        return 1
    begun = time.monotonic()
    story = Story(console)
    try:
        well = story.run()
    except AssertionError as error:
        console.print(f"failed: {error}", highlight=False, markup=False, style="bold red")
        well = False
    except KeyboardInterrupt:
        console.print("interrupted")
        well = False
    finally:
        end_all()
        story.folder.remove()
    took = time.monotonic() - begun
    if well:
        console.print(f"[bold green]Everything is equal.[/] {took:.0f} s")
    else:
        console.print(f"[bold red]Something differs or is missing, see above.[/] {took:.0f} s")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
