"""A set of one Java broker and two members of ours behind three of RocketMQ's controllers: its
master is killed again and again while a Java client writes; then all is compared.

Run it with C{make demo-failover}.  It exits with 1 when anything is not as it should be.
"""

from __future__ import annotations

import sys

from lab.demo_failover.story import Story
from lab.harness.demo_end import demo_console, told
from lab.stock import jars
from lab.stock.controllers import VERSION


def main() -> int:
    """Run the demo.

    @return: The exit code.
    """
    console = demo_console(110)
    try:
        jars.resolve(VERSION)
    except jars.Missing as error:
        console.print(
            f"The demo runs RocketMQ {VERSION}'s own controllers, broker and client, which Maven "
            f"fetches and a JDK runs: {error}.\nNothing was tried. `make demo` needs neither.",
            highlight=False,
        )
        return 1
    return told(console, Story(console), "Nothing acknowledged is lost.")


if __name__ == "__main__":
    sys.exit(main())
