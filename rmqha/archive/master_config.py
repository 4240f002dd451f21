"""What an archive has to know of the broker whose log it keeps: the size of its log files, and its
name; and what the broker has to know of a receiver.

The runtime information that bounds come from has neither (L{rmqha.ha.slave.master_bounds}), so
request 26 is asked, which gives a broker's whole configuration.  Source: docs/protocol/remoting.md,
Administration.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.archive.errors import FileSizeUnknown
from rmqha.errors import RmqhaError
from rmqha.ha.slave.master_bounds import Client
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.slave import SlaveTablesRequest

FILE_SIZE_KEYS = ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog")
"""As RocketMQ writes it, and as it did before 4.8."""

BROKER_NAME = "brokerName"


@frozen
class MasterConfig:
    """Two of a broker's keys.

    @ivar file_size: Size of its log files, in bytes.
    @ivar broker: C{brokerName}, C{""} if it is not among them.
    """

    file_size: int
    broker: str


async def tell_no_port(client: Client, address: str) -> None:
    """Tell a master of ours that no replica listens here: after a crash it would look here for what
    it has lost (L{rmqha.ha.known_replicas}).  Slaves tell their port when they ask for its topics,
    and so does this; other brokers answer, and pass it over.
    """
    request = SlaveTablesRequest(ha_listen_port=0)
    try:
        await client.request(address, Command.request(RequestCode.GET_ALL_TOPIC_CONFIG, request))
    except (RmqhaError, OSError):
        return  # it looks here for nothing, and waits a little longer


async def ask_config(client: Client, address: str) -> MasterConfig:
    """Ask a broker.

    @param address: C{host:port} of its client port.
    @raise FileSizeUnknown: If it does not tell.
    """
    try:
        answer = await client.request(address, Command.request(RequestCode.GET_BROKER_CONFIG))
    except (RmqhaError, OSError) as error:
        raise FileSizeUnknown(address, str(error)) from error
    if answer.code != ResponseCode.SUCCESS:
        raise FileSizeUnknown(address, answer.remark or f"answer {answer.code}")
    lines = bytes(answer.body).decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines)
    table = {key.strip(): value.strip() for key, _, value in pairs}
    text = next((table[key] for key in FILE_SIZE_KEYS if key in table), "")
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise FileSizeUnknown(address, f"{FILE_SIZE_KEYS[0]} is {text!r}")
    return MasterConfig(int(text), table.get(BROKER_NAME, ""))
