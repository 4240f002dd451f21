"""What all commands share: how they end, how they show progress, and a reactor for those that ask
nodes.

Exit codes: 0 success, 1 something is wrong (and printed), 2 the command was not
understood; of commands that ask running nodes also 3, one gave no answer, and of those that are
services 78, only a person can mend it.  An error is one line on stderr, never a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import react

from rmqha.config.errors import ConfigProblems
from rmqha.config.load import load
from rmqha.config.store_settings import StoreSettings
from rmqha.errors import (
    ControllerUnanswered,
    NoController,
    RemotingTimeout,
    RemotingUnreachable,
    RmqhaError,
)
from rmqha.logfiles.offline_log import Progress as Told
from rmqha.net.tls.tool_tls import ToolTls, read_tool_tls
from rmqha.priority import Priority
from rmqha.store.offline.detect_sizes import offline_settings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

FAILED = 1
UNREACHABLE = 3
"""A node that was to be asked gave no answer."""
UNANSWERED = (RemotingUnreachable, RemotingTimeout, NoController, ControllerUnanswered)
"""What says so."""
INTERRUPTED = 130
"""What shells use for a command that Ctrl-C ended."""

PIPED_WIDTH = 200
"""Columns of a table that is not printed to a terminal."""

NO_COMMAND = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""What newer clicks raise when only the help was wanted."""


class Unreachable(click.ClickException):
    """Who has to be asked gave no answer, or is not a master."""

    exit_code = UNREACHABLE


class Whole(click.IntRange):
    """A whole number in a range, called so where another text was given."""

    name = "whole number"


class Number(click.FloatRange):
    """Any number in a range, the same."""

    name = "number"


def choice(name: str, default: Enum, help: str) -> Callable[[F], F]:
    """An option that takes one of an enum's values."""
    kinds = click.Choice([each.value for each in type(default)])
    return click.option(name, type=kinds, default=default.value, show_default=True, help=help)


def flag(name: str, help: str, parameter: str = "") -> Callable[[F], F]:
    """An option that takes nothing.

    @param parameter: What the command calls it, if that is not its name.
    """
    return click.option(*filter(None, (name, parameter)), is_flag=True, help=help)


def file_option(name: str, help: str, parameter: str = "", read: Any = None) -> Callable[[F], F]:
    """An option that takes a file that is there.

    @param read: Makes of it what the command is given.
    """
    kind = click.Path(exists=True, dir_okay=False, path_type=Path)
    names = filter(None, (name, parameter))
    return click.option(*names, type=kind, callback=read, metavar="FILE", help=help)


def seconds(name: str, default: float, help: str, *, least: float = 0) -> Callable[[F], F]:
    """An option that takes a time: C{least} or longer, or longer than 0."""
    kind = Number(least, min_open=not least)
    return click.option(
        name, type=kind, default=default, show_default=True, metavar="SECONDS", help=help
    )


STORE = click.Path(exists=True, path_type=Path)
"""A store's root, a C{commitlog} folder, or a quarantine file."""


def conf_option(help: str) -> Callable[[F], F]:
    """C{--conf} of a command that works on files alone.

    @param help: What of the file counts.
    """
    kind = click.Path(exists=True, path_type=Path)
    return click.option("--conf", type=kind, metavar="FILE", help=help)


class PathOrUrl(click.ParamType[Path | str]):
    """A path, or a URL as a text."""

    def __init__(self, name: str, path: click.Path) -> None:
        """@param name: What it is in the usage.
        @param path: What a path has to be.
        """
        self.name = name
        self._path: Any = path

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Path | str:
        """Look at the path, unless it is a URL."""
        if isinstance(value, str) and "://" in value:
            return value
        found: Path = self._path.convert(value, param, context)
        return found


JSON = flag("--json", "Print one JSON object.", "as_json")
"""For a command that prints its whole result at its end."""

MERGED_TABLES = click.option(
    "--tables",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The old master's store, or a copy of its config folder: what it knows is merged.",
)
"""For a command that makes a master of a slave."""

MAX_RATE = click.option(
    "--max-rate",
    type=Whole(0),
    default=0,
    metavar="BYTES",
    help="Most bytes a second; 0, the default, is no limit.",
)

OVERRIDES = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key; it wins over FILE."
)

