"""The short way of a pull for which there are messages: from the socket's bytes to the log's views,
without a command or a header made of either.

It serves pulls that are like one which came in the usual way before
(L{AlikePulls<rmqha.wire.remoting.frame.AlikePulls>}), one at a time.  One that is held,
waits for the disk or is told to go elsewhere is left to L{Pulls}.  Both ways give the same answers.

Source: docs/architecture.rst, The write lane; docs/protocol/remoting.md, Pulling.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from attrs import define
from twisted.python.failure import Failure

from rmqha.broker.consuming.cold_reads import NotInMemory
from rmqha.broker.consuming.pull import Pulls
from rmqha.broker.consuming.queue_reader import ReadStatus
from rmqha.net.remoting.calls import Calls
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting import frame
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import RESPONSE, Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.pull import PullMessageAnswer, PullMessageRequest

_LENGTHS = Struct(">iI")

_NUMBERS = (1111111111, 2222222222222222222, 3333333333333333333, 4444444444444444444, 5555)


def _form() -> bytes:
    """The header of an answer, with a place for each number: the request's own, whom to ask next
    time, where to go on, and the queue's bounds.
    """
    opaque, *numbers = _NUMBERS
    names = ("suggest_which_broker_id", "next_begin_offset", "min_offset", "max_offset")
    header = PullMessageAnswer(**dict(zip(names, numbers, strict=True)))
    form = frame.encode_json(
        Command(
            code=ResponseCode.SUCCESS,
            opaque=opaque,
            flag=RESPONSE,
            remark=ReadStatus.FOUND,
            ext=to_ext(header),
        )
    )
    for number in _NUMBERS:
        form = form.replace(b"%d" % number, b"%d")
    return form


_FORM = _form()


@define(eq=False)
class PullLane:
    """Serves pulls.

    @ivar codes: What it serves, each time one.
    """

    pulls: Pulls
    calls: Calls
    codes: ClassVar = ((int(RequestCode.PULL_MESSAGE), 1),)
    serves: ClassVar = frozenset({int(RequestCode.PULL_MESSAGE)})

    def serve_run(
        self, connection: RemotingProtocol, data: bytes, at: int, stop: int
    ) -> tuple[int, int]:
        """Answer the pull that a frame is, if that is one.

        @return: How many, and where the first frame begins that was left.
        """
        body = at + _LENGTHS.size
        if len(data) < body:
            return 0, at
        total, size = _LENGTHS.unpack_from(data, at)
        end = body + size
        # A header in JSON has a 0 above its size.
        if total != size + 4 or size > frame.LONGEST or len(data) < end:
            return 0, at
        header = data[body:end]
        found = frame.pulls.find(header) if frame.MARK in header else None
        if found is None:
            return 0, at
        known, opaque, offset, commit = found
        request = known.header.first
        plain = type(request) is PullMessageRequest and not known.command.flag
        if not plain or not connection.takes(1):
            return 0, at
        begun = self.calls.seconds()
        try:
            told = self.pulls.at_once(connection, request, offset, commit)
        except NotInMemory:
            return 0, at
        except Exception as error:
            self.calls.failed(RequestCode.PULL_MESSAGE, begun, error)
            connection.finish(Failure(), frame.decode_json(header))
            return 1, end
        if told is None:
            return 0, at
        broker, reading = told
        bounds = reading.next_offset, reading.min_offset, reading.max_offset
        header = _FORM % (opaque, broker, *bounds)
        size, whole = len(header), sum(map(len, reading.body))
        if size + whole + 8 > frame.FRAME_LIMIT:
            return 0, at
        connection.send_parts((_LENGTHS.pack(size + whole + 4, size) + header, *reading.body))
        self.calls.add(RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS, begun)
        return 1, end
