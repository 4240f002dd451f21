"""Questions, as values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.ha.slave.probe import PROBE_WINDOW, OverlapSearch, Probe, ProbeKind, StartSearch

GIB = 1 << 30
BATCH = 32768


def overlap(
    min_offset: int,
    end: int,
    *,
    batch: int = BATCH,
    proven: bool = False,
    durable: int | None = None,
    size: int = GIB,
    bounds: MasterBounds | None = None,
) -> OverlapSearch:
    """A search of a slave with such a log."""
    return OverlapSearch.of(
        min_offset, end, size, batch=batch, proven_before=proven, durable=durable, bounds=bounds
    )


def reports(search: OverlapSearch) -> list[int]:
    """All that a search asks before its survey, if nothing is answered."""
    asked = []
    while search.question().ask is not ProbeKind.SURVEY:
        asked.append(search.question().report)
        if not search.lower():
            break
    return asked


class OverlapTests(SynchronousTestCase):
    """L{OverlapSearch}: low first, and only down."""

    def test_starts_with_the_last_file(self) -> None:
        """The first time, all of the last file is compared if it is more than the window."""
        search = overlap(0, 3 * GIB + 500_000_001)
        self.assertEqual(search.question(), Probe(ProbeKind.OVERLAP, 3 * GIB))

    def test_starts_with_the_window(self) -> None:
        """At least the window is compared, even over the last file's start."""
        end = 3 * GIB + 5_000_001
        self.assertEqual(overlap(0, end).question().report, end - PROBE_WINDOW)

    def test_window_alone_when_proven(self) -> None:
        """Once compared, only the window is compared again."""
        end = 3 * GIB + 500_000_001
        self.assertEqual(overlap(0, end, proven=True).question().report, end - PROBE_WINDOW - 1)

    def test_never_asks_for_zero(self) -> None:
        """0 means something else, so a short log is asked for from 1 on."""
        self.assertEqual(overlap(0, 5000).question(), Probe(ProbeKind.OVERLAP, 1))

    def test_keeps_to_its_own_log(self) -> None:
        """Nothing below our own min is asked for."""
        self.assertEqual(overlap(2 * GIB, 2 * GIB + 999).question().report, 2 * GIB)

    def test_no_multiple_of_a_frame(self) -> None:
        """The window ends in a shorter frame, which tells the master's end."""
        end = GIB - 4096
        start = overlap(0, end, proven=True).question().report
        self.assertEqual((end - PROBE_WINDOW) - start, 1)
        self.assertNotEqual((end - start) % BATCH, 0)

    def test_nothing_above_the_durable_end(self) -> None:
        """A slave that acknowledges what is on its disk asks for nothing above that."""
        end = 3 * GIB
        search = overlap(0, end, proven=True, durable=end - 2 * PROBE_WINDOW)
        self.assertLessEqual(search.question().report, end - 2 * PROBE_WINDOW)

    def test_last_file_once(self) -> None:
        """When the master goes on behind our end, our last file is asked for once, no more."""
        search = overlap(0, 10 * GIB + 5)
        self.assertLess(search.question().report, 10 * GIB)
        self.assertTrue(search.try_last_file())
        self.assertEqual(search.question(), Probe(ProbeKind.OVERLAP, 10 * GIB))
        self.assertTrue(search.lower())
        self.assertEqual(search.question(), Probe(ProbeKind.SURVEY, 0))
        self.assertFalse(search.try_last_file())

    def test_lower_and_lower(self) -> None:
        """Each step is four times as far back; then the min; then a survey; then no more."""
        end = 10 * GIB + 1
        search = overlap(GIB, end, proven=True)
        asked = [search.question().report]
        while search.lower():
            question = search.question()
            if question.ask is ProbeKind.SURVEY:
                break
            asked.append(question.report)
        back = [end - each for each in asked]
        self.assertEqual(back[:3], [PROBE_WINDOW, 4 * PROBE_WINDOW, 16 * PROBE_WINDOW])
        self.assertEqual(asked[-1], GIB)
        self.assertEqual(search.question(), Probe(ProbeKind.SURVEY, 0))
        self.assertFalse(search.lower())

    @given(
        st.integers(0, 40 * GIB), st.integers(2, 40 * GIB), st.integers(1, 1 << 22), st.booleans()
    )
    def test_only_down(self, minimum: int, size: int, batch: int, proven: bool) -> None:
        """Whatever the log: questions fall, stay inside it, and end."""
        end = minimum + size
        search = overlap(minimum, end, batch=batch, proven=proven)
        last = end + 1
        for _ in range(64):
            question = search.question()
            if question.ask is ProbeKind.SURVEY:
                break
            self.assertLess(question.report, last)
            self.assertTrue(max(minimum, 1) <= question.report <= end)
            last = question.report
            self.assertTrue(search.lower())
        self.assertIs(search.question().ask, ProbeKind.SURVEY)
        self.assertEqual(last, max(minimum, 1))


