"""Small JSON files below a store's root, as the objects they speak of.

An attrs class says what its file holds: each field is a key, there is no other, and each value
is of the type that the field is annotated with.  C{"6"}, C{True} and C{6.0} are no C{int}, and a
default is for whoever makes an object, never for what a file does not say.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from attrs import fields, has

from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table

Natural = Annotated[int, range(1 << 63)]
"""An offset, a length, an epoch, an id or a time: what a signed C{long} holds from 0 on."""

Long = Annotated[int, range(-(1 << 63), 1 << 63)]
"""Whatever a signed C{long} holds."""

Port = Annotated[int, range(1 << 16)]
"""A port; 0 where there is none."""

Rows = list[dict]  # type: ignore[type-arg]
"""Tables in a row, whatever they hold."""

T = TypeVar("T")


def read(path: Path, kind: type[T], what: str, **unsaid: Any) -> T | None:
    """Read a file or its previous generation, as L{json_table.read} does.

    @param kind: An attrs class.
    @param what: What the file is, for the error: C{"it is no switchover's"}.
    @param unsaid: What keys mean that releases before did not write.
    @return: C{None} if there is none.
    @raise FileUnreadable: If the system does not let it be read.
    @raise TableUnreadable: If it makes no sense, with the key and the value that do not.
    """
    table = json_table.read(path)
    if table is None:
        return None
    try:
        value: T = structured({**unsaid, **table}, kind)
    except ValueError as error:
        raise TableUnreadable(str(path), f"{what}: {error}") from None
    return value


def value_of(table: Any, place: str, kind: Any) -> Any:
    """One value of a table in which others may be, or be missing.

    @param place: The keys that lead to it, with dots between them.
    @raise ValueError: If there is none, or it is none of the type.
    """
    where = "it"
    for key in place.split("."):
        if key not in _of(dict, table, where):
            raise ValueError(f"{where} has no {key}")
        table, where = table[key], key if where == "it" else f"{where}.{key}"
    return structured(table, kind, where)


def require_version(table: Any, version: int) -> None:
    """@raise ValueError: If a table is of another version, or of none."""
    if value_of(table, "version", int) != version:
        raise ValueError(f"version {table['version']}, expected {version}")


def structured(value: Any, kind: Any, where: str = "it") -> Any:
    """A value as one of a type: of an attrs class, C{None}, C{bool}, C{int}, C{str}, an
    C{IntEnum}, a number of a C{range}, or tuples, lists, sets, mappings and unions of these.

    @param where: The keys that lead to it.
    @raise ValueError: If it is none.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if has(kind):
        return _record(value, kind, where)
    if origin in (Union, UnionType):
        choices = [each for each in inner if each is not NoneType]
        if value is None and len(choices) < len(inner):
            return None
        return structured(value, choices[0], where)
    if origin is Annotated:
        if type(value) is not int or value not in inner[1]:
            raise ValueError(f"{where} is {value!r}, not a number up to {inner[1].stop - 1}")
        return value
    if origin is dict:
        found = dict[Any, Any]()
        for key, item in _of(dict, value, where).items():
            name = structured(key, inner[0], f"a key of {where}")
            found[name] = structured(item, inner[1], f"{where}.{key}")
        return found
    if origin is tuple and inner[-1] is not Ellipsis:
        row = _of(list, value, where)
        if len(row) != len(inner):
            raise ValueError(f"{where} has {len(row)} items, not {len(inner)}")
        return tuple(structured(row[n], each, f"{where}.{n}") for n, each in enumerate(inner))
    if origin in (list, tuple, frozenset):
        make: Callable[[Any], Any] = origin
        items = enumerate(_of(list, value, where))
        return make(structured(item, inner[0], f"{where}.{n}") for n, item in items)
    if issubclass(kind, IntEnum):
        if type(value) is not int or value not in list(kind):
            raise ValueError(f"{where} is {value!r}, not one of {', '.join(map(str, list(kind)))}")
        return kind(value)
    return _of(kind, value, where)


def _of(kind: type[T], value: Any, where: str) -> T:
    if type(value) is not kind:
        raise ValueError(f"{where} is {value!r}, not {kind.__name__}")
    return value


def _record(value: Any, kind: Any, where: str) -> Any:
    table = _of(dict, value, where)
    hints = _hints(kind)
    known = {each.alias: each for each in fields(kind) if each.init}
    strange = sorted(str(name) for name in table if name not in known)
    if strange:
        raise ValueError(f"{where} has {', '.join(strange)}, which is unknown")
    missing = [name for name in known if name not in table]
    if missing:
        raise ValueError(f"{where} has no {', '.join(missing)}")
    lead = "" if where == "it" else f"{where}."
    found = {
        name: structured(item, hints[known[name].name], f"{lead}{name}")
        for name, item in table.items()
    }
    return kind(**found)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
