"""A whole cluster that takes TLS alone, and those that it does not let in."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

from lab.harness.certificates import Authority
from lab.harness.nodes import NameServer, Node, until
from lab.harness.writer import Driver
from tests.faults.harness import BRISK, FaultTestCase, seconds
from tests.support.commands import rmqha

LOCAL = "127.0.0.1"

MIB = 1 << 20


class TlsClusterTests(FaultTestCase):
    """A name server, a master and a slave; each has a certificate of one root, and asks for one."""

    def setUp(self) -> None:
        super().setUp()
        self.authority = Authority(self.folder / "tls")

    def keys(self, name: str, authority: Authority | None = None) -> dict[str, object]:
        """What a node shows and believes, on all its connections."""
        key, path = (authority or self.authority).certificate(name)
        root = self.authority.root
        found: dict[str, object] = {"tlsMode": "enforcing", "tlsClientAuth": "require"}
        for prefix in ("tls", "tlsClient", "haTls"):
            found |= {
                f"{prefix}KeyPath": key,
                f"{prefix}CertPath": path,
                f"{prefix}TrustCertPath": root,
            }
        return found

    def broker(self, name: str, authority: Authority | None = None) -> dict[str, object]:
        """The same of a broker, which has a name server and replication."""
        return {
            **self.keys(name, authority),
            "haTlsMode": "enforcing",
            "tlsCheckNames": "true",
            "namesrvAddr": self.names.client_address,
            "brokerIP1": LOCAL,
            "brokerIP2": LOCAL,
        }

    def cluster(self) -> tuple[Driver, Node]:
        """All three, the slave in sync; it finds its master by the name server."""
        self.names = NameServer(self.folder)
        self.names.keys |= self.keys("names")
        del self.names.keys["tlsClientKeyPath"], self.names.keys["tlsClientCertPath"]
        del self.names.keys["tlsClientTrustCertPath"]
        for name in ("haTlsKeyPath", "haTlsCertPath", "haTlsTrustCertPath"):
            del self.names.keys[name]
        self._processes.append(self.names)
        self.names.launch()
        self.names.until(lambda status: status["state"] == "serving", "serving")
        master = self.master(**self.broker("master"))
        slave = Node(self.folder, "slave", "slave", **{**BRISK, **self.broker("slave")})
        self._processes.append(slave)
        self.start_both(master, slave)
        slave.until_upstream("in-sync")
        return master, slave

    def status_by(self, *arguments: str) -> tuple[int, str]:
        """How C{rmqha status} of the name server's cluster ends, and what it complains of."""
        server = ("--name-server", self.names.client_address)
        done = rmqha("status", *server, *arguments)
        return done.returncode, done.stderr + done.stdout

    def test_cluster(self) -> None:
        """SYNC writes are taken and copied, the master's tables too; strangers at the HA port are
        counted and logged once each, and cost nothing; a certificate is renewed while all runs.
        """
        master, slave = self.cluster()
        self.write(master, 50)
        registered = {self.names.client_address: "registered"}
        for node in (master, slave):
            node.until(lambda status: status["remoting"]["nameServers"] == registered, "registered")
        self.assertEqual("reachable", slave.status()["upstream"]["clientPort"])
        before = slave.status()["upstream"]["reconnects"]
        self._strangers(master)
        self.write(master, 50)
        upstream = slave.until_upstream("in-sync")["upstream"]
        self.assertEqual((before, {}), (upstream["reconnects"], upstream["tlsRefusals"]))
        self._renewed(master)
        self.write(master, 50)
        self.settle(master, slave)

    def _strangers(self, master: Driver) -> None:
        """A slave of another root, one in clear text, and a hello that does not go on."""
        others = Authority(self.folder / "others", "others")
        # The client port would not tell them who it is.
        unasked = {"haMasterClientAddress": "off"}
        for name, keys, state in (
            ("stranger", self.broker("stranger", others) | unasked, "tls-certificate"),
            ("clear", {"tlsEnable": "false", "namesrvAddr": ""}, "clear-text"),
        ):
            slave = self.slave(master.address, name, **keys, brokerId=2)
            slave.start()
            master.until(
                lambda status, state=state: status["closedConnections"].get(state, 0) >= 2, state
            )
            self.assertNotEqual("in-sync", slave.status()["upstream"]["state"])
            self.assertEqual(0, slave.status()["maxOffset"])
            slave.term()
            self.assertEqual([], slave.complaints(), slave.log())
        with socket.create_connection(master.address) as silent:
            silent.sendall(bytes.fromhex("160301"))
        master.until(lambda status: status["closedConnections"].get("tls-handshake"), "left")
        log = master.log()
        for text in ("its certificate is not accepted: ", "it speaks clear text, and haTlsMode"):
            self.assertIn(text, log)

    def _renewed(self, master: Driver) -> None:
        """New files are taken over; a broken one is told, and changes nothing."""
        path = Path(str(master.keys["haTlsCertPath"]))
        good = path.read_bytes()
        path.write_bytes(b"garbage")
        reasons = {"tls-files-clients", "tls-files-requests", "tls-files-replication"}
        until(lambda: reasons <= master.reasons(), "the fault is told", tell=master.tail)
        path.write_bytes(good)
        until(lambda: not reasons & master.reasons(), "it is forgotten", tell=master.tail)
        self.authority.certificate("master", days=45)
        master.until(
            lambda status: all(row["secondsLeft"] < 46 * 86400 for row in status["tls"]), "renewed"
        )
        self.assertEqual(
            ["clients", "requests", "replication"], [row["role"] for row in master.status()["tls"]]
        )

    def test_tool(self) -> None:
        """A command sees the cluster with a certificate, and not without one."""
        self.cluster()
        code, said = self.status_by()
        self.assertEqual(3, code)
        self.assertIn(f"name server {self.names.client_address}: the connection to", said)
        key, path = self.authority.certificate("operator")
        file = self.folder / "tls.properties"
        file.write_text(
            f"tls.client.keyPath={key}\ntls.client.certPath={path}\n"
            f"tls.client.trustCertPath={self.authority.root}\n"
        )
        code, said = self.status_by("--tls", str(file))
        # It heard of all; the name server's admin port is not three above its client port here, and
        # brokers tell where theirs is.
        self.assertNotIn("name server", said)
        for text in (f"127.0.0.1:{self.names.port + 3}", "broker-a/0", "broker-a/1"):
            self.assertIn(text, said)
        self.assertIn("it speaks clear text", self.names.log())

    def test_memory(self) -> None:
        """A name server is as large as it was after a thousand handshakes that are half done, and
        as many whole ones whose clients just go.
        """
        self.names = NameServer(self.folder)
        self.names.keys |= {"tlsMode": "enforcing"} | {
            f"tls{file}Path": path
            for file, path in zip(("Key", "Cert"), self.authority.certificate("names"), strict=True)
        }
        self._processes.append(self.names)
        self.names.launch()
        self.names.until(lambda status: status["state"] == "serving", "serving")
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client.check_hostname, self._client.verify_mode = False, ssl.CERT_NONE
        for once in (self._half, self._whole):
            for _ in range(100):
                once()
            before = self._resident()
            for _ in range(int(seconds(1000, 5000))):
                once()
            self.assertLess(self._resident() - before, 12 * MIB, once.__name__)

    def _resident(self) -> int:
        """Bytes of memory that the name server has."""
        pages = Path(f"/proc/{self.names.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * 4096

    def _half(self) -> None:
        said, says = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self._client.wrap_bio(said, says)
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        with socket.create_connection((LOCAL, self.names.port)) as connection:
            connection.sendall(says.read())
            connection.recv(1)

    def _whole(self) -> None:
        connection = socket.create_connection((LOCAL, self.names.port))
        self._client.wrap_socket(connection).close()
