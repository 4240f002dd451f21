"""The guide's page on commands, made from the commands.

Run C{python -m rmqha.cli.reference > docs/guide/commands.rst} after a change of one; a test
compares the two.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

import click

from rmqha.cli.main import main
from rmqha.cli.spark.main import JOBS

_INTRO = """\
Commands
========

.. Made by ``python -m rmqha.cli.reference``; edit the commands in ``rmqha/cli`` instead.

What ``rmqha`` can do. ``--help`` behind a command prints its options, and more about it. Nodes are
run by ``rmqha run``, or by ``twistd rmqha``, which has the same options and those of twistd. Exit
codes: :doc:`systemd`; what a command's say besides, its help tells.

**Completion.** For the current shell ``eval "$(_RMQHA_COMPLETE=bash_source rmqha)"``, with
``zsh_source`` or ``fish_source`` for the others; in its start-up file for all. For every user of a
machine write what that prints into ``/etc/bash_completion.d/rmqha``.
"""

#: A sentence of a command's help that says how it ends.
_EXIT = re.compile(r"[^.]*\bexit codes?\b[^.]*\.", re.IGNORECASE)


def reference() -> str:
    """The page, as reStructuredText."""
    context = click.Context(main, info_name="rmqha", **main.context_settings)
    lines = [_INTRO]
    for usage, meaning in _commands(main, context):
        lines.append(f"``{usage}``\n    {_as_rst(meaning)}")
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(context):
        if name == "spark":  # its commands need Spark to tell what they are
            yield from ((f"rmqha spark {job}", meaning) for job, meaning in JOBS.items())
            continue
        command = group.get_command(context, name)
        assert command is not None
        below = click.Context(command, parent=context, info_name=name)
        if isinstance(command, click.Group):
            yield from _commands(command, below)
        else:
            yield _usage(command, below), _meaning(command)


def _usage(command: click.Command, context: click.Context) -> str:
    pieces = command.collect_usage_pieces(context)
    return " ".join((context.command_path, *(each for each in pieces if each != "[OPTIONS]")))


def _meaning(command: click.Command) -> str:
    """The first paragraph of a command's help, but for what it says of exit codes."""
    first = inspect.cleandoc(command.help or "").replace("\b", "").split("\n\n")[0]
    return _EXIT.sub("", " ".join(first.split())).strip()


def _as_rst(text: str) -> str:
    """Help as reStructuredText: code stands between single backquotes there."""
    found = re.sub(r"(?<!`)(?<!:)`([^`]+)`(?!`)", r"``\1``", text)
    return found.replace("*", "\\*").replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
