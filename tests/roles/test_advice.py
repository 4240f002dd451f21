"""What a node says of a configuration that is allowed and not wise."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.load import NAMESRV, load
from rmqha.roles.advice import advice, open_ports, open_warning

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
