"""The files of conf/ and the guide."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.broker_settings import BrokerRole
from rmqha.config.load import load
from rmqha.config.reference import reference
from rmqha.config.settings import Settings
from rmqha.config.vocabulary import BROKER_FILE, NAMESRV_FILE
from tests.support.commands import ended

ROOT = Path(__file__).parents[2]
PAIRS = ("broker-a", "broker-b")
LAYOUTS = {
    "2m-noslave": BrokerRole.ASYNC_MASTER,
    "2m-2s-async": BrokerRole.ASYNC_MASTER,
    "2m-2s-sync": BrokerRole.SYNC_MASTER,
}


def layout(name: str) -> dict[str, Settings]:
    """All files of one folder, loaded with the role their name says."""
    return {
        path.stem: load(path, role="slave" if path.stem.endswith("-s") else "master")
        for path in sorted((ROOT / "conf" / name).glob("*.properties"))
    }


class ContainerTests(SynchronousTestCase):
    """C{conf/container}, as far as it can be looked at where no image can be built."""

    FOLDER = ROOT / "conf" / "container"

    def test_compose(self) -> None:
        """Each service runs a role, with a file that is mounted there and is of that role."""
        self.assertEqual(
            {"names": "namesrv", "master": "master", "slave": "slave"},
            self.roles(self.services("compose")),
        )

    def test_set(self) -> None:
        """Members ask the etcd that is started beside them, where it listens."""
        services = self.services("set")
        command, members = services.pop("etcd")["command"], ("first", "second", "third")
        roles = {"names": "namesrv", **dict.fromkeys(members, "member")}
        self.assertEqual(roles, self.roles(services))
        (address,) = load(self.FOLDER / "member.properties").etcd.addresses
        self.assertIn(f"--advertise-client-urls=http://{address}", command)
        stores = {services[name]["volumes"][-1] for name in members}
        self.assertEqual(3, len(stores), "each has a disk of its own")

    def services(self, name: str) -> dict[str, Any]:
        """What a file starts; each volume is one of its own."""
        whole = yaml.safe_load((self.FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        services: dict[str, Any] = whole["services"]
        for service in services.values():
            sources = {volume.split(":")[0] for volume in service["volumes"]}
            named = {source for source in sources if not source.startswith("./")}
            self.assertLessEqual(named, whole["volumes"].keys())
        return services

    def roles(self, services: dict[str, Any]) -> dict[str, str]:
        """The role of each, whose file is read."""
        roles = {}
        for name, service in services.items():
            run, role, option, path = service["command"]
            self.assertEqual(("run", "--conf"), (run, option))
            mounts = [volume.split(":") for volume in service["volumes"]]
            sources = {mount[1]: mount[0] for mount in mounts}
            settings = load(self.FOLDER / sources[path], role=role)
            self.assertEqual(((), ()), (settings.ignored, settings.notes))
            self.assertIn("/var/lib/rmqha", sources)
            port = service["healthcheck"]["test"][-1].rpartition(":")[2]
            self.assertEqual(settings.admin.listen_port, int(port))
            roles[name] = role
        return roles

    def test_image(self) -> None:
        """What the image is made of is there, and each pinned version can be read."""
        text = (self.FOLDER / "Containerfile").read_text(encoding="utf-8")
        copied = re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", text)
        for name in " ".join(copied).split():
            self.assertTrue((ROOT / name).exists(), name)
        expression = re.findall(r"sed -n '(.+?)' requirements.txt", text)[0]
        locked = ROOT / "lab" / "tools" / "requirements.txt"
        found = ended("sed", "-n", expression, locked, check=True).stdout.split()
        wanted = re.findall(r"(?m)^([\w.-]+)(?:\[.*?\])?==([^ ;\\]+)", locked.read_text("utf-8"))
        self.assertEqual(["==".join(each) for each in wanted], found)


class ExampleTests(SynchronousTestCase):
    def test_files(self) -> None:
        """The layouts are RocketMQ's: two masters, with or without a slave each; and a name server.
        Beside them is what watches them, units for systemd, and an image.
        """
        names = {path.name for path in (ROOT / "conf").iterdir()}
        self.assertEqual(
            names,
            {
                *LAYOUTS,
                "container",
                "controller",
                "etcd",
                "namesrv.properties",
                "prometheus",
                "systemd",
            },
        )
        self.assertEqual(set(layout("2m-noslave")), set(PAIRS))
        for name in ("2m-2s-async", "2m-2s-sync"):
            self.assertEqual(set(layout(name)), {*PAIRS, "broker-a-s", "broker-b-s"})

    def test_name_server(self) -> None:
        """The name server's file says what its absence would."""
        found = load(ROOT / "conf" / "namesrv.properties", role="namesrv")
        self.assertEqual(found, load(None, role="namesrv"))

    def test_roles_and_names(self) -> None:
        """Each file says what its name and its folder say, and needs no --role."""
        for name, master_role in LAYOUTS.items():
            for stem, settings in layout(name).items():
                slave = stem.endswith("-s")
                self.assertIs(settings.broker.role, BrokerRole.SLAVE if slave else master_role)
                self.assertEqual(settings.broker.id, int(slave))
                self.assertEqual(settings.broker.name, stem.removesuffix("-s"))
                self.assertEqual(load(ROOT / "conf" / name / f"{stem}.properties"), settings)

    def test_nothing_is_ignored_or_changed(self) -> None:
        """The examples hold only keys that mean something, with values taken as they are."""
        for name in LAYOUTS:
            for stem, settings in layout(name).items():
                self.assertEqual((settings.ignored, settings.notes), ((), ()), f"{name}/{stem}")

    def test_controller(self) -> None:
        """A member's file needs no --role, and takes no write that one node alone would hold."""
        for folder in ("controller", "etcd"):
            path = ROOT / "conf" / folder / "broker-a.properties"
            found = load(path)
            self.assertEqual(found, load(path, role="member"))
            self.assertTrue(found.controller.member)
            self.assertEqual(found.controller.etcd, folder == "etcd")
            self.assertEqual((found.ignored, found.notes), ((), ()))
            self.assertEqual((found.controller.min_in_sync, found.ha.listen_port), (2, 10912))

    def test_no_clash_on_one_host(self) -> None:
        """All files of a folder run on one host: no port and no folder twice."""
        roots: list[Path] = []
        for name in LAYOUTS:
            nodes = layout(name).values()
            ports = [
                port
                for node in nodes
                # RocketMQ itself also takes listenPort - 2.
                for port in (
                    node.broker.listen_port - 2,
                    node.broker.listen_port,
                    node.ha.listen_port,
                    node.admin.listen_port,
                )
            ]
            self.assertEqual(len(ports), len(set(ports)), name)
            roots.extend(node.store.root for node in nodes)
            for node in nodes:
                self.assertEqual(node.store.commitlog.parent, node.store.root)
        self.assertEqual(len(roots), len(set(roots)))
        for root in roots:
            self.assertFalse(any(other in root.parents for other in roots))

    def test_slaves_follow_their_masters(self) -> None:
        """A slave's master address is the HA port of the master of its name."""
        for name in ("2m-2s-async", "2m-2s-sync"):
            nodes = layout(name)
            for pair in PAIRS:
                master, slave = nodes[pair], nodes[f"{pair}-s"]
                self.assertEqual(slave.ha.master, ("127.0.0.1", master.ha.listen_port))
                self.assertEqual(slave.store.file_size, master.store.file_size)

    def test_every_key_in_a_comment_is_real(self) -> None:
        """A commented-out line can be switched on."""
        for path in (ROOT / "conf").glob("*/*.properties"):
            for line in path.read_text().splitlines():
                if line.startswith("#") and "=" in line and " " not in line:
                    self.assertIn(line[1:].partition("=")[0], BROKER_FILE.by_name)
                    load(path, [line[1:]])


class ReferenceTests(SynchronousTestCase):
    def test_up_to_date(self) -> None:
        """The committed chapter is what python -m rmqha.config.reference makes."""
        text = (ROOT / "docs" / "guide" / "configuration.rst").read_text(encoding="utf-8")
        self.assertEqual(text, reference())

    def test_complete(self) -> None:
        """Every key that means something, or is refused, is in it; of ignored ones each reason."""
        text = reference()
        for file in (BROKER_FILE, NAMESRV_FILE):
            for name in (*file.by_name, *file.unsupported):
                self.assertIn(f"``{name}``", text)
            for reason, count in Counter(file.harmless.values()).items():
                row = f"* - {reason}\n     - {count}\n     - ``"
                self.assertIn(row, text)
