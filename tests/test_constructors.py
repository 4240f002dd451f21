"""How the package's classes are made: by name, where there is much to give."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from twisted.trial.unittest import SynchronousTestCase

from tests.support.imports import ROOT, module_name, modules_in, parsed

MOST_POSITIONAL = 5
"""Parameters of a constructor that a reader can tell apart by their order."""

#: Classes with more, and why they are made by position all the same.
BY_POSITION = {
    "rmqha.wire.log.record.DispatchFields": "one for each record that is dispatched",
    "rmqha.wire.log.encode.RecordForm": "one for each record that is written",
    "rmqha.wire.log.published.Span": "unpacked from bytes, thousands at a time",
    "rmqha.broker.consuming.queue_reader.ReadResult": "one for each pull",
    "rmqha.broker.consuming.long_polling._Hold": "one for each pull that waits",
    "rmqha.pipeline.producing.messages.Outgoing": "one for each row that is sent",
    "rmqha.pipeline.producing.errors.SendFailed": "errors are unpickled by position",
}


def decorator_of(node: ast.ClassDef) -> ast.expr | None:
    """What makes a class one of attrs."""
    for each in node.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        if isinstance(called, ast.Name) and called.id in ("define", "frozen"):
            return each
    return None


def is_error(node: ast.ClassDef) -> bool:
    """Whether a class says a sentence: below C{RmqhaError} that makes a constructor too."""
    return bool(node.bases) and any(
        ast.unparse(each).startswith(("sentence = ", "def __str__")) for each in node.body
    )


def says(call: ast.AST | None, name: str, value: bool) -> bool:
    """Whether a call, or a class, has a keyword with this value."""
    return isinstance(call, ast.Call | ast.ClassDef) and any(
        each.arg == name and isinstance(each.value, ast.Constant) and each.value.value is value
        for each in call.keywords
    )


def positional(node: ast.ClassDef) -> int:
    """How many parameters a class's constructor takes by position; of its own, not its bases'."""
    made = decorator_of(node)
    inits = [
        each.args
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    ]
    if made is None and (inits or not is_error(node)):
        return sum(len(each.posonlyargs) + len(each.args) - 1 for each in inits)
    if says(made or node, "kw_only", True):
        return 0
    return sum(
        isinstance(each, ast.AnnAssign)
        and "ClassVar" not in ast.unparse(each.annotation)
        and not says(each.value, "init", False)
        and not says(each.value, "kw_only", True)
        for each in node.body
    )


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """All classes of the package, by their dotted names."""
    for path in modules_in(ROOT / "rmqha"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                yield f"{module_name(path)}.{node.name}", node


class ConstructorTests(SynchronousTestCase):
    """Two callables that change places are no error for mypy."""

    def test_many_parameters_have_names(self) -> None:
        """A constructor of more than five parameters takes them by name, or says why not."""
        many = {name for name, node in classes() if positional(node) > MOST_POSITIONAL}
        self.assertEqual(set(), many - set(BY_POSITION), "kw_only=True")
        self.assertEqual(set(), set(BY_POSITION) - many, "no exception any more")
