"""The short way of a write: runs of what the usual producers send, from the socket's bytes to the
log, and from the log to the answers, without a command, a header or a message made of them.

What it may not decide it leaves to L{Sending<rmqha.broker.sending.send.Sending>} and
L{Transactions<rmqha.broker.sending.transactions.Transactions>}, frame by frame and in order: topics
that do not exist yet or may not be written to, retries, ends of half messages that are not known
here, and whatever would be refused.  Both ways give the same records and the same
answers.

Source: docs/architecture.rst, The write lane.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import define, field

from rmqha.broker.access.access_control import AccessControl
from rmqha.broker.sending.admission import Admission
from rmqha.broker.sending.put_status import STORED
from rmqha.broker.sending.retry import Retries
from rmqha.broker.sending.send import CLIENTS_FLAGS, Sending
from rmqha.broker.sending.transactions import Transactions
from rmqha.broker.state import BrokerState
from rmqha.broker.tables.topics import Topics, is_forbidden
from rmqha.errors import MessageIllegal, NotWritable
from rmqha.ha.master.put_service import Putter
from rmqha.ha.master.transfer import Done, PutStatus
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.lane.answer_form import AnswerForm
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.layout import HOST_SIZE
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import Host
from rmqha.wire.log.sys_flag import MULTI_TAGS
from rmqha.wire.names import CLUSTER, HALF_DONE_TOPIC, HALF_TOPIC, RETRY_PREFIX
from rmqha.wire.remoting.bodies.tables import WRITE, TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command, SerializeType
from rmqha.wire.remoting.frame import FRAME_LIMIT, FrameDecoder, successes

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.send_run import Route, SendRun

MOST_ROUTES = 100_000
"""Topics that are known to the lane at once; there may be more."""


@lru_cache(maxsize=4096)
def _packed(host: Host) -> bytes:
    """An address and a port as a record has them; more than L{HOST_SIZE} bytes for IPv6, none where
    there is no address.
    """
    try:
        return ip_address(host[0]).packed + host[1].to_bytes(4, "big")
    except ValueError:
        return b""


@define(eq=False, kw_only=True)
class WriteLane:
    """Serves runs of requests 10, 36, 37, 310 and 320, and reads those of 200051 for others.

    @ivar writer: Takes what was read.
    @ivar refuse: Answers a request in whose place an answer stands, as
        L{Sending<rmqha.broker.sending.send.Sending>} refuses what cannot be written now.
    @ivar clients_flags: The bits of a client's system flag that are stored.
    @ivar access: Says what may be sent; C{None} if everything may be.
    @ivar transactions: Who knows which half messages are open.
    @ivar retries: Who knows what may be given back.
    @ivar acked: Takes what was read of acks, and says how many it took.
    @ivar messages: Requests that were served on this way.
    """

    writer: Putter
    admission: Admission
    topics: Topics
    transactions: Transactions
    retries: Retries
    refuse: Callable[[Command], Any]
    run: SendRun
    forms: tuple[AnswerForm, ...]
    access: AccessControl | None = None
    acked: Callable[[RemotingProtocol, SendRun], int] = field(default=lambda *_: 0, init=False)
    messages: int = field(default=0, init=False)
    serves: ClassVar = frozenset(
        {
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.END_TRANSACTION,
            RequestCode.ACK_MESSAGE,
            RequestCode.CONSUMER_SEND_MSG_BACK,
        }
    )
    _routes: dict[bytes, Route | None] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.topics.changed.append(self._topic_changed)

    def serve_run(
        self, connection: RemotingProtocol, data: bytes, at: int, stop: int
    ) -> tuple[int, int]:
        """Store the messages of the frames from a position on, and answer them when what was
        promised is so.

        @return: How many, and where the first frame begins that was left.
        """
        run = self.run
        check = None if self.access is None else self.access.check_of_sends(connection.host)
        while not run.read(data, at, stop, self._routes, check):
            if run.unknown is None or not self._learned(run.unknown):
                return 0, at
        if run.acks:
            count = self.acked(connection, run)
            if count:
                run.cut(count)
            return count, run.end if count else at
        born = _packed(connection.peer)
        if len(born) != HOST_SIZE or not connection.takes(run.count) or not self.admission.open:
            return 0, at
        if run.halves:
            self.topics.ensure(HALF_TOPIC, 1)
        if run.ends:
            self.topics.ensure(HALF_DONE_TOPIC, 1)
            run.firsts = self.transactions.halves.firsts(run.ending())
        answers, begun = _Answers(connection), self.retries.calls.seconds()
        try:
            self.writer.put_run(run, born, answers.done)
        except (NotWritable, MessageIllegal):
            return 0, at
        if run.backs:
            given = begun, run.given, successes(run.numbers)
            answers.ready(partial(self.retries.tell, connection, *given), run.backs)
        elif run.waits:
            answers.ready(partial(self._tell, connection, run.answers(self.forms)), run.waits)
        if run.ends:
            for each in run.ended():
                self.transactions.settled(*each)
        self.messages += run.count
        return run.count, run.end

    def _tell(self, connection: RemotingProtocol, frames: bytes, status: PutStatus) -> None:
        if status is PutStatus.PUT_OK:
            connection.send_frames(frames)
            return
        code = STORED.get(status)
        for answer in FrameDecoder().receive(frames):
            if code is None:
                connection.send(self.refuse(answer))
            else:
                answer.code = code
                connection.send(answer)

    @property
    def codes(self) -> tuple[tuple[int, int], ...]:
        """How many requests of each code the last run had."""
        return self.run.codes

    # --- topics ---------------------------------------------------------------------

    def forget(self) -> None:
        """Look anew at what may be written where."""
        self._routes.clear()

    def _topic_changed(self, config: TopicConfig | None) -> None:
        if config is None:
            self._routes.clear()
        else:
            self._routes.pop(config.topic_name.encode(), None)

    def _learned(self, topic: bytes) -> bool:
        """Look up a topic.

        @return: Whether there is one: of others nothing is kept.
        """
        name = topic.decode("ascii")
        config = self.topics.get(name)
        if config is None:
            return False
        if len(self._routes) >= MOST_ROUTES:
            self._routes.clear()
        self._routes[topic] = self._route(name, config)
        return True

    def _route(self, name: str, config: TopicConfig) -> Route | None:
        """Where messages of a topic go; C{None} where each of them has to be looked at."""
        permitted = self.admission.settings.permission & config.perm & WRITE
        if not permitted or is_forbidden(name) or name.startswith(RETRY_PREFIX):
            return None
        keys = [(name, queue_id) for queue_id in range(config.write_queue_nums)]
        multi = MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0
        return Route(name.encode(), keys, multi)


@define(eq=False)
class _Answers:
    """The answers to a run, kept until it is known what became of it.

    @ivar connection: Who gets them.
    """

    connection: RemotingProtocol
    _tell: Done | None = None
    _count: int = 0
    _status: PutStatus | None = None

    def ready(self, tell: Done, count: int) -> None:
        """This tells so many clients' requests what became of the run."""
        if self._status is None:
            self._tell, self._count = tell, count
            self.connection.in_runs += count
        else:
            tell(self._status)

    def done(self, status: PutStatus) -> None:
        """This became of it."""
        if self._tell is None:
            self._status = status
        else:
            self.connection.in_runs -= self._count
            self._tell(status)


