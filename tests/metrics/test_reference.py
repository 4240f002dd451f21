"""The guide's page on metrics."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rmqha.metrics.catalog import FAMILIES
from rmqha.metrics.reference import reference
from tests.support.imports import ROOT


class ReferenceTests(SynchronousTestCase):
    def test_page(self) -> None:
        """It is what the code says: run C{python -m rmqha.metrics.reference} if this fails."""
        self.assertEqual((ROOT / "docs/guide/metrics.rst").read_text(), reference())

    def test_all(self) -> None:
        """No metric is missing, and each has its type and unit."""
        page = reference()
        for family in FAMILIES:
            self.assertIn(f"``{family.name}``\n    {family.type.value}, ", page)

    def test_absent(self) -> None:
        """What RocketMQ's broker tells and ours does not is named: no panel is a riddle."""
        _, _, paragraph = reference().partition("these are not here:")
        told = {family.name for family in FAMILIES}
        for name in (
            "rocketmq_timing_messages",
            "rocketmq_delay_message_latency",
            "rocketmq_processor_watermark",
            "rocketmq_consumer_queueing_latency",
        ):
            self.assertNotIn(name, told)
            self.assertIn(f"``{name}``", paragraph)
