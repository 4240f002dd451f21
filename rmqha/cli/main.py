"""The C{rmqha} command: shows nodes, and checks, reads and repairs stores."""

from __future__ import annotations

import click

from rmqha.cli.archives.receive import receive
from rmqha.cli.archives.restore import restore
from rmqha.cli.archives.tier import tier
from rmqha.cli.brokers.group import group
from rmqha.cli.brokers.message import message
from rmqha.cli.brokers.offset import offset
from rmqha.cli.brokers.topic import topic
from rmqha.cli.common import Commands
from rmqha.cli.config import config
from rmqha.cli.controller.main import controller
from rmqha.cli.demo import demo
from rmqha.cli.diverge import diverge
from rmqha.cli.doctor import doctor
from rmqha.cli.dump import dump
from rmqha.cli.failover import failover
from rmqha.cli.nodes.events import events
from rmqha.cli.nodes.slots import slots
from rmqha.cli.nodes.status import status
from rmqha.cli.promote import promote
from rmqha.cli.rebuild import rebuild
from rmqha.cli.repair import repair
from rmqha.cli.run import run
from rmqha.cli.spark.main import spark
from rmqha.cli.switchover.main import switchover
from rmqha.cli.tables import tables
from rmqha.cli.verify import verify


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rmqha", prog_name="rmqha", message="%(prog)s %(version)s")
def main() -> None:
    """Run and show rmqha nodes, and check, read, repair and archive RocketMQ stores.

    Nodes are started by `run` or by twistd.  `topic`, `group`, `offset` and `message` work with
    brokers of any make that run.  Only `repair`, `rebuild`, `promote`,
    `tables --accept` and `controller reset` change a store.
    """


OF_NODES = (run, status, events, slots, switchover, failover)
OF_BROKERS = (topic, group, offset, message)
OF_STORES = (
    *(verify, doctor, dump, repair, rebuild, diverge, promote, tables),
    *(receive, restore, tier),
)

for command in (*OF_NODES, *OF_BROKERS, *OF_STORES, demo, config, controller, spark):
    main.add_command(command)
