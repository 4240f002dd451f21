"""
C{rmqha spark}: jobs over the logs of stores.
"""

from __future__ import annotations

from importlib import import_module

import click

from rmqha.errors import ExtraMissing

JOBS = {
    "export": "Write messages to Parquet, Delta or Iceberg.",
    "stream": "Go on writing them as they come, each once.",
    "verify": "Compare the logs of several stores.",
    "rebuild": "Make consume queues from a log, in another folder.",
    "stats": "Count, weigh and plot what a log holds.",
    "replay": "Send messages of a log to a broker again.",
    "index": "Make the split index of a store.",
    "rewind": "Take rows off a table that a log has lost.",
    "shell": "Open a Python prompt with a session.",
}
"""Each job and its one line.  It lives in the module of its name, which is loaded, and Spark
with it, only when it is wanted."""


class Jobs(click.Group):
    """
    Commands that are loaded when they are called.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        """
        Their names, in the order of the table.
        """
        return list(JOBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """
        One of them.

        @raise ExtraMissing: If Spark is not installed.
        """
        if name not in JOBS:
            return None
        try:
            module = import_module(f"rmqha.cli.spark.{name}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("rmqha"):
                raise
            raise ExtraMissing(f"rmqha spark {name}", "pipeline", error.name or "") from error
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """
        Help without loading any of them.
        """
        with formatter.section("Commands"):
            formatter.write_dl(list(JOBS.items()))


@click.group(cls=Jobs)
def spark() -> None:
    """Jobs over the messages of stores, by Apache Spark.

    They read the files of a store and no broker; a node may be running on it.
    """
