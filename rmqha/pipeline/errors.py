"""Errors of the pipeline's options, jobs and tables."""

from __future__ import annotations

from rmqha.errors import PipelineError


class OptionInvalid(PipelineError):
    """An option's value is not allowed."""

    sentence = "option {option}={value} is not allowed: {allowed}"
    option: str
    value: str
    allowed: str


class OptionUnknown(PipelineError):
    """An option that does not exist.

    @ivar nearest: The nearest known one, or C{""}.
    """

    option: str
    nearest: str = ""

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"unknown option {self.option}{hint}"


class OptionMissing(PipelineError):
    """A required option was not given."""

    sentence = "option {option} is missing: {reason}"
    option: str
    reason: str


class ColumnOfOtherType(PipelineError):
    """A schema asks for a column with another type than it has."""

    sentence = "column {column} has type {type}, the schema asks for {wanted}"
    column: str
    wanted: str
    type: str


class JavaMissing(PipelineError):
    """Spark needs a Java, and none was found."""

    sentence = "Spark needs Java 17 or later, none in {looked}: install rmqha[java]"
    looked: str


class JobFailed(PipelineError):
    """A Spark job failed, in a task or before.

    @ivar reason: What was raised there, in one line.
    """

    sentence = "{reason}"
    reason: str


class NotNext(PipelineError):
    """Rows do not continue what a table holds: some would be lost, or come twice."""

    sentence = (
        "{store}: the table holds bytes {first} to {end} of the log; rows from "
        "byte {start} on would leave a gap or come twice: start at byte {end} "
        "(--resume-from-table with a new checkpoint does), or write to another table"
    )
    store: str
    first: int
    end: int
    start: int


class TableRefused(PipelineError):
    """A table cannot be written to, or cannot be changed as requested."""

    sentence = "cannot use table {table}: {reason}"
    table: str
    reason: str


class DigestsInvalid(PipelineError):
    """A file of digests of a log's chunks cannot be used."""

    sentence = "cannot use the file of digests: {reason}"
    reason: str


class NothingInCommon(PipelineError):
    """Copies that should be compared have no byte in common."""

    sentence = (
        "the copies have no byte in common: one ends at byte {high}, another begins at byte {low}"
    )
    low: int
    high: int


class ColumnNeeded(PipelineError):
    """Rows that should be sent as messages lack a column."""

    column: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"column {self.column} is missing; the columns are {', '.join(self.columns) or 'none'}"
        )


class ColumnNotOfType(PipelineError):
    """A column of rows that should be sent as messages has the wrong type."""

    sentence = "column {column} has type {type}, but must have {wanted}"
    column: str
    wanted: str
    type: str
