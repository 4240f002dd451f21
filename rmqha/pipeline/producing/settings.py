"""What a producer is told, by the options of a write or by a job.

Source: docs/guide/replay.rst, Options.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from attrs import frozen

from rmqha.config.values import INT_MAX, SOME_FILE, SOME_TEXT, millis, whole
from rmqha.pipeline.errors import OptionMissing
from rmqha.pipeline.log.option_values import SIZE, OptionsDraft, as_text, kinds_of, option
from rmqha.pipeline.remoting.name_servers import NAME_SERVERS
from rmqha.pipeline.remoting.peers import SocketTls
from rmqha.wire.remoting.signature import Credentials

TIMEOUT = 3.0
"""Seconds; stock clients' C{sendMsgTimeout}."""

RETRIES = 2
"""Further tries; stock clients' C{retryTimesWhenSendFailed}."""

BATCH = 1 << 20
"""Bytes of a request with several messages: a quarter of what stock brokers take."""

GROUP = "rmqha-pipeline"

_MOST_RETRIES = 1000


@frozen(kw_only=True)
class SendOptions:
    """How messages are sent; each is called here what Spark's name is in snake case.

    @ivar name_server: C{host:port} of each.
    @ivar topic: Where messages go that do not say it; or all, if they do.
    @ivar producer_group: The producer group that brokers are told.
    @ivar send_timeout: Seconds a broker has for an answer.
    @ivar retries: How often a request is sent again.
    @ivar batch_bytes: Bytes of a request with more than one message.
    @ivar access_key: The account that signs requests, where brokers have access control.
    @ivar secret_key: That account's secret.
    @ivar tls_config_file: The file of the keys of TLS, where brokers take nothing else.
    @ivar max_rows_per_second: The most messages a second that one producer sends.
    @ivar max_bytes_per_second: The same in bytes of bodies.
    """

    name_server: tuple[str, ...] = option(NAME_SERVERS)
    topic: str | None = option(SOME_TEXT)
    producer_group: str = option(SOME_TEXT, GROUP)
    send_timeout: float = option(millis(), TIMEOUT)
    retries: int = option(whole(0, _MOST_RETRIES), RETRIES)
    batch_bytes: int = option(SIZE, BATCH)
    access_key: str | None = option(SOME_TEXT)
    secret_key: str | None = option(SOME_TEXT, secret=True)
    tls_config_file: Path | None = option(SOME_FILE)
    max_rows_per_second: int | None = option(whole(1, INT_MAX))
    max_bytes_per_second: int | None = option(SIZE)

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Self:
        """Read options.

        @param given: By name; case does not matter.
        @raise OptionInvalid: If a value is not allowed.
        @raise OptionUnknown: If there is no such option.
        @raise OptionMissing: If nothing says where brokers are.
        """
        draft = OptionsDraft(SEND_KINDS)
        for name, value in given.items():
            draft.take(name, as_text(value))
        if "nameServer" not in draft.texts:
            raise OptionMissing("nameServer", "it names the name servers, as host:port")
        for one, other in (("accessKey", "secretKey"), ("secretKey", "accessKey")):
            if one in draft.texts and other not in draft.texts:
                raise OptionMissing(other, f"{one} is nothing without it")
        return cls(**draft.attributes)

    @property
    def credentials(self) -> Credentials | None:
        """What requests are signed with, if they are."""
        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(self.access_key, self.secret_key)

    @property
    def tls(self) -> SocketTls | None:
        """What peers are connected to with.

        @raise ConfigProblems: If the file is wrong.
        @raise OSError: If one that it names is.
        """
        return SocketTls.read(self.tls_config_file)


SEND_KINDS = kinds_of(SendOptions)
"""Every option of a write."""
