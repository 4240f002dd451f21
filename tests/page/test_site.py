"""The page on the admin port."""

from __future__ import annotations

import re
from typing import Any

from treq.testing import StubTreq
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.page.site import FILES, content
from tests.page.support import ToldNode, page_site

PAGES = ("/", *(f"/page/{name}" for name in FILES))
NUMBERS = ("/page/node", "/page/cluster")


class PageSiteTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A master that knows no other node."""
        self.node = ToldNode()
        self.treq = StubTreq(page_site(self.node, Clock()))

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[Any, bytes]:
        """@return: The response and its body."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        response = self.successResultOf(
            self.treq.request(method, f"http://127.0.0.1{path}", headers=given)
        )
        return response, self.successResultOf(response.content())

    def test_page(self) -> None:
        """The page and what it is made of are served; all it names is on this port."""
        for path in PAGES:
            response, body = self.ask(path)
            self.assertEqual(response.code, 200, path)
            self.assertGreater(len(body), 500, path)
        _, index = self.ask("/")
        named = re.findall(rb'(?:src|href)="([^"]+)"', index)
        self.assertEqual(len(named), 4)
        for path in named:
            self.assertEqual(self.ask(path.decode())[0].code, 200, path)

    def test_nobody_else(self) -> None:
        """A browser is told to ask nobody else, and to run nothing that the page has."""
        for path in PAGES:
            policy = self.ask(path)[0].headers.getRawHeaders(b"content-security-policy")[0]
            self.assertIn(b"default-src 'self'", policy)
            self.assertNotIn(b"unsafe", policy)
        for name in ("index.html", "page.js", "page.css"):
            text, _ = content("rmqha.page", f"static/{name}")
            self.assertNotIn(b"://", text, name)
            self.assertNotRegex(text, rb"innerHTML|<style|<script>|onclick|\.html\(", name)

    def test_known_already(self) -> None:
        """A browser that has a file does not get it again."""
        response, _ = self.ask("/page/d3.js")
        tag = response.headers.getRawHeaders(b"etag")[0].decode()
        response, body = self.ask("/page/d3.js", if_none_match=tag)
        self.assertEqual((response.code, body), (304, b""))

    def test_numbers(self) -> None:
        """Its numbers are JSON, and not kept anywhere."""
        for path in NUMBERS:
            response, body = self.ask(path)
            self.assertEqual(response.code, 200, path)
            self.assertEqual(response.headers.getRawHeaders(b"content-type"), [b"application/json"])
            self.assertEqual(response.headers.getRawHeaders(b"cache-control"), [b"no-store"])
            self.assertIn(b'"broker-a/0"', body)

    def test_not_now(self) -> None:
        """While a node cannot be read the page is told so."""

        def closed() -> dict[str, Any]:
            raise OSError("the store is closed")

        self.patch(ToldNode, "status", lambda _: closed())
        response, body = self.ask("/page/node")
        self.assertEqual(response.code, 503)
        self.assertIn(b"the store is closed", body)

    def test_reading(self) -> None:
        """Nothing can be changed here, and there is nothing else."""
        for path in (*PAGES, *NUMBERS):
            self.assertEqual(self.ask(path, "POST")[0].code, 405, path)
            response, body = self.ask(path, "HEAD")
            self.assertEqual((response.code, body), (200, b""), path)
        for path in ("/page", "/page/", "/page/x", "/page/../../setup.py", "/page/x/y", "/x"):
            self.assertEqual(self.ask(path)[0].code, 404, path)
