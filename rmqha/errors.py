"""Every error rmqha raises on purpose, with its numbers as fields.

Two branches matter to a caller: L{ProtocolViolation} is the peer's doing (drop
the peer, nothing else changes) and L{StoreError} is about our own files (the
node changes its state).  Texts are for a person who reads one log line.
"""

from __future__ import annotations

import errno as errnos
import os
from typing import ClassVar

from attrs import field, frozen


class RmqhaError(Exception):
    """The root of all errors raised on purpose."""


# --- the wire ---------------------------------------------------------------


class ProtocolViolation(RmqhaError):
    """A peer sent what the protocol does not allow; the connection ends."""


@frozen
class FrameSizeOutOfRange(ProtocolViolation):
    """A transfer header announces a body that is negative or above the limit.

    @ivar size: The announced size, in bytes.
    @ivar limit: The most we accept, in bytes.
    """

    size: int
    limit: int

    def __str__(self) -> str:
        return f"frame of {self.size} bytes, must be 0 to {self.limit}"


@frozen
class HaStateUnexpected(ProtocolViolation):
    """A message of HA protocol v2 begins with a state in which nobody speaks: the peer speaks
    another protocol, such as the classic one.

    @ivar reason: For counters.
    @ivar state: The number it begins with.
    """

    reason: ClassVar[str] = "other-protocol"
    state: int

    def __str__(self) -> str:
        return f"HA message of state {self.state}, must be 1 (handshake) or 2 (transfer)"


@frozen
class HandshakeUnexpected(ProtocolViolation):
    """A message of HA protocol v2 does not come where it may.

    @ivar what: It, in words.
    """

    what: str

    def __str__(self) -> str:
        return f"unexpected in HA protocol v2: {self.what}"


@frozen
class EpochLabelWentBack(ProtocolViolation):
    """A master tells of a label that cannot be one of its log, by what it told before on the same
    connection, or by where its bytes end.

    @ivar label: The label.
    @ivar start: Where it starts, in bytes.
    @ivar before: The label that was told before; -1 for none.
    @ivar before_start: Where that starts.
    @ivar end: Where the bytes end that came with the label.
    """

    label: int
    start: int
    before: int
    before_start: int
    end: int

    def __str__(self) -> str:
        return (
            f"epoch label {self.label} from byte {self.start} came with bytes up to {self.end} and "
            f"after label {self.before} from byte {self.before_start}"
        )


@frozen
class EpochLabelsMisshapen(ProtocolViolation):
    """The answer to a handshake of HA protocol v2 announces a part of an epoch label.

    @ivar size: Bytes of all labels.
    @ivar each: Bytes of one.
    """

    size: int
    each: int

    def __str__(self) -> str:
        return f"epoch labels of {self.size} bytes, must be a multiple of {self.each}"


@frozen
class FrameOffsetMismatch(ProtocolViolation):
    """A frame does not continue the stream: a gap, or an overlap.

    @ivar expected: Where the connection's stream stands, in bytes.
    @ivar received: Where the frame says it starts.
    """

    expected: int
    received: int

    def __str__(self) -> str:
        kind = "gap" if self.received > self.expected else "overlap"
        return f"frame starts at byte {self.received}, expected {self.expected} ({kind})"


_REJECTED = {
    "negative": "an offset cannot be negative",
    "ahead": "it is beyond our end {bound}",
    "above-max": "it is beyond our end {bound}",
    "below-min": "it is below {bound}, from where on we send",
    "unproven": "it is above {bound}, up to where its log is known to be ours",
    "above-sent": "it is beyond {bound}, up to where it was sent",
    "decreasing": "it acknowledged {bound} before",
    "flood": "it has repeated itself more than {bound} times",
}
"""Why a report is rejected, in words, by reason."""


