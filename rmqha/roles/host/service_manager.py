"""What the service manager is told: that a node serves, and that it stops.

systemd waits for the first where its unit has C{Type=notify}, so that what is started after a node
finds it.  Nothing is told where there is no service manager.

Source: sd_notify(3).
"""

from __future__ import annotations

import os
import socket

from twisted.logger import Logger

SOCKET = "NOTIFY_SOCKET"
"""The environment variable that names where to tell it."""

READY, STOPPING = "READY=1", "STOPPING=1"

_log = Logger()


def notify(state: str) -> None:
    """Tell the service manager, if there is one; that it does not listen is no reason to end."""
    address = os.environ.get(SOCKET, "")
    if not address:
        return
    if address.startswith("@"):  # an abstract name
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
            told.sendto(state.encode(), address)
    except OSError as error:
        _log.warn("Cannot tell the service manager {state}: {error}", state=state, error=error)
