"""Sets of members of ours with a network around each."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from lab.harness.nodes import Node, until
from lab.harness.proxy import Proxy
from lab.stock.brokers import BOOT, Sends
from tests.interop.member_cases import Member
from tests.interop.scenario_cases import ScenarioTestCase

LATE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("get 500 B/s", "down", {"rate": 500}),
    ("are not heard", "up", {"hold": True}),
)
"""What makes slaves late: what they get, and what they say."""


@frozen
class Links:
    """The network around one member: its way to controllers, and others' to its two ports."""

    controllers: Proxy
    clients: Proxy
    replication: Proxy

    def part(self, on: bool, *, controllers: bool = False, members: bool = False) -> None:
        """Part it from the controllers, from the other members, or from both; or heal that."""
        if controllers:
            self.controllers.part(on)
        if members:
            self.clients.part(on)
            self.replication.part(on)


def told(proxy: Proxy) -> str:
    """A proxy's address as it stands in messages."""
    host, port = proxy.address
    return f"{host}:{port}"


class LinkedTestCase(ScenarioTestCase):
    """A set of two, and the network around each member, by its name."""

    roles = "two members of ours"

    def around(self, node: Member) -> Links:
        """Put a network around a member that is not started."""
        decider = self.decider
        links = Links(
            self.proxy(("127.0.0.1", decider.port)),
            self.proxy(("127.0.0.1", node.port)),
            self.proxy(node.address),
        )
        links.controllers.swap("down", decider.address, told(links.controllers))
        links.controllers.swap("up", f"127.0.0.1:{node.port}", told(links.clients))
        # Its own address it is told as it said it: at another one its id would be somebody else's.
        links.controllers.swap("down", told(links.clients), f"127.0.0.1:{node.port}")
        links.clients.swap("down", f"127.0.0.1:{node.address[1]}", told(links.replication))
        node.keys["controllerAddr"] = told(links.controllers)
        return links

    def until_alone(self, load: Sends) -> None:
        """Wait until writes are answered that there is no slave."""
        before = len(load.sent)
        until(
            lambda: any(each.status == "SLAVE_NOT_AVAILABLE" for each in list(load.sent)[before:]),
            "told that there is no slave",
            BOOT,
            tell=self.tool.tail,
        )

    def linked(self, kind: type[Node] = Node, **keys: Any) -> tuple[Node, Node, Links]:
        """Start two, and return the master, the other one, and the network around the master."""
        self.decider = self.controller()
        self.links: dict[str, Links] = {}
        nodes = []
        for name in ("ours-1", "ours-2"):
            node = self.ours(name, self.decider, kind=kind, **keys)
            self.links[name] = self.around(node)
            nodes.append(node)
            node.start()
        self.until_led(nodes)
        master = self.led(nodes)
        (other,) = (node for node in nodes if node is not master)
        self.until_in_sync(master, 2)
        self.assertEqual({"SEND_OK": 50}, self.tool.put(50, self.topic).wait())
        return master, other, self.links[master.name]