@frozen
class ReportRejected(ProtocolViolation):
    """An offset report is not one an honest slave could send.

    @ivar reason: One of C{negative, above-max, below-min, decreasing, above-sent,
        unproven, ahead, flood}.
    @ivar report: The reported offset.
    @ivar bound: The bound it broke.
    """

    reason: str
    report: int
    bound: int

    def __str__(self) -> str:
        why = _REJECTED[self.reason].format(bound=self.bound)
        return f"offset report {self.report} rejected ({self.reason}): {why}"


_UNHEARD = {
    "own-id": "it is this master's own",
    "unknown-member": "no controller knows a member of this id",
    "other-address": "that member is connected from {detail}",
    "not-its-address": "that member is registered at {detail}, and haAllowedPeers is empty",
    "not-its-connection": "that member says that its connection is {detail}",
    "last-file": "it wants the last file of the log only, and haAllowLastFile is false",
    "no-handshake": "it reports and has not said who it is",
    "early-report": "it reports before its handshake was answered",
    "late-handshake": "it has reported already",
    "no-labels": "it could not be asked for the epoch labels of its log: {detail}",
    "label-not-taken": "it has not taken over the epoch label of this master: {detail}",
    "no-controller": "no controller tells who the members are: {detail}",
}
"""Why a slave is not heard, in words, by reason."""


@frozen
class HandshakeRejected(ProtocolViolation):
    """A slave of HA protocol v2 is not who it should be, or speaks out of turn.

    @ivar reason: One of C{own-id, unknown-member, other-address, not-its-address,
        not-its-connection, last-file, no-handshake, early-report, late-handshake, no-labels,
        label-not-taken, no-controller}.
    @ivar id: The controller id that it says it has; C{None} before it has said one.
    @ivar detail: The other address, or what failed.
    """

    reason: str
    id: int | None
    detail: str = ""

    def __str__(self) -> str:
        who = "a slave without a handshake" if self.id is None else f"the slave of id {self.id}"
        return (
            f"{who} is not fed ({self.reason}): {_UNHEARD[self.reason].format(detail=self.detail)}"
        )


@frozen
class RemotingFrameError(ProtocolViolation):
    """A frame of the remoting protocol that cannot be read, and nothing behind it can be."""


@frozen
class FrameLengthOutOfRange(RemotingFrameError):
    """A remoting frame is shorter than its own header or longer than the limit.

    @ivar size: Bytes of the whole frame, its length field included.
    @ivar limit: The most we accept, in bytes.
    """

    size: int
    limit: int

    def __str__(self) -> str:
        return f"remoting frame of {self.size} bytes, must be 8 to {self.limit}"


@frozen
class HeaderLengthOutOfRange(RemotingFrameError):
    """A remoting header is longer than its frame or than the limit.

    @ivar size: Its announced size, in bytes.
    @ivar limit: The most there can be, in bytes.
    """

    size: int
    limit: int

    def __str__(self) -> str:
        return f"remoting header of {self.size} bytes, must be 0 to {self.limit}"


@frozen
class SerializeTypeUnknown(RemotingFrameError):
    """A remoting header is of an unknown kind.

    @ivar number: The type byte.
    """

    number: int

    def __str__(self) -> str:
        return f"remoting header of unknown type {self.number}, must be 0 (JSON) or 1 (ROCKETMQ)"


@frozen
class HeaderUndecodable(RemotingFrameError):
    """The bytes of a remoting header are not what its type says.

    @ivar size: Bytes of the header.
    @ivar reason: What is wrong with it.
    """

    size: int
    reason: str

    def __str__(self) -> str:
        return f"remoting header of {self.size} bytes cannot be read: {self.reason}"


@frozen
class HeaderTooCostly(RemotingFrameError):
    """A remoting header would take longer to read than any that a client needs.

    @ivar size: Its size, in C{unit}s.
    @ivar limit: The most we read.
    @ivar unit: Bytes of JSON that only Java reads, or fields of any kind.
    """

    size: int
    limit: int
    unit: str

    def __str__(self) -> str:
        return f"remoting header of {self.size} {self.unit}, at most {self.limit} are read"


