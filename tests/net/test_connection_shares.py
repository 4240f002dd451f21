"""Tests for L{rmqha.net.connection_shares}: who may have how many descriptors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.connection_shares import ConnectionShares

COUNT = st.integers(1, 2_000_000)


class ConnectionSharesTests(SynchronousTestCase):
    """The limit of open files, shared out."""

    def test_usual_limits(self) -> None:
        """What is left where a process may open few files, many, and very many."""
        for files, stored, clients, ha in (
            (120, 40, 38, 12),
            (1024, 270, 470, 156),
            (20_000, 1100, 16_772, 2000),
            (1_048_576, 3000, 65_536, 2000),
        ):
            shares = ConnectionShares(files=files, ha_wanted=2000, stored=lambda n=stored: n)
            self.assertEqual((shares.clients, shares.ha), (clients, ha))
            self.assertEqual(shares.status(), {"clients": clients, "ha": ha})

    @given(COUNT, st.integers(0, 100_000), st.integers(0, 100_000), st.integers(0, 100_000))
    def test_never_more_than_there_are(
        self, files: int, clients: int, ha: int, stored: int
    ) -> None:
        """Connections, the store's files and the process's own fit into the limit, or it says that
        they do not; nobody has more than was asked for, or nothing.
        """
        shares = ConnectionShares(
            files=files, clients_wanted=clients, ha_wanted=ha, stored=lambda: stored
        )
        taken = shares.clients + shares.ha + stored + shares.own
        if files > 8 and not any("store's files" in text for text in shares.unmet()):
            self.assertLessEqual(taken, files)
        self.assertLessEqual(shares.ha, ha)
        self.assertTrue(1 <= shares.clients <= (clients or 65_536))
        self.assertEqual(bool(ha), bool(shares.ha))

    def test_unmet(self) -> None:
        """A key that cannot be met is told with both numbers; a default that follows is not."""
        shares = ConnectionShares(files=1024, clients_wanted=5000, ha_wanted=2000)
        self.assertEqual(
            shares.unmet(),
            [
                "haMaxConnections=2000 is lowered to 224",
                "clientMaxConnections=5000 is lowered to 672",
            ],
        )
        shares = ConnectionShares(files=1024, ha_wanted=100, stored=lambda: 2000)
        self.assertIn("may need 2000", shares.unmet()[-1])
        self.assertEqual([], ConnectionShares(files=20_000, ha_wanted=2000).unmet())
        self.assertEqual({"clients": 896}, ConnectionShares(files=1024).status())
