"""The C{rmqha} command: shows nodes, and checks, reads and repairs stores."""

from __future__ import annotations

import click

from rmqha.cli.common import Commands

PLACES = {
    "rmqha.cli": (
        *("run", "demo", "clone", "failover", "promote", "config", "set"),
        *("verify", "doctor", "dump", "repair", "rebuild", "diverge", "tables"),
    ),
    "rmqha.cli.nodes": ("status", "events", "slots"),
    "rmqha.cli.brokers": ("topic", "group", "offset", "message"),
    "rmqha.cli.archives": ("receive", "restore", "tier"),
}
"""In which rooms the commands have modules of their names."""

MODULES = {
    **{name: f"{room}.{name}" for room, names in PLACES.items() for name in names},
    **{name: f"rmqha.cli.{name}.main" for name in ("controller", "spark", "switchover")},
    "reinit": "rmqha.cli.clone",
}


@click.group(
    cls=Commands, modules=MODULES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="rmqha", prog_name="rmqha", message="%(prog)s %(version)s")
def main() -> None:
    """Run and show rmqha nodes, and check, read, repair and archive RocketMQ stores.

    Nodes are started by `run` or by twistd.  `topic`, `group`, `offset` and `message` work with
    brokers of any make that run.  Only `repair`, `rebuild`, `reinit`, `failover`, `promote`,
    `switchover`, `tables --accept` and `controller reset` change a store.
    """
