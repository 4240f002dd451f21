"""The page as a browser shows it."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Coroutine
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SkipTest, TestCase

from lab.harness.browser import MARGIN, Browser, Tab, installed
from rmqha.admin.http import AdminPort
from rmqha.health import HealthReason
from rmqha.page.told import GroupRow
from tests.page.support import ToldNode, own_page, page_site
from tests.support.effort import slow

HOSTILE = '<img src="https://evil.example/x" onerror="document.title=1"><script>1</script>'


class BrowserCase(TestCase):
    """A node's admin port, and a browser."""

    timeout = 180

    def setUp(self) -> None:
        """A master with a little of everything."""
        if installed() is None:
            raise SkipTest("chromium is not installed (Debian: chromium)")
        now = int(time.time() * 1000)
        self.node = ToldNode(
            groups=[
                GroupRow(group=HOSTILE, topic="Orders" * 20, messages=12345, seconds=90.0),
                GroupRow(group="billing", topic="Orders", messages=2, seconds=None),
            ],
            events=[{"time": now - 60_000, "kind": "state", "text": f"serving: {HOSTILE}"}],
            wrong=[HealthReason("disk-full", "no space for 1048576 bytes")],
        )
        self.node.described["closedConnections"] = {"not-allowed": 3}
        own = own_page(self.node, reactor, lambda: int(time.time() * 1000))
        writes = self.node.described["writes"]
        for step in range(3):
            self.node.described["writes"] = {**writes, "PUT_OK": writes["PUT_OK"] + 50 * step}
            own.history.look()
        site = AdminPort(page_site(self.node, reactor, own=own))
        self.port = reactor.listenTCP(0, site, interface="127.0.0.1")  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self.port.getHost().port}/"
        self.folder = Path(mkdtemp())
        self.browser = Browser.start(reactor, self.folder)

    async def shown(self, **how: Any) -> Tab:
        """The page, once it has its numbers."""
        tab = await self.browser.tab()
        await tab.look(**how)
        await tab.open(self.url)
        await tab.until("document.querySelectorAll('svg path[d]').length >= 3")
        return tab

    def run_browser(self, steps: Coroutine[Any, Any, None]) -> Deferred[None]:
        """Take the steps, and end the browser and the port."""

        async def taken() -> None:
            try:
                await steps
            finally:
                await self.browser.stop()
                shutil.rmtree(self.folder, ignore_errors=True)
                await self.port.stopListening()

        return Deferred.fromCoroutine(taken())


class BrowserTests(BrowserCase):
    @slow
    def test_values(self) -> Deferred[None]:
        """The numbers are there, with plots; names are shown letter by letter, whatever they are;
        and nobody but the node was asked for anything.
        """

        async def steps() -> None:
            tab = await self.shown(width=1200)
            text = await tab.value("document.body.innerText")
            for part in (
                "broker-a/0",
                "disk-full: no space for 1048576 bytes",
                "10300 PUT_OK",
                "41% full",
                "12345",
                "billing",
                "not-allowed",
                f"serving: {HOSTILE}",
            ):
                self.assertIn(part, text)
            self.assertEqual(await tab.value("document.querySelectorAll('img').length"), 0)
            self.assertEqual(await tab.value("document.title"), "C - rmqha")
            cells = "[...document.querySelectorAll('#groups td')].map(cell => cell.innerText)"
            self.assertEqual((await tab.value(cells))[0], HOSTILE)
            plots = "[...document.querySelectorAll('figcaption')].map(it => it.innerText)"
            self.assertEqual(len(await tab.value(plots)), 3)
            self.assertEqual([url for url in tab.requests if not url.startswith(self.url)], [])
            self.assertEqual([told for told in tab.errors if "favicon" not in told], [])

        return self.run_browser(steps())

    @slow
    def test_narrow_and_dark(self) -> Deferred[None]:
        """On a small telephone nothing is beyond the edge; who likes it dark gets it, at once."""
        ground = "getComputedStyle(document.body).backgroundColor"
        ink = "getComputedStyle(document.body).color"

        def light(colour: str) -> float:
            numbers = colour[colour.index("(") + 1 : -1].split(",")[:3]
            return sum(map(float, numbers)) / 3

        async def steps() -> None:
            tab = await self.shown(width=360, dark=True)
            widths = "[document.documentElement.scrollWidth, window.innerWidth]"
            self.assertEqual(await tab.value(widths), [360, 360])
            beyond = (
                "[...document.querySelectorAll('body *')]"
                ".filter(it => it.getBoundingClientRect().right > 360.5).length"
            )
            self.assertEqual(await tab.value(beyond), 0)
            self.assertLess(light(await tab.value(ground)), 60)
            self.assertGreater(light(await tab.value(ink)), 180)
            await tab.look(width=360)
            self.assertGreater(light(await tab.value(ground)), 200)
            self.assertLess(light(await tab.value(ink)), 80)

        return self.run_browser(steps())

    @slow
    def test_goes_on(self) -> Deferred[None]:
        """The page asks again by itself, and says when it gets no answer."""

        async def steps() -> None:
            tab = await self.shown(width=800)
            self.node.described["state"] = "read-only"
            await tab.until("document.body.innerText.includes('read-only')")
            self.patch(ToldNode, "status", lambda _: 1 / 0)
            await tab.until("document.getElementById('when').innerText.includes('No answer')")
            when = await tab.value("document.getElementById('when').innerText")
            self.assertRegex(when, r"No answer: this cannot be read now.*; as of .* ago")
            await tab.until("document.body.classList.contains('old')")

        return self.run_browser(steps())

    @slow
    def test_pictures(self) -> Deferred[None]:
        """A picture of the page for the guide is as high as what it shows, on any screen."""

        async def steps() -> None:
            tab = await self.shown(width=360, height=200)
            whole = size(await tab.picture("header", "main > section:last-child"))
            tables = size(await tab.picture("#groups", "#refused"))
            self.assertEqual((360, 360), (whole[0], tables[0]))
            self.assertApproximates(await tab.value("document.body.scrollHeight"), whole[1], 1)
            rest = await tab.value(
                "document.querySelector('#refused').getBoundingClientRect().bottom"
                " - document.querySelector('#groups').getBoundingClientRect().top"
            )
            self.assertApproximates(rest + 2 * MARGIN, tables[1], 1)

        return self.run_browser(steps())


def size(png: bytes) -> tuple[int, int]:
    """Width and height of a picture, from its first chunk."""
    return struct.unpack_from(">II", png, 16)
