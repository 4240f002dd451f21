"""C{rmqha controller}: what an operator asks of controllers, and does to a member's store."""

from __future__ import annotations

import click

from rmqha.cli.controller.elect import elect
from rmqha.cli.controller.explain import explain
from rmqha.cli.controller.reset import reset
from rmqha.cli.controller.status import status


@click.group()
def controller() -> None:
    """Show sets whose master controllers elect, and intervene.

    ADDRESSES are those of the controllers, host:port, several separated by ; or given one by one.
    """


for command in (status, explain, elect, reset):
    controller.add_command(command)
