"""Errors of the pipeline's options, jobs and tables."""

from __future__ import annotations

from attrs import frozen

from rmqha.errors import PipelineError


@frozen
class OptionInvalid(PipelineError):
    """An option's value is not allowed.

    @ivar option: The option.
    @ivar value: Its text.
    @ivar allowed: What is allowed, in words.
    """

    option: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"option {self.option}={self.value} is not allowed: {self.allowed}"


@frozen
class OptionUnknown(PipelineError):
    """An option that does not exist.

    @ivar option: The option as written.
    @ivar nearest: The nearest known one, or C{""}.
    """

    option: str
    nearest: str = ""

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"unknown option {self.option}{hint}"


@frozen
class OptionMissing(PipelineError):
    """A required option was not given.

    @ivar option: The option.
    @ivar reason: What needs it.
    """

    option: str
    reason: str

    def __str__(self) -> str:
        return f"option {self.option} is missing: {self.reason}"


@frozen
class ColumnOfOtherType(PipelineError):
    """A schema asks for a column with another type than it has.

    @ivar column: The column.
    @ivar wanted: The type asked for.
    @ivar type: The type it has.
    """

    column: str
    wanted: str
    type: str

    def __str__(self) -> str:
        return f"column {self.column} has type {self.type}, the schema asks for {self.wanted}"


@frozen
class JavaMissing(PipelineError):
    """Spark needs a Java, and none was found.

    @ivar looked: Where it was searched for.
    """

    looked: str

    def __str__(self) -> str:
        return f"Spark needs Java 17 or later, none in {self.looked}: install rmqha[java]"


@frozen
class JobFailed(PipelineError):
    """A Spark job failed, in a task or before.

    @ivar reason: What was raised there, in one line.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason


@frozen
class NotNext(PipelineError):
    """Rows do not continue what a table holds: some would be lost, or come twice.

    @ivar store: The store's name.
    @ivar first: Physical offset where what the table holds begins.
    @ivar end: Physical offset where it ends.
    @ivar start: Physical offset from which on there are rows to add.
    """

    store: str
    first: int
    end: int
    start: int

    def __str__(self) -> str:
        return (
            f"{self.store}: the table holds bytes {self.first} to {self.end} of the log; rows from "
            f"byte {self.start} on would leave a gap or come twice: start at byte {self.end} "
            "(--resume-from-table with a new checkpoint does), or write to another table"
        )


@frozen
class TableRefused(PipelineError):
    """A table cannot be written to, or cannot be changed as requested.

    @ivar table: Where it is.
    @ivar reason: Why not.
    """

    table: str
    reason: str

    def __str__(self) -> str:
        return f"cannot use table {self.table}: {self.reason}"


@frozen
class DigestsInvalid(PipelineError):
    """A file of digests of a log's chunks cannot be used.

    @ivar reason: What is wrong with it.
    """

    reason: str

    def __str__(self) -> str:
        return f"cannot use the file of digests: {self.reason}"


@frozen
class NothingInCommon(PipelineError):
    """Copies that should be compared have no byte in common.

    @ivar low: The highest of their first bytes' physical offsets.
    @ivar high: The lowest of their ends.
    """

    low: int
    high: int

    def __str__(self) -> str:
        return (
            f"the copies have no byte in common: one ends at byte {self.high}, "
            f"another begins at byte {self.low}"
        )


@frozen
class ColumnNeeded(PipelineError):
    """Rows that should be sent as messages lack a column.

    @ivar column: The column.
    @ivar columns: Those there are.
    """

    column: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"column {self.column} is missing; the columns are {', '.join(self.columns) or 'none'}"
        )


@frozen
class ColumnNotOfType(PipelineError):
    """A column of rows that should be sent as messages has the wrong type.

    @ivar column: The column.
    @ivar wanted: The type it must have.
    @ivar type: The type it has.
    """

    column: str
    wanted: str
    type: str

    def __str__(self) -> str:
        return f"column {self.column} has type {self.type}, but must have {self.wanted}"
