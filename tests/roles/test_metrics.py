"""What monitors read of a whole pair and its name server; rules and dashboard match it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

import treq
import yaml
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SkipTest
from twisted.web.client import Agent, HTTPConnectionPool

from lab.harness.ports import client_port, free_ports
from rmqha.config.load import load
from rmqha.metrics.catalog import FAMILIES, FROM_STATUS
from rmqha.net.remoting.client import RemotingClient
from rmqha.roles.namesrv import NamesrvNode
from rmqha.wire.remoting.command import Command
from tests.roles.test_node import LONG, NodeCase
from tests.support.commands import ended
from tests.support.effort import slow
from tests.support.few_requests import FewRequests
from tests.support.imports import ROOT

CONF = ROOT / "conf" / "prometheus"
RULES, DASHBOARD = CONF / "rmqha-alerts.yml", CONF / "grafana.json"
CASES = ROOT / "tests" / "metrics" / "alerts_test.yml"

OTHERS = {"up", "process_start_time_seconds", "process_resident_memory_bytes"}
"""What Prometheus and every Python process tell."""


def panels() -> list[tuple[str, str]]:
    """The titles of the dashboard's panels and what each asks for, its variables set to all."""
    dashboard = json.loads(DASHBOARD.read_text())
    every = {
        variable["name"]: variable["allValue"]
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    }
    return [
        (panel["title"], re.sub(r"\$(\w+)", lambda found: every[found[1]], target["expr"]))
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def expressions() -> list[str]:
    """All that the rules and the dashboard ask for."""
    found = re.findall(r"^ +expr: '?(.*?)'?$", RULES.read_text(), re.MULTILINE)
    return found + [expression for _, expression in panels()]


def names_in(expression: str) -> set[str]:
    """The metrics that an expression asks for; what stands in braces or after C{by} is labels."""
    bare = re.sub(r"\{[^}]*\}|\b(?:by|on|without) \([^)]*\)|\[[^\]]*\]", " ", expression)
    words = set(re.findall(r"\b[a-z]\w*\b(?! *\()", bare)) - {"or", "and", "unless"}
    return {re.sub("_bucket$", "", word) for word in words}


class ClusterCase(NodeCase):
    """A name server and a pair, with a few requests of clients."""

    timeout = 120

    async def cluster(self) -> tuple[Any, Any, Any]:
        """A name server, a master and a slave, in sync."""
        port, admin = free_ports(2)
        kv = self.folder / "kvConfig.json"
        keys = {"listenPort": port, "adminListenPort": admin, "kvConfigPath": kv}
        settings = load(None, [f"{key}={value}" for key, value in keys.items()], "namesrv")
        namesrv = NamesrvNode(settings, reactor)
        namesrv.startService()
        self.addCleanup(namesrv.stopService)
        shared = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"}
        common = {"namesrvAddr": f"127.0.0.1:{port}", **shared}
        master = self.node("master", brokerRole="SYNC_MASTER", **common)
        await self.started(master)
        return namesrv, master, common

    def client(self, master: Any) -> FewRequests:
        """One that asks a master."""
        client = RemotingClient(reactor)
        self.addCleanup(client.close)
        return FewRequests(
            partial(client.request, f"127.0.0.1:{master.settings.broker.listen_port}")
        )

    async def use(self, master: Any) -> None:
        """Let clients do a little of everything."""
        client = self.client(master)
        await client.send(UNIQ_KEY="A")
        await client.send(UNIQ_KEY="B", DELAY="18")
        await self.until(lambda: master.store.queues.end("T", 0) == 1)
        master.broker.groups.find("cg")
        master.broker.offsets.commit("cg", "T", 0, 0, "test")
        await client.pull()
        await client.send_back()
        self.assertEqual((await client.ask(Command(code=9999))).code, 3)
        with socket.create_connection(("127.0.0.1", master.settings.ha.listen_port)) as stranger:
            stranger.sendall(b"\xff" * 8)
        await self.until(lambda: master.status()["closedConnections"])
        readers = Path(master.settings.store.root) / "rmqha" / "readers"
        readers.mkdir(parents=True, exist_ok=True)
        (readers / "lake.json").write_text('{"offset": 0, "time": 1}')

    async def use_when_in_sync(self, master: Any) -> None:
        """The same, once a slave is there."""
        await self.until(lambda: "in-sync" in [row["state"] for row in master.status()["replicas"]])
        await self.use(master)


class RulesTests(NodeCase):
    def test_names(self) -> None:
        """Every metric that an expression names is one of ours, or of every process."""
        known = {family.name for family in FAMILIES} | OTHERS
        asked = {name for expression in expressions() for name in names_in(expression)}
        self.assertGreater(len(asked), 40)
        self.assertEqual(asked - known, set())

    def test_each_alert_has_a_case(self) -> None:
        """One moment when it comes, and one before when it does not."""
        alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
        told: dict[bool, set[str]] = {True: set(), False: set()}
        for block in yaml.safe_load(CASES.read_text())["tests"]:
            for case in block["alert_rule_test"]:
                told[bool(case["exp_alerts"])].add(case["alertname"])
        self.assertEqual((alerts - told[True], alerts - told[False]), (set(), set()))

    def test_promtool(self) -> None:
        """Prometheus' own tool takes rules and configuration; alerts come when they should."""
        promtool = shutil.which("promtool")
        if promtool is None:
            raise SkipTest("promtool is not installed (Debian: prometheus)")
        for command in (
            ("check", "rules", RULES.name),
            ("check", "config", "prometheus.yml"),
            ("test", "rules", str(CASES)),
        ):
            done = ended(promtool, *command, cwd=CONF)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class ScrapeTests(ClusterCase):
    """C{GET /metrics} of nodes with real ports."""

    async def text(self, node: Any) -> str:
        pool = HTTPConnectionPool(reactor, persistent=False)
        url = f"http://127.0.0.1:{node.settings.admin.listen_port}/metrics"
        answer = await treq.get(url, agent=Agent(reactor, pool=pool))
        content: str = await treq.text_content(answer, "utf-8")
        self.assertEqual(answer.code, 200, content)
        return content

    def test_rules_are_about_something(self) -> Deferred[None]:
        """Each metric of the rules and the dashboard is in what a pair and a name server tell, one
        with a SYNC master that has no slave yet among them.
        """

        async def steps() -> None:
            namesrv, master, common = await self.cluster()
            # Its writes lack a replica, which is what is wrong.
            texts = [await self.text(master)]
            slave = self.node("slave", brokerId=1, **common)
            await self.started(slave)
            await self.until(
                lambda: "in-sync" in [row["state"] for row in master.status()["replicas"]]
            )
            await self.use(master)
            await self.until(lambda: len(namesrv.status()["brokers"]) == 2)
            texts += [await self.text(node) for node in (namesrv, master, slave)]
            told = set()
            for text in texts:
                for family in text_string_to_metric_families(text):
                    told.add(family.name + ("_total" if family.type == "counter" else ""))
            asked = {name for expression in expressions() for name in names_in(expression)}
            member = [each.name for each in FROM_STATUS if each.field.startswith("controller.")]
            told |= {"up", *member}
            self.assertEqual(asked - told, set())
            self.assertIn('rmqha_health_reason{cluster="DefaultCluster"', texts[0])
            self.assertIn("rmqha_replicas_in_sync{", texts[2])
            self.assertIn('code="9999",client="127.0.0.1"} 1', texts[2])

        return self.run_async(steps())


class PrometheusTests(ClusterCase):
    def setUp(self) -> None:
        super().setUp()
        self.prometheus = shutil.which("prometheus")
        if self.prometheus is None:
            raise SkipTest("prometheus is not installed (Debian: prometheus)")

    def scrape(self, *nodes: Any) -> None:
        """Start it with the shipped configuration and rules, with these nodes, and each second."""
        targets = [f"127.0.0.1:{node.settings.admin.listen_port}" for node in nodes]
        shutil.copy(RULES, self.folder)
        config = (CONF / "prometheus.yml").read_text().replace("15s", "1s")
        head, _, _ = config.partition("      - targets:")
        (self.folder / "prometheus.yml").write_text(
            f"{head}      - targets: {json.dumps(targets)}\n"
        )
        self.port = client_port()
        process = subprocess.Popen(
            [
                str(self.prometheus),
                f"--config.file={self.folder}/prometheus.yml",
                f"--storage.tsdb.path={self.folder}/tsdb",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)

    async def told(self, path: str, **parameters: str) -> Any:
        """What it says; nothing while it is starting."""
        pool = HTTPConnectionPool(reactor, persistent=False)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}"
        try:
            answer = await treq.get(
                url, params=parameters, agent=Agent(reactor, pool=pool), timeout=5
            )
            content = await treq.json_content(answer)
        except Exception:
            return {}  # it has just been started
        self.assertEqual(content["status"], "success", content)
        return content["data"]

    async def values(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """What an expression comes to, now: labels and numbers, but none without a meaning."""
        answer = await self.told("query", query=expression)
        rows = [(row["metric"], float(row["value"][1])) for row in answer.get("result", ())]
        return [row for row in rows if not isnan(row[1])]

    async def look(self) -> None:
        """Ask for what each panel without data asks for, and note those that have some."""
        for panel in sorted(self.empty):
            if await self.values(panel[1]):
                self.empty.discard(panel)
        await deferLater(reactor, 0.2)
        self.waited += 0.2

    @slow
    def test_prometheus(self) -> Deferred[None]:
        """It scrapes a pair, takes all of it, evaluates the rules without an error, and has data
        for each query of each panel of the dashboard: what is wrong while the SYNC master has no
        slave, the others once it has one and clients write, read, and give up a message.
        """
        self.empty = set(panels())
        self.waited = 0.0
        wrong = {panel for panel in self.empty if panel[0] == "What is wrong"}

        async def looked() -> bool:
            found = await self.told("targets")
            health = [each["health"] for each in found.get("activeTargets", ())]
            groups = (await self.told("rules")).get("groups", ())
            rules = {row["health"] for group in groups for row in group["rules"]}
            return health == ["up"] * 3 and rules == {"ok"}

        async def steps() -> None:
            namesrv, master, common = await self.cluster()
            slave = self.node("slave", brokerId=1, **common)
            self.scrape(namesrv, master, slave)
            while self.empty & wrong and self.waited < LONG:
                await self.look()
            await self.started(slave)
            await self.use_when_in_sync(master)
            client, well = self.client(master), False
            while (self.empty or not well) and self.waited < LONG:
                await client.send(UNIQ_KEY="C")
                await client.pull()
                await self.look()
                well = await looked()
            self.assertEqual(sorted(self.empty), [])
            self.assertTrue(well, await self.told("targets"))
            replicas = await self.values("rmqha_replicas_in_sync")
            self.assertEqual({row["broker_id"]: value for row, value in replicas}["0"], 1)

        return self.run_async(steps())
