"""C{rmqha spark}: jobs over the logs of stores."""

from __future__ import annotations

from importlib import import_module

import click

from rmqha.errors import ExtraMissing

JOBS = {
    "export": "Write messages to Parquet, Delta or Iceberg.",
    "stream": "Write messages to a table as they arrive, each once.",
    "verify": "Compare copies of one log, byte by byte.",
    "stats": "Count messages by topic and queue; plot rates, sizes and delays.",
    "replay": "Send messages of a log to a broker again.",
    "index": "Make the split index of a store.",
    "check": "Prove that a table has each record of its logs once.",
    "rewind": "Remove rows from a table whose log was cut back.",
    "shell": "Open a Python prompt with a Spark session.",
}
"""Each job and its line of help.  The module of its name has the command; it is imported, and
Spark with it, only when the command is called."""


class Jobs(click.Group):
    """Commands that are loaded when they are called."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Their names, in the order of the table."""
        return list(JOBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """One of them.

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
        """Help without loading any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(JOBS.items()))


@click.group(cls=Jobs)
def spark() -> None:
    """Read, check and export the messages of stores with Apache Spark.

    These commands read the files of a store and ask no broker; a node may be running on it.
    """
