"""A producer that waits: messages in, and when it returns brokers have stored them.

Messages for one queue go one request after the other, so that they lie there in their order;
requests for different queues are on their way at the same time.  What failed is sent again,
as by stock producers: to another broker or queue if the sender did not say which.  A message
may so be stored twice, with the same C{UNIQ_KEY}, and never not at all.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import count
from zlib import crc32

from attrs import define, evolve, field

from rmqha.errors import RequestRefused, RmqhaError
from rmqha.pipeline.producing.errors import QueueUnknown, SendFailed
from rmqha.pipeline.producing.messages import Outgoing, Parcel, UniqueKeys, parcels
from rmqha.pipeline.producing.routes import Queue, Routes, moved
from rmqha.pipeline.producing.settings import SendOptions
from rmqha.pipeline.remoting.name_servers import NameServerClient
from rmqha.pipeline.remoting.peers import Peers
from rmqha.wire.log.encode import MAX_BATCH
from rmqha.wire.names import UNIQUE_KEY
from rmqha.wire.remoting.codes import ResponseCode as Code
from rmqha.wire.remoting.command import Command

STORED = frozenset(
    {Code.SUCCESS, Code.FLUSH_DISK_TIMEOUT, Code.SLAVE_NOT_AVAILABLE, Code.FLUSH_SLAVE_TIMEOUT}
)
"""Answers that say that a message is stored.  All but the first say too that it is not yet where
it was promised to be."""

AGAIN = frozenset(
    {
        Code.SYSTEM_ERROR,
        Code.SYSTEM_BUSY,
        Code.SERVICE_NOT_AVAILABLE,
        Code.NO_PERMISSION,
        Code.TOPIC_NOT_EXIST,
        Code.NO_BUYER_ID,
        Code.NOT_IN_CURRENT_UNIT,
        Code.FLOW_CONTROL,
        Code.GO_AWAY,
    }
)
"""Answers after which it may go better elsewhere, or later."""

PAUSE = 0.25
"""Seconds before a second try, if it goes to the same broker; twice as much before each other."""

LONGEST_PAUSE = 5.0


IN_FLIGHT = 64
"""Requests on their way at a time."""

GUSTS = 10
"""Requests that a second's messages are sent in, at least, if there is a limit."""


@define(eq=False)
class Pace:
    """Waits so long that neither messages nor bytes go out faster than they may, whatever was
    sent in one piece.

    @ivar rows: Messages a second; 0 is no limit.
    @ivar size: Bytes of bodies a second; 0 is no limit.
    """

    rows: float = 0
    size: float = 0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free: float = field(default=0.0, init=False)

    def wait(self, rows: int, size: int) -> None:
        """Wait until so much may go out.

        @param rows: Messages.
        @param size: Bytes of their bodies.
        """
        takes = max(rows / self.rows if self.rows else 0.0, size / self.size if self.size else 0.0)
        now = self.clock()
        if self._free > now:
            self.sleep(self._free - now)
        self._free = max(self._free, now) + takes


