"""How a demo tells what happens, is run to its end, whatever that is, and says what came out."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from rich.console import Console
from rich.table import Table

from lab.harness.evidence import keep_evidence
from lab.harness.nodes import Folder, Process, end_all
from rmqha.errors import RmqhaError
from rmqha.store.offline.client_ledger import Acknowledged


class DemoStory(ABC):
    """What a demo tells, its nodes, and what is not as it should be.

    @cvar styles: Who speaks, and in which style; C{width} the columns of a name.
    """

    styles: ClassVar[Mapping[str, str]]
    width: ClassVar[int]
    processes: Collection[Process]

    def __init__(self, console: Console) -> None:
        self.console = console
        self.begun = time.monotonic()
        self.wrong: list[str] = []
        self.folder = Folder("rmqha-demo-")

    @property
    @abstractmethod
    def ledger(self) -> Sequence[Acknowledged]:
        """What its clients were told is stored."""

    @abstractmethod
    def run(self) -> bool:
        """@return: Whether all is as it should be."""

    def say(self, who: str, text: str) -> None:
        now, style = time.monotonic() - self.begun, self.styles[who]
        self.console.print(
            f"[dim]{now:5.1f} s[/dim]  [{style}]{who:<{self.width}}[/]{text}", highlight=False
        )

    def show(self, tables: Iterable[Table]) -> None:
        """Show what was compared at its end."""
        self.console.print()
        for table in tables:
            self.console.print(table)


def demo_console(width: int) -> Console:
    """Where a demo is told, so many columns wide where no terminal says it."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else width
    return Console(width=wide, soft_wrap=False)


def told(
    console: Console, story: DemoStory, good: str, *, end: Callable[[], None] = lambda: None
) -> int:
    """Run a demo, end all its processes, and say what came out.  Where it is not well, what tells
    where each message is is kept.

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
