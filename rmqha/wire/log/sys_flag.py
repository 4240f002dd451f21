"""The bits of a record's system flag: RocketMQ's C{MessageSysFlag}.

Source: docs/protocol/store.rst, Records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPRESSED = 0x1
"""The body is compressed."""
MULTI_TAGS = 0x2
"""The message has more than one tag."""

TRANSACTION = 0xC
"""The two bits of a transaction's state; none for a plain message."""
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC

BORN_IP6 = 0x10
"""The producer's address is one of IPv6, of 16 bytes instead of 4."""
STORE_IP6 = 0x20
"""The same of the broker's."""
IP6_HOSTS = BORN_IP6 | STORE_IP6

COMPRESSION_TYPE = 0x700
"""The three bits that say how a body is compressed."""


@overload
def has_unit(sys_flag: int) -> bool: ...
@overload
def has_unit(sys_flag: NDArray[Any]) -> NDArray[Any]: ...
def has_unit(sys_flag: Any) -> Any:
    """Whether a record gets a queue unit: half messages and rollbacks do not.

    @param sys_flag: One system flag, or an array of them.
    @return: A truth value for each.
    """
    state = sys_flag & TRANSACTION
    return (state == 0) | (state == COMMIT)


@overload
def indexable(sys_flag: int) -> bool: ...
@overload
def indexable(sys_flag: NDArray[Any]) -> NDArray[Any]: ...
def indexable(sys_flag: Any) -> Any:
    """Whether a record's keys are indexed: rollbacks' are not."""
    return sys_flag & TRANSACTION != ROLLBACK
