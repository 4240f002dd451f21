"""The first line of a node's log, and what it says of a configuration that is not wise."""

from __future__ import annotations

import errno

from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.load import NAMESRV, load
from rmqha.errors import DiskFull, StoreLocked
from rmqha.net.key_file import KeyFileInvalid
from rmqha.net.tls.errors import TlsFilesInvalid
from rmqha.roles.advice import advice, open_ports, open_warning
from rmqha.roles.process import next_step, opening_line

CLOSED = ("clientAllowedPeers=10.0.0.0/8", "haAllowedPeers=10.0.0.0/8")
LOOPBACK = ("bindAddress=127.0.0.1", "haListenAddress=::1")
WISE = ("namesrvAddr=10.0.0.1:9876",)


class AdviceTests(SynchronousTestCase):
    def ports(self, *keys: str, role: str = "master") -> list[str]:
        """The ports that are open to everybody."""
        return open_ports(load(None, keys, role), namesrv=role == NAMESRV)

    def test_open(self) -> None:
        """Each port that serves everybody is named, with the keys that close it."""
        client, ha = self.ports()
        for text, words in ((client, ("10911", "aclEnable", "clientAllowedPeers")),):
            for word in words:
                self.assertIn(word, text)
        self.assertIn("10912 (haAllowedPeers", ha)
        admin = self.ports(*CLOSED, "adminListenAddress=0.0.0.0")
        self.assertEqual(admin, ["admin port 10914 (adminPortAllowedPeers)"])
        (names,) = self.ports(role=NAMESRV)
        self.assertIn("9876", names)
        self.assertIn("namesrvAllowedPeers", names)

    def test_closed(self) -> None:
        """A list, loopback, access control or client certificates close a port; not opening too."""
        self.assertEqual([], self.ports(*CLOSED))
        self.assertEqual([], self.ports(*LOOPBACK))
        self.assertEqual([], self.ports("listenPort=0", "haAllowedPeers=10.0.0.1"))
        self.assertEqual([], self.ports("namesrvAllowedPeers=10.0.0.1", role=NAMESRV))
        self.assertEqual([], self.ports("clientAllowedPeers=10.0.0.1", role=NAMESRV))
        (ha,) = self.ports("aclEnable=true", "aclPlainFile=/x/plain_acl.yml")
        self.assertIn("HA port", ha)
        certificates = (
            "tlsMode=enforcing",
            "tlsKeyPath=/k",
            "tlsCertPath=/c",
            "tlsTrustCertPath=/t",
            "tlsClientAuth=require",
        )
        (ha,) = self.ports(*certificates)
        self.assertIn("HA port", ha)
        self.assertEqual(2, len(self.ports(*certificates[:-1])))
        of_replicas = ("haTlsMode=enforcing", "haTlsKeyPath=/k", "haTlsCertPath=/c")
        self.assertEqual([], self.ports(*certificates, *of_replicas, "haTlsTrustCertPath=/t"))
        (ha,) = self.ports(*certificates, *of_replicas)
        self.assertIn("haTlsMode", ha)

    def test_slave(self) -> None:
        """A slave without a HA port has one port less."""
        (client,) = self.ports("haMasterAddress=10.0.0.1:10912", "haListenPort=0", role="slave")
        self.assertIn("client port", client)

    def test_one_line(self) -> None:
        """They are one warning, and no warning where there is none."""
        self.assertIn("haAllowedPeers", open_warning(load(None, (), "master"), namesrv=False))
        self.assertEqual("", open_warning(load(None, CLOSED, "master"), namesrv=False))

    def advised(self, *keys: str, role: str = "master") -> list[str]:
        """What is said of a configuration whose ports are closed."""
        return advice(load(None, (*CLOSED, *keys), role), namesrv=False)

    def test_advice(self) -> None:
        """What does not fit together is said; what does is not."""
        self.assertEqual([], self.advised(*WISE))
        (text,) = self.advised()
        self.assertIn("namesrvAddr", text)
        (text,) = self.advised(role="slave")
        self.assertIn("haMasterAddress", text)
        self.assertEqual([], self.advised("haMasterAddress=10.0.0.1:10912", role="slave"))
        learner = ("enableControllerMode=true", "asyncLearner=true", "controllerAddr=10.0.0.1:9878")
        self.assertEqual([], self.advised(*learner, "brokerId=100", role="slave"))
        (text,) = self.advised(*WISE, "brokerRole=SYNC_MASTER")
        self.assertIn("ASYNC_FLUSH", text)
        synchronous = ("brokerRole=SYNC_MASTER", "flushDiskType=SYNC_FLUSH")
        self.assertEqual([], self.advised(*WISE, *synchronous))

    def test_names_of_name_servers(self) -> None:
        """Q10: a name is as good as an address."""
        said = self.advised("namesrvAddr=10.0.0.1:9876;names.test:9876;[::1]:9876;localhost:9876")
        self.assertEqual([], [each for each in said if "namesrvAddr" in each])

    def test_tls_of_a_stranger(self) -> None:
        """A slave that connects with TLS is told to ask first whether the master is a stock one."""
        keys = (*WISE, "haTlsEnable=true")
        self.assertEqual([], self.advised(*keys, role="slave"))
        keys += ("haMasterAddress=10.0.0.1:10912",)
        self.assertEqual([], self.advised(*keys, role="slave"))
        (text,) = self.advised(*keys, "haMasterClientAddress=off", role="slave")
        self.assertIn("haMasterClientAddress", text)

    def test_values(self) -> None:
        """A value that others cannot use as it is has a line, and one that they can has none."""

        def said(*keys: str) -> list[str]:
            return advice(load(None, (*CLOSED, *WISE, *keys), "slave"), namesrv=False)

        before = said()
        for key, words in (
            ("brokerIP1=0.0.0.0", "brokerIP1=0.0.0.0: no other machine connects to this"),
            ("brokerIP2=::", "brokerIP2=::: no other machine connects to this"),
            ("haMasterAddress=0.0.0.0:10912", "haMasterAddress=0.0.0.0: no other"),
            ("brokerName=b # master", "brokerName=b # master: a topic has this name"),
            ("brokerClusterName=Default Cluster", "refuse ' ' in one"),
            ("brokerName=${HOSTNAME}", "placeholders and comments too"),
            ("storePathRootDir=/data/${USER}", "storePathRootDir=/data/${USER}: this is taken"),
        ):
            new = [text for text in said(key) if text not in before]
            self.assertTrue(any(words in text for text in new), (key, new))
        self.assertEqual(said("brokerName=broker-a_1", "brokerIP1=10.0.0.1"), before)


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
