"""
A store that rmqha writes, read by the pipeline while it is written.
"""

from __future__ import annotations

from pathlib import Path

from rmqha.pipeline.log.errors import PublishedPointStale
from rmqha.store.store import Store
from rmqha.wire.log.published import parse_point, render_point
from rmqha.wire.store_layout import OWN_FOLDER, POINT
from tests.store.published.test_publish import PublishTestCase
from tests.support.logs import message

try:
    from rmqha.pipeline.scan import scan
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


def offsets(store: Store | Path, **options: object) -> list[int]:
    """
    Physical offsets of all rows.
    """
    root = store if isinstance(store, Path) else store.settings.root
    table = scan(root, visibility="log", columns="physical_offset", **options).read_all()
    found: list[int] = table["physical_offset"].to_pylist()
    return found


class PublishedTests(PublishTestCase):
    """
    Writer and reader agree.
    """

    def test_growing(self) -> None:
        """
        Rows come when the disk has them, and a clean stop loses none.
        """
        store = self.filled_store(500, 500)
        self.pass_time()
        self.assertEqual([], offsets(store))
        self.flush(store)
        self.pass_time()
        self.assertEqual([0, 500], offsets(store))
        store.put(message(500))
        self.assertEqual([0, 500], offsets(store))
        self.close_store(store)
        self.assertEqual([0, 500, 1000], offsets(store))

    def test_split_index(self) -> None:
        """
        The index of several files divides the log without changing the rows.
        """
        store = self.filled_store(*[500] * 40)
        self.flush(store)
        self.pass_time(30)
        self.assertTrue(self.spans(store))
        found = offsets(store, maxPartitionBytes=1)
        self.assertEqual(40, len(found))
        self.assertEqual(found, offsets(store))

    def test_other_bytes_after_a_stop(self) -> None:
        """
        A store whose end was changed since it was closed is refused until that is wanted.
        """
        store = self.filled_store(500, 500)
        self.flush(store)
        self.close_store(store)
        root = store.settings.root
        self.assertEqual([0, 500], offsets(root))
        file = root / OWN_FOLDER / POINT
        point = parse_point(file.read_bytes())
        self.assertIsNotNone(point.tail)
        log = sorted((root / "commitlog").iterdir())[0]
        with log.open("r+b") as opened:
            opened.seek(999)
            byte = opened.read(1)[0]
            opened.seek(999)
            opened.write(bytes([byte ^ 1]))
        self.assertRaises(PublishedPointStale, offsets, root)
        file.write_bytes(render_point(point.cut_at(1000, 0)))
        self.assertEqual([0, 500], offsets(root, verifyCrc=False))
