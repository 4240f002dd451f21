"""A headless Chromium, as a person who looks at a page would have it.

It is driven over two pipes by the protocol of its developer tools.  It has a folder of its own,
and asks nobody for anything but the pages it is sent to.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
"""How it is started; as root it has no sandbox."""

PATIENCE = 60.0
"""Seconds for anything that it is asked."""

MARGIN = 12
"""Pixels above and below what is pictured."""

TO_BROWSER, FROM_BROWSER = 3, 4
"""The file descriptors that it talks over."""


def installed() -> str | None:
    """Where Chromium is, if it is there: Debian's package C{chromium}."""
    return shutil.which("chromium")


class BrowserFailed(Exception):
    """It has ended, or could not do what it was asked."""


class Browser(ProcessProtocol):
    """The process; C{ended} fires when it is gone."""

    def __init__(self, reactor: Any) -> None:
        self.reactor = reactor
        self.ended: Deferred[None] = Deferred()
        self._numbers = count(1)
        self._asked: dict[int, Deferred[dict[str, Any]]] = {}
        self._listening: list[Callable[[dict[str, Any]], None]] = []
        self._buffer = b""

    @classmethod
    def start(cls, reactor: Any, folder: Path) -> Browser:
        """Start it, in an empty folder for what it keeps."""
        program = installed()
        if program is None:
            raise BrowserFailed("there is no chromium here")
        browser = cls(reactor)
        arguments = [program, *QUIET, f"--user-data-dir={folder}", "about:blank"]
        environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        pipes = {0: "w", 1: "r", 2: "r", TO_BROWSER: "w", FROM_BROWSER: "r"}
        reactor.spawnProcess(browser, program, arguments, environment, childFDs=pipes)
        return browser

    async def tab(self) -> Tab:
        target = await self.ask("Target.createTarget", {"url": "about:blank"})
        found = await self.ask(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )
        tab = Tab(self, found["sessionId"])
        self._listening.append(tab.heard)
        for domain in ("Page", "Network", "Runtime", "Log"):
            await tab.ask(f"{domain}.enable")
        return tab

    def ask(
        self, method: str, parameters: dict[str, Any] | None = None, session: str = ""
    ) -> Deferred[dict[str, Any]]:
        """Have something done: its result, or L{BrowserFailed}."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        asked = self._asked[number] = Deferred()
        self.transport.writeToChild(TO_BROWSER, json.dumps(message).encode() + b"\0")
        return asked.addTimeout(PATIENCE, self.reactor)

    def stop(self) -> Deferred[None]:
        """End it; fires when it is gone."""
        try:
            self.transport.signalProcess("KILL")
        except ProcessExitedAlready:
            pass
        return self.ended

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        """It says something; what it prints is of no interest."""
        if childFD != FROM_BROWSER:
            return
        *whole, self._buffer = (self._buffer + data).split(b"\0")
        for text in whole:
            message = json.loads(text)
            asked = self._asked.pop(message.get("id", 0), None)
            if asked is None:
                for heard in self._listening:
                    heard(message)
            elif "error" in message:
                asked.errback(BrowserFailed(message["error"].get("message", "failed")))
            else:
                asked.callback(message["result"])

    def processEnded(self, reason: Failure) -> None:
        """It is gone, and answers no more."""
        asked, self._asked = self._asked, {}
        for one in asked.values():
            one.errback(BrowserFailed("the browser has ended"))
        self.ended.callback(None)


@define(eq=False)
class Tab:
    """One page, every address that it asked for, and what its console calls errors."""

    browser: Browser
    session: str
    requests: list[str] = field(factory=list, init=False)
    errors: list[str] = field(factory=list, init=False)

    def ask(self, method: str, parameters: dict[str, Any] | None = None) -> Deferred[Any]:
        """Have something done in this page."""
        return self.browser.ask(method, parameters, self.session)

    def heard(self, message: dict[str, Any]) -> None:
        """The browser tells of something."""
        if message.get("sessionId") != self.session:
            return
        told, method = message["params"], message["method"]
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(told["exceptionDetails"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(f"{told['entry'].get('url', '')} {told['entry']['text']}")

    async def look(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Be a screen of this size, of somebody who likes it so."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.ask("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.ask("Emulation.setEmulatedMedia", {"features": [scheme]})

    async def open(self, url: str) -> None:
        found = await self.ask("Page.navigate", {"url": url})
        if found.get("errorText"):
            raise BrowserFailed(f"{url}: {found['errorText']}")

    async def value(self, expression: str) -> Any:
        """What an expression of the page's script has for its value, once that is there."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        found = await self.ask("Runtime.evaluate", asked)
        if "exceptionDetails" in found:
            raise BrowserFailed(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        await self.value(
            f"new Promise(done => {{ const look = () => ({expression}) ? done(true) : "
            "setTimeout(look, 50); look(); })"
        )

    async def picture(self, first: str, last: str) -> bytes:
        """A PNG of the page, as wide as the screen, from one selector of CSS down to another."""
        where = "document.querySelector({}).getBoundingClientRect().{} + scrollY"
        edges = where.format(json.dumps(first), "top"), where.format(json.dumps(last), "bottom")
        top = max(0, round(await self.value(edges[0])) - MARGIN)
        bottom = round(await self.value(edges[1])) + MARGIN
        width = await self.value("innerWidth")
        part = {"x": 0, "y": top, "width": width, "height": bottom - top, "scale": 1}
        asked = {"format": "png", "clip": part, "captureBeyondViewport": True}
        found = await self.ask("Page.captureScreenshot", asked)
        return base64.b64decode(found["data"])
