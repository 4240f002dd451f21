"""The page on the admin port: C{GET} of C{/} is the page, below C{/page} are its script, its style
and its numbers.

It is one static text; all that a node tells comes as JSON, and the script shows it as text.

Source: docs/guide/page.rst.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

from attrs import AttrsInstance
from twisted.internet.defer import Deferred
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import Request

from rmqha.admin.http import AdminSite, Gathered, Node, only_reading, say, send
from rmqha.wire.remoting import json_body

HERE = "rmqha.page"

PLOTS = "xstatic.pkg.d3"
"""The package with the library that draws: C{XStatic-D3}, with nothing but its script."""

FILES = {
    "page.js": (HERE, "static/page.js", b"text/javascript; charset=utf-8"),
    "page.css": (HERE, "static/page.css", b"text/css; charset=utf-8"),
    "d3.js": (PLOTS, "data/d3.js", b"text/javascript; charset=utf-8"),
}
"""By the name below C{/page}: the package, the file in it, and its content type."""

HEADERS = {
    b"content-security-policy": (
        b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
}
"""A browser asks nobody but the node, whatever stands in the page."""

Asks = Callable[[], Coroutine[Any, Any, AttrsInstance]]
"""Gathers what is told."""


@cache
def content(package: str, name: str) -> tuple[bytes, bytes]:
    """A file of a package, and its tag."""
    body = resources.files(package).joinpath(name).read_bytes()
    return body, b'"' + sha256(body).hexdigest()[:32].encode() + b'"'


class PageFile(Resource):
    """One of the files; a browser that has it is told so."""

    isLeaf = True

    def __init__(self, package: str, name: str, kind: bytes) -> None:
        super().__init__()
        self.place = package, name
        self.kind = kind

    def render(self, request: Request) -> bytes:
        """Answer C{GET} and C{HEAD}."""
        refused = only_reading(request)
        if refused is not None:
            return refused
        body, tag = content(*self.place)
        for name, value in HEADERS.items():
            request.setHeader(name, value)
        if request.setETag(tag) is http.CACHED:
            return b""
        answer = send(request, http.OK, self.kind, body)
        request.setHeader(b"cache-control", b"no-cache")
        return answer


def numbers(asks: Asks, in_thread: Any) -> Gathered:
    """What a page shows."""

    async def written() -> bytes:
        body: bytes = await in_thread(json_body.write, await asks())
        return body

    return Gathered(lambda: Deferred.fromCoroutine(written()), b"application/json", "this")


class PageSite(AdminSite):
    """The admin port with the page."""

    def __init__(self, node: Node, *, own: Asks, cluster: Asks, in_thread: Any) -> None:
        """@param own: Gathers what this node tells of itself.
        @param cluster: And what is told of all.
        @param in_thread: Runs what takes a moment.
        """
        super().__init__(node)
        self.putChild(b"", PageFile(HERE, "static/index.html", b"text/html; charset=utf-8"))
        below = NoPage()
        for name, place in FILES.items():
            below.putChild(name.encode(), PageFile(*place))
        below.putChild(b"node", numbers(own, in_thread))
        below.putChild(b"cluster", numbers(cluster, in_thread))
        self.putChild(b"page", below)


class NoPage(Resource):
    """C{/page} itself, and what is not below it."""

    def getChild(self, path: bytes, request: Request) -> Resource:
        """Whatever else is asked for is not there."""
        return self

    def render(self, request: Request) -> bytes:
        return say(request, http.NOT_FOUND, {"error": "not found", "paths": ["/"]})