def write_lane(
    state: BrokerState,
    admission: Admission,
    transactions: Transactions,
    sending: Sending,
    access: AccessControl | None,
) -> WriteLane | None:
    """Make the lane of a broker.

    @param access: Says what may be sent, if anything says so.
    @return: C{None} on a slave, where it is not compiled, or has addresses it does not know.
    """
    settings, store, messages = state.settings, state.store, state.messages
    timers, writer = settings.timers, state.writer
    host = _packed(messages.host)
    if writer is None or not COMPILED or len(host) != HOST_SIZE:
        return None
    run = SendRun(
        cluster=encode({CLUSTER: messages.cluster}),
        store_host=host,
        clients_flags=CLIENTS_FLAGS,
        most_body=store.settings.max_message_size,
        most_frame=FRAME_LIMIT,
        levels=messages.levels.count,
        broker=state.name.encode(),
        timers=(store.now_ms, timers.precision, timers.max_delay * 1000)
        if timers.enabled
        else None,
        stored=None if settings.broker.reject_transactions else transactions.halves.stored,
        record_at=store.log.read,
        outlived=store.queues.outlived,
        retries=sending.retries.usual,
        claimed=sending.retries.may_return,
    )
    kinds = (SerializeType.JSON, SerializeType.ROCKETMQ)
    forms = tuple(AnswerForm.of(kind, sending.always) for kind in kinds)
    return WriteLane(
        writer=writer,
        admission=admission,
        topics=state.topics,
        access=access,
        transactions=transactions,
        retries=sending.retries,
        refuse=sending.unavailable,
        run=run,
        forms=forms,
    )
