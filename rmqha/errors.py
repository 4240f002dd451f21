"""The roots of all errors raised on purpose, and those that several packages raise.

Two branches matter to a caller: L{ProtocolViolation} is the peer's doing (drop
the peer, nothing else changes) and L{StoreError} is about our own files (the
node changes its state).  Numbers are fields: a byte of the log is its physical
offset, and an end is just past the last.  Texts are for a person who reads one
log line.
"""

from __future__ import annotations

import errno as errnos
import os
from typing import Any, ClassVar, dataclass_transform

from attrs import field, frozen


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class RmqhaError(Exception):
    """The root of all errors raised on purpose; each is a frozen class of attrs.

    @cvar sentence: What it says, with its fields in braces; who has to say more writes C{__str__}.
    """

    sentence: ClassVar[str] = ""

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        if vars(cls).get("__annotations__"):
            frozen(cls, kw_only=kw_only, slots=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args

    def __str__(self) -> str:
        return self.sentence.format_map(vars(self)) if self.sentence else super().__str__()


# --- the wire ---------------------------------------------------------------


class ProtocolViolation(RmqhaError):
    """A peer sent what the protocol does not allow; the connection ends."""


class FrameSizeOutOfRange(ProtocolViolation):
    """A transfer header announces a body that is negative or above the limit."""

    sentence = "frame of {size} bytes, must be 0 to {limit}"
    size: int
    limit: int


class FrameOffsetMismatch(ProtocolViolation):
    """A frame does not continue the stream: a gap, or an overlap."""

    expected: int
    received: int

    def __str__(self) -> str:
        kind = "gap" if self.received > self.expected else "overlap"
        return f"frame starts at byte {self.received}, expected {self.expected} ({kind})"


_UNHEARD = {
    "own-id": "it is this master's own",
    "unknown-member": "no controller knows a member of this id",
    "other-address": "that member is connected from {detail}",
    "not-its-address": "that member is registered at {detail}, and haAllowedPeers is empty",
    "not-its-connection": "that member says otherwise of this connection: {detail}",
    "last-file": "it wants the last file of the log only, and haAllowLastFile is false",
    "no-handshake": "it reports and has not said who it is",
    "early-report": "it reports before its handshake was answered",
    "late-handshake": "it has reported already",
    "no-labels": "it could not be asked for the epoch labels of its log: {detail}",
    "label-not-taken": "it has not taken over the epoch label of this master: {detail}",
    "no-controller": "no controller tells who the members are: {detail}",
}
"""Why a slave is not heard, in words, by reason."""


class HandshakeRejected(ProtocolViolation):
    """A slave of HA protocol v2 is not who it should be, or speaks out of turn.

    @ivar id: The controller id that it says it has; C{None} before it has said one.
    """

    reason: str
    id: int | None
    detail: str = ""

    def __str__(self) -> str:
        who = "a slave without a handshake" if self.id is None else f"the slave of id {self.id}"
        return (
            f"{who} is not fed ({self.reason}): {_UNHEARD[self.reason].format(detail=self.detail)}"
        )


class RemotingFrameError(ProtocolViolation):
    """A frame of the remoting protocol that cannot be read, and nothing behind it can be."""


class HeaderUndecodable(RemotingFrameError):
    """The bytes of a remoting header are not what its type says."""

    sentence = "remoting header of {size} bytes cannot be read: {reason}"
    size: int
    reason: str


class HeaderTooCostly(RemotingFrameError):
    """A remoting header would take longer to read than any that a client needs.

    @ivar unit: Bytes of JSON that only Java reads, or fields of any kind.
    """

    sentence = "remoting header of {size} {unit}, at most {limit} are read"
    size: int
    limit: int
    unit: str


class HeaderFieldInvalid(RmqhaError):
    """A field of a command's custom header is missing or of the wrong kind.

    Not the end of the connection: the request is answered with code 1 and this text.

    @ivar header: The header class.
    @ivar name: The field's name on the wire.
    """

    header: str
    name: str
    value: str | None
    expected: str

    def __str__(self) -> str:
        text = f"the custom field <{self.name}> is null"
        if self.value is None:
            return text
        return f"{text}: {self.value[:64]!r} is not {self.expected}"


class ExpressionInvalid(RmqhaError):
    """A consumer's SQL92 filter cannot be read, or makes no sense.

    @ivar position: Where, in characters; the first is 1.
    """

    sentence = "invalid SQL92 filter at character {position}: {fault}"
    position: int
    fault: str


class BodyInvalid(RmqhaError):
    """The body of a remoting command is not what its code asks for.

    Not the end of the connection: the request is answered with code 1 and this text.
    """

    sentence = "the body is not a {kind}: {reason}"
    kind: str
    reason: str


class NoController(RmqhaError):
    """Nobody leads the controllers, or whoever does is not reached."""

    addresses: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"no controller of {', '.join(self.addresses)} leads: {self.reason}"


class ControllerRefused(RmqhaError):
    """The controller that leads said no.

    @ivar code: A L{ControllerResponseCode<rmqha.wire.remoting.codes.ControllerResponseCode>}, as a
        rule.
    """

    sentence = "the controller at {address} answered {code}: {remark}"
    address: str
    code: int
    remark: str


class ElectionPaused(ControllerRefused):
    """Nobody is elected while an operator does not want it.

    @ivar remark: Since when, and by whom.
    """

    sentence = (
        "the set is paused, {remark}: no member is elected by itself; rmqha set elect chooses one, "
        "rmqha set resume ends that"
    )


class ControllerUnanswered(RmqhaError):
    """The controller that leads was asked and did not answer: nobody knows whether it did what was
    asked.
    """

    sentence = "the controller at {address} did not answer request {request}: {reason}"
    address: str
    request: int
    reason: str


class RequestRefused(RmqhaError):
    """A request is answered with a code other than success.

    A handler of ours raises it, and so does what asked a peer.

    @ivar request: The code of a request that we made.
    """

    code: int
    remark: str | None = None
    request: int | None = None

    def __str__(self) -> str:
        what = "a request" if self.request is None else f"request {self.request}"
        return f"{what} was answered with code {self.code}: {self.remark}"


class AccessDenied(RequestRefused, kw_only=True):
    """Access control refuses a request.

    @ivar account: The access key that it came with; empty for none.
    @ivar reason: Why, for the log: more than who sent it is told.
    """

    account: str
    reason: str

    def __str__(self) -> str:
        return f"{self.account or 'no access key'}: {self.reason}"


class RemotingTimeout(RmqhaError):
    """A request was not answered in time."""

    sentence = "{address} did not answer request {request} within {seconds:g} s"
    request: int
    seconds: float
    address: str


class MasterLeft(RmqhaError):
    """A master went away while its log was compared."""

    sentence = "master {address} disconnected at byte {offset}: {reason}"
    address: str
    offset: int
    reason: str


class MasterUnidentified(RmqhaError):
    """A master's client port did not say whose it is, and TLS may be said to a broker of ours
    alone.

    @ivar reason: Why there was no answer; the subject is the master.
    """

    sentence = (
        "its client port did not answer ({reason}), so it may be a stock broker, and "
        "haTlsEnable=true would have its HA port take TLS for an acknowledgement"
    )
    reason: str


class RemotingUnreachable(RmqhaError):
    """There is no connection to a peer, and none could be made."""

    sentence = "cannot connect to {address}: {reason}"
    address: str
    reason: str


# --- records and files ------------------------------------------------------


class StoreError(RmqhaError):
    """Something about our own files."""


class RecordCorrupt(StoreError):
    """The bytes at a physical offset are not a whole, valid record.

    @ivar reason: A L{rmqha.wire.log.record.Fault} name.
    @ivar size: Bytes to the next record if it is known that only the body is damaged, else 0.
    """

    offset: int
    reason: str
    detail: str = ""
    size: int = 0

    def __str__(self) -> str:
        more = f" ({self.detail})" if self.detail else ""
        return f"no valid record at byte {self.offset}: {self.reason}{more}"


class MessageIllegal(StoreError):
    """A message cannot be stored as it is.

    @ivar field: What is wrong with it, in RocketMQ's words (C{topic}, C{body}, ...).
    """

    sentence = "message {field} is {value}, the limit is {limit}"
    field: str
    value: int
    limit: int


class NotWritable(StoreError):
    """The store takes no writes now."""

    sentence = "store is {state}: {reason}"
    state: str
    reason: str


class TooFewInSync(NotWritable):
    """The SyncStateSet has fewer members than a write needs.

    @ivar found: How many it has, the master among them.
    @ivar needed: C{minInSyncReplicas}.
    """

    sentence = "the SyncStateSet has {found} members, a write needs {needed}"
    state: str = field(init=False, default="short of replicas")
    reason: str = field(init=False, default="in-sync replicas not enough")
    found: int
    needed: int


class TwinMaster(RmqhaError):
    """A master must not start beside another live one of its name.

    @ivar address: C{host:port} of the client port of the one that is to start.
    @ivar other: C{host:port} of the client port of the live one.
    """

    sentence = (
        "{other} is a live master of {name} with master epoch {other_epoch}; "
        "this store, to be served at {address}, has master epoch {epoch}: start it "
        "as a slave (brokerRole=SLAVE, brokerId above 0), or stop the other master; --force "
        "starts this one all the same"
    )
    name: str
    address: str
    epoch: int
    other: str
    other_epoch: int


class StoreLocked(StoreError):
    """Another process holds the store's lock."""

    sentence = "{path} is held by a running node"
    path: str


class LogCorrupt(StoreError):
    """A corruption of the log is followed by a valid record: it is no torn tail."""

    sentence = (
        "{path}: bad record at byte {offset} ({reason}), but a valid one "
        "follows at byte {next_valid}: this is damage, not a torn tail"
    )
    path: str
    offset: int
    reason: str
    next_valid: int


class LogShortened(StoreError):
    """The log ends before where it was on the disk once: bytes, or files, are missing."""

    path: str
    end: int
    known: int
    mark: str

    def __str__(self) -> str:
        return (
            f"{self.path} has lost its tail: it ends at byte {self.end}, but {self.mark} says "
            f"that it was on the disk up to byte {self.known}; {self.known - self.end} bytes are "
            f"missing"
        )


class TailNotFetched(LogShortened):
    """The same, and replicas that could be asked did not give what is missing; they are asked again
    at the next start.
    """


class DiskFull(StoreError):
    """The disk has no room for the next step of the log."""

    sentence = "no space for {wanted} bytes of {path}"
    path: str
    wanted: int


class FlushFailed(StoreError):
    """An fsync failed.  It is final: what the kernel dropped cannot be told."""

    sentence = "fsync of {path} failed: {error}"
    path: str
    error: str


class FileUnreadable(StoreError):
    """The system does not let a file be read.  What is in it is not known then: it is neither
    damaged nor gone, and no older version takes its place.

    @ivar path: The file, or a folder whose files cannot be listed.
    @ivar errno: The number of the system's error; 0 if it has none.
    """

    path: str
    errno: int

    def __str__(self) -> str:
        name = errnos.errorcode.get(self.errno, self.errno)
        return (
            f"cannot read {self.path}: {os.strerror(self.errno)} ({name}); what is in it is not "
            "known, so nothing older is taken instead, and nothing is written"
        )


class TableUnreadable(StoreError):
    """Neither a JSON table nor its C{.bak} makes sense."""

    sentence = "{path}: {reason}"
    path: str
    reason: str


class PointInvalid(StoreError):
    """What is published beside a log cannot be read."""

    sentence = "the published point cannot be read: {reason}"
    reason: str


class NotAStore(StoreError):
    """A path given as a store is not one."""

    sentence = "{path} is not a RocketMQ store: {reason}"
    path: str
    reason: str


class Refused(StoreError):
    """An operation on a store is refused because it could lose data."""

    sentence = "{operation} refused: {reason}"
    operation: str
    reason: str


# --- shutdown ---------------------------------------------------------------


class ShutdownFailed(RmqhaError):
    """Steps of a shutdown failed; the others were taken, and each error is in the log."""

    subject: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return f"shutdown of {self.subject}: failed steps: {', '.join(self.steps)}"


# --- configuration ----------------------------------------------------------


class ConfigError(RmqhaError):
    """The configuration cannot be used."""


class BadValue(ConfigError):
    """A key's value is not allowed.

    @ivar where: File and line, or C{--set}.
    """

    key: str
    value: str
    allowed: str
    where: str = ""

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{where}{self.key}={self.value} is not allowed: {self.allowed}"


# --- the pipeline -----------------------------------------------------------


class PipelineError(RmqhaError):
    """A log cannot be read as it was asked for."""


class ColumnUnknown(PipelineError):
    """A column that the table does not have.

    @ivar nearest: The nearest known one, or C{""}.
    """

    column: str
    nearest: str = ""

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"unknown column {self.column}{hint}"


# --- sending from the pipeline ----------------------------------------------


class ExtraMissing(PipelineError):
    """What is wanted needs an extra that is not installed."""

    sentence = "{wanted} needs {module}: install rmqha[{extra}]"
    wanted: str
    extra: str
    module: str
