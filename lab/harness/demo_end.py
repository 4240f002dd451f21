"""How a demo is run to its end, whatever that is, and how it says what came out."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from rich.console import Console

from lab.harness.evidence import keep_evidence
from lab.harness.nodes import Folder, Process, end_all
from rmqha.errors import RmqhaError
from rmqha.store.offline.client_ledger import Acknowledged


class DemoStory(Protocol):
    """What a demo tells, its nodes, and what its clients were told is stored."""

    folder: Folder

    @property
    def processes(self) -> Collection[Process]: ...

    @property
    def ledger(self) -> Sequence[Acknowledged]: ...

    def run(self) -> bool:
        """@return: Whether all is as it should be."""


def demo_console(width: int) -> Console:
    """Where a demo is told, so many columns wide where no terminal says it."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else width
    return Console(width=wide, soft_wrap=False)


def told(
    console: Console, story: DemoStory, good: str, *, end: Callable[[], None] = lambda: None
) -> int:
    """Run a demo, end all its processes, and say what came out.  Where it is not well, what tells
    where
    each message is is kept.

    @param end: Ends what is no process of ours.
    """
    begun = time.monotonic()
    well = interrupted = False
    bad = "Something differs or is missing, see above."
    try:
        well = story.run()
    except (AssertionError, RmqhaError) as error:
        console.print(f"failed: {error}", highlight=False, markup=False, style="bold red")
        bad = "It did not get to its end, see above; that says nothing of messages."
    except KeyboardInterrupt:
        console.print("interrupted")
        interrupted, bad = True, "It was not tried to its end."
    finally:
        end()
        end_all()
        if story.ledger and not well and not interrupted:
            keep_evidence(story.folder.path, story.processes, story.ledger)
        story.folder.remove()
    took = time.monotonic() - begun
    if well:
        console.print(f"[bold green]{good}[/] {took:.0f} s")
    else:
        console.print(f"[bold red]{bad}[/] {took:.0f} s")
    return 0 if well else 1