@frozen
class HeaderFieldInvalid(RmqhaError):
    """A field of a command's custom header is missing or of the wrong kind.

    Not the end of the connection: the request is answered with code 1 and this text.

    @ivar header: The header class.
    @ivar name: The field's name on the wire.
    @ivar value: What was sent, or C{None}.
    @ivar expected: The kind it should be.
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


@frozen
class JsonInvalid(RmqhaError):
    """A text is no JSON, not even by fastjson's rules.

    @ivar position: Where reading stopped, in characters.
    @ivar reason: What is wrong there.
    """

    position: int
    reason: str

    def __str__(self) -> str:
        return f"invalid JSON at character {self.position}: {self.reason}"


@frozen
class ExpressionInvalid(RmqhaError):
    """A consumer's SQL92 filter cannot be read, or makes no sense.

    @ivar position: Where, in characters; the first is 1.
    @ivar fault: What is wrong there.
    """

    position: int
    fault: str

    def __str__(self) -> str:
        return f"invalid SQL92 filter at character {self.position}: {self.fault}"


@frozen
class BodyInvalid(RmqhaError):
    """The body of a remoting command is not what its code asks for.

    Not the end of the connection: the request is answered with code 1 and this text.

    @ivar kind: What it should be.
    @ivar reason: What is wrong, with the place.
    """

    kind: str
    reason: str

    def __str__(self) -> str:
        return f"the body is not a {self.kind}: {self.reason}"


@frozen
class NoController(RmqhaError):
    """Nobody leads the controllers, or whoever does is not reached.

    @ivar addresses: All of them.
    @ivar reason: What was said.
    """

    addresses: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"no controller of {', '.join(self.addresses)} leads: {self.reason}"


@frozen
class ControllerRefused(RmqhaError):
    """The controller that leads said no.

    @ivar address: Which one.
    @ivar code: A L{ControllerResponseCode<rmqha.wire.remoting.codes.ControllerResponseCode>}, as a
        rule.
    @ivar remark: What it said.
    """

    address: str
    code: int
    remark: str

    def __str__(self) -> str:
        return f"the controller at {self.address} answered {self.code}: {self.remark}"


@frozen
class ControllerUnanswered(RmqhaError):
    """The controller that leads was asked and did not answer: nobody knows whether it did what was
    asked.

    @ivar address: Which one.
    @ivar request: The request code.
    @ivar reason: Why there is no answer.
    """

    address: str
    request: int
    reason: str

    def __str__(self) -> str:
        return (
            f"the controller at {self.address} did not answer request {self.request}: {self.reason}"
        )


@frozen
class RequestRefused(RmqhaError):
    """A request is answered with a code other than success.

    A handler of ours raises it, and so does what asked a peer.

    @ivar code: The answer's code.
    @ivar remark: What is said about it.
    @ivar request: The code of a request that we made.
    """

    code: int
    remark: str | None = None
    request: int | None = None

    def __str__(self) -> str:
        what = "a request" if self.request is None else f"request {self.request}"
        return f"{what} was answered with code {self.code}: {self.remark}"


@frozen(kw_only=True)
class AccessDenied(RequestRefused):
    """Access control refuses a request.

    @ivar account: The access key that it came with; empty for none.
    @ivar reason: Why, for the log: more than who sent it is told.
    """

    account: str
    reason: str

    def __str__(self) -> str:
        return f"{self.account or 'no access key'}: {self.reason}"


@frozen
class MetadataRefused(RmqhaError):
    """A table of the master is not believed; the one held here stays.

    @ivar table: Which.
    @ivar reason: Why, with the numbers.
    """

    table: str
    reason: str

    def __str__(self) -> str:
        return f"the master's table of {self.table} is refused: {self.reason}"


@frozen
class AnotherBroker(MetadataRefused):
    """It is a table of another broker or cluster."""


@frozen
class RemotingTimeout(RmqhaError):
    """A request was not answered in time.

    @ivar request: The request's code.
    @ivar seconds: How long we waited.
    @ivar address: Who was asked.
    """

    request: int
    seconds: float
    address: str

    def __str__(self) -> str:
        return f"{self.address} did not answer request {self.request} within {self.seconds:g} s"


@frozen
class MasterLeft(RmqhaError):
    """A master went away while its log was compared.

    @ivar address: Its address.
    @ivar offset: Just past the last byte that came, in bytes.
    @ivar reason: How it went.
    """

    address: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"master {self.address} disconnected at byte {self.offset}: {self.reason}"


@frozen
class MasterUnidentified(RmqhaError):
    """A master's client port did not say whose it is, and TLS may be said to a broker of ours
    alone.

    @ivar reason: Why there was no answer; the subject is the master.
    """

    reason: str

    def __str__(self) -> str:
        return (
            f"its client port did not answer ({self.reason}), so it may be a stock broker, and "
            "haTlsEnable=true would have its HA port take TLS for an acknowledgement"
        )


@frozen
class NothingCommon(RmqhaError):
    """A log and a master's have no byte that could be compared.

    @ivar address: The master's address.
    @ivar first: Our first byte.
    @ivar end: Just past our last byte.
    @ivar reason: What the master said or did.
    """

    address: str
    first: int
    end: int
    reason: str

    def __str__(self) -> str:
        ours = f"our log holds [{self.first}, {self.end})"
        return f"no bytes to compare: {ours}, master {self.address} {self.reason}"


@frozen
class RemotingUnreachable(RmqhaError):
    """There is no connection to a peer, and none could be made.

    @ivar address: Whose.
    @ivar reason: Why not.
    """

    address: str
    reason: str

    def __str__(self) -> str:
        return f"cannot connect to {self.address}: {self.reason}"


@frozen
class PeerNotReading(ProtocolViolation):
    """A peer asks and does not read the answers.

    @ivar held: Bytes of answers that wait for it.
    @ivar seconds: How long its connection has taken nothing.
    """

    held: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.held} bytes of answers wait, the peer has read none for {self.seconds:.0f} s"


@frozen
class RuntimeInfoInvalid(ProtocolViolation):
    """A broker's runtime information (request 28) does not tell what was asked for.

    @ivar key: The entry that is missing or garbled.
    @ivar text: What stands in its place.
    """

    key: str
    text: str

    def __str__(self) -> str:
        return f"invalid {self.key} in the broker's runtime info (request 28): {self.text}"


# --- records and files ------------------------------------------------------


class StoreError(RmqhaError):
    """Something about our own files."""


@frozen
class RecordFault(StoreError):
    """The bytes at a physical offset are not a whole, valid record.

    @ivar offset: Physical offset, in bytes.
    @ivar reason: A L{rmqha.wire.log.record.Fault} name.
    @ivar detail: The numbers, for a person.
    """

    offset: int
    reason: str
    detail: str = ""

    def __str__(self) -> str:
        more = f" ({self.detail})" if self.detail else ""
        return f"no valid record at byte {self.offset}: {self.reason}{more}"


@frozen
class NotSound(StoreError):
    """A log that was read as a whole has faults.

    @ivar path: The log.
    @ivar count: How many.
    @ivar first: The first one, in words.
    """

    path: str
    count: int
    first: str

    def __str__(self) -> str:
        faults = "a fault" if self.count == 1 else f"{self.count} faults"
        return f"the log in {self.path} has {faults}: {self.first}"


@frozen
class RecordDamaged(RecordFault):
    """A record that was to become a row is damaged.

    @ivar size: Bytes to the next record if only the body is damaged; 0 where the chain of
        records is broken, so that it is not known.
    """

    size: int = 0


@frozen
class MessageIllegal(StoreError):
    """A message cannot be stored as it is.

    @ivar field: What is wrong with it, in RocketMQ's words (C{topic}, C{body}, ...).
    @ivar value: The offending number.
    @ivar limit: What is allowed.
    """

    field: str
    value: int
    limit: int

    def __str__(self) -> str:
        return f"message {self.field} is {self.value}, the limit is {self.limit}"


@frozen
class NotWritable(StoreError):
    """The store takes no writes now.

    @ivar state: The node's state.
    @ivar reason: Why.
    """

    state: str
    reason: str

    def __str__(self) -> str:
        return f"store is {self.state}: {self.reason}"


@frozen
class TooFewInSync(NotWritable):
    """The SyncStateSet has fewer members than a write needs.

    @ivar found: How many it has, the master among them.
    @ivar needed: C{minInSyncReplicas}.
    """

    state: str = field(init=False, default="short of replicas")
    reason: str = field(init=False, default="in-sync replicas not enough")
    found: int
    needed: int

    def __str__(self) -> str:
        return f"the SyncStateSet has {self.found} members, a write needs {self.needed}"


@frozen
class TwinMaster(RmqhaError):
    """A master must not start beside another live one of its name.

    @ivar name: The C{brokerName}.
    @ivar address: C{host:port} of the client port of the one that is to start.
    @ivar epoch: Its master epoch.
    @ivar other: C{host:port} of the client port of the live one.
    @ivar other_epoch: Its master epoch.
    """

    name: str
    address: str
    epoch: int
    other: str
    other_epoch: int

    def __str__(self) -> str:
        return (
            f"{self.other} is a live master of {self.name} with master epoch {self.other_epoch}; "
            f"this store, to be served at {self.address}, has master epoch {self.epoch}: start it "
            f"as a slave (brokerRole=SLAVE, brokerId above 0), or stop the other master; --force "
            f"starts this one all the same"
        )


@frozen
class CutBelowConfirm(StoreError):
    """A log must not be cut as an elected master wants it, because readers may have seen what would
    go.

    @ivar operation: What is refused.
    @ivar start: The first byte that would go, a physical offset.
    @ivar confirm: Up to where readers may see the log.
    @ivar end: Where the log ends.
    """

    operation: str
    start: int
    confirm: int
    end: int

    def __str__(self) -> str:
        return (
            f"{self.operation} is refused: bytes {self.start} to {self.end} would go, and readers "
            f"may have seen them up to the confirm offset {self.confirm}; controllerCutPolicy=all "
            "allows it"
        )


@frozen(kw_only=True)
class HeldForAnotherMaster(StoreError):
    """A log must not be cut as one master wants it, because the bytes were reported to another one
    as held.

    @ivar operation: What is refused.
    @ivar start: The first byte that would go, a physical offset.
    @ivar end: Up to where the log was reported as held.
    @ivar holder: C{host:port} of the HA port of the master that was told so.
    @ivar holder_epoch: Its master epoch; C{None} if it told none.
    @ivar master: C{host:port} of the HA port of the master that does not have them.
    @ivar master_epoch: Its master epoch; C{None} if it told none.
    """

    operation: str
    start: int
    end: int
    holder: str
    holder_epoch: int | None
    master: str
    master_epoch: int | None

    def __str__(self) -> str:
        epochs = [
            "unknown" if epoch is None else str(epoch)
            for epoch in (self.holder_epoch, self.master_epoch)
        ]
        return (
            f"{self.operation} refused: bytes {self.start} to {self.end} were acknowledged to "
            f"master {self.holder} (master epoch {epochs[0]}), and master {self.master} (master "
            f"epoch {epochs[1]}) does not have them. If {self.master} is the right master, start "
            f"this slave once with haTrustMaster={self.master}; if {self.holder} is, stop the "
            f"other one"
        )


@frozen
class StoreLocked(StoreError):
    """Another process holds the store's lock.

    @ivar path: The lock file.
    """

    path: str

    def __str__(self) -> str:
        return f"{self.path} is held by a running node"


@frozen
class FileSizeMismatch(StoreError):
    """A mapped file on disk has not the configured size.

    @ivar path: The file.
    @ivar found: Its size, in bytes.
    @ivar configured: C{mappedFileSizeCommitLog}, in bytes.
    """

    path: str
    found: int
    configured: int

    def __str__(self) -> str:
        return f"{self.path} has {self.found} bytes, mappedFileSizeCommitLog is {self.configured}"


@frozen
class BrokenSequence(StoreError):
    """The files of the log do not follow one another.

    @ivar path: The file that is out of place.
    @ivar expected: The offset its name should say.
    @ivar found: The offset its name says.
    """

    path: str
    expected: int
    found: int

    def __str__(self) -> str:
        return (
            f"{self.path} starts at byte {self.found}, the file before it ends at {self.expected}"
        )


@frozen
class LogCorrupt(StoreError):
    """A bad place in the log is followed by a valid record: damage, not a torn tail.

    @ivar path: The log file.
    @ivar offset: Physical offset of the bad place.
    @ivar reason: Which check failed.
    @ivar next_valid: Physical offset of the valid record behind it.
    """

    path: str
    offset: int
    reason: str
    next_valid: int

    def __str__(self) -> str:
        return (
            f"{self.path}: bad record at byte {self.offset} ({self.reason}), but a valid one "
            f"follows at byte {self.next_valid}: this is damage, not a torn tail"
        )


@frozen
class LogShortened(StoreError):
    """The log ends before where it was on the disk once: bytes, or files, are missing.

    @ivar path: The log's folder.
    @ivar end: Where it ends now, in bytes.
    @ivar known: Up to where it was surely on the disk.
    @ivar mark: The file of ours that says so.
    """

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


@frozen
class TailNotFetched(LogShortened):
    """The same, and replicas that could be asked did not give what is missing; they are asked again
    at the next start.
    """


@frozen
class DiskFull(StoreError):
    """The disk has no room for the next step of the log.

    @ivar path: What was to grow.
    @ivar wanted: Bytes asked for.
    """

    path: str
    wanted: int

    def __str__(self) -> str:
        return f"no space for {self.wanted} bytes of {self.path}"


@frozen
class OutOfDescriptors(DiskFull):
    """The process, or the machine, has no file descriptor left for the next step of the log.  As
    with a full disk nothing is lost and it may pass: writes are refused until there is one again.
    """

    def __str__(self) -> str:
        return f"no file descriptor left to open {self.path}"


@frozen
class ThreadNotStarted(RmqhaError):
    """The process, or the machine, has no thread left for some work.  It was not begun, and it may
    pass.

    @ivar name: The thread's.
    @ivar reason: The interpreter's text.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"cannot start the thread {self.name}: {self.reason}"