@define(eq=False)
class Producer:
    """Sends messages.

    @ivar fold: Whether a queue id that a topic does not have means another of its queues, always
        the same.
    @ivar sent: How many messages were stored by calls that succeeded, by the code of the
        answer.
    """

    options: SendOptions
    fold: bool = False
    sleep: Callable[[float], None] = time.sleep
    sent: Counter[int] = field(factory=Counter, init=False)
    peers: Peers = field(init=False)
    routes: Routes = field(init=False)
    _pace: Pace = field(init=False)
    _at_once: int = field(init=False)
    _most: tuple[int, int] = field(init=False)
    _keys: UniqueKeys = field(factory=UniqueKeys, init=False)
    _turn: count[int] = field(factory=count, init=False)
    _places: dict[tuple[str, str, int], Queue] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        options = self.options
        self.peers = Peers(options.send_timeout, options.credentials, options.tls)
        self.routes = Routes(NameServerClient(options.name_server, self.peers))
        rows, size = options.max_rows_per_second, options.max_bytes_per_second
        self._pace = Pace(rows or 0, size or 0, sleep=self.sleep)
        # What is to go slowly must not go in gusts.
        self._at_once = 1 if rows or size else IN_FLIGHT
        self._most = (
            min(options.batch_bytes, size // GUSTS if size else options.batch_bytes),
            min(MAX_BATCH, max(1, rows // GUSTS) if rows else MAX_BATCH),
        )

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *error: object) -> None:
        self.peers.close()

    def send(self, messages: Iterable[Outgoing]) -> list[int]:
        """Send messages; those for one queue in their order.

        @return: For each the code of the answer, which is one of L{STORED}.
        @raise MessageNotSendable: If one must not be sent; none is then.
        @raise NoRoute: If no name server knows a topic, and no broker creates it.
        @raise NoWritableQueue: If a topic cannot be written to.
        @raise QueueUnknown: If one is for a queue that its topic does not have.
        @raise SendFailed: If one is stored nowhere after all tries; others may be.
        """
        made = [self._made(message) for message in messages]
        codes: dict[int, int] = {}
        waiting = self._packed(made)
        while waiting:
            now = [queued.popleft() for queued in waiting[: self._at_once]]
            self._send(now, codes)
            waiting = [queued for queued in waiting if queued]
        self.sent.update(codes.values())
        return [codes[id(message)] for message in made]

    def _made(self, message: Outgoing) -> Outgoing:
        """A message with a key of its own; another object for each."""
        key = message.properties.get(UNIQUE_KEY) or self._keys.next()
        made = evolve(message, properties={**message.properties, UNIQUE_KEY: key})
        made.check()
        return made

    # --- where to -----------------------------------------------------------

    def _packed(self, messages: list[Outgoing]) -> list[deque[Parcel]]:
        """The requests for each queue, in order."""
        by_place: dict[tuple[str, Queue, bool], list[Outgoing]] = {}
        for message in messages:
            place = (message.topic, self._place(message), message.queue_id is not None)
            by_place.setdefault(place, []).append(message)
        return [
            deque(parcels(queue, found, fixed, *self._most))
            for (_, queue, fixed), found in by_place.items()
        ]

    def _place(self, message: Outgoing) -> Queue:
        topic, queue_id = message.topic, message.queue_id
        if queue_id is None:
            queues = self.routes.queues(topic)
            return queues[next(self._turn) % len(queues)]
        key = (topic, message.source, queue_id)
        if key not in self._places:
            self._places[key] = self._chosen(topic, queue_id, message.source)
        return self._places[key]

    def _chosen(self, topic: str, queue_id: int, source: str) -> Queue:
        """The queue that all messages of a source's queue go to: that of the same number, at the
        broker of the same name if there is one.
        """
        queues = self.routes.queues(topic)
        same = [queue for queue in queues if queue.queue_id == queue_id]
        if not same:
            if not self.fold:
                raise QueueUnknown(topic, queue_id, len(queues))
            ids = sorted({queue.queue_id for queue in queues})
            same = [queue for queue in queues if queue.queue_id == ids[queue_id % len(ids)]]
        named = [queue for queue in same if queue.broker == source]
        return named[0] if named else same[crc32(source.encode()) % len(same)]

    # --- sending ------------------------------------------------------------

    def _send(self, now: list[Parcel], codes: dict[int, int]) -> None:
        """Send one request to each of some queues; when one fails for good, the others are
        brought to their ends first.

        @param codes: Is told the answers' codes, by the messages' identities.
        """
        for parcel in now:
            self._pace.wait(len(parcel.messages), parcel.body_size)
        group = self.options.producer_group
        asked = [(parcel.queue.address, parcel.request(group)) for parcel in now]
        failed: Exception | None = None
        for parcel, answer in zip(now, self.peers.ask_all(asked), strict=True):
            try:
                self._finish(parcel, answer, codes)
            except RmqhaError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _finish(self, parcel: Parcel, answer: Command | RmqhaError, codes: dict[int, int]) -> None:
        """Take an answer, and try again as often as that is allowed."""
        tries = 1
        while True:
            error = _error(answer)
            if error is None:
                assert isinstance(answer, Command), "what is no error is an answer"
                codes.update((id(message), answer.code) for message in parcel.messages)
                return
            if isinstance(error, RequestRefused) and error.code not in AGAIN:
                self._refused(parcel, error, tries, codes)
                return
            if tries > self.options.retries:
                raise _failed(parcel, error, tries)
            before = parcel.queue.address
            parcel = self._elsewhere(parcel)
            if parcel.queue.address == before:
                self.sleep(min(PAUSE * 2 ** (tries - 1), LONGEST_PAUSE))
            tries += 1
            (answer,) = self.peers.ask_all(
                [(parcel.queue.address, parcel.request(self.options.producer_group))]
            )

    def _elsewhere(self, parcel: Parcel) -> Parcel:
        """Where to try next: if the sender did not say, at another broker, or else in another
        queue.
        """
        self.routes.forget(parcel.topic)
        try:
            queues = self.routes.queues(parcel.topic)
        except RmqhaError:
            return parcel  # the old place is the only one there is
        if parcel.fixed:
            found = moved(parcel.queue, queues)
            return parcel if found is None else evolve(parcel, queue=found)
        others = [queue for queue in queues if queue.broker != parcel.queue.broker]
        choice = others or [queue for queue in queues if queue != parcel.queue] or list(queues)
        return evolve(parcel, queue=choice[next(self._turn) % len(choice)])

    def _refused(
        self, parcel: Parcel, error: RequestRefused, tries: int, codes: dict[int, int]
    ) -> None:
        """Find the message of a batch that a broker does not take; the others are stored."""
        if len(parcel.messages) == 1:
            raise _failed(parcel, error, tries)
        for message in parcel.messages:
            self._send([evolve(parcel, messages=[message])], codes)


def _error(answer: Command | RmqhaError) -> RmqhaError | None:
    if isinstance(answer, RmqhaError):
        return answer
    return None if answer.code in STORED else RequestRefused(answer.code, answer.remark)


def _failed(parcel: Parcel, error: RmqhaError, tries: int) -> SendFailed:
    first, queue = parcel.messages[0], parcel.queue
    code = error.code if isinstance(error, RequestRefused) else None
    remark = error.remark if isinstance(error, RequestRefused) else str(error)
    return SendFailed(
        topic=parcel.topic,
        queue=f"{queue.broker}:{queue.queue_id}",
        key=first.properties.get(UNIQUE_KEY, ""),
        messages=len(parcel.messages),
        tries=tries,
        code=code,
        remark=remark,
    )
