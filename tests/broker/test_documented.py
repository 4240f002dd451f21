"""
The documentation's table of request codes, against what is answered.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.broker.support import BrokerTestCase

TABLE = Path(__file__).parents[2] / "docs" / "protocol" / "remoting.rst"
ROW = re.compile(r"   \* - (\d+)\n     - (\w+)\n     - (.+)\n")


class DocumentedTests(BrokerTestCase):
    """
    Each code of the table.
    """

    def test_codes(self) -> None:
        """
        It is the broker that answers exactly those the table says it does.
        """
        text = TABLE.read_text()
        begin, end = text.index("Request codes\n---"), text.index("Answer codes\n---")
        rows = {int(code): here for code, _, here in ROW.findall(text[begin:end])}
        self.assertGreater(len(rows), 80)
        said = {code for code, here in rows.items() if "broker" in here}
        self.assertEqual(said, {int(code) for code in self.broker().registry.codes()})
