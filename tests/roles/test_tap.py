"""C{twistd rmqha}'s command line."""

from __future__ import annotations

import errno
import shutil
import socket
import sys
import tempfile
import time
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

from twisted.python.reflect import namedAny
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.load import ROLE_NAMES
from rmqha.ha.slave.followed import FollowedMaster, end_following
from rmqha.roles import tap
from rmqha.roles.master import MasterNode
from rmqha.roles.namesrv import NamesrvNode
from rmqha.roles.slave import SlaveNode
from tests.roles.nodes import NodeReactor
from tests.support.unreadable import make_unreadable


class OptionsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tap-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def conf(self, *lines: str) -> str:
        path = self.folder / "broker.conf"
        path.write_text("\n".join((f"storePathRootDir={self.folder}/store", *lines)) + "\n")
        return str(path)

    def parsed(self, *arguments: str) -> tap.Options:
        """Options of a command line."""
        options = tap.Options()
        options.parseOptions(list(arguments))
        return options

    def refused(self, *arguments: str) -> str:
        """What a command line is refused with."""
        return str(self.assertRaises(UsageError, self.parsed, *arguments))

    def test_roles(self) -> None:
        """There is a service for every role that a file can be read for."""
        self.assertEqual(set(ROLE_NAMES), set(tap.ROLES))

    def test_bad_role(self) -> None:
        """An unknown role is refused with those there are."""
        said = self.refused("--role", "boss")
        self.assertEqual(said, "unknown role boss; roles are master, slave, member, namesrv")

    def test_role_from_the_file(self) -> None:
        """Without --role the file's brokerRole decides; without that it is a master."""
        for line, name in (
            ("brokerRole=SLAVE\nbrokerId=1", "slave"),
            ("brokerRole=SYNC_MASTER", "master"),
            ("brokerName=a", "master"),
        ):
            self.assertEqual(self.parsed("--conf", self.conf(line)).role, name)

    def test_contradiction(self) -> None:
        """A role that the file contradicts is refused."""
        said = self.refused("--role", "master", "--conf", self.conf("brokerRole=SLAVE"))
        self.assertIn("brokerRole", said)

    def test_all_problems(self) -> None:
        """All that is wrong is listed at once."""
        said = self.refused(
            "--conf", self.conf("flushDiskTyp=SYNC_FLUSH", "haListenPort=-5"), "--set", "x"
        )
        for part in ("flushDiskTyp", "did you mean flushDiskType", "haListenPort=-5", "--set"):
            self.assertIn(part, said)
        self.assertGreaterEqual(len(said.splitlines()), 3)

    def test_unreadable(self) -> None:
        """A file that is not there is named."""
        self.assertIn("nowhere.conf", self.refused("--conf", "/nowhere.conf"))

    def test_set(self) -> None:
        """--set wins over the file, may be repeated, and has a short form."""
        options = self.parsed(
            "--role", "slave", "-c", self.conf("haListenPort=7000", "brokerName=x"),
            "--set", "haListenPort=7001", "-s", "brokerName=y",
        )  # fmt: skip
        self.assertEqual(options.settings.ha.listen_port, 7001)
        self.assertEqual(options.settings.broker.name, "y")

    def test_options_are_their_own(self) -> None:
        """One command line's --set is not another's."""
        self.parsed("--set", "brokerName=y")
        self.assertEqual(tap.Options()["set"], [])


