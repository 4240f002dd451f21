"""The commands, targets and keys that pages tell people to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from rmqha.cli.main import main
from rmqha.config.vocabulary import BROKER_FILE, NAMESRV_FILE
from rmqha.errors import ExtraMissing
from rmqha.roles.tap import Options

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.rst"),
        *(ROOT / "docs").rglob("*.md"),
    ]
    if "_build" not in path.parts
)

FILES = (BROKER_FILE, NAMESRV_FILE)
#: The keys that mean something in a file.
TAKEN = {name for file in FILES for name in file.by_name}

#: What stands in a text for what the reader knows.
LEFT_OPEN = re.compile(r"\.\.\.|…")


def typed() -> Iterator[tuple[str, str]]:
    """Page and text of all that is typed, behind prompts and in blocks, with continuations."""
    for path in PAGES:
        text = re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8"))
        shell = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        shell += re.findall(r"code-block:: sh\n\n((?:(?:   .*)?\n)+)", text)
        lines = re.findall(r"^ +(?:[\w-]+)?[$#] (.+)$", text, re.MULTILINE)
        for line in (*lines, *(line for block in shell for line in block.splitlines())):
            yield str(path.relative_to(ROOT)), line


def said() -> Iterator[tuple[str, str]]:
    """Page and text of everything that is set in type in a sentence."""
    for path in PAGES:
        text = " ".join(path.read_text(encoding="utf-8").split())
        for match in re.findall(r"``([^`]+)``|(?<!`)`([^`]+)`(?![`_])", text):
            yield str(path.relative_to(ROOT)), "".join(match)


def words(text: str, program: str) -> Iterator[list[str]]:
    """The arguments of each call of C{program} in a line of shell."""
    text = re.sub(r"\$\([^)]*\)", "it", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # an apostrophe of a sentence
        return
    calls: list[list[str]] = [[]]
    for token in tokens:
        if token.startswith(("|", ";", "&", "<", ">")):
            calls.append([])
        else:
            calls[-1].append(token)
    for call in calls:
        if call[:2] == ["sudo", "-u"]:
            del call[:3]
        if call and call[0].rpartition("/")[2] == program:
            yield call[1:]


def inner(arguments: list[str]) -> Iterator[list[str]]:
    """The calls of C{rmqha} that are an argument: commands for another machine."""
    for argument in arguments:
        if " " in argument:
            yield from words(argument, "rmqha")


def understood(arguments: list[str], whole: bool) -> str:
    """What is wrong with arguments of C{rmqha}, or C{""}: that all needed are there if C{whole},
    but no
    places, values, or what a command takes whose extra is not installed.
    """
    command: click.Command = main
    # As it is run: a command keeps the names of its help from the first context that asks.
    context = click.Context(main, **main.context_settings)
    names = list(arguments)
    while isinstance(command, click.Group) and names and not names[0].startswith("-"):
        try:
            found = command.get_command(context, names[0])
        except ExtraMissing:
            return ""
        if found is None:
            return f"{command.name} has no command {names[0]!r}"
        command, context = found, click.Context(found, parent=context)
        del names[0]
    if not whole:
        options = {
            name
            for option in command.get_params(context)
            if isinstance(option, click.Option)
            for name in (*option.opts, *option.secondary_opts)
        }
        unknown = [
            name for name in names if name.startswith("-") and name.partition("=")[0] not in options
        ]
        return f"{command.name} has no {unknown}" if unknown else ""
    try:
        given, left, _ = command.make_parser(context).parse_args(list(names))
    except click.UsageError as error:
        return error.format_message()
    missing = [
        parameter.name
        for parameter in command.get_params(context)
        if parameter.required and given.get(parameter.name) in (None, ())
    ]
    if isinstance(command, click.Group) and not {"help", "version"} & {*given}:
        return f"{command.name} without a command"
    return f"{command.name}: too much {left}, missing {missing}" if left or missing else ""


class CommandTests(SynchronousTestCase):
    def test_typed(self) -> None:
        """Every call of rmqha behind a prompt names a command, its options, and all it needs."""
        wrong, seen = [], 0
        for page, line in typed():
            for call in words(line, "rmqha"):
                seen += 1
                if fault := understood(call, whole=True):
                    wrong.append(f"{page}: {line}: {fault}")
                for again in inner(call):
                    wrong += [f"{page}: {again}: {f}" for f in [understood(again, True)] if f]
        self.assertEqual([], wrong)
        self.assertGreater(seen, 60)

    def test_said(self) -> None:
        """Every call that a sentence names has its command and its options."""
        wrong, seen = [], 0
        for page, text in said():
            if text.startswith("rmqha ") and not LEFT_OPEN.search(text):
                seen += 1
                if fault := understood(text.replace("|", " ").split()[1:], whole=False):
                    wrong.append(f"{page}: {text}: {fault}")
        self.assertEqual([], wrong)
        self.assertGreater(seen, 100)

    def test_nodes(self) -> None:
        """Every call of twistd gives a node options that it has, and keys that there are."""
        # A node's file is on another machine.
        self.patch(Options, "postOptions", lambda options: None)
        wrong, seen = [], 0
        for page, line in [*typed(), *said()]:
            for call in words(line, "twistd"):
                if "--role" not in call and "--conf" not in call:
                    continue
                seen += 1
                options = Options()
                try:
                    options.parseOptions(call[call.index("rmqha") + 1 :])
                except UsageError as error:
                    wrong.append(f"{page}: {line}: {error}")
                keys = {each.partition("=")[0] for each in options["set"]}
                wrong += [f"{page}: {line}: no key {key}" for key in sorted(keys - TAKEN)]
        self.assertEqual([], wrong)
        self.assertGreater(seen, 12)

    def test_targets(self) -> None:
        """Every target of make that a page names is one."""
        targets = set(
            re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        )
        named = {
            (page, target)
            for page, text in [*typed(), *said()]
            for target in re.findall(r"^make ([a-z][a-z-]+)", text)
        }
        self.assertEqual(set(), {each for each in named if each[1] not in targets})
        self.assertGreater(len(named), 20)


class KeyTests(SynchronousTestCase):
    """What can be written into a configuration is a key."""

    def test_blocks(self) -> None:
        """Every line of a configuration that a page shows is one that a node takes."""
        shown = {
            (path.name, name)
            for path in PAGES
            for block in re.findall(
                r"code-block:: properties\n\n((?:(?:   .*)?\n)+)", path.read_text(encoding="utf-8")
            )
            for name in re.findall(r"^ +([\w.]+)=", block, re.MULTILINE)
        }
        self.assertEqual(set(), {each for each in shown if each[1] not in TAKEN})
        self.assertGreater(len(shown), 50)

    def test_said(self) -> None:
        """Every C{key=value} of a sentence is a key, refused or ignored, or a pipeline's option."""
        known = {
            *TAKEN,
            *(name for file in FILES for name in (*file.harmless, *file.unsupported, *file.dead)),
            *re.findall(
                r"``(\w+)``", (ROOT / "docs/guide/pipeline.rst").read_text(encoding="utf-8")
            ),
            "enableElectUncleanMaster",  # of RocketMQ's controllers
        }
        shown = {
            (page, match[1])
            for page, text in said()
            if (match := re.fullmatch(r"([a-z]+[A-Z]\w*)=\S*", text))
        }
        self.assertEqual(set(), {each for each in shown if each[1] not in known})
        self.assertGreater(len(shown), 60)
