"""Start C{conf/2m-2s-sync}, let things happen, and make the pictures of the guide: the page of a
node by Chromium (Debian's C{chromium}), and three commands, in C{docs/_static}: C{make pictures}.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from lab.cluster.members import Cluster, Unusable
from lab.harness.browser import Browser, installed
from lab.harness.nodes import ROOT, Node, end_all
from lab.pictures.scene import Scene
from lab.pictures.terminal import picture
from lab.stock.brokers import BOOT, SMALL, Broker, Tool
from lab.stock.jars import Missing

STATIC = ROOT / "docs" / "_static"

WIDE: dict[str, Any] = {"width": 1060}
NARROW: dict[str, Any] = {"width": 360, "dark": True}
"""How the page is looked at."""

SHOTS = (
    ("page.png", WIDE, "header", "#sets"),
    ("page-below.png", WIDE, "main > section", "main > section:last-child"),
    ("page-narrow.png", NARROW, "header", "#sets > section"),
    ("page-narrow-below.png", NARROW, "main > section", "#refused"),
)
"""The pictures of the page: how it is looked at, and from where to where."""


@click.command()
@click.option("--seconds", type=click.FloatRange(20), default=600.0, help="How long things happen.")
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=STATIC,
    help="Where the pictures go.",
)
def main(seconds: float, folder: Path) -> None:
    """The pictures of the guide, from a cluster that runs."""
    if installed() is None:
        raise click.ClickException("there is no chromium here; Debian has it as a package")
    with tempfile.TemporaryDirectory(prefix="pictures-") as made:
        cluster = Cluster.of(Path(made) / "cluster")
        try:
            cluster.start()
            scene = Scene(cluster, seconds)
            scene.play()
            commands(cluster, folder)
            ports = scene.member("broker-a").ports
            react(lambda reactor: pages(reactor, ports["status"], Path(made), folder))
            behind_java(Path(made) / "java", folder)
        except (Missing, Unusable) as error:
            raise click.ClickException(str(error)) from error
        finally:
            cluster.stop()
            end_all()


def commands(cluster: Cluster, folder: Path) -> None:
    """What C{rmqha status} and C{rmqha events} print."""
    broker = f"127.0.0.1:{cluster.members[1].ports['status']}"
    for name, arguments, columns in (
        ("cli-status.svg", ["status", broker], 110),
        ("cli-status-cluster.svg", ["status", "--name-server", cluster.names], 130),
        ("cli-events.svg", ["events", broker], 100),
    ):
        (folder / name).write_text(picture(arguments, columns), encoding="utf-8")


def behind_java(made: Path, folder: Path) -> None:
    """What C{rmqha status} prints of a slave behind a stock master."""
    made.mkdir()
    tool = Tool(made, "5.3.3").start()
    keys = {"inSyncReplicas": 2, "totalReplicas": 2}
    master = Broker(made, tool, "master", role="SYNC_MASTER", **keys).start()
    tool.put(2000, wait=False).wait()
    slave = Node(made, "slave", master=master.address, namesrvAddr=tool.names, **SMALL).start()
    slave.until_upstream("in-sync", timeout=BOOT)
    tool.put(500).wait()
    arguments = ["status", f"127.0.0.1:{slave.admin_port}"]
    (folder / "cli-behind-java.svg").write_text(picture(arguments, 110), encoding="utf-8")


def pages(reactor: Any, port: int, made: Path, folder: Path) -> Deferred[None]:
    """The page of a node at an admin port."""

    async def taken() -> None:
        browser = Browser.start(reactor, made / "browser")
        try:
            for name, how, first, last in SHOTS:
                tab = await browser.tab()
                await tab.look(**how)
                await tab.open(f"http://127.0.0.1:{port}/")
                await tab.until("document.querySelectorAll('svg path[d]').length >= 12")
                (folder / name).write_bytes(await tab.picture(first, last))
        finally:
            await browser.stop()

    return Deferred.fromCoroutine(taken())


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(1)
