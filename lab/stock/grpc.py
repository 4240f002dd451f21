"""The stock gRPC proxy 5.3.3 in front of brokers that name servers know, and clients of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Self

from attrs import frozen

from lab.harness.nodes import Process
from lab.harness.ports import free_ports
from lab.stock import jars, packages
from lab.stock.brokers import BOOT

CLIENT = jars.HERE / "GrpcClient.java"

LONGEST = 240.0
"""Seconds in which all scenarios of the client end; alone they take a minute."""


class GrpcProxy(Process):
    """A stock proxy in cluster mode, and the port for gRPC clients."""

    def __init__(self, folder: Path, names: str, cluster: str) -> None:
        super().__init__("proxy-5.3.3", folder / "proxy.log")
        self.folder = folder
        self.names, self.cluster = names, cluster
        self.port, self.remoting_port = free_ports(2)

    def start(self) -> Self:
        """Start it, and wait until it says that it has."""
        conf = self.folder / "proxy.json"
        conf.write_text(
            json.dumps(
                {
                    "rocketMQClusterName": self.cluster,
                    "namesrvAddr": self.names,
                    "grpcServerPort": self.port,
                    "remotingListenPort": self.remoting_port,
                }
            ),
            encoding="ascii",
        )
        home = self.folder / "proxy-home"
        home.mkdir(exist_ok=True)
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        arguments = ("-pc", str(conf), "-pm", "CLUSTER")
        self.spawn(jars.alone("proxy-5.3.3", main, home, *arguments))
        self.until_said("startup successfully", BOOT)
        return self


@frozen
class Outcome:
    """What became of one of the client's scenarios; the fault is empty if all was well."""

    name: str
    seconds: float
    fault: str = ""


def java_client(port: int, home: Path, *scenarios: str) -> list[str]:
    """The command line of the official Java client, for all scenarios of a proxy or some."""
    return jars.alone("client-java-5.2.0", str(CLIENT), home, f"127.0.0.1:{port}", *scenarios)


def python_client(port: int, home: Path) -> list[str]:
    """That of the official Python client."""
    path = f"PYTHONPATH={packages.grpc_python()}"
    script = str(jars.HERE / "python" / "grpc_client.py")
    return ["env", path, f"HOME={home}", sys.executable, script, f"127.0.0.1:{port}"]


def node_client(port: int, home: Path) -> list[str]:
    """That of the official Node client."""
    script = str(jars.HERE / "node" / "grpc" / "client.js")
    told = str(packages.grpc_node()), f"127.0.0.1:{port}"
    return ["env", f"HOME={home}", "node", script, *told]


def outcomes(command: list[str], home: Path) -> list[Outcome]:
    """Have a client do its scenarios, side by side."""
    done = subprocess.run(
        command,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    found = re.findall(r"^(PASS|FAIL) (\S+) ([\d.]+) ?(.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return [
        Outcome(name, float(seconds), "" if verdict == "PASS" else fault or "failed")
        for verdict, name, seconds, fault in found
    ]
