"""
The guide and the code hold on to each other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).resolve().parent.parent
CITED = re.compile(r"docs/[a-z][a-z/_-]*(?:\.rst|\.md)?")
#: By the ending of a page's name, what a title looks like there.
HEADINGS = {
    ".rst": re.compile(r"^(\S.*)\n([=\-~^])\2+$", re.MULTILINE),
    ".md": re.compile(r"^#+ (.+)$", re.MULTILINE),
}


@cache
def titles(path: Path) -> tuple[str, ...]:
    """
    The titles in a file, longest first.
    """
    heading = HEADINGS[path.suffix]
    found = [match[1] for match in heading.finditer(path.read_text(encoding="utf-8"))]
    return tuple(sorted(found, key=len, reverse=True))


def texts(path: Path) -> Iterator[str]:
    """
    All docstrings of a module, those of its constants too, each on one line.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield " ".join(str(node.value.value).split())


def citations() -> Iterator[tuple[str, str, str]]:
    """
    Where, which file of the guide, and the text that follows its name.
    """
    for path in sorted((ROOT / "rmqha").rglob("*.py")):
        for text in texts(path):
            for match in CITED.finditer(text):
                yield str(path.relative_to(ROOT)), match[0], text[match.end() :]


def page(name: str) -> Path | None:
    """
    The file of the guide that has this name, with or without its ending.
    """
    found = (ROOT / f"{name}{ending}" for ending in ("", *HEADINGS))
    return next((path for path in found if path.is_file()), None)


def section(guide: Path, text: str) -> str | None:
    """
    The title that C{text} begins with.
    """
    for title in titles(guide):
        if re.match(re.escape(title) + r"(?!\w)", text):
            return title
    return None


class CitationTests(SynchronousTestCase):
    """
    What docstrings name as their source.
    """

    def test_sections_exist(self) -> None:
        """
        Every file and section of the guide that a docstring names is there.
        """
        wrong, seen = [], 0
        for where, name, rest in citations():
            guide = page(name)
            if guide is None:
                wrong.append(f"{where}: there is no {name}")
                continue
            mark = ", "
            while rest.startswith(mark) and rest.removeprefix(mark)[:1].isupper():
                rest = rest.removeprefix(mark)
                title = section(guide, rest)
                if title is None:
                    wrong.append(f"{where}: {name} has no section {rest[:40]!r}")
                    break
                seen += 1
                rest, mark = rest[len(title) :], " and "
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 30)


class TreeTests(SynchronousTestCase):
    """
    The guide as a whole.
    """

    def test_pictures_exist(self) -> None:
        """
        Every picture that is shown is there, and every picture there is shown.
        """
        shown = set[Path]()
        for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.rst")]:
            if "_build" not in path.parts:
                text = path.read_text(encoding="utf-8")
                for name in re.findall(r"[\w./-]*_static/[\w.-]+", text):
                    shown.add((path.parent / name).resolve())
        there = {path.resolve() for path in (ROOT / "docs" / "_static").iterdir()}
        self.assertEqual(shown, there)
