"""How nodes tell of what they do again and again."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from lab.harness.ports import free_ports
from rmqha.admin.events import Facts
from rmqha.broker.clients.heartbeats import SWEEP
from rmqha.config.load import load
from rmqha.health import HealthReason
from rmqha.metrics.family import Sample
from rmqha.metrics.node_families import HEALTH_REASON
from rmqha.namesrv.routes import RouteTable
from rmqha.periodic import RED_AFTER, Job, NodePart, Periodic, Watch, jobs_of
from rmqha.roles.namesrv import NamesrvNode
from rmqha.roles.process import Process
from tests.roles.nodes import NodeReactor, settings
from tests.roles.test_metadata import PlainMaster
from tests.roles.test_slave import SlaveCase
from tests.support.health import unhealthy
from tests.support.imports import module_name, modules_in, parsed
from tests.support.logs import LogTestCase

ROOT = Path(__file__).resolve().parent.parent.parent

OF_ALL_BROKERS = {
    "looking at the node's health",
    "recording events",
    "remembering lag and rates",
    "deleting old log files",
    "flushing queues and index",
    "flushing the log",
    "forgetting silent clients",
    "registration at the name servers",
    "scrubbing the log",
    "statistics of the last minutes",
    "statistics of the last seconds",
    "writing consumerOffset.json",
    "writing delayOffset.json",
    "writing messageRequestMode.json",
    "writing subscriptionGroup.json",
    "adding to the offset journal",
    "ages of consumer lag",
    "writing topics.json",
    "keeping timercheck",
}


def names(status: dict[str, Any]) -> set[str]:
    """The jobs in a node's status."""
    return {row["name"] for row in status["periodicJobs"]}


class Inner(NodePart):
    """A part of a part, which says all that one can."""

    def __init__(self, clock: MemoryReactorClock) -> None:
        self.job = Periodic("inner work", clock, lambda: None)
        self.outer: Outer | None = None

    def health(self) -> Iterator[HealthReason]:
        yield HealthReason("inner", "it is made up")

    def facts(self) -> Facts:
        return {"inner": ("yes", "")}

    def samples(self) -> Iterator[Sample]:
        yield HEALTH_REASON, ("sampled",), 1

    def fields(self) -> dict[str, Any]:
        return {"inner": 7}


class Outer(NodePart):
    """A part that has another, and one that is not there."""

    def __init__(self, clock: MemoryReactorClock) -> None:
        self.none, self.inner = None, (Inner(clock),)
        self.inner[0].outer = self


class TreeTests(SynchronousTestCase):
    """What a node says is what its parts say."""

    def test_parts_of_parts(self) -> None:
        """All that a part of a part says is in what the node says, without being listed, and once
        where two know it.
        """
        clock = NodeReactor()
        node: Any = Process(load(None, [], "namesrv"), clock)
        node.outer = Outer(clock)
        node.outer.inner[0].job.start(1.0)
        self.assertEqual(len(jobs_of(node.outer)), 1)
        self.assertEqual(unhealthy(node), "inner: it is made up")
        self.assertEqual((names(node.status()), node.status()["inner"]), ({"inner work"}, 7))
        self.assertEqual(node.facts()["inner"], ("yes", ""))
        self.assertIn((HEALTH_REASON, ("sampled",), 1), list(node.samples()))

    def test_who_has_jobs(self) -> None:
        """Each class that makes a job is a part, or a command's: else a node would not find it."""
        of_commands = {"Observer", "Receiver"}
        for path in modules_in(ROOT / "rmqha"):
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.ClassDef) and any(
                    isinstance(each, ast.Call) and ast.unparse(each.func) in ("Periodic", "Job")
                    for each in ast.walk(node)
                ):
                    kind = getattr(import_module(module_name(path)), node.name)
                    part = issubclass(kind, NodePart | Process)
                    self.assertNotEqual(part, node.name in of_commands, node.name)


def missed(node: Process, clock: NodeReactor) -> set[str]:
    """Jobs that are repeated by its clock, and are not in its tree."""
    gc.collect()
    there = [each for each in gc.get_objects() if isinstance(each, Job) and each.clock is clock]
    known = {id(job) for job in jobs_of(node)}
    assert known, "it has some"
    return {job.name for job in there if job.running and id(job) not in known}


