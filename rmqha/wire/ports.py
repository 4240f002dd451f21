"""How RocketMQ counts its ports from one another, where nobody says which they are.

Source: docs/protocol/remoting.md, Ports; docs/protocol/ha.rst, Ports.
"""

from __future__ import annotations

VIP_STEP = 2
"""How far below C{listenPort} stock slaves and old clients expect a second port."""

HA_PORT_STEP = 1
"""How far above C{listenPort} slaves dial a master that does not say."""
