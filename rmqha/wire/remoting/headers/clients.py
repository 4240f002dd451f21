"""Clients, their groups and their transactions.

Source: docs/protocol/remoting.md, Clients, and Transactions.
"""

from __future__ import annotations

from rmqha.wire.remoting.fields import Header, Long, ext


class UnregisterClientRequest(Header):
    """Code 35: a client leaves its groups."""

    client_id: str = ext("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupRequest(Header):
    """Codes 38 and 203, and 40 towards a client."""

    consumer_group: str


class ProducerGroupRequest(Header):
    """Code 204: about one producer group."""

    producer_group: str


class EndTransactionRequest(Header):
    """Code 37.

    @ivar tran_state_table_offset: Queue offset of the half message.
    @ivar commit_log_offset: Physical offset of the half message, in bytes.
    @ivar commit_or_rollback: 8 commits, 12 rolls back, 0 does not know.
    @ivar from_transaction_check: Whether it answers a check.
    """

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    topic: str | None = None


class CheckTransactionRequest(Header):
    """Code 39, towards a producer; the half message is the body.

    @ivar tran_state_table_offset: Queue offset of the half message.
    @ivar commit_log_offset: Physical offset of the half message, in bytes.
    """

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = ext("bname", default=None)


class ResumeCheckRequest(Header):
    """Code 323: check a half message again.

    @ivar msg_id: An offset id.
    """

    msg_id: str | None = None


class RunningInfoRequest(Header):
    """Code 307, passed on to the client.

    @ivar jstack_enable: Whether the client's stacks are wanted.
    """

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeDirectlyRequest(Header):
    """Code 309; passed on to the client with the message as its body.

    @ivar msg_id: An offset id.
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
