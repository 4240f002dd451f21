"""
The guide's page on metrics.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rmqha.metrics.catalog import FAMILIES
from rmqha.metrics.reference import reference
from tests.support.imports import ROOT


class ReferenceTests(SynchronousTestCase):
    """
    C{docs/guide/metrics.rst}.
    """

    def test_page(self) -> None:
        """
        It is what the code says: run C{python -m rmqha.metrics.reference} if this fails.
        """
        self.assertEqual((ROOT / "docs/guide/metrics.rst").read_text(), reference())

    def test_all(self) -> None:
        """
        No metric is missing, and each has its type and unit.
        """
        page = reference()
        for family in FAMILIES:
            self.assertIn(f"``{family.name}``\n     - {family.type.value}, ", page)
