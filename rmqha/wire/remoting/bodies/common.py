"""What several bodies are made of."""

from __future__ import annotations

from attrs import evolve, frozen


@frozen
class MessageQueue:
    """A queue of a topic on one broker.  As a key it is written as an object."""

    broker_name: str
    queue_id: int
    topic: str


@frozen(kw_only=True)
class DataVersion:
    """Which state of a table this is; any change makes another.

    @ivar counter: Changes so far.
    @ivar timestamp: When it last changed, in milliseconds since the epoch.
    @ivar state_version: 5.x, 0 elsewhere.
    """

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0

    @property
    def age(self) -> tuple[int, int, int]:
        """What orders the versions of one table.  The counter goes before the time: clocks step
        back.
        """
        return self.state_version, self.counter, self.timestamp

    def changed(self, now: int) -> DataVersion:
        """The version after one more change.

        @param now: In milliseconds since the epoch.
        """
        return evolve(self, counter=self.counter + 1, timestamp=now)