@frozen
class FlushFailed(StoreError):
    """An fsync failed.  It is final: what the kernel dropped cannot be told.

    @ivar path: The file.
    @ivar error: The operating system's text.
    """

    path: str
    error: str

    def __str__(self) -> str:
        return f"fsync of {self.path} failed: {self.error}"


@frozen
class RecordCrossesFile(StoreError):
    """A master's record crosses a file end of ours: its C{mappedFileSizeCommitLog} differs.

    @ivar offset: Where the record starts.
    @ivar size: Its size.
    @ivar file_size: Our file size.
    """

    offset: int
    size: int
    file_size: int

    def __str__(self) -> str:
        return (
            f"record of {self.size} bytes at {self.offset} crosses a file end; "
            f"our mappedFileSizeCommitLog is {self.file_size}, the master's is not"
        )


@frozen
class StartNotAligned(StoreError):
    """A master's log starts inside what would be one file of ours.

    @ivar offset: Where it starts.
    @ivar file_size: Our file size.
    """

    offset: int
    file_size: int

    def __str__(self) -> str:
        return (
            f"the master's log starts at {self.offset}, which is not a multiple of our "
            f"mappedFileSizeCommitLog {self.file_size}"
        )


@frozen
class LogLost(StoreError):
    """The bytes a replica needs next were deleted; it cannot go on from where it is.

    @ivar needed: The first byte it lacks.
    @ivar oldest: The first byte we still have.
    """

    needed: int
    oldest: int

    def __str__(self) -> str:
        return (
            f"{self.oldest - self.needed} bytes that the replica needs are deleted: "
            f"it is at byte {self.needed}, our log begins at {self.oldest}"
        )


