"""Faults of Spark that were reported, and what we do because of them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from textwrap import dedent

from twisted.trial.unittest import SynchronousTestCase

from tests.support.commands import ended
from tests.support.spark_needs import why_no_java

try:
    from rmqha.pipeline.spark.session import java_home
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"
else:
    if why := why_no_java():
        skip = why

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pyspark-filter-pushdown.rst"


def blocks(kind: str) -> list[str]:
    """The blocks of the report that are code, or output."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(rf"\.\. code-block:: {kind}\n\n((?:   .*\n|\n)+)", text)
    return [dedent(block).strip() + "\n" for block in found]


class FilterPushdownTests(SynchronousTestCase):
    """The report about filters that stay with a relation."""

    def test_reproduction(self) -> None:
        """The report's program prints what the report says.  Once it prints what it should, the
        report is done with, and filters could be taken.
        """
        (program,), (_, seen) = blocks("python"), blocks("text")
        home = java_home(os.environ)
        java = {} if home is None else {"JAVA_HOME": str(home)}
        answer = ended(
            sys.executable,
            "-c",
            program,
            env={**os.environ, **java, "PYSPARK_PYTHON": sys.executable},
            timeout=600,
        )
        self.assertEqual(seen, answer.stdout, answer.stderr[-2000:])
