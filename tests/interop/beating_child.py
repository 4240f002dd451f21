"""The child side of many members without stores: each joins a set of its own, is elected, gives
signs of life and asks who is master, as a member that leads does.

Run it as C{python -m tests.interop.beating_child CONTROLLERS FOLDER COUNT}.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.stdio import StandardIO
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from lab.harness.json_child import Commands
from rmqha.config.controller_settings import ControllerSettings
from rmqha.controller.coordinator import SetState, SignOfLife
from rmqha.controller.group import ControllerGroup
from rmqha.controller.identity import IdentityFiles
from rmqha.controller.membership import Membership
from rmqha.controller.set_watch import SetWatch
from rmqha.errors import RmqhaError
from rmqha.net.remoting.client import RemotingClient
from rmqha.wire.remoting.command import Command

CLUSTER = "crowd"
AT_ONCE = 20
"""Members that join at a time."""


class CountingClient(RemotingClient):
    """Counts what it asks; signs of life are told, not asked."""

    asked = 0

    def request(self, address: str, command: Command, timeout: float) -> Deferred[Command]:
        CountingClient.asked += 1
        return super().request(address, command, timeout)


class Beating:
    """One of them, and the master epoch that it was told last."""

    def __init__(self, reactor: Any, controllers: str, folder: Path, number: int) -> None:
        self.reactor = reactor
        self.epoch = 0
        name, self.address = f"set-{number}", f"127.0.0.1:{1024 + number}"
        (folder / name).mkdir(parents=True)
        client, beats = CountingClient(reactor), RemotingClient(reactor)
        groups = [
            ControllerGroup(
                addresses=controllers.split(";"),
                client=each,
                cluster=CLUSTER,
                name=name,
                now_ms=lambda: int(time.time() * 1000),
            )
            for each in (client, beats)
        ]
        self.group = groups[0]
        self.membership = Membership(
            group=groups[0],
            beats=groups[1],
            files=IdentityFiles.of(folder / name, CLUSTER, name),
            address=self.address,
            sign=lambda: SignOfLife(epoch=self.epoch or None, end=0, confirm=0),
            settings=ControllerSettings(),
            generation=lambda: "",
            clock=reactor,
            in_thread=maybeDeferred,
        )
        self.watch = SetWatch(
            coordinator=self.group, clock=reactor, heard=lambda: True, decided=self.decided
        )

    async def decided(self, state: SetState) -> str:
        self.epoch = state.master_epoch
        return ""

    async def join(self) -> None:
        while True:
            try:
                await self.membership.join()
                self.membership.beat()
                self.epoch = (await self.group.elect(self.membership.id)).master_epoch
            except RmqhaError:
                await deferLater(self.reactor, 0.5)
            else:
                break
        self.membership.start()
        self.watch.start()


async def join_all(crowd: list[Beating]) -> None:
    """Some after the other."""
    for first in range(0, len(crowd), AT_ONCE):
        some = [Deferred.fromCoroutine(each.join()) for each in crowd[first : first + AT_ONCE]]
        for joined in some:
            await joined


def main(arguments: list[str]) -> int:
    """Have all of them join, and listen to the parent."""
    from twisted.internet import reactor as installed

    reactor: Any = installed
    controllers, folder, count = arguments
    crowd = [Beating(reactor, controllers, Path(folder), number) for number in range(int(count))]

    def stats(number: int) -> dict[str, Any]:
        return {
            "processor": time.process_time(),
            "asked": CountingClient.asked,
            "epochs": sorted({each.epoch for each in crowd}),
            "silent": max(each.watch.silent() for each in crowd),
        }

    commands = Commands(reactor, {"stats": stats})
    StandardIO(commands, reactor=reactor)

    def failed(failure: Failure) -> None:
        commands.say(None, news="failed", error=failure.getErrorMessage())

    Deferred.fromCoroutine(join_all(crowd)).addCallbacks(
        lambda _: commands.say(None, news="ready"), failed
    )
    reactor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
