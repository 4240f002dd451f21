"""etcd as its own processes: one, or a cluster of three."""

from __future__ import annotations

import json
import shutil
import ssl
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.harness.nodes import Process, until
from lab.harness.ports import free_ports

PROGRAM = shutil.which("etcd")
"""Where it is; C{None} where it is not installed."""

MISSING = "no etcd here (apt-get install etcd-server)"


class Etcd(Process):
    """One member of a cluster.

    @ivar known_port: Where others believe its peer port: a proxy's, where one is between them.
    @ivar quota: Bytes that it may keep.
    @ivar root: With it clients connect over TLS, and show a certificate of this root.
    @ivar shown: The key and the certificate that it shows then, and L{ask} too.
    """

    quota = 0
    root: Path | None = None
    shown: tuple[Path, Path]

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(f"etcd{number}", folder / f"etcd{number}.log")
        self.data = folder / f"etcd{number}"
        self.port, self.peer_port = free_ports(2)
        self.known_port = self.peer_port
        self.cluster: tuple[Etcd, ...] = (self,)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start it, on what it has on its disk."""
        assert PROGRAM is not None, MISSING
        scheme = "http" if self.root is None else "https"
        client, peer = f"{scheme}://{self.address}", f"http://127.0.0.1:{self.peer_port}"
        members = ",".join(
            f"{each.name}=http://127.0.0.1:{each.known_port}" for each in self.cluster
        )
        options = {
            "name": self.name,
            "data-dir": self.data,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": f"http://127.0.0.1:{self.known_port}",
            "initial-cluster": members,
            "quota-backend-bytes": self.quota,
            "log-level": "error",
        }
        told = [f"--{name}={value}" for name, value in options.items()]
        if self.root is not None:
            key, cert = self.shown
            told += [f"--key-file={key}", f"--cert-file={cert}"]
            told += ["--client-cert-auth", f"--trusted-ca-file={self.root}"]
        self.spawn([PROGRAM, *told])

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        scheme, context = "http", None
        if self.root is not None:
            key, cert = self.shown
            scheme, context = "https", ssl.create_default_context(cafile=str(self.root))
            context.load_cert_chain(cert, key)
        request = urllib.request.Request(
            f"{scheme}://{self.address}/v3/{path}", json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def counted(self, name: str) -> float:
        """One of its own metrics, the sum over all labels."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def answers(self) -> bool:
        """Whether it does, with a quorum."""
        try:
            self.ask("kv/range", key="AA==")
        except OSError:
            return False
        return True


def etcd(folder: Path, count: int, quota: int = 0) -> list[Etcd]:
    """Start a cluster; each member may keep so many bytes, with 0 what it takes by itself."""
    cluster = [Etcd(folder, number) for number in range(count)]
    for each in cluster:
        each.quota = quota
    begin(cluster)
    return cluster


def begin(cluster: list[Etcd]) -> None:
    """Start members that are one cluster, and wait until each answers."""
    for each in cluster:
        each.cluster = tuple(cluster)
        each.launch()
    for each in cluster:
        until(each.answers, "etcd answers", tell=each.tail, pause=0.1)


def addresses_of(cluster: Iterable[Any]) -> str:
    """As C{etcdAddresses} has them, and C{controllerAddr}."""
    return ";".join(each.address for each in cluster)
