"""How a key of the file is declared: as one field of a settings class.

The field says all there is to say of the key: its name in the file, what may stand
there, what its absence means, and, in the docstring below it, what it does.  What reads
files, the checks and the guide take it from there (L{rmqha.config.vocabulary},
L{rmqha.config.reference}).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any

from attrs import AttrsInstance, Factory, evolve, field, fields, frozen

from rmqha.config.values import Kind

_KEY = "key"
"""Where a field's metadata has its L{Key}."""

Lookup = Callable[[str], Any]
"""The value of another key, by that key's name."""


class Origin(StrEnum):
    """Who a key comes from."""

    RMQ49 = "4.9"
    RMQ53 = "5.3"
    OURS = "rmqha"


@frozen
class Derived:
    """What an absent key means when other keys, or the host, decide that.

    @ivar words: For the guide, in epytext.
    @ivar rule: Makes the value of those of other keys, none of which is itself derived
        and declared later.
    """

    words: str
    rule: Callable[[Lookup], Any]


@frozen(kw_only=True)
class Key:
    """One key of the file.

    @ivar name: As it is written.
    @ivar kind: What its text may be.
    @ivar default: The text that stands for an absent key that is not derived.
    @ivar derived: What an absent key means otherwise.
    @ivar origin: Who it comes from.
    @ivar aliases: Other names it goes by, in other versions of RocketMQ.
    @ivar section: The attribute of L{Settings <rmqha.config.settings.Settings>}.
    @ivar field: The attribute inside the section.
    """

    name: str
    kind: Kind
    default: str | None
    derived: Derived | None
    origin: Origin
    aliases: tuple[str, ...]
    section: str = ""
    field: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The name and all aliases."""
        return (self.name, *self.aliases)

    def absent(self, of: Lookup) -> Any:
        """The value that the key's absence means.

        @param of: Tells the values of other keys.
        """
        if self.derived is not None:
            return self.derived.rule(of)
        assert self.default is not None
        return self.kind.parse(self.default)

    def value_in(self, settings: object) -> Any:
        """The key's value in L{Settings <rmqha.config.settings.Settings>}."""
        return getattr(getattr(settings, self.section), self.field)


def key(
    name: str,
    kind: Kind,
    default: str | None = None,
    *,
    derived: Derived | None = None,
    origin: Origin = Origin.RMQ49,
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare a key as the field of a settings class.

    @param name: As it is written in the file.
    @param default: The text that stands for an absent key.  With C{derived} it counts only
        in settings that code makes, where there is no file and are no other sections.
    @param derived: What an absent key means in a file, if that depends on anything.  Without
        C{default} the keys it depends on are of the same class.
    """
    declared = Key(
        name=name, kind=kind, default=default, derived=derived, origin=origin, aliases=aliases
    )
    if default is not None:
        # A default may name the user's home, so it is read when it is wanted.
        made = Factory(partial(kind.parse, default))
    else:
        made = Factory(lambda self: declared.absent(partial(_own_value, self)), takes_self=True)
    return field(default=made, metadata={_KEY: declared})


own_key = partial(key, origin=Origin.OURS)
"""The same for a key that RocketMQ does not have."""

later_key = partial(key, origin=Origin.RMQ53)
"""The same for one that RocketMQ 4.9 does not have."""


def _own_value(settings: AttrsInstance, name: str) -> Any:
    own = {found.name: found.field for found in keys_of("", type(settings))}
    return getattr(settings, own[name])


def keys_of(section: str, declared: type[AttrsInstance]) -> tuple[Key, ...]:
    """The keys that a settings class declares, in order.

    @param section: Which attribute of all settings the class is for.
    """
    return tuple(
        evolve(found.metadata[_KEY], section=section, field=found.name)
        for found in fields(declared)
    )
