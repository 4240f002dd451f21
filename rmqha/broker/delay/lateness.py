"""How late things happened that had their time: a histogram of a few numbers."""

from __future__ import annotations

from collections import Counter

from attrs import define, field


@define(eq=False)
class Lateness:
    """How late messages were, of those that became due while this ran.

    @ivar counts: How many, by the bit length of their lateness in milliseconds.
    @ivar most: The latest, in milliseconds.
    """

    counts: Counter[int] = field(factory=Counter)
    most: int = 0

    def note(self, late: int) -> None:
        """Count a message.

        @param late: Milliseconds between its time and its delivery.
        """
        self.counts[late.bit_length()] += 1
        self.most = max(self.most, late)

    def below(self, part: float) -> int:
        """Milliseconds that a part of all was late at most, rounded up to a power of two less 1."""
        left = part * self.counts.total()
        for bits in sorted(self.counts):
            left -= self.counts[bits]
            if left <= 0:
                return min(self.most, (1 << bits) - 1)
        return 0
