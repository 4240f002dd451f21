"""The first line of a node's log."""

from __future__ import annotations

import errno

from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.load import load
from rmqha.errors import DiskFull, StoreLocked
from rmqha.net.key_file import KeyFileInvalid
from rmqha.net.tls.errors import TlsFilesInvalid
from rmqha.roles.process import next_step, opening_line


class OpeningLineTests(SynchronousTestCase):
    def line(self, role: str, *keys: str) -> str:
        """What a node of some configuration says."""
        return opening_line(load(None, keys, role), role, "1.0")

    def test_slave(self) -> None:
        """A slave names its master, its store and its ports."""
        common = ("brokerName=a", "storePathRootDir=/data/a", "listenPort=11911")
        self.assertEqual(
            "rmqha 1.0 slave of 10.0.0.5:10912, broker a/1, store /data/a, clients on 11911, "
            "replicas on 11912, admin on 127.0.0.1:11914",
            self.line("slave", "haMasterAddress=10.0.0.5:10912", *common),
        )
        said = self.line("slave", "namesrvAddr=10.0.0.9:9876", *common)
        self.assertIn(" slave of the master that name servers 10.0.0.9:9876 tell, ", said)
        self.assertIn(" slave without a master, ", self.line("slave", *common))

    def test_master(self) -> None:
        """A master says what kind it is; an address that a port is bound to is told with it."""
        said = self.line(
            "master", "brokerRole=SYNC_MASTER", "brokerName=a", "storePathRootDir=/data/a",
            "bindAddress=10.0.0.5", "adminListenPort=0",
        )  # fmt: skip
        self.assertEqual(
            "rmqha 1.0 master (SYNC_MASTER), broker a/0, store /data/a, clients on 10.0.0.5:10911, "
            "replicas on 10912, admin on no port",
            said,
        )

    def test_sets(self) -> None:
        """A member and a learner name the controllers."""
        mode = ("enableControllerMode=true", "controllerAddr=10.0.0.1:9878")
        said = self.line("member", *mode)
        self.assertIn(" member of the set at controllers 10.0.0.1:9878, ", said)
        said = self.line("slave", "asyncLearner=true", *mode)
        self.assertIn(" learner of the set at controllers 10.0.0.1:9878, ", said)
        etcd = ("controllerType=etcd", "etcdAddresses=10.0.0.1:2379,10.0.0.2:2379")
        said = self.line("member", mode[0], *etcd)
        self.assertIn(" member of the set at etcd 10.0.0.1:2379;10.0.0.2:2379, ", said)

    def test_name_server(self) -> None:
        """A name server has no store and no replicas."""
        self.assertEqual(
            "rmqha 1.0 name server, key-value configuration /data/kv.json, clients on 9876, "
            "admin on 127.0.0.1:9879",
            self.line("namesrv", "kvConfigPath=/data/kv.json"),
        )


class NextStepTests(SynchronousTestCase):
    def test_steps(self) -> None:
        """What somebody else has, a port or a folder, comes with what to do."""
        settings = load(None, [], "master")
        used = CannotListenError("", 10911, OSError(errno.EADDRINUSE, "in use"))
        self.assertIn(
            "Stop what listens on port 10911, or give", next_step(used, settings, "master")
        )
        self.assertIn("--store DIR", next_step(StoreLocked("/data/a/lock"), settings, "master"))
        self.assertEqual("", next_step(DiskFull("/data/a", 1), settings, "master"))

    def test_address(self) -> None:
        """An address or a port that cannot be listened on is told with its key."""
        ports = ["listenPort=911", "haListenPort=912", "adminListenPort=914"]
        broker = load(None, ports, "master")
        server = load(None, ["listenPort=911", "adminListenPort=914"], "namesrv")
        for settings, number, address, port in (
            (broker, 911, "bindAddress", "listenPort"),
            (broker, 909, "bindAddress", "listenPort"),
            (broker, 912, "haListenAddress", "haListenPort"),
            (broker, 914, "adminListenAddress", "adminListenPort"),
            (server, 911, "bindAddress", "listenPort"),
            (server, 914, "adminListenAddress", "adminListenPort"),
        ):
            foreign = CannotListenError("10.0.0.5", number, OSError(errno.EADDRNOTAVAIL, "no"))
            role = "namesrv" if settings is server else "master"
            said = next_step(foreign, settings, role)
            self.assertEqual(f" {address}=10.0.0.5 is no address of this machine", said)
            low = CannotListenError("", number, OSError(errno.EACCES, "no"))
            self.assertIn(f" are {port} and {address}", next_step(low, settings, role))

    def test_file(self) -> None:
        """A file of keys that cannot be used is told with the key that names it."""
        keys = [
            "aclEnable=true",
            "aclPlainFile=/a/acl",
            "haTlsCertPath=/a/c",
            "haTlsKeyPath=/k",
        ]
        settings = load(None, keys, "master")
        for error, key in (
            (KeyFileInvalid("/a/acl", "No such file"), " (aclPlainFile)"),
            (TlsFilesInvalid("/a/c", "No such file"), " (haTlsCertPath)"),
            (TlsFilesInvalid("/a/cc", "No such file"), ""),
        ):
            self.assertEqual(key, next_step(error, settings, "master"))