PRIORITY = choice(
    "--priority",
    Priority.IDLE,
    "Use what processors and disks have to spare, or a fair share of them.",
)
"""For a command that may run beside a broker."""


class Commands(click.Group):
    """A group whose errors are one line each, and whose help has the commands' whole sentences.

    @ivar modules: Where each command is, by its name: only one that is called is imported.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.modules = modules or {}

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*self.commands, *self.modules})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.modules:
            return self.commands.get(name)
        command: click.Command = getattr(import_module(self.modules[name]), name)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (name, command.get_short_help_str(limit=1000))
            for name in self.list_commands(context)
            if (command := self.get_command(context, name)) is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; unless C{standalone_mode} is false, end the process with its code."""
        run: Callable[..., Any] = super().main
        if not kwargs.pop("standalone_mode", True):
            return run(*args, standalone_mode=False, **kwargs)
        sys.exit(_code(run, *args, **kwargs))


def _code(run: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Run a command, say in one line what went wrong, and give its exit code."""
    try:
        code = run(*args, standalone_mode=False, **kwargs)
    except click.ClickException as error:
        if isinstance(error, NO_COMMAND):
            error.show()  # it is the help
        else:
            complain(error.format_message())
        return error.exit_code
    except ConfigProblems as error:
        for problem in error.problems:
            complain(str(problem))
    except (RmqhaError, OSError) as error:
        complain(told(error))
        return UNREACHABLE if isinstance(error, UNANSWERED) else FAILED
    except click.Abort:
        complain("interrupted")
        return INTERRUPTED
    else:
        return code if isinstance(code, int) else 0
    return FAILED


def told(error: RmqhaError | OSError) -> str:
    """An error in words."""
    if isinstance(error, RmqhaError):
        return str(error)
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def complain(text: str) -> None:
    """Print an error as one line on stderr."""
    click.echo(f"rmqha: {' '.join(line.strip() for line in text.splitlines())}", err=True)


def note(text: str) -> None:
    """One line on stderr about something that is not a fault."""
    click.echo(f"note: {text}", err=True)


def stdout() -> Console:
    """Where tables go; piped, they are not cut to a terminal's width."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


@contextmanager
def bar(description: str) -> Iterator[Told | None]:
    """A progress bar on stderr while the block runs, on a terminal only.

    @return: What to tell bytes done and bytes in all, C{None} if stderr is not a terminal.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(description, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def store_settings(conf: Path | None, root: Path, commitlog: Path, file_size: int) -> StoreSettings:
    """Sizes of a store's files: from a C{broker.conf}, or from the files themselves.

    @raise ConfigProblems: If the file cannot be used.
    @raise click.UsageError: If it is another store's.
    """
    if conf is None:
        return offline_settings(root, commitlog, file_size)
    settings = load(conf).store
    if settings.root.resolve() != root.resolve():
        raise click.UsageError(f"{conf} is for the store {settings.root}, not {root}")
    return settings


def in_reactor(run: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """Do something while a reactor runs; once in a process.

    @param run: Given the reactor; what it raises is raised.
    @return: What it returns.
    @raise click.Abort: If somebody ended the reactor before.
    """
    outcome: list[T | Exception] = []

    def interrupted() -> None:
        # Before connections are closed, so that what comes of that is not told.
        if not outcome:
            outcome.append(click.Abort())

    async def caught(reactor: Any) -> None:
        reactor.addSystemEventTrigger("before", "shutdown", interrupted)
        try:
            outcome.append(await run(reactor))
        except Exception as error:
            outcome.append(error)

    try:
        react(lambda reactor: ensureDeferred(caught(reactor)))
    except SystemExit as ended:
        if not outcome:
            raise click.Abort() from ended
    found = outcome[0]
    if isinstance(found, Exception):
        raise found
    return found


def _tls(context: click.Context, option: click.Parameter, path: Path | None) -> ToolTls:
    return read_tool_tls(path)


TLS = file_option(
    "--tls",
    "Connect with TLS, as this file says: tls.client.* as in mqadmin's tls.config.file; for "
    "an HA port also haTlsEnable=true, haTlsKeyPath and so on. See docs/guide/tls.rst.",
    read=_tls,
)
"""For nodes that take TLS alone; gives a L{ToolTls}."""