class MasterTests(LogTestCase):
    """A master whose name server does not answer."""

    def setUp(self) -> None:
        self.reactor = NodeReactor()
        given = settings(self.folder() / "store", role="master", master=None)
        given = evolve(given, broker=evolve(given.broker, namesrv="10.0.0.9:9876"))
        self.node = PlainMaster(given, self.reactor)
        self.node.startService()
        self.addCleanup(self.stop)
        # It looks for another master, and then for offsets that its slaves have.
        for _ in range(2):
            self.reactor.advance(4.0)

    def stop(self) -> None:
        stopped = self.node.stopService()
        self.reactor.advance(5.0)
        self.reactor.advance(5.0)
        self.successResultOf(stopped)

    def test_listed(self) -> None:
        """The status has each, and JSON can hold it."""
        self.assertEqual(
            names(self.node.status()),
            OF_ALL_BROKERS
            | {
                "HA heartbeats and housekeeping",
                "checking transactions",
                "looking for another master of the brokerName",
            },
        )

    def test_none_is_missed(self) -> None:
        """No job is where the node does not find it."""
        self.assertEqual(set(), missed(self.node, self.reactor))

    def test_vital(self) -> None:
        """A vital job that fails thrice in a row makes the node unhealthy, until it succeeds."""
        broker = self.node.broker
        assert broker is not None
        broken = self.patch(broker._locks, "sweep", lambda: 1 / 0)
        found = []
        for _ in range(RED_AFTER):
            self.reactor.advance(SWEEP)
            found.append(unhealthy(self.node))
        wrong = (
            'failing-job: "forgetting silent clients" failed 3 times in a row: '
            "ZeroDivisionError: division by zero"
        )
        self.assertEqual(found, ["", "", wrong])
        broken.restore()
        self.reactor.advance(SWEEP)
        self.assertEqual(unhealthy(self.node), "")
        self.flushLoggedErrors(ZeroDivisionError)

    def test_state_first(self) -> None:
        """What the store says goes before what a job says."""
        assert self.node.broker is not None
        self.patch(self.node.broker._locks, "sweep", lambda: 1 / 0)
        for _ in range(RED_AFTER):
            self.reactor.advance(SWEEP)
        self.node.store._refuse("failed", "fsync")
        self.assertEqual([reason.name for reason in self.node.health()], ["failed", "failing-job"])
        self.node.store._allow("failed")
        self.flushLoggedErrors(ZeroDivisionError)


class SlaveTests(SlaveCase):
    def test_listed(self) -> None:
        """It has jobs of its own, one of them while it is connected."""
        node = self.start()
        own = {
            "comparing the log with the master's",
            "copying the master's tables",
            "looking for a broker with the same brokerId",
            "repairing the log from the master",
            "writing metadata.json",
        }
        found = names(node.status())
        self.assertLessEqual(OF_ALL_BROKERS - {"registration at the name servers"}, found)
        self.assertNotIn("reports to the master", found)
        self.accept()
        self.assertIn("reports to the master", names(node.status()))
        self.assertEqual(set(), missed(node, self.reactor))
        self.assertLessEqual(names(node.status()) - OF_ALL_BROKERS, own | {"reports to the master"})


class NameServerTests(SynchronousTestCase):
    def test_vital(self) -> None:
        """One that cannot look for silent brokers is not healthy."""
        reactor = MemoryReactorClock()
        (port,) = free_ports(1)
        given = load(None, [f"listenPort={port}", "adminListenPort=0"], "namesrv")
        node = NamesrvNode(given, reactor)
        node.startService()
        self.addCleanup(node.stopService)
        self.assertEqual(
            names(node.status()),
            {
                "looking at the node's health",
                "recording events",
                "remembering lag and rates",
                "removing silent brokers",
            },
        )
        self.patch(RouteTable, "expire", lambda table, now: 1 / 0)
        for _ in range(RED_AFTER):
            self.assertEqual(unhealthy(node), "")
            reactor.advance(given.namesrv.scan_interval)
        self.assertIn('"removing silent brokers" failed 3 times', unhealthy(node))
        self.flushLoggedErrors(ZeroDivisionError)


class DocumentedTests(SynchronousTestCase):
    def jobs(self) -> Iterator[tuple[str, bool]]:
        """Each C{Periodic} that is made anywhere, and each L{Watch}: its name, up to what is not
        constant, and whether it is vital.
        """
        for path in sorted((ROOT / "rmqha").rglob("*.py")):
            if path == ROOT / "rmqha/periodic.py":
                continue  # it takes the names from its classes
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.ClassDef):
                    yield from self.watched(node)
                elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                    "Periodic",
                    "Job",
                ):
                    name = node.args[0]
                    start = name.values[0] if isinstance(name, ast.JoinedStr) else name
                    assert isinstance(start, ast.Constant), ast.dump(name)
                    yield str(start.value), any(each.arg == "vital" for each in node.keywords)

    def watched(self, node: ast.ClassDef) -> Iterator[tuple[str, bool]]:
        """The same of a class, if it is a watch."""
        if any(getattr(base, "id", "") == Watch.__name__ for base in node.bases):
            (name,) = [
                each.value
                for each in node.body
                if isinstance(each, ast.Assign | ast.AnnAssign)
                and ast.unparse(each).startswith(("job =", "job:"))
            ]
            assert isinstance(name, ast.Constant), ast.dump(name)
            yield str(name.value), False

    def test_documented(self) -> None:
        """The list of jobs has each, and if it is vital, but for the commands' own ones."""
        page = (ROOT / "docs" / "status.rst").read_text(encoding="utf-8")
        jobs = page.partition("\nPeriodic jobs\n")[2].partition("\n.. _events:\n")[0]
        told, _, others = jobs.partition("*Vital*: ")[2].partition("*Not vital*: ")
        of_commands = {"repeating the report", "showing the progress"}
        found = [job for job in self.jobs() if job[0] not in of_commands]
        self.assertGreater(len(found), 14)
        for name, vital in found:
            says = (f"``{name}" in told, f"``{name}" in others)
            self.assertEqual(says, (vital, not vital), name)