class PlaceTests(OptionsTests):
    """C{--store} and C{--slave-of}: a node without a file."""

    def test_master(self) -> None:
        """A store alone is a master's."""
        options = self.parsed("--store", str(self.folder / "a"))
        self.assertEqual("master", options.role)
        self.assertEqual(self.folder / "a", options.settings.store.root)

    def test_slave(self) -> None:
        """The master's address makes a slave, and wins over the file; a reload keeps it."""
        path = self.conf("haMasterAddress=10.0.0.1:10912", "brokerName=x")
        options = self.parsed("--slave-of", "10.0.0.5", "--store", "b", "--conf", path)
        for settings in (options.settings, options.read()):
            self.assertEqual(("10.0.0.5", 10912), settings.ha.master)
            self.assertEqual(("10.0.0.5", 10911), settings.ha.master_client)
            self.assertEqual(Path("b").absolute(), settings.store.root)
            self.assertEqual("x", settings.broker.name)
        self.assertEqual("slave", options.role)

    def test_no_folder(self) -> None:
        """A folder that cannot be one is refused by the option's name."""
        self.assertIn("--store=a:b is not allowed: one folder", self.refused("--store", "a:b"))

    def test_no_address(self) -> None:
        """An address that cannot be one too, and the node's own."""
        said = self.refused("--slave-of", "10.0.0.5:client")
        self.assertIn("--slave-of=10.0.0.5:client is not allowed: HOST, or HOST:PORT", said)
        said = self.refused("--slave-of", "127.0.0.1")
        self.assertIn("two brokers on one machine differ in listenPort, such as 10921", said)

    def test_contradictions(self) -> None:
        """What is said twice, or of another role, is refused."""
        self.assertIn(
            "--store and --set storePathRootDir=/a: give one of the two",
            self.refused("--store", "b", "--set", "storePathRootDir=/a"),
        )
        self.assertIn(
            "--slave-of and --set haMasterAddress=a:1: give one of the two",
            self.refused("--slave-of", "b", "--set", "haMasterAddress=a:1"),
        )
        said = self.refused("--role", "master", "--slave-of", "b")
        self.assertIn("--slave-of b is for a slave, not for --role master", said)
        for words in (("--store", "b"), ("--slave-of", "b")):
            self.assertIn("not for a name server", self.refused("--role", "namesrv", *words))

    def test_slaves_store(self) -> None:
        """A slave's store is no master's for want of C{--slave-of}: ways on are told."""
        root = self.folder / "b"
        FollowedMaster(address="10.0.0.5:10912").write(root)
        said = self.refused("--store", str(root))
        self.assertIn(f"{root} is the store of a slave of 10.0.0.5:10912", said)
        self.assertIn("start it with --slave-of 10.0.0.5:10912", said)
        self.assertIn(f"`rmqha promote {root}`", said)
        self.assertEqual("master", self.parsed("--role", "master", "--store", str(root)).role)
        end_following(root, 0)
        self.assertEqual("master", self.parsed("--store", str(root)).role)


class VersionTests(SynchronousTestCase):
    def test_version(self) -> None:
        """It is ours, and not Twisted's."""
        said = StringIO()
        self.patch(sys, "stdout", said)
        self.assertRaises(SystemExit, tap.Options().parseOptions, ["--version"])
        self.assertEqual(said.getvalue(), f"rmqha {version('rmqha')}\n")


