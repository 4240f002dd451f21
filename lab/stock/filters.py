"""What stock's filters say of a table of SQL92 expressions and sets of properties.

Both are in C{tests/data/sql92.json}, and there the answers are kept, so that tests hold ours
against them without a JVM.  To ask again, or more: add a set to C{properties}, or an expression
without answers (C{[]}), and run C{python -m lab.stock.filters} after C{python -m lab.stock.jars}.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lab.harness.nodes import ROOT
from lab.stock import jars

KEPT = ROOT / "tests" / "data" / "sql92.json"


def said_by(version: str, asked: Path, home: Path) -> dict[str, str]:
    """What a release says, t, f, n or x (exception) of each set, or C{"!"} where it refuses."""
    command = jars.java(version, "Filters", home, str(asked))
    found = subprocess.run(command, check=True, capture_output=True, timeout=120)
    told: dict[str, str] = json.loads(found.stdout.decode().splitlines()[-1])
    return told


def main() -> int:
    """Ask all releases, and write the table again."""
    table = json.loads(KEPT.read_text(encoding="utf-8"))
    asked = {"expressions": list(table["expressions"]), "properties": table["properties"]}
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "asked.json"
        path.write_text(json.dumps(asked), encoding="utf-8")
        answers = [said_by(version, path, Path(home)) for version in jars.VERSIONS]
    table["versions"] = jars.VERSIONS
    table["expressions"] = {
        text: [answer[text] for answer in answers] for text in asked["expressions"]
    }
    KEPT.write_text(written(table), encoding="utf-8")
    sys.stderr.write(
        f"{len(table['expressions'])} expressions of {len(table['properties'])} sets\n"
    )
    return 0


def written(table: dict[str, Any]) -> str:
    """The table with a row a line."""
    rows = [
        f"  {json.dumps(text)}: {json.dumps(row)}" for text, row in table["expressions"].items()
    ]
    sets = [f"  {json.dumps(each)}" for each in table["properties"]]
    return (
        f'{{"versions": {json.dumps(table["versions"])},\n'
        f' "properties": [\n{_lines(sets)}\n ],\n "expressions": {{\n{_lines(rows)}\n }}}}\n'
    )


def _lines(rows: list[str]) -> str:
    return ",\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
