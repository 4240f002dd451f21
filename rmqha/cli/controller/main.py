"""C{rmqha controller}: what an operator asks of controllers, and does to a member's store."""

from __future__ import annotations

import click

from rmqha.cli.common import Commands

MODULES = {name: f"rmqha.cli.controller.{name}" for name in ("status", "explain", "elect", "reset")}


@click.group(cls=Commands, modules=MODULES)
def controller() -> None:
    """Show sets whose master controllers elect, and intervene.

    ADDRESSES are those of the controllers, host:port, several separated by ; or given one by one.
    """
