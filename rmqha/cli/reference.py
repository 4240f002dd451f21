"""The guide's page on commands, made from the commands.

Run C{python -m rmqha.cli.reference > docs/guide/commands.rst} after a change of one; a test
compares the two.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator

import click

from rmqha.cli.main import main
from rmqha.cli.spark.main import JOBS

_INTRO = """\
Commands
========

.. Made by ``python -m rmqha.cli.reference``; edit the commands in ``rmqha/cli`` instead.

What ``rmqha`` can do, as ``--help`` tells it. Exit codes are 0 for success, 1 when something is
wrong and printed, and 2 for a command that was not understood. A node that cannot be reached is 2
for ``diverge`` and ``repair``, and 3 for commands that only ask running nodes, and for ``topic``,
``group``, ``offset`` and ``message``. What runs as a service, ``run``, ``receive`` and
``tier --follow``, ends with 78 at what only a person can mend. Nodes are run by ``rmqha run``, or
by ``twistd rmqha``, which has the same options and those of twistd.

**Completion.** For the current shell ``eval "$(_RMQHA_COMPLETE=bash_source rmqha)"``, with
``zsh_source`` or ``fish_source`` for the others; in its start-up file for all. For every user of a
machine write what that prints into ``/etc/bash_completion.d/rmqha``.
"""

_WIDTH = 98


def reference() -> str:
    """The page, as reStructuredText."""
    context = click.Context(main, info_name="rmqha", **main.context_settings)
    return "\n".join((_INTRO, *_commands(main, context)))


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    """A section for each command of a group, and of the groups in it."""
    for name in group.list_commands(context):
        if name == "spark":
            yield from _jobs()
            continue
        command = group.get_command(context, name)
        assert command is not None
        below = click.Context(command, parent=context, info_name=name)
        if isinstance(command, click.Group):
            yield from _commands(command, below)
        else:
            yield from _section(command, below)


def _section(command: click.Command, context: click.Context) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    yield _heading(context.command_path)
    yield f".. code-block:: text\n\n   {context.command_path} {pieces}\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield _filled(paragraph)
    options = (each for each in command.get_params(context) if isinstance(each, click.Option))
    records = (option.get_help_record(context) for option in options if "--help" not in option.opts)
    yield from _table([record for record in records if record is not None])


def _jobs() -> Iterator[str]:
    """The jobs with Spark, which need it to tell their options."""
    yield _heading("rmqha spark")
    yield _filled("Jobs on the messages of stores; ``--help`` of each tells its options.")
    yield from _table([(f"rmqha spark {name}", meaning) for name, meaning in JOBS.items()])


def _table(rows: list[tuple[str, str]]) -> Iterator[str]:
    """A table of what is written and what it means, unless it would be empty."""
    if not rows:
        return
    lines = [".. list-table::", "   :widths: 38 62", ""]
    for written, meaning in rows:
        lines.append(f"   * - ``{written}``")
        lines.append(f"     - {_as_rst(meaning)}")
    yield "\n".join(lines) + "\n"


def _heading(title: str) -> str:
    return f"{title}\n{'-' * len(title)}\n"


def _filled(paragraph: str) -> str:
    text = _as_rst(" ".join(paragraph.replace("\b", "").split()))
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def _as_rst(text: str) -> str:
    """Help as reStructuredText: code stands between single backquotes there."""
    found = re.sub(r"(?<!`)(?<!:)`([^`]+)`(?!`)", r"``\1``", text)
    return found.replace("*", "\\*").replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
