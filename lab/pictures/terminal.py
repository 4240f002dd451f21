"""What a command prints, as a picture of the terminal."""

from __future__ import annotations

import io
import re

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from lab.harness.nodes import rmqha

WITHOUT_FONTS = re.sub(
    r"@font-face \{\{.*?\}\}\s*(?=@|\.)", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL
)
"""Rich's frame, with the reader's own font: the other one is on another host."""


def picture(arguments: list[str], columns: int) -> str:
    """Run a command of C{rmqha}, and draw what it prints on so many columns, as SVG."""
    done = rmqha(*arguments, timeout=60, COLUMNS=str(columns), FORCE_COLOR="1")
    console = Console(file=io.StringIO(), record=True, width=columns)
    for line in done.stdout.splitlines():
        console.print(Text.from_ansi(line.rstrip()))
    # The frame ends in the middle of the last line where the reader's font is taller.
    console.print()
    svg = console.export_svg(
        title=f"rmqha {' '.join(arguments)}",
        theme=DEFAULT_TERMINAL_THEME,
        code_format=WITHOUT_FONTS,
        unique_id=arguments[0],
    )
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
