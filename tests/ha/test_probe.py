"""
Questions, as values.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.ha.probe import PROBE_WINDOW, Ask, OverlapSearch, Question, StartSearch

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
) -> OverlapSearch:
    """
    A search of a slave with such a log.
    """
    last = (end - 1) - (end - 1) % size
    return OverlapSearch.of(
        min_offset, end, last, batch=batch, proven_before=proven, durable=durable
    )


class OverlapTests(SynchronousTestCase):
    """
    L{OverlapSearch}: low first, and only down.
    """

    def test_starts_with_the_last_file(self) -> None:
        """
        The first time, all of the last file is compared if it is more than the window.
        """
        search = overlap(0, 3 * GIB + 500_000_001)
        self.assertEqual(search.question(), Question(Ask.OVERLAP, 3 * GIB))

    def test_starts_with_the_window(self) -> None:
        """
        At least the window is compared, even over the last file's start.
        """
        end = 3 * GIB + 5_000_001
        search = overlap(0, end)
        self.assertEqual(search.question().report, end - PROBE_WINDOW)

    def test_window_alone_when_proven(self) -> None:
        """
        Once compared, only the window is compared again.
        """
        end = 3 * GIB + 500_000_001
        self.assertEqual(overlap(0, end, proven=True).question().report, end - PROBE_WINDOW - 1)

    def test_never_asks_for_zero(self) -> None:
        """
        0 means something else, so a short log is asked for from 1 on.
        """
        self.assertEqual(overlap(0, 5000).question(), Question(Ask.OVERLAP, 1))

    def test_keeps_to_its_own_log(self) -> None:
        """
        Nothing below our own min is asked for.
        """
        search = overlap(2 * GIB, 2 * GIB + 999)
        self.assertEqual(search.question().report, 2 * GIB)

    def test_no_multiple_of_a_frame(self) -> None:
        """
        The window ends in a shorter frame, which tells the master's end.
        """
        end = GIB - 4096
        start = overlap(0, end, proven=True).question().report
        self.assertEqual((end - PROBE_WINDOW) - start, 1)
        self.assertNotEqual((end - start) % BATCH, 0)

    def test_nothing_above_the_durable_end(self) -> None:
        """
        A slave that acknowledges what is on its disk asks for nothing above that.
        """
        end = 3 * GIB
        search = overlap(0, end, proven=True, durable=end - 2 * PROBE_WINDOW)
        self.assertLessEqual(search.question().report, end - 2 * PROBE_WINDOW)

    def test_last_file_once(self) -> None:
        """
        When the master turns out to go on behind our end, our last file is asked for
        once, and then there is only the survey.
        """
        search = OverlapSearch.of(0, 10 * GIB + 5, 10 * GIB, batch=32768, proven_before=False)
        self.assertLess(search.question().report, 10 * GIB)
        self.assertTrue(search.try_last_file())
        self.assertEqual(search.question(), Question(Ask.OVERLAP, 10 * GIB))
        self.assertTrue(search.lower())
        self.assertEqual(search.question(), Question(Ask.SURVEY, 0))
        self.assertFalse(search.try_last_file())

    def test_lower_and_lower(self) -> None:
        """
        Each step is four times as far back; then the min; then a survey; then no more.
        """
        end = 10 * GIB + 1
        search = overlap(GIB, end, proven=True)
        asked = [search.question().report]
        while search.lower():
            question = search.question()
            if question.ask is Ask.SURVEY:
                break
            asked.append(question.report)
        back = [end - each for each in asked]
        self.assertEqual(back[:3], [PROBE_WINDOW, 4 * PROBE_WINDOW, 16 * PROBE_WINDOW])
        self.assertEqual(asked[-1], GIB)
        self.assertEqual(search.question(), Question(Ask.SURVEY, 0))
        self.assertFalse(search.lower())

    @given(
        st.integers(0, 40 * GIB),
        st.integers(1, 40 * GIB),
        st.integers(1, 1 << 22),
        st.booleans(),
    )
    def test_only_down(self, minimum: int, size: int, batch: int, proven: bool) -> None:
        """
        Whatever the log: questions fall, stay inside it, and end.
        """
        end = minimum + size
        search = overlap(minimum, end, batch=batch, proven=proven)
        last = end + 1
        for _ in range(64):
            question = search.question()
            if question.ask is Ask.SURVEY:
                break
            self.assertLess(question.report, last)
            self.assertTrue(max(minimum, 1) <= question.report <= end)
            last = question.report
            self.assertTrue(search.lower())
        self.assertIs(search.question().ask, Ask.SURVEY)
        self.assertEqual(last, max(minimum, 1))


class StartTests(SynchronousTestCase):
    """
    L{StartSearch}: where does the master's log begin?
    """

    def search(self, unit: int, minimum: int, last: int) -> tuple[int, list[int]]:
        """
        Ask a master that has everything from C{minimum} on.

        @return: Where the search ended, and what was asked.
        """
        search = StartSearch(unit)
        self.assertEqual(search.question(), Question(Ask.EMPTY, 0))
        search.begins_at(last)
        asked = []
        for _ in range(100):
            question = search.question()
            self.assertIs(question.ask, Ask.START)
            asked.append(question.report)
            if question.report >= minimum:
                search.answered()
                if search.settled:
                    return question.report, asked
            else:
                search.silent()
        raise AssertionError(f"no end: {asked}")

    def test_whole(self) -> None:
        """
        A master that has everything is found out with one question.
        """
        self.assertEqual(self.search(GIB, 0, 7 * GIB), (1, [1]))

    def test_only_the_last(self) -> None:
        """
        One that has only what it sent is asked for that.
        """
        self.assertEqual(self.search(GIB, GIB, GIB), (GIB, [1, GIB]))

    @given(st.integers(0, 500), st.integers(0, 500))
    def test_binary(self, first: int, more: int) -> None:
        """
        The first file is found in about log2 of the files' number.
        """
        found, asked = self.search(4096, first * 4096, (first + more + 1) * 4096)
        self.assertEqual(found, first * 4096 or 1)
        self.assertLessEqual(len(asked), 13)