class ToldTests(SynchronousTestCase):
    """L{OverlapSearch} when the master has told where its log begins and ends."""

    def test_not_above_its_end(self) -> None:
        """A master that lost its tail is asked below its own end, with a whole window."""
        end, theirs = 3 * GIB, GIB + 300_000_000
        search = overlap(0, end, proven=True, bounds=MasterBounds(0, theirs, 1))
        self.assertEqual(search.question(), Probe(ProbeKind.OVERLAP, theirs - PROBE_WINDOW - 1))
        search = overlap(0, end, bounds=MasterBounds(0, theirs, 1))
        self.assertEqual(search.question(), Probe(ProbeKind.OVERLAP, GIB))

    def test_same_as_without(self) -> None:
        """A master that has more than we is asked where it would be asked blindly."""
        end = 3 * GIB + 500_000_001
        blind = overlap(0, end).question()
        self.assertEqual(overlap(0, end, bounds=MasterBounds(0, 9 * GIB, 1)).question(), blind)

    def test_not_below_its_first_byte(self) -> None:
        """What it has deleted is not asked for."""
        search = overlap(0, 10 * GIB + 5, bounds=MasterBounds(10 * GIB, 12 * GIB, 1))
        self.assertEqual(reports(search), [10 * GIB])

    def test_empty_master(self) -> None:
        """One that has nothing is only surveyed."""
        search = overlap(0, 5000, bounds=MasterBounds(0, 0, 1))
        self.assertEqual(search.question(), Probe(ProbeKind.SURVEY, 0))
        self.assertFalse(search.lower())
        self.assertFalse(search.try_last_file())

    def test_master_that_ends_where_we_begin(self) -> None:
        """There is no byte that both have: it is only surveyed."""
        search = overlap(4000, 5000, bounds=MasterBounds(0, 4000, 1))
        self.assertEqual(search.question(), Probe(ProbeKind.SURVEY, 0))

    def test_begun_anew(self) -> None:
        """A search goes on only while what it rests on is still true."""
        search = overlap(0, 5000, bounds=MasterBounds(0, 4000, 1))
        self.assertTrue(search.fits(5000, None))
        self.assertTrue(search.fits(5000, MasterBounds(0, 9000, 1)))
        self.assertTrue(search.fits(5000, MasterBounds(1, 4000, 1)), "it says the same again")
        self.assertFalse(search.fits(5001, MasterBounds(0, 9000, 1)))
        self.assertFalse(search.fits(5000, MasterBounds(0, 3999, 1)))
        self.assertFalse(search.fits(5000, MasterBounds(2, 4000, 1)))

    @given(
        st.integers(0, 40 * GIB),
        st.integers(1, 40 * GIB),
        st.integers(0, 80 * GIB),
        st.integers(0, 80 * GIB),
        st.integers(1, 2 * GIB),
        st.integers(1, 1 << 22),
        st.booleans(),
        st.none() | st.integers(0, 80 * GIB),
    )
    def test_never_above_the_master(
        self,
        minimum: int,
        size: int,
        their_min: int,
        their_size: int,
        file_size: int,
        batch: int,
        proven: bool,
        durable: int | None,
    ) -> None:
        """Whatever both logs are: no question is above either end, all that both may have
        is asked in the end, and the first question has a window of it.
        """
        end, their_end = minimum + size, their_min + their_size
        low, high = max(minimum, their_min, 1), min(end, their_end)
        search = overlap(
            minimum,
            end,
            batch=batch,
            proven=proven,
            durable=durable,
            size=file_size,
            bounds=MasterBounds(their_min, their_end, 1),
        )
        asked = reports(search)
        if low >= high:
            self.assertEqual(asked, [])
            return
        self.assertTrue(all(low <= report < high for report in asked), (asked, low, high))
        self.assertGreaterEqual(high - asked[0], min(PROBE_WINDOW, high - low))
        self.assertEqual(asked, sorted(set(asked), reverse=True))
        self.assertEqual(asked[-1], low)
        self.assertFalse(search.try_last_file())


class StartTests(SynchronousTestCase):
    """L{StartSearch}: where does the master's log begin?"""

    def search(self, unit: int, minimum: int, last: int) -> tuple[int, list[int]]:
        """Ask a master that has all from C{minimum} on: where that ends, and what was asked."""
        search = StartSearch(unit)
        self.assertEqual(search.question(), Probe(ProbeKind.EMPTY, 0))
        search.begins_at(last)
        asked = []
        for _ in range(100):
            question = search.question()
            self.assertIs(question.ask, ProbeKind.START)
            asked.append(question.report)
            if question.report >= minimum:
                search.on_bytes()
                if search.is_settled:
                    return question.report, asked
            else:
                search.on_silence()
        raise AssertionError(f"no end: {asked}")

    def test_whole(self) -> None:
        """A master that has everything is found out with one question."""
        self.assertEqual(self.search(GIB, 0, 7 * GIB), (1, [1]))

    def test_only_the_last(self) -> None:
        """One that has only what it sent is asked for that."""
        self.assertEqual(self.search(GIB, GIB, GIB), (GIB, [1, GIB]))

    def test_told(self) -> None:
        """A master that tells where its log begins is asked there at once."""
        for minimum in (0, 1, 3 * GIB, 7 * GIB):
            search = StartSearch(GIB)
            search.on_bounds(minimum)
            self.assertEqual(search.question(), Probe(ProbeKind.EMPTY, 0))
            search.begins_at(7 * GIB)
            search.on_bounds(minimum)
            self.assertEqual(search.question(), Probe(ProbeKind.START, max(minimum, 1)))
            search.on_bytes()
            self.assertTrue(search.is_settled)

    def test_told_wrongly(self) -> None:
        """Who is silent, or says it begins behind what it sent, is not believed again."""
        search = StartSearch(GIB)
        search.begins_at(8 * GIB)
        search.on_bounds(2 * GIB)
        search.on_silence()
        search.on_bounds(2 * GIB)
        self.assertEqual(search.question(), Probe(ProbeKind.START, 5 * GIB))
        search.on_bounds(9 * GIB)
        self.assertEqual(search.question(), Probe(ProbeKind.START, 5 * GIB))

    @given(st.integers(0, 500), st.integers(0, 500))
    def test_binary(self, first: int, more: int) -> None:
        """The first file is found in about log2 of the files' number."""
        found, asked = self.search(4096, first * 4096, (first + more + 1) * 4096)
        self.assertEqual(found, first * 4096 or 1)
        self.assertLessEqual(len(asked), 13)
