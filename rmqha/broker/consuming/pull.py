"""Pulls: codes 11 and 361.

Source: docs/protocol/remoting.md, Pulling.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import perf_counter
from weakref import WeakKeyDictionary

from attrs import define, field
from twisted.internet.defer import Deferred

from rmqha.broker.access.needs import CONSUMES, Stated
from rmqha.broker.clients.subscriptions import Subscription, parse, require_understood
from rmqha.broker.consuming.cold_reads import NotInMemory, bring
from rmqha.broker.consuming.long_polling import LongPolling
from rmqha.broker.consuming.queue_reader import QueueReader, ReadResult, ReadStatus
from rmqha.broker.state import BrokerState
from rmqha.config.broker_settings import PullSettings
from rmqha.errors import RequestRefused
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.store.files.one_thread import OneThread, ThreadNotStarted
from rmqha.wire.remoting.answers import Answer, Scattered
from rmqha.wire.remoting.bodies.clients import MessageModel
from rmqha.wire.remoting.bodies.tables import READ, GroupConfig, TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.pull import PullMessageAnswer, PullMessageRequest

COMMIT, SUSPEND, INLINE = 1, 2, 4
"""Bits of a pull's system flag: it commits an offset, may wait, brings a subscription."""

MOST = 1024
"""Most messages one pull may ask for; more is taken for this, less than 1 for 1."""

UNCERTAIN = 1.0
"""Most seconds a slave holds a pull from outside its queue that comes again, before it says to
try again."""

NOTED = 1024
"""Most such pulls remembered of one connection; clients have one for each queue."""

MASTER = 0
"""The id of a master."""

CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""The answers' codes.  Where there is no message at all and one was asked for that is not the
first, the offset has moved."""


def suggested(settings: PullSettings, group: GroupConfig | None, *, lagging: bool) -> int:
    """The id of the broker to pull from next time.

    @param group: Whose pull it is.
    @param lagging: Whether it is behind what memory holds.
    """
    if not settings.slave_read or group is None:
        return MASTER
    return group.which_broker_when_consume_slowly if lagging else group.broker_id


@define(eq=False)
class Pulls:
    """Answers pulls, now or when there is something."""

    state: BrokerState
    reader: QueueReader
    holds: LongPolling
    cold: OneThread
    # What each connection asked last that could not be answered for sure.
    _sent_home: WeakKeyDictionary[RemotingProtocol, dict[tuple[str, str, int], int]] = field(
        factory=WeakKeyDictionary, init=False
    )

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.PULL_MESSAGE: (CONSUMES, self._pull),
            RequestCode.LITE_PULL_MESSAGE: (CONSUMES, self._pull),
        }

    def _pull(self, connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        request = command.custom(PullMessageRequest)
        self._check(connection, request)
        subscription = self._subscription(connection, request)
        work = partial(self._serve, connection, command, request, subscription)
        try:
            return work(patient=True)
        except NotInMemory as absent:
            brought = self.cold.call(bring, absent.path, absent.places)
            # Where that did not work the reading finds out why.
            brought.addErrback(lambda failure: failure.trap(OSError, ThreadNotStarted) and None)
            return brought.addCallback(lambda _: work(patient=False))

    def _serve(
        self,
        connection: RemotingProtocol,
        command: Command,
        request: PullMessageRequest,
        subscription: Subscription,
        *,
        patient: bool,
    ) -> Answer | Deferred[Answer]:
        reading = self._read(request, subscription, request.queue_offset, patient=patient)
        self._commit(request, reading, request.commit_offset)
        if request.sys_flag & SUSPEND:
            wait = self._wait(connection, command, request, subscription, reading)
            if wait is not None:
                return wait
        return self._answer(command, request, reading)

    def at_once(
        self, connection: RemotingProtocol, request: PullMessageRequest, offset: int, commit: int
    ) -> tuple[int, ReadResult] | None:
        """What a pull gets, and whom to ask next time, if there is anything for it now.

        @param request: One that is like it but for its offsets.
        @param offset: The first message wanted.
        @param commit: The offset it commits.
        @raise RequestRefused: If it gets nothing for another reason.
        @raise NotInMemory: If that would have to be read from the disk.
        """
        if offset >= self.state.store.queues.end(request.topic, request.queue_id):
            return None
        self._check(connection, request)
        subscription = self._subscription(connection, request)
        reading = self._read(request, subscription, offset, patient=True)
        if not reading.body:
            return None
        self._commit(request, reading, commit)
        return self._told(request, reading, offset), reading

    # --- checks ---------------------------------------------------------------

    def _check(self, connection: RemotingProtocol, request: PullMessageRequest) -> None:
        """See whether it may be read at all, in the order of stock brokers."""
        group, topic = request.consumer_group, request.topic
        if not self.state.current.settings.broker.permission & READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, "the broker pulling message is forbidden"
            )
        config = self.state.groups.find(group)
        if config is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group[:256]}] does not exist",
            )
        if not config.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}"
            )
        known = self.state.topics.get(topic)
        if known is not None and not known.perm & READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden"
            )
        if known is not None and 0 <= request.queue_id < known.read_queue_nums:
            return
        if self.state.slave and self.reader.holds(topic, request.queue_id):
            # A slave has messages sooner than it hears of their topic.
            return
        if known is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:256]}] not exist, apply first please!"
            )
        raise _no_queue(connection, request, known)

    def _subscription(
        self, connection: RemotingProtocol, request: PullMessageRequest
    ) -> Subscription:
        """What is wanted: as the pull says, or the last heartbeat."""
        filters = self.state.current.settings.pull.property_filter
        if request.sys_flag & INLINE:
            subscription = parse(
                request.topic, request.subscription, request.expression_type, request.sub_version
            )
            require_understood(subscription, filters=filters)
        else:
            subscription = self._registered(connection, request)
            code = ResponseCode.FILTER_DATA_NOT_EXIST
            require_understood(subscription, filters=filters, code=code)
        return subscription

    def _registered(
        self, connection: RemotingProtocol, request: PullMessageRequest
    ) -> Subscription:
        name = request.consumer_group
        group = self.state.consumers.group(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        config = self.state.groups.get(name)
        broadcast = config is None or config.consume_broadcast_enable
        if group.message_model is MessageModel.BROADCASTING and not broadcast:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{name}] can not consume by broadcast way",
            )
        found = group.subscription(request.topic, connection)
        if found is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist"
            )
        # A consumer that had everything misses nothing, whatever it wants now.  Broadcasting ones
        # in Java count up before their first pull and say so only 30 s later.
        if found.version < request.sub_version and not found.is_all:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        return found

    # --- work -----------------------------------------------------------------

    def _commit(self, request: PullMessageRequest, reading: ReadResult, offset: int) -> None:
        """Note how far the consumer is.  This never lowers an offset: a pull may be older than
        what another client committed, and a client that means to go back says so.
        """
        if request.sys_flag & COMMIT and offset <= reading.max_offset and not self.state.slave:
            self.state.offsets.advance(
                request.consumer_group, request.topic, request.queue_id, offset
            )

    def _read(
        self,
        request: PullMessageRequest,
        subscription: Subscription,
        offset: int,
        *,
        patient: bool = False,
    ) -> ReadResult:
        most = min(max(request.max_msg_nums, 1), MOST)
        begun = perf_counter()
        reading = self.reader.read(
            request.topic,
            request.queue_id,
            offset,
            most,
            subscription.codes,
            request.max_msg_bytes,
            subscription.passing,
            patient=patient,
        )
        self.state.counts.reads_took.add(perf_counter() - begun)
        return reading

    def _code(self, request: PullMessageRequest, reading: ReadResult) -> ResponseCode:
        code = CODES[reading.status]
        if reading.status is ReadStatus.NO_MESSAGE_IN_QUEUE and request.queue_offset:
            return ResponseCode.PULL_OFFSET_MOVED
        return code

    def _uncertain(self, code: ResponseCode) -> bool:
        """Whether an offset has moved in the eyes of a slave, which may only be behind."""
        return (
            code is ResponseCode.PULL_OFFSET_MOVED
            and self.state.slave
            and not self.state.current.settings.pull.check_in_slave
        )

    def _asked_again(self, connection: RemotingProtocol, request: PullMessageRequest) -> bool:
        """Whether a consumer that was just sent home is here again with the same question, because
        no member is there: it would ask as fast as it is answered.  One that has got something
        from the master meanwhile, and was sent here as it lags, must not wait.
        """
        asked = self._sent_home.setdefault(connection, {})
        if len(asked) >= NOTED:
            asked.clear()
        place = request.consumer_group, request.topic, request.queue_id
        before, asked[place] = asked.get(place), request.queue_offset
        return before == request.queue_offset

    def _wait(
        self,
        connection: RemotingProtocol,
        command: Command,
        request: PullMessageRequest,
        subscription: Subscription,
        reading: ReadResult,
    ) -> Deferred[Answer] | None:
        code = self._code(request, reading)
        seconds = request.suspend_timeout_millis / 1000
        if self._uncertain(code):
            if not self._asked_again(connection, request):
                return None
            seconds = min(seconds, UNCERTAIN)
        elif code is not ResponseCode.PULL_NOT_FOUND:
            return None
        elif not self.state.current.settings.pull.long_polling:
            seconds = self.state.current.settings.pull.short_polling
        if seconds <= 0:
            return None
        passing, passed_over = subscription.passing, None
        if passing is not None:
            passed_over = partial(self.reader.passed_over, request.topic, request.queue_id, passing)
        return self.holds.hold(
            (request.topic, request.queue_id),
            (connection, request.consumer_group),
            seconds,
            request.queue_offset,
            subscription.codes,
            partial(self._again, command, request, subscription),
            passed_over,
        )

    def _again(
        self, command: Command, request: PullMessageRequest, subscription: Subscription
    ) -> Answer:
        reading = self._read(request, subscription, request.queue_offset)
        return self._answer(command, request, reading)

    def _answer(self, command: Command, request: PullMessageRequest, reading: ReadResult) -> Answer:
        code = self._code(request, reading)
        if self._uncertain(code):
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        header = PullMessageAnswer(
            suggest_which_broker_id=self._told(request, reading, request.queue_offset),
            next_begin_offset=reading.next_offset,
            min_offset=reading.min_offset,
            max_offset=reading.max_offset,
        )
        answer = command.answer(code, reading.status.value, header)
        return Scattered(answer, reading.body) if reading.body else answer

    def _told(self, request: PullMessageRequest, reading: ReadResult, offset: int) -> int:
        """Count what is answered, and say whom to ask next time."""
        self.state.counts.went(
            request.consumer_group,
            request.topic,
            request.queue_id,
            offset,
            reading.next_offset,
            sum(map(len, reading.body)),
        )
        group = self.state.groups.get(request.consumer_group)
        return suggested(self.state.current.settings.pull, group, lagging=reading.lagging)


def _no_queue(
    connection: RemotingProtocol, request: PullMessageRequest, topic: TopicConfig
) -> RequestRefused:
    return RequestRefused(
        ResponseCode.INVALID_PARAMETER,
        f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}]"
        f" topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.address}]",
    )
