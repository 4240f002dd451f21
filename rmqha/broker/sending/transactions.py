"""Transactions: messages that consumers see only when their producer commits them.

Such a message is stored as a half one (L{rmqha.broker.messages}).  Its producer ends it
with request 37; if it does not, it is asked (request 39) until it does or was asked too often.
Unlike in RocketMQ a question that nobody is there to hear is none.

Source: docs/protocol/remoting.md, Transactions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rmqha.broker.access.needs import CHANGES, Stated, Wanted, of, sent
from rmqha.broker.clients.registry import Member
from rmqha.broker.sending.half_messages import HalfMessages
from rmqha.broker.state import BrokerState
from rmqha.durations import Durations
from rmqha.errors import MessageIllegal, NotWritable, RecordCorrupt, RequestRefused, StoreError
from rmqha.ha.master.put_service import PutResult
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.periodic import NodePart, Periodic
from rmqha.store.derived.outcomes import QUEUE
from rmqha.store.store import STEP
from rmqha.wire.log import properties
from rmqha.wire.log.encode import encode, place
from rmqha.wire.log.layout import MAX_RECORD_OVERHEAD
from rmqha.wire.log.record import Fault, Message, Record
from rmqha.wire.log.sys_flag import COMMIT, TRANSACTION
from rmqha.wire.names import (
    CHECK_IMMUNITY,
    CHECK_TIMES,
    DELAY,
    HALF_DONE_TOPIC,
    HALF_GIVEN_UP_TOPIC,
    HALF_TOPIC,
    PRODUCER_GROUP,
    REAL_QUEUE,
    REAL_TOPIC,
    UNIQUE_KEY,
)
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.clients import (
    CheckTransactionRequest,
    EndTransactionRequest,
    ResumeCheckRequest,
)

COMMITTED, ROLLED_BACK, UNKNOWN = 8, 12, 0
"""What a producer says of its transaction."""

A_TURN = 64
"""Half messages looked at in one reactor turn."""


@define(eq=False)
class Transactions(NodePart):
    """Ends half messages, and asks producers about those that stay open.

    @ivar may_see: Whether a client's account permits something of a topic.
    @ivar asked: How often each open one was asked about since the start, by its offset.
    @ivar ended: How many were committed or rolled back, by that word and the topic.
    @ivar finished: How long they took from their birth until they were committed, by topic.
    """

    state: BrokerState
    halves: HalfMessages
    may_see: Callable[[Member, Wanted], bool]
    asked: dict[int, int] = field(factory=dict, init=False)
    ended: Counter[tuple[int, str]] = field(factory=Counter, init=False)
    finished: dict[str, Durations] = field(factory=dict, init=False)
    _checking: Periodic = field(init=False)
    _stopped: bool = field(default=False, init=False)
    # When those that seem to come from the future were first looked at, by the monotonic clock.
    _seen: dict[int, float] = field(factory=dict, init=False)
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._quiet = RateLimitedLog(self._log, self.state.clock)
        self._checking = Periodic("checking transactions", self.state.clock, self.check, vital=True)
        if self.state.writer is not None:
            self.halves.begin()

    def handlers(self) -> Mapping[RequestCode, Stated]:
        need = of("PUB: topic of the half message", self._wanted)
        return {
            RequestCode.END_TRANSACTION: (need, self.end),
            RequestCode.RESUME_CHECK_HALF_MESSAGE: (CHANGES, self.resume),
        }

    def start(self) -> None:
        """Start the checks of open half messages, at the interval that is configured now."""
        self._begin()
        self.state.current.changed.append(self._retime)

    def stop(self) -> Deferred[None]:
        """Stop the checks.

        @return: Fires when nothing is under way.
        """
        self._stopped = True
        return self._checking.stop()

    def _begin(self) -> None:
        self._checking.start(self.state.current.settings.transactions.check_interval)

    def _retime(self) -> None:
        if self._checking.running:
            self._begin()

    # --- the producer's word ----------------------------------------------------------

    def end(self, connection: RemotingProtocol, command: Command) -> Answer:
        """37: make a half message a whole one, or nothing.

        Said twice is said once: a second commit stores no second message.
        """
        header = from_ext(EndTransactionRequest, command.ext)
        if self.state.writer is None:
            raise RequestRefused(
                ResponseCode.SLAVE_NOT_AVAILABLE, "a slave cannot end a transaction"
            )
        word = header.commit_or_rollback
        if word == UNKNOWN:
            return None
        if word not in (COMMITTED, ROLLED_BACK):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"commitOrRollback is {word}, known are {COMMITTED}, {ROLLED_BACK} and {UNKNOWN}",
            )
        half = self._half(header)
        if half is None:
            raise _wrong("Find prepared transaction message failed")
        if half.properties.get(PRODUCER_GROUP) != header.producer_group:
            raise _wrong("The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise _wrong("The transaction state table offset wrong")
        if self.halves.is_open(half.queue_offset):
            outlived = self._outlived(half)
            try:
                if word == COMMITTED and not outlived:
                    self._put(self._whole(half))
                self._settle(half)
                self._note(
                    ROLLED_BACK if outlived else word, _destination(half)[0], half.born_timestamp
                )
            except NotWritable as error:
                raise RequestRefused(
                    ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."
                ) from error
            except MessageIllegal as error:
                raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
            if word == COMMITTED and outlived:
                raise RequestRefused(
                    ResponseCode.TOPIC_NOT_EXIST,
                    f"topic {_destination(half)[0]} was deleted after the half message was sent:"
                    " it is rolled back",
                )
        return None

    def _outlived(self, half: Record) -> bool:
        """Whether there is nothing any more that a half message could become part of."""
        return self.state.store.queues.outlived(_destination(half)[0], half.offset)

    def _half(self, header: EndTransactionRequest) -> Record | None:
        """The half message that a producer speaks of, if it is one."""
        half = self.halves.lookup.claimed(header.commit_log_offset)
        return half if half and half.topic == HALF_TOPIC and half.queue_id == QUEUE else None

    def _wanted(self, command: Command) -> Iterator[Wanted]:
        half = self._half(from_ext(EndTransactionRequest, command.ext))
        if half is not None:
            yield sent(_destination(half)[0])

    def _note(self, word: int, topic: str, born: int) -> None:
        self.ended[word, topic] += 1
        if word == COMMITTED:
            # Its producer's clock may be ahead of ours.
            took = max(0, self.state.store.now_ms() - born) / 1000
            self.finished.setdefault(topic, Durations()).add(took)

    def settled(self, word: int, topic: str, born: int, half: int, op: int) -> None:
        """Take note of a half message that the write lane has ended.

        @param topic: That of the message.
        @param born: When its producer made it, in milliseconds since 1970.
        @param half: Its queue offset; C{op} that of the op that says so.
        """
        self._forget(half, op)
        self._note(word, topic, born)

    def resume(self, connection: RemotingProtocol, command: Command) -> Answer:
        """323: begin anew to count how often a half message was asked about."""
        text = from_ext(ResumeCheckRequest, command.ext).msg_id or ""
        if self.state.writer is None:
            raise _wrong("a slave does not check transactions")
        half = self.halves.lookup.claimed(offset_in(text))
        if half is None or half.topic != HALF_TOPIC or not self.halves.is_open(half.queue_offset):
            raise _wrong(f"no open half message has the id {text[:64]!r}")
        self.asked[half.queue_offset] = 0
        return None

    def _whole(self, half: Record) -> Message:
        """The message its producer wanted, delayed if it was to be.  It keeps what made it a half
        one, as in RocketMQ.
        """
        told = half.properties | {}
        topic, queue_id = self.state.messages.place(*_destination(half), told)
        return self.state.messages.from_record(
            half,
            topic=topic,
            queue_id=queue_id,
            properties=properties.encode(told) if DELAY in told else half.raw_properties,
            sys_flag=half.sys_flag & ~TRANSACTION | COMMIT,
            prepared_transaction_offset=half.offset,
        )

    def _settle(self, half: Record) -> None:
        """Write down that a half message is ended, and before which one all are
        (L{told_by_op<rmqha.store.derived.outcomes.told_by_op>}).
        """
        assert self.state.writer is not None, "only a master ends any"
        self.state.topics.ensure(HALF_DONE_TOPIC, 1)
        op = Message(
            topic=HALF_DONE_TOPIC,
            queue_id=QUEUE,
            body=str(half.queue_offset).encode(),
            properties=properties.OP_PROPERTIES,
            born_timestamp=self.state.store.now_ms(),
            born_host=self.state.messages.host,
            store_host=self.state.messages.host,
            prepared_transaction_offset=self.halves.first + 1,
        )
        self._forget(half.queue_offset, self._put(op))

    def _forget(self, half: int, op: int) -> None:
        self.halves.end(half, op)
        self.asked.pop(half, None)
        self._seen.pop(half, None)

    def _put(self, message: Message) -> int:
        """Store without waiting for disk or replicas.

        @return: Its queue offset.
        """
        assert self.state.writer is not None, "only a master stores"
        found: list[PutResult] = []
        self.state.writer.put(message, wait=False).addCallback(found.append)
        return found[0].receipt.queue_offset

    # --- asking ---------------------------------------------------------------------------

    async def check(self) -> None:
        """Look at all open half messages once."""
        limit = self.state.current.settings.transactions.timeout
        try:
            for number, half in enumerate(self.halves.each(), 1):
                young = self._age(half) < limit
                # They are in the order of their age, but for those of a clock that was ahead.
                if self._stopped or (young and not self._ahead(half)):
                    break
                try:
                    if not young:
                        self._look(half)
                except (MessageIllegal, RecordCorrupt) as error:
                    self._log.warn(
                        "Cannot check the transaction of half message {id}: {error}",
                        id=half.offset_msg_id,
                        error=error,
                    )
                if number % A_TURN == 0:
                    await deferLater(self.state.clock, 0, lambda: None)
        except StoreError as error:
            self._log.warn(
                "Transaction check failed, retrying in {s} s: {error}",
                s=self._checking.interval,
                error=error,
            )
        self.halves.commit()

    def _age(self, half: Record) -> float:
        """In seconds; of one that came while the clock was ahead, since it was seen here."""
        if self._ahead(half):
            now = self.state.clock.seconds()
            return now - self._seen.setdefault(half.queue_offset, now)
        return (self.state.store.now_ms() - half.store_timestamp) / 1000

    def _ahead(self, half: Record) -> bool:
        return half.store_timestamp - self.state.store.now_ms() > STEP

    def _look(self, half: Record) -> None:
        if not self.halves.is_open(half.queue_offset):
            return
        if self._outlived(half):
            self._log.warn(
                "Rolled back half message {id} of {group}: topic {topic} was deleted after it was "
                "sent",
                id=half.offset_msg_id,
                group=half.properties.get(PRODUCER_GROUP),
                topic=_destination(half)[0],
            )
            self._settle(half)
            self._note(ROLLED_BACK, _destination(half)[0], half.born_timestamp)
            return
        if not half.body_holds:
            raise RecordCorrupt(half.offset, Fault.CRC.value, "a half message")
        asked = self.asked.get(half.queue_offset, _count(half, CHECK_TIMES))
        kept = self.state.store.settings.file_reserved
        if asked >= self.state.current.settings.transactions.check_max or self._age(half) > kept:
            self._give_up(half, asked)
        elif self._age(half) >= _count(half, CHECK_IMMUNITY):
            member = self._producer(half)
            if member is not None:
                self.asked[half.queue_offset] = asked + 1
                self._ask(member, half, asked + 1)

    def _give_up(self, half: Record, asked: int) -> None:
        self._log.warn(
            "Gave up half message {id} of {group} after {asked} checks; moving it to {topic}",
            id=half.offset_msg_id,
            group=half.properties.get(PRODUCER_GROUP),
            asked=asked,
            topic=HALF_GIVEN_UP_TOPIC,
        )
        self.state.topics.ensure(HALF_GIVEN_UP_TOPIC, 1)
        self._put(
            self.state.messages.from_record(
                half, topic=HALF_GIVEN_UP_TOPIC, queue_id=0, properties=half.raw_properties
            )
        )
        self._settle(half)

    def _producer(self, half: Record) -> Member | None:
        """Who may be asked: the next one of its group each time."""
        name = half.properties.get(PRODUCER_GROUP, "")
        wanted = sent(_destination(half)[0])
        group = self.state.producers.group(name)
        member = None if group is None else group.next(lambda one: self.may_see(one, wanted))
        if member is None:
            self._quiet.warn(
                "not asked",
                name,
                "No producer of group {group} is there whose account may send to {topic}: cannot "
                "ask about half message {id}",
                group=name,
                topic=wanted[0],
                id=half.offset_msg_id,
            )
        return member

    def _ask(self, member: Member, half: Record, times: int) -> None:
        """39."""
        unique = half.properties.get(UNIQUE_KEY)
        header = CheckTransactionRequest(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.offset,
            msg_id=unique or half.offset_msg_id,
            transaction_id=unique,
            offset_msg_id=half.offset_msg_id,
        )
        request = Command.request(
            RequestCode.CHECK_TRANSACTION_STATE, header, self._shown(half, times)
        )
        member.connection.oneway(request)

    def _shown(self, half: Record, times: int) -> bytes:
        """The message as its producer sent it, at the place of the half one."""
        topic, queue_id = _destination(half)
        raw = properties.encode(half.properties | {CHECK_TIMES: str(times)})
        message = self.state.messages.from_record(
            half, topic=topic, queue_id=queue_id, properties=raw
        )
        record = encode(message, max_message_size=len(half.body) + MAX_RECORD_OVERHEAD)
        place(
            record,
            queue_offset=half.queue_offset,
            offset=half.offset,
            store_timestamp=half.store_timestamp,
        )
        return bytes(record)


def offset_in(message_id: str) -> int:
    """The physical offset an offset id tells, -1 if it is none."""
    try:
        return int(message_id[-16:], 16) if len(message_id) in (32, 56) else -1
    except ValueError:
        return -1


def _destination(half: Record) -> tuple[str, int]:
    return half.properties.get(REAL_TOPIC, ""), _count(half, REAL_QUEUE)


def _count(half: Record, name: str) -> int:
    """The number in a property, 0 if there is none: clients write what they like."""
    text = half.properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _wrong(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
