"""
What can be wrong with options, extras, jobs and tables of the pipeline.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.errors import PipelineError


@frozen
class OptionInvalid(PipelineError):
    """
    An option's value is not allowed.

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
    """
    An option nobody knows.

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
    """
    An option that is needed was not given.

    @ivar option: The option.
    @ivar reason: What needs it.
    """

    option: str
    reason: str

    def __str__(self) -> str:
        return f"option {self.option} is missing: {self.reason}"


@frozen
class ColumnOfOtherType(PipelineError):
    """
    A schema gives a column another type than it has.

    @ivar column: The column.
    @ivar wanted: The type asked for.
    @ivar type: The type it has.
    """

    column: str
    wanted: str
    type: str

    def __str__(self) -> str:
        return f"column {self.column} is {self.type}, the schema asks for {self.wanted}"


@frozen
class JavaMissing(PipelineError):
    """
    Spark needs a Java, and none was found.

    @ivar looked: Where was looked.
    """

    looked: str

    def __str__(self) -> str:
        return f"Spark needs Java 17 or later; looked at {self.looked}: install rmqha[java]"


@frozen
class JobFailed(PipelineError):
    """
    A job of Spark's failed, in a task or before.

    @ivar reason: What was raised there, in one line.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason


@frozen
class NotNext(PipelineError):
    """
    Rows do not continue what a table holds: some would be lost, or come twice.

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
            f"{self.store}: the table holds bytes [{self.first}, {self.end}) of the log, rows "
            f"from byte {self.start} on do not continue it: begin at {self.end}, as "
            "--resume-from-table with a new checkpoint does, or take another table"
        )


@frozen
class TableRefused(PipelineError):
    """
    A table cannot be written to, or cannot be changed as is asked.

    @ivar table: Where it is.
    @ivar reason: Why not.
    """

    table: str
    reason: str

    def __str__(self) -> str:
        return f"table {self.table}: {self.reason}"


@frozen
class DigestsInvalid(PipelineError):
    """
    A file of digests of a log's chunks cannot be used.

    @ivar reason: What is wrong with it.
    """

    reason: str

    def __str__(self) -> str:
        return f"the digests cannot be used: {self.reason}"


@frozen
class NothingInCommon(PipelineError):
    """
    Copies that are to be compared have no byte that all of them should have.

    @ivar low: The highest of their first bytes' physical offsets.
    @ivar high: The lowest of their ends.
    """

    low: int
    high: int

    def __str__(self) -> str:
        return f"nothing to compare: one copy ends at byte {self.high}, one begins at {self.low}"


@frozen
class ColumnNeeded(PipelineError):
    """
    Rows that are to be messages lack a column.

    @ivar column: The column.
    @ivar columns: Those there are.
    """

    column: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"column {self.column} is missing; there are {', '.join(self.columns) or 'none'}"


@frozen
class ColumnNotOfType(PipelineError):
    """
    A column of rows that are to be messages has another type than it must have.

    @ivar column: The column.
    @ivar wanted: The type it must have.
    @ivar type: The type it has.
    """

    column: str
    wanted: str
    type: str

    def __str__(self) -> str:
        return f"column {self.column} is {self.type}, it must be {self.wanted}"
