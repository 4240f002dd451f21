"""Errors say sentences that their fields complete."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from string import Formatter

from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import BodyInvalid, RmqhaError
from tests.support.imports import ROOT, module_name, modules_in


def errors(root: type[RmqhaError] = RmqhaError) -> Iterator[type[RmqhaError]]:
    """Every error below one."""
    for error in root.__subclasses__():
        yield error
        yield from errors(error)


class SentenceTests(SynchronousTestCase):
    """What is raised can be told: a sentence that cannot be completed would hide the cause."""

    def setUp(self) -> None:
        """Every module with a sentence is known."""
        for path in modules_in(ROOT / "rmqha"):
            if b"\n    sentence" in path.read_bytes():
                import_module(module_name(path))

    def test_fields(self) -> None:
        """A sentence names only what its error has."""
        seen = 0
        for error in errors():
            fields = {each.name for each in getattr(error, "__attrs_attrs__", ())}
            named = {name for _, name, *_ in Formatter().parse(error.sentence) if name}
            self.assertLessEqual(named, fields, error)
            seen += len(named)
        self.assertGreater(seen, 200)

    def test_one_voice(self) -> None:
        """What an error says stands in its sentence or in C{__str__}, never in both."""
        for error in errors():
            if "sentence" in vars(error):
                self.assertIs(error.__str__, RmqhaError.__str__, error)

    def test_texts_stay_whole(self) -> None:
        """Braces in a field are text."""
        self.assertEqual(str(BodyInvalid("{kind}", "{0")), "the body is not a {kind}: {0")
        self.assertEqual(str(RmqhaError("a text of its own")), "a text of its own")