class MakeServiceTests(OptionsTests):
    def test_makes(self) -> None:
        """Each role gives its node; nothing is opened before it starts."""
        for role, kind in (("master", MasterNode), ("slave", SlaveNode)):
            options = self.parsed("--role", role, "--conf", self.conf(), "--repair")
            node = tap.makeService(options, NodeReactor())
            self.assertIsInstance(node, kind)
            self.assertTrue(node.repair)  # type: ignore[attr-defined]
            self.assertFalse((self.folder / "store").exists())

    def test_flat(self) -> None:
        """A role's own class chain is three at most: what it does beside is in its parts."""
        for path in tap.ROLES.values():
            kinds = namedAny(path).__mro__
            own = [kind for kind in kinds if kind.__module__.startswith("rmqha.roles")]
            self.assertLessEqual(len(own), 3, own)

    def test_promotable(self) -> None:
        """A slave can become the master where its next start would be as what its file says."""
        said = {
            ("--conf",): "",
            ("--set", "haListenPort=7", "--conf"): "",
            ("--role", "slave", "--conf"): "names the role slave",
            ("--set", "brokerId=3", "--conf"): "says --set brokerId=3",
            ("--slave-of", "10.0.0.1:10912", "--conf"): "says --slave-of 10.0.0.1:10912",
        }
        for options, words in said.items():
            found = self.parsed(*options, self.conf("brokerRole=SLAVE"))
            node: Any = tap.makeService(found, NodeReactor())
            self.assertIsInstance(node, SlaveNode)
            self.assertEqual(self.folder / "broker.conf", node.promotion.conf)
            self.assertIn(words, node.promotion.keeps)
            self.assertEqual(bool(words), bool(node.promotion.keeps))

    def test_becomes_a_master(self) -> None:
        """What a slave becomes is its file's master, for reloads too; no --repair is left."""
        options = self.parsed("--repair", "--conf", self.conf("brokerRole=SLAVE"))
        slave: Any = tap.makeService(options, NodeReactor())
        self.conf("brokerRole=SYNC_MASTER", "brokerName=promoted")
        master = slave.promotion.successor(slave.promotion.reread())
        self.assertIsInstance(master, MasterNode)
        self.assertFalse(master.repair)
        self.assertEqual("promoted", master.settings.broker.name)
        self.assertEqual("promoted", master.reread().broker.name)
        self.assertIs(slave, tap.present(slave))
        slave.promotion.node = master
        self.assertIs(master, tap.present(slave))

    def test_finishes_a_promotion(self) -> None:
        """A master whose process ended while it became one is promoted before it starts; what
        keeps that from being done keeps it from starting.
        """
        path = self.folder / "store" / "rmqha" / "promotion.json"
        path.parent.mkdir(parents=True)
        path.write_text('{"epoch": 3}')
        said = StringIO()
        self.patch(sys, "stderr", said)
        options = self.parsed("--conf", self.conf("brokerRole=SYNC_MASTER"))
        ended = self.assertRaises(SystemExit, tap.makeService, options, NodeReactor())
        self.assertEqual(78, ended.code)
        self.assertIn("the log holds no record", said.getvalue())

    def test_master_is_back(self) -> None:
        """Such a one is not promoted, and keeps the note, while something listens where its master
        was: it says how it becomes a slave again.  --force has it go on.
        """
        path = self.folder / "store" / "rmqha" / "promotion.json"
        path.parent.mkdir(parents=True)
        said = StringIO()
        self.patch(sys, "stderr", said)
        self.patch(time, "sleep", lambda seconds: None)
        conf = self.conf("brokerRole=SYNC_MASTER")
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            path.write_text(f'{{"epoch": 3, "master": "127.0.0.1:{port}"}}')
            for words, more in (
                (f"the master at 127.0.0.1:{port} is back", ()),
                (f"`mv {conf}.before-failover {conf}`", ()),
                ("the log holds no record", ("--force",)),
            ):
                options = self.parsed("--conf", conf, *more)
                ended = self.assertRaises(SystemExit, tap.makeService, options, NodeReactor())
                self.assertEqual(78, ended.code)
                self.assertIn(words, said.getvalue())
                self.assertTrue(path.exists())
                self.assertEqual(bool(more), "no record" in said.getvalue())
        said.truncate(0)
        options = self.parsed("--conf", conf)
        self.assertRaises(SystemExit, tap.makeService, options, NodeReactor())
        self.assertIn("the log holds no record", said.getvalue())

    def test_name_server(self) -> None:
        """A name server has a file of its own keys, and no store."""
        path = self.folder / "namesrv.properties"
        path.write_text("listenPort=9000\n")
        options = self.parsed("--role", "namesrv", "--conf", str(path))
        self.assertIsInstance(tap.makeService(options, NodeReactor()), NamesrvNode)
        self.assertEqual(options.settings.namesrv.listen_port, 9000)
        self.assertEqual(options.settings.admin.listen_port, 9003)
        said = self.refused("--role", "namesrv", "--set", "brokerRole=SLAVE")
        self.assertIn("unknown key brokerRole", said)

    def test_unreadable(self) -> None:
        """A master that cannot read its replicas does not start as if it had none."""
        path = self.folder / "store" / "rmqha" / "replicas.json"
        for number, code in ((errno.EACCES, 78), (errno.EIO, 1)):
            unreadable, said = make_unreadable(self, path, number), StringIO()
            self.patch(sys, "stderr", said)
            options = self.parsed("--role", "master", "--conf", self.conf())
            ended = self.assertRaises(SystemExit, tap.makeService, options, NodeReactor())
            unreadable.restore()
            self.assertEqual(code, ended.code)
            self.assertIn(f"Cannot start: cannot read {path}: ", said.getvalue())

    def test_clock(self) -> None:
        """The reactor's clock does not jump with the wall clock."""
        reactor = NodeReactor()
        tap.makeService(self.parsed("--conf", self.conf()), reactor)
        self.assertIs(reactor.seconds, time.monotonic)