@frozen
class DerivedFault(StoreError):
    """A consume queue or index disagrees with the log.

    @ivar path: The file or folder.
    @ivar offset: Position inside it (units for queues, entries for an index).
    @ivar reason: What disagrees, with numbers.
    """

    path: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path} at {self.offset}: {self.reason}"


@frozen
class EpochFileInvalid(StoreError):
    """Neither the epoch file nor its C{.bak} can be read, or labels cannot be written to it.

    @ivar path: The file.
    @ivar reason: Why.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@frozen
class EpochLabelBehind(StoreError):
    """A label that is to follow another is not above it, or starts before it.

    @ivar label: The label.
    @ivar start: Where it starts, in bytes.
    @ivar newest: The newest label there is.
    @ivar newest_start: Where that starts.
    """

    label: int
    start: int
    newest: int
    newest_start: int

    def __str__(self) -> str:
        return (
            f"epoch label {self.label} from byte {self.start} cannot follow label {self.newest} "
            f"from byte {self.newest_start}"
        )


@frozen
class IdentityInvalid(StoreError):
    """The file that says which member of its set a store belongs to cannot be read, or speaks of
    another set.

    @ivar path: The file.
    @ivar reason: Why.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@frozen
class MemberLivesElsewhere(RmqhaError):
    """The id of a member is alive at another address than this node's.

    @ivar id: The controller id.
    @ivar address: C{host:port} of who lives under it.
    @ivar copied: Whether that one has the same disk, or this node a copy of it.
    """

    id: int
    address: str
    copied: bool

    def __str__(self) -> str:
        if self.copied:
            return (
                f"id {self.id} lives at {self.address}, and this store is a copy of its disk: "
                "rmqha controller reset makes it a member of its own"
            )
        return f"id {self.id} is alive at {self.address}: waiting until the controllers miss it"


