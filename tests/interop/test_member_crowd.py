"""Many sets on one group of controllers; how many is C{RMQHA_SETS}, 100 by default."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from lab.bench.processes import all_descriptors
from lab.harness.json_child import Piped
from lab.harness.nodes import until
from lab.stock.brokers import BOOT
from lab.stock.controllers import StockController, addresses_of, answered, controllers
from tests.interop.scenario_cases import ScenarioTestCase

SETS = int(os.environ.get("RMQHA_SETS", "100"))

SPAN = 10.0
"""Seconds over which processor time is taken."""

MOST = 1.0
"""Percent of a core that the signs of life of a member may cost."""

MOST_ASKED = 4.0
"""Questions a second of one member while it looks for a leader: one to each of three controllers
and one more, each second."""


class Crowd(Piped):
    """The process of all members."""

    def __init__(self, folder: Path, group: list[StockController]) -> None:
        super().__init__("crowd", folder / "crowd.log")
        self.given = [addresses_of(group), str(folder / "crowd"), str(SETS)]

    def start(self) -> Crowd:
        """Start it, and wait until all members have joined."""
        self.open([sys.executable, "-m", "tests.interop.beating_child", *self.given])
        self.until_news("ready", BOOT + SETS)
        return self

    def stats(self) -> dict[str, Any]:
        """What they have used and asked so far."""
        found: dict[str, Any] = self.do("stats")
        return found


class CrowdTests(ScenarioTestCase):
    """Members of ours without stores, each in a set of its own."""

    roles = "members of ours without stores, three controllers"
    full_only = ("test_leader_changes",)

    def test_leader_changes(self) -> None:
        """Signs of life cost little; nobody storms a new leader, no set gets another epoch."""
        group = controllers(self.folder, 3)
        self._processes += group
        for each in group:
            each.launch()
        asking = self.group(*group)
        until(
            lambda: answered(asking.find_leader()), "a controller leads", BOOT, tell=group[0].tail
        )
        crowd = Crowd(self.folder, group)
        self._processes.append(crowd)
        with self.scenario(f"{SETS} sets: signs of life"), all_descriptors():
            crowd.start()
            epochs = crowd.stats()["epochs"]
            self.assertLess(self.span(crowd)["percent"], MOST)
        with self.scenario(f"{SETS} sets: another controller leads"):
            leads = answered(asking.find_leader())
            (leader,) = (each for each in group if each.address == leads)
            leader.kill9()
            self.assertLess(self.span(crowd)["asked"], MOST_ASKED)
            until(
                lambda: crowd.stats()["silent"] < SPAN,
                "all are answered again",
                BOOT,
                tell=crowd.tail,
                pause=0.5,
            )
            self.assertEqual(crowd.stats()["epochs"], epochs)

    def span(self, crowd: Crowd) -> dict[str, float]:
        """Watch it for a while: of one member, percent of a core and questions a second."""
        before, begun = crowd.stats(), time.monotonic()
        time.sleep(SPAN)
        after, seconds = crowd.stats(), time.monotonic() - begun
        used = {
            "percent": 100 * (after["processor"] - before["processor"]) / seconds / SETS,
            "asked": (after["asked"] - before["asked"]) / seconds / SETS,
        }
        sys.stdout.write(f"one of {SETS} members: {used}\n")
        return used
