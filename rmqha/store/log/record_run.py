"""What the log asks of a run of messages that writes its own records."""

from __future__ import annotations

from typing import Protocol


class RecordRun(Protocol):
    """Messages that were read together, and are written in one pass.

    @ivar count: How many; after L{write} those that were written.
    """

    @property
    def count(self) -> int:
        """How many messages it has."""

    def fitting(self, room: int) -> tuple[int, int]:
        """How many messages from the first on fit into so many bytes; of a batch all or none.

        @return: That, and the bytes of their records; of a batch always of all.
        """

    def write(
        self,
        file: memoryview,
        position: int,
        offset: int,
        *,
        count: int,
        stored: int,
        born_host: bytes,
        next_offsets: dict[tuple[str, int], int],
    ) -> int:
        """Write the records of the first messages.

        @param file: A log file, with room for them.
        @param position: Where in it.
        @param offset: The same, in the log.
        @param stored: Milliseconds since 1970.
        @param born_host: IPv4 address and port of who sent them; a batch knows it already.
        @param next_offsets: Of each queue, by topic and number; moved on.
        @return: The offset of the last record.
        """


class RequestRun(RecordRun, Protocol):
    """What came in requests; those that are to be answered are of one code.

    @ivar waits: How many are to be answered.
    @ivar unwaited: How many of each code are not.
    """

    @property
    def code(self) -> int:
        """The code of all its requests that are to be answered."""

    @property
    def waits(self) -> int:
        """How many are to be answered, when what was promised is so."""

    @property
    def unwaited(self) -> tuple[tuple[int, int], ...]:
        """How many of each code are not."""