@frozen
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


@frozen
class TableUnreadable(StoreError):
    """Neither a JSON table nor its C{.bak} makes sense.

    @ivar path: The table.
    @ivar reason: Why.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@frozen
class LedgerInvalid(RmqhaError):
    """A file that should tell what a client was told of its messages does not.

    @ivar path: The file.
    @ivar line: Which line, from 1 on; 0 for the file as a whole.
    @ivar reason: What is wrong with it.
    """

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        where = f", line {self.line}" if self.line else ""
        return f"{self.path}{where}: {self.reason}"


@frozen
class TruncationInvalid(StoreError):
    """A file that says where the log is to be cut does not speak of this log.

    @ivar path: The file.
    @ivar reason: What is wrong with it.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path} asks for a truncation that is not of this log: {self.reason}; "
            f"move it away to start without it"
        )


@frozen
class PointInvalid(StoreError):
    """What is published beside a log cannot be read.

    @ivar reason: What is wrong with it.
    """

    reason: str

    def __str__(self) -> str:
        return f"the published point cannot be read: {self.reason}"


@frozen
class NotAStore(StoreError):
    """A path given as a store is not one.

    @ivar path: The path.
    @ivar reason: What it lacks.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is not a RocketMQ store: {self.reason}"


@frozen
class NotTheOwner(StoreError):
    """A command is to change a store of another user's.

    @ivar path: The store's root.
    @ivar owner: Whom it belongs to.
    @ivar user: Who runs the command.
    """

    path: str
    owner: str
    user: str

    def __str__(self) -> str:
        return (
            f"{self.path} belongs to {self.owner}, and {self.user} cannot act as that user: what "
            f"is made here would keep the node from starting; use sudo -u {self.owner}"
        )


@frozen
class ForeignFile(StoreError):
    """The owner of a store cannot write a part of it.

    @ivar path: The file or folder.
    @ivar owner: Whom it belongs to.
    @ivar wanted: Whom the store belongs to.
    """

    path: str
    owner: str
    wanted: str

    def __str__(self) -> str:
        return (
            f"{self.path} belongs to {self.owner}, the store to {self.wanted}, who cannot write "
            f"it: give the whole store to {self.wanted} with chown -R"
        )


@frozen
class ArchiveNotAStore(StoreError):
    """A node, or a command that changes stores, was given an archive, or what an interrupted
    restore left.

    @ivar path: The first log file that is not finished.
    @ivar files: How many there are.
    """

    path: str
    files: int

    def __str__(self) -> str:
        more = f" and {self.files - 1} more" if self.files > 1 else ""
        return (
            f"{self.path}{more} is not finished: this is an archive, or an interrupted restore; "
            "rmqha restore makes a store of an archive"
        )


@frozen
class UnfinishedCopy(StoreError):
    """A store is an unfinished copy of a master's, and is to be a master's.

    @ivar path: The marker that says so.
    @ivar held: Bytes of log files that it has so far.
    """

    path: str
    held: int

    def __str__(self) -> str:
        return (
            f"{self.path} says that this is an unfinished copy of a master's store, "
            f"with {self.held} bytes of log files: only a slave can finish it"
        )


@frozen
class Refused(StoreError):
    """An operation on a store is refused because it could lose data.

    @ivar operation: What was asked for.
    @ivar reason: Why not, with the numbers.
    """

    operation: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operation} refused: {self.reason}"


@frozen
class ReplicaLacks(RmqhaError):
    """A replica has not the bytes of the log that are wanted of it.

    @ivar replica: Who was asked.
    @ivar offset: The first byte wanted.
    @ivar said: What it has instead.
    """

    replica: str
    offset: int
    said: str

    def __str__(self) -> str:
        return f"{self.replica} has nothing from byte {self.offset} on: {self.said}"


# --- shutdown ---------------------------------------------------------------


@frozen
class ShutdownFailed(RmqhaError):
    """Steps of a shutdown failed; the others were taken, and each error is in the log.

    @ivar subject: What was shut down.
    @ivar steps: Names of the steps that failed.
    """

    subject: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return f"shutdown of {self.subject}: failed steps: {', '.join(self.steps)}"


# --- configuration ----------------------------------------------------------


class ConfigError(RmqhaError):
    """The configuration cannot be used."""


@frozen
class BadValue(ConfigError):
    """A key's value is not allowed.

    @ivar key: The key.
    @ivar value: Its text.
    @ivar allowed: What is allowed, in words.
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


@frozen
class ColumnUnknown(PipelineError):
    """A column that the table does not have.

    @ivar column: The column as written.
    @ivar nearest: The nearest known one, or C{""}.
    """

    column: str
    nearest: str = ""

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"unknown column {self.column}{hint}"


# --- sending from the pipeline ----------------------------------------------


@frozen
class ExtraMissing(PipelineError):
    """What is wanted needs an extra that is not installed.

    @ivar wanted: What is wanted.
    @ivar extra: The extra's name.
    @ivar module: The module that was looked for.
    """

    wanted: str
    extra: str
    module: str

    def __str__(self) -> str:
        return f"{self.wanted} needs {self.module}: install rmqha[{self.extra}]"
