"""The command as a whole: help, versions, mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec

import click

from lab.harness import golden
from rmqha.cli.main import main
from tests.cli.command import CommandTestCase
from tests.support.commands import ended, rmqha
from tests.support.effort import slow

COMMANDS = ("config", "diverge", "dump", "rebuild", "receive", "restore", "status", "verify")

#: An option of a help whose value is named by its type.
BY_TYPE = re.compile(
    r"(?m)^  (--[a-z-]+ (?:TEXT|PATH|DIRECTORY|INTEGER|FLOAT|NUMBER|WHOLE NUMBER))\b"
)


def _commands(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """A command, and all below it; those that need Spark only where it is installed."""
    yield context
    if isinstance(command, click.Group) and (context.info_name != "spark" or find_spec("pyspark")):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _commands(below, click.Context(below, info_name=name, parent=context))


class MainTests(CommandTestCase):
    def test_version(self) -> None:
        """The version is the package's."""
        self.assertEqual(self.succeed("--version"), f"rmqha {version('rmqha')}\n")

    def test_help(self) -> None:
        """Help lists every command, and every command has its own."""
        text = self.succeed("--help")
        for name in COMMANDS:
            self.assertIn(f"\n  {name} ", text)
            self.assertIn(
                f"rmqha {name} [OPTIONS]" if name != "config" else "check",
                self.succeed(name, "-h").replace("main", "rmqha"),
            )

    def test_nothing(self) -> None:
        """Without a command the help is shown, and it is no success."""
        result = self.run_command()
        self.assertEqual(result.exit_code, 2)
        self.assertIn("Commands:", result.output)

    def test_whole_help(self) -> None:
        """O8: each command's sentence is whole."""
        said = self.succeed("--help")
        self.assertIn("role and state edges, cuts, promotions, repairs.", " ".join(said.split()))

    def test_interrupted_at_once(self) -> None:
        """O8: Ctrl-C while the command is being imported is one line too."""
        script = (
            "import sys\n"
            "class Ctrl:\n"
            "    def find_spec(self, name, *_):\n"
            "        if name == 'rmqha.cli.main': raise KeyboardInterrupt\n"
            "sys.meta_path.insert(0, Ctrl())\n"
            "from rmqha.cli.start import start; start()\n"
        )
        self.assertInterrupted(script)

    def assertInterrupted(self, script: str) -> None:
        """A program ends as Ctrl-C has it, and says no more."""
        done = ended(sys.executable, "-c", script)
        self.assertEqual((130, "rmqha: interrupted\n"), (done.returncode, done.stderr))

    @slow
    def test_interrupted_connection(self) -> None:
        """Ctrl-C is what a command ends with, not what comes of it for its connections."""
        script = (
            "from twisted.internet.defer import Deferred\n"
            "from rmqha.cli import common\n"
            "async def run(reactor):\n"
            "    lost = Deferred()\n"
            "    reactor.addSystemEventTrigger(\n"
            "        'before', 'shutdown', lambda: lost.errback(OSError('it was closed')))\n"
            "    reactor.callLater(0, reactor.stop)\n"
            "    await lost\n"
            "group = common.Commands()\n"
            "group.command('ask')(lambda: common.in_reactor(run))\n"
            "group.main(['ask'])\n"
        )
        self.assertInterrupted(script)

    def test_mistakes(self) -> None:
        """A mistake is one line and exit code 2."""
        store = golden.store(golden.VERSIONS[0], "ipv6")
        self.assertIn("No such command", self.fails(2, "verfy", store))
        self.assertIn("No such option", self.fails(2, "verify", "--depp", store))
        self.assertIn("Missing argument", self.fails(2, "verify"))
        self.assertIn("does not exist", self.fails(2, "verify", store / "nothing"))
        self.assertIn("--deep", self.fails(2, "verify", store, "--conf", store / "checkpoint"))
        self.assertIn("must be above", self.fails(2, "dump", store, "--from", "9", "--to", "9"))
        self.assertIn("x>=0", self.fails(2, "dump", store, "--from", "-1"))
        self.assertIn("--json", self.fails(2, "dump", store, "--body"))
        self.assertIn("'x' is not a valid whole number", self.fails(2, "dump", store, "--to", "x"))
        self.assertIn("--times", self.fails(2, "status", "--times", "1"))
        self.assertIn("nor a store's folder", self.fails(2, "events", store / "nothing"))

    def test_values(self) -> None:
        """Each option that takes a value names it by what it is, not by its type."""

        for context in _commands(main, click.Context(main, info_name="rmqha")):
            found = BY_TYPE.findall(context.command.get_help(context))
            self.assertEqual([], found, context.command_path)

    @slow
    def test_completion(self) -> None:
        """A shell is given a function of ours, and what it asks for then."""

        def told(how: str, **words: str) -> str:
            done = rmqha(env={**os.environ, "_RMQHA_COMPLETE": how, **words}, check=True)
            return done.stdout

        self.assertIn("_rmqha_completion", told("bash_source"))
        self.assertIn(
            "plain,status\n", told("bash_complete", COMP_WORDS="rmqha st", COMP_CWORD="1")
        )

    def test_no_store(self) -> None:
        """What is no store is one line and exit code 1."""
        folder = golden.store(golden.VERSIONS[0], "ipv6") / "config"
        for command in ("verify", "dump", "rebuild"):
            self.assertIn("is not a RocketMQ store", self.fails(1, command, folder))
        self.assertIn(
            "is not a RocketMQ store", self.fails(1, "diverge", folder, "--against", folder)
        )

    @slow
    def test_closed_pipe(self) -> None:
        """A reader that goes early is no reason for a traceback."""
        store = golden.store(golden.VERSIONS[0], "killed")
        script = "from rmqha.cli.main import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", script, "dump", str(store), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        self.assertNotIn(b"Traceback", process.stderr.read())
        process.stderr.close()
        self.assertEqual(process.wait(), 1)
