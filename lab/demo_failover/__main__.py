"""
A set of one Java broker and two members of ours behind three of RocketMQ's controllers: its master
is killed again and again while a Java client writes; then all is compared.

Run it with C{make demo-failover}.  It exits with 1 when anything is not as it should be.
"""

from __future__ import annotations

import os
import sys
import time

from rich.console import Console

from lab.demo_failover.story import Story
from lab.harness.nodes import end_all
from lab.stock import jars
from lab.stock.controllers import VERSION


def main() -> int:
    """
    Run the demo.

    @return: The exit code.
    """
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 110
    console = Console(width=wide, soft_wrap=False)
    try:
        jars.resolve(VERSION)
    except jars.Missing as error:
        console.print(
            f"The demo runs RocketMQ {VERSION}'s own controllers, broker and client, which Maven "
            f"fetches and a JDK runs: {error}.\nNothing was tried. `make demo` needs neither.",
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
        console.print(f"[bold green]Nothing acknowledged is lost.[/] {took:.0f} s")
    else:
        console.print(f"[bold red]Something differs or is missing, see above.[/] {took:.0f} s")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
