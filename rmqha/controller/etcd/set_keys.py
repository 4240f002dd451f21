"""The keys of one set in etcd, as values.

Below C{PREFIX/CLUSTER/SET/}:

  - C{ids/N}: which store has id N, how often that was registered, and where.
  - C{live/N}: the same for as long as the lease of a member lives, and its vote.
  - C{set}: master, epochs and SyncStateSet: one key, so one comparison decides all.
  - C{history}: the last elections, each written together with C{set}.
  - C{paused}: since when, and by whom; while it is there no member is elected by itself.

Source: docs/protocol/etcd.rst.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

from attrs import asdict, evolve, field, frozen

from rmqha.controller.coordinator import ElectedMember, SetState
from rmqha.controller.etcd.client import Answer, decoded

ELECTION = ("at", "from", "to", "masterEpoch", "setEpoch", "why")
"""What is remembered of one: when, as text; the ids of the masters before, 0 if there was none, and
after it; the epochs that began; and why there was one, in words.
"""

Election = dict[str, int | str]
"""One, by these."""


@frozen(kw_only=True)
class IdEntry:
    """C{ids/N}.

    @ivar token: Of the store that has the id.
    @ivar run: How often it was registered: a copy of its disk, and an older one, know less.
    @ivar address: C{host:port} of its client port.
    @ivar left: Why it let its last lease go; empty if it has not.
    @ivar removed: When it was taken out of the set for good; empty while it is a member.  Its id is
        never given again.
    @ivar revision: That of the key.
    """

    token: str
    run: int = 0
    address: str = ""
    left: str = ""
    removed: str = ""
    revision: int = field(default=0, eq=False)

    def render(self) -> str:
        """The key's value."""
        return json.dumps(asdict(self, filter=lambda one, _: one.name != "revision"))


@frozen(kw_only=True)
class Vote:
    """What a member has, in an election.

    @ivar after: The master epoch that is over.
    @ivar label: The newest label of its log.
    @ivar end: Where its log ends.
    @ivar priority: C{brokerElectionPriority}.
    """

    after: int
    label: int
    end: int
    priority: int

    def weight(self, member: int) -> tuple[int, int, int, int]:
        """The larger one is to lead."""
        return self.label, self.end, -self.priority, -member


@frozen(kw_only=True)
class Living:
    """C{live/N}.

    @ivar lease: The key goes with it.
    @ivar vote: The last one; C{None} before the first.
    """

    token: str
    address: str
    vote: Vote | None = None
    lease: str = ""

    def render(self) -> str:
        """The key's value."""
        return json.dumps(asdict(self, filter=lambda one, _: one.name != "lease"))

    @classmethod
    def parse(cls, value: Mapping[str, Any], lease: str) -> Self:
        """@raise TypeError: If it is none."""
        vote = value.get("vote")
        return cls(
            token=str(value["token"]),
            address=str(value["address"]),
            vote=None if vote is None else Vote(**vote),
            lease=lease,
        )


@frozen(kw_only=True)
class Decided:
    """C{set}.

    @ivar master: Its id; 0 before the first election.
    """

    master: int = 0
    epoch: int = 0
    in_sync: frozenset[int] = frozenset()
    set_epoch: int = 0

    def render(self) -> str:
        """The key's value."""
        return json.dumps(
            {
                "master": self.master,
                "masterEpoch": self.epoch,
                "inSync": sorted(self.in_sync),
                "setEpoch": self.set_epoch,
            }
        )

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """@raise ValueError: If it is none."""
        return cls(
            master=int(value["master"]),
            epoch=int(value["masterEpoch"]),
            in_sync=frozenset(map(int, value["inSync"])),
            set_epoch=int(value["setEpoch"]),
        )

    def elected(self, member: int) -> Self:
        """The same with another master, who is alone in sync at first."""
        return evolve(
            self,
            master=member,
            epoch=self.epoch + 1,
            in_sync=frozenset({member}),
            set_epoch=self.set_epoch + 1,
        )


@frozen(kw_only=True)
class Paused:
    """C{paused}.

    @ivar since: By the clock of who made it.
    @ivar by: Who that was.
    """

    since: str
    by: str

    def __str__(self) -> str:
        return f"since {self.since} by {self.by}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Whatever it is, the set is paused."""
        try:
            value = json.loads(text)
            return cls(since=str(value["since"]), by=str(value["by"]))
        except (KeyError, TypeError, ValueError):
            return cls(since="a moment that is not known", by=f"who wrote {text[:64]!r}")


@frozen(kw_only=True)
class SetView:
    """A set at one revision.

    @ivar at: etcd's revision.
    @ivar revision: That of the last change of C{set}; 0 before the first.
    @ivar ids: Also of members that were removed.
    @ivar history: As it is written.
    @ivar paused: C{None} if it is not.
    """

    at: int
    revision: int
    decided: Decided
    ids: Mapping[int, IdEntry]
    living: Mapping[int, Living]
    history: str
    paused: Paused | None

    @classmethod
    def parse(cls, answer: Answer, prefix: str) -> Self:
        """What a range has.

        @raise KeyError: Or C{TypeError}, C{ValueError} or C{AttributeError}: if it cannot be read.
        """
        decided, revision, history = Decided(), 0, ""
        paused: Paused | None = None
        ids: dict[int, IdEntry] = {}
        living: dict[int, Living] = {}
        for found in answer.get("kvs", ()):
            name = decoded(found["key"]).removeprefix(prefix)
            folder, _, number = name.rpartition("/")
            if name == "set":
                decided = Decided.parse(json.loads(decoded(found.get("value"))))
                revision = int(found["mod_revision"])
            elif folder == "ids":
                value = json.loads(decoded(found.get("value")))
                ids[int(number)] = IdEntry(**value, revision=int(found["mod_revision"]))
            elif folder == "live":
                value = json.loads(decoded(found.get("value")))
                living[int(number)] = Living.parse(value, str(found.get("lease", "")))
            elif name == "history":
                history = decoded(found.get("value"))
            elif name == "paused":
                paused = Paused.parse(decoded(found.get("value")))
        return cls(
            at=int(answer["header"]["revision"]),
            revision=revision,
            decided=decided,
            ids=ids,
            living=living,
            history=history,
            paused=paused,
        )

    @property
    def members(self) -> dict[int, IdEntry]:
        """Those that were not removed, by id."""
        return {number: each for number, each in sorted(self.ids.items()) if not each.removed}

    def elections(self) -> list[Election]:
        """Those that are remembered, oldest first.

        @raise ValueError: If they cannot be read.
        """
        try:
            found = json.loads(self.history or "[]")
            return [{name: each[name] for name in ELECTION} for each in found]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{error!r}") from None

    @property
    def state(self) -> SetState:
        """What is decided, as members know it."""
        decided = self.decided
        lives = self.living.get(decided.master)
        return SetState(
            master=None if lives is None else ElectedMember(decided.master, lives.address),
            master_epoch=decided.epoch,
            in_sync=decided.in_sync,
            set_epoch=decided.set_epoch,
        )

    def candidates(self) -> dict[int, Living]:
        """Who lives and may be elected: before the first election, all that vote."""
        first = self.decided.epoch == 0
        return {
            number: living
            for number, living in self.living.items()
            if number in self.decided.in_sync or (first and living.vote is not None)
        }
