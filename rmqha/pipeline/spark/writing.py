"""Rows written by Spark become messages at brokers.

Each is stored at least once: a task, and a batch of a stream, that is done again sends its rows
again, under other keys unless the rows have their own.

Source: docs/guide/replay.rst, Writing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from logging import getLogger

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rmqha.pipeline.errors import OptionInvalid
from rmqha.pipeline.producing.producer import Producer
from rmqha.pipeline.producing.settings import SendOptions
from rmqha.pipeline.spark.batch import settle
from rmqha.pipeline.spark.message_rows import check_columns, messages_of

_log = getLogger(__name__)


class Sent(WriterCommitMessage):
    """What a task has sent.

    @ivar codes: Messages by the codes of the brokers' answers.
    """

    def __init__(self, codes: Counter[int]) -> None:
        self.codes = codes


class _Sending:
    """Sends the rows of tasks."""

    def __init__(self, options: SendOptions, schema: StructType, overwrite: bool) -> None:
        """Refuse what cannot be written.

        @raise OptionInvalid: If messages would have to be taken back.
        @raise PipelineError: If the columns are no messages'.
        """
        if overwrite:
            raise OptionInvalid(
                "mode", "overwrite", "append, because sent messages cannot be removed"
            )
        types = {each.name: each.dataType.simpleString() for each in schema.fields}
        check_columns(types, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        number = 0
        with Producer(self._options) as producer:
            for batch in iterator:
                producer.send(messages_of(batch, self._options.topic, number))
                number += batch.num_rows
        settle()
        return Sent(producer.sent)


def _tell(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    codes: Counter[int] = sum(
        (each.codes for each in messages if isinstance(each, Sent)), Counter()
    )
    _log.info("%s: %d messages, by code %s", what, codes.total(), dict(codes))


class BatchWriter(_Sending, DataSourceArrowWriter):
    """Sends the rows of a DataFrame to brokers."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called by Spark when all tasks have sent their rows."""
        _tell(messages, "sent")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was sent stays where it is."""
        _tell(messages, "failed after some messages were sent")


class StreamWriter(_Sending, DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Called by Spark when all tasks of a batch have sent their rows."""
        _tell(messages, f"batch {batchId} was sent")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was sent of a batch stays where it is."""
        _tell(messages, f"batch {batchId} failed after some of its messages were sent")
