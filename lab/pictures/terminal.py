"""What a command prints, as a picture of the terminal."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from lab.harness.nodes import ROOT

WITHOUT_FONTS = re.sub(
    r"@font-face \{\{.*?\}\}\s*(?=@|\.)", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL
)
"""Rich's frame, with the reader's own font: the other one is on another host."""


def picture(arguments: list[str], columns: int) -> str:
    """Run a command of C{rmqha}, and draw what it prints on so many columns, as SVG."""
    done = subprocess.run(
        [sys.executable, "-c", "from rmqha.cli.main import main; main()", *arguments],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": str(columns), "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    console = Console(file=io.StringIO(), record=True, width=columns)
    for line in f"{done.stdout}{done.stderr}".splitlines():
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
