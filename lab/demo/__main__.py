"""rmqha in less than a minute: a name server, a master with a real broker's store, an empty slave,
and a stock client that sends and reads while the slave is killed; then all is compared.

Run it with C{make demo}.  It exits with 1 when anything is not as it should be.
"""

from __future__ import annotations

import sys

from lab.demo.story import Story
from lab.demo.traffic import possible
from lab.harness.demo_end import demo_console, told


def main() -> int:
    """Run the demo."""
    console = demo_console(100)
    if not possible(console, "All else works without it; `make test` needs no such client."):
        return 1
    return told(console, Story(console), "Everything is equal.")


if __name__ == "__main__":
    sys.exit(main())
