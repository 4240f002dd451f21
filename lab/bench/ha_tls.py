"""What TLS costs replication: a first copy and single SYNC writes, with it beside clear text, in
turn.

Both ends show certificates, as with C{haTlsTrustCertPath}.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from lab.bench.catchup import LIMIT, STOCK, Source, look
from lab.bench.latency import PATIENCE, percentile, sync_writes
from lab.bench.progress import follow
from lab.bench.report import Row, spread
from lab.harness.certificates import Authority
from lab.harness.nodes import Node
from lab.harness.writer import Driver

Keys = dict[str, object]


def certified(folder: Path) -> Keys:
    """The keys of a node that replicates by TLS alone."""
    authority = Authority(folder)
    key, path = authority.certificate("node")
    return {
        "haTlsMode": "enforcing",
        "haTlsKeyPath": key,
        "haTlsCertPath": path,
        "haTlsTrustCertPath": authority.root,
    }


def run(folder: Path, total: int, writes: int, rounds: int) -> list[Row]:
    """Measure both rows.

    @param total: Bytes of the log to copy.
    @param writes: SYNC writes of one round.
    """
    tls = certified(folder / "tls")
    return [_copies(folder / "copy", total, tls, rounds), _writes(folder / "writes", writes, tls)]


def _copies(folder: Path, total: int, tls: Keys, rounds: int) -> Row:
    source = Source(folder, total, (900, 1900, 2900, 3900))
    clear: list[float] = []
    encrypted: list[float] = []
    try:
        for _ in range(rounds):
            for keys, found in (({}, clear), (tls, encrypted)):
                _with_keys(source.node, keys)
                source.start()
                found.append(_copied(source, keys))
                source.node.kill9()
    finally:
        source.stop()
    return Row(
        what="first copy, replication with TLS",
        ours=spread([each / 1e6 for each in encrypted], "MB/s"),
        beside="clear text " + spread([each / 1e6 for each in clear], "MB/s"),
        ratio=f"{statistics.median(encrypted) / statistics.median(clear):.2f}",
    )


def _with_keys(node: Node, keys: Keys) -> None:
    for name in [name for name in node.keys if name.startswith("haTls")]:
        del node.keys[name]
    node.keys.update(keys)


def _slave(folder: Path, master: Node, keys: Keys) -> Node:
    """One that can ask who its master is: otherwise it would say no TLS to it."""
    asked = {"haMasterClientAddress": f"127.0.0.1:{master.port}"}
    return Node(folder, "slave", master=master.address, **STOCK, **asked, **keys)


def _copied(source: Source, keys: Keys) -> float:
    """@return: Bytes a second."""
    folder = source.folder / "slave"
    slave = _slave(folder, source.node, keys)
    try:
        slave.launch()
        return follow(
            lambda: look(slave), source.end, dispatch=False, limit=LIMIT, tell=slave.tail
        ).copied
    finally:
        slave.kill9()
        shutil.rmtree(folder)


def _writes(folder: Path, writes: int, tls: Keys) -> Row:
    times = {name: _one_by_one(folder / name, writes, keys) for name, keys in _ways(tls).items()}
    p50 = {name: percentile(found, 0.5) for name, found in times.items()}
    p99 = {name: percentile(found, 0.99) for name, found in times.items()}
    return Row(
        what="SYNC write of 1 KiB, replication with TLS",
        ours=f"p50 {p50['tls']:.0f} us, p99 {p99['tls']:.0f} us",
        beside=f"clear text p50 {p50['clear']:.0f} us, p99 {p99['clear']:.0f} us",
        ratio=f"{p50['tls'] / p50['clear']:.2f}",
    )


def _ways(tls: Keys) -> dict[str, Keys]:
    return {"clear": {}, "tls": tls}


def _one_by_one(folder: Path, writes: int, keys: Keys) -> list[float]:
    """@return: Microseconds of each."""
    master = Driver(folder, "master", **STOCK, brokerRole="SYNC_MASTER", **keys)
    slave = _slave(folder, master, keys)
    try:
        master.start()
        slave.start()
        # The first write waits until the slave has asked; the rest warms both up.
        master.put(1, tell=False).wait(PATIENCE)
        slave.until_upstream("in-sync", timeout=PATIENCE)
        sync_writes(master, writes // 4)
        return sync_writes(master, writes)
    finally:
        slave.kill9()
        master.kill9()
