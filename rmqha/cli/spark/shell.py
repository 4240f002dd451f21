"""C{rmqha spark shell}: a Python prompt with a session that is ready to read."""

from __future__ import annotations

import code

import click

from rmqha.cli.spark.common import Spark, spark_options, stores_argument
from rmqha.pipeline.jobs.spark_work import Stores, options_for
from rmqha.pipeline.spark.source import NAME

_BANNER = """\
spark      the session
messages   the messages of {stores}, as a DataFrame
scan       the same without Spark: scan({stores!r}, topic="orders").read_all()"""


@click.command()
@stores_argument
@spark_options
def shell(stores: Stores, on: Spark) -> None:
    """Open a Python prompt with a session and the messages of STORE as a DataFrame.

    Python code from standard input is run.
    """
    from rmqha.pipeline.scan import scan

    session = on.session("shell")
    messages = session.read.format(NAME).options(**options_for(stores)).load()
    try:
        code.interact(
            _BANNER.format(stores=stores),
            local={"spark": session, "messages": messages, "scan": scan},
            exitmsg="",
        )
    finally:
        session.stop()
