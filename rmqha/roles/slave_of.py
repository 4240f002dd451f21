"""C{--slave-of}: the keys of a slave whose master was named on the command line."""

from __future__ import annotations

from attrs import frozen

from rmqha.config.values import Endpoint
from rmqha.errors import BadValue, RemotingFrameError, RmqhaError
from rmqha.net.remoting.ha_port import PATIENCE, ports_of

OPTION = "--slave-of"


@frozen
class MasterPortUnknown(RmqhaError):
    """It cannot be told whether a port is for a master's clients or for its slaves.

    @ivar master: C{host:port}, as it was given.
    """

    sentence = (
        "--slave-of {master}: {reason}, so it is not known whether this is its master's client "
        "port or its HA port. Start the master first, or name its HA port: "
        "--set haMasterAddress={master}"
    )
    master: str
    reason: str


def keys_of(text: str) -> list[str]:
    """What a slave is configured with.

    @param text: C{HOST}, or C{HOST:PORT}.
    @return: C{key=value} each.
    @raise BadValue: If it is no address.
    @raise MasterPortUnknown: If the port is none of RocketMQ's, and cannot be asked.
    """
    show = Endpoint().show
    try:
        found = ports_of(text.strip())
    except ValueError as error:
        wanted = "HOST, or HOST:PORT with a port from 1 to 65535"
        raise BadValue(OPTION, text, wanted) from error
    except (OSError, RemotingFrameError) as error:
        raise MasterPortUnknown(text.strip(), _reason(error)) from error
    keys = [f"haMasterAddress={show(found.ha)}"]
    return keys if found.client is None else [*keys, f"haMasterClientAddress={show(found.client)}"]


def _reason(error: OSError | RemotingFrameError) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {PATIENCE:g} s"
    return (getattr(error, "strerror", None) or str(error)).rstrip(".")
