"""C{rmqha receive}: archives a master's log as it grows."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
from attrs import frozen
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import react
from twisted.internet.threads import deferToThread
from twisted.logger import globalLogBeginner
from twisted.python.failure import Failure

from rmqha.admin.log_output import written_to
from rmqha.archive.archive import Archive
from rmqha.archive.manifest import ArchiveManifest
from rmqha.archive.master_config import MasterConfig, ask_config, tell_no_port
from rmqha.archive.receiver import Receiver, receiver
from rmqha.cli.archives.as_service import as_service
from rmqha.cli.common import MAX_RATE, Whole, bar, choice, flag, seconds
from rmqha.cli.reach import Access, access_options, ports_to_call
from rmqha.config.ha_settings import BadRecordPolicy, FirstSync, HASettings
from rmqha.config.settings import LogSettings
from rmqha.config.values import ENDPOINT
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.ha.slave.reconnect import ha_endpoint
from rmqha.logfiles.offline_log import Progress
from rmqha.net.remoting.client import RemotingClient
from rmqha.store.files.fsync import FsyncInThread
from rmqha.wire.log.log_identity import LogIdentity

REPORT_DELAY = 30.0
"""Seconds: ten times a stock master's slaveTimeout, six times its syncFlushTimeout."""

LEAST_DELAY = 10.0
"""Least of it: twice the longest that a write waits for its replicas by default."""

BACKOFF_MAX = 10.0
"""Longest seconds between two connections: a receiver is one, and not a herd of slaves."""


@frozen(kw_only=True)
class ReceiveOptions:
    """What the command was told.

    @ivar source: Host and HA port.
    @ivar client: C{host:port} of the client port, C{""} not to ask it.
    @ivar access: How both ports are connected to.
    @ivar file_size: In bytes, C{None} to ask for it.
    """

    root: Path
    source: tuple[str, int]
    client: str
    access: Access
    file_size: int | None
    synchronous: bool
    report_delay: float
    fsync_interval: float
    log_interval: float
    trust_master: bool
    settings: HASettings


@click.command()
@click.argument("archive", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--from",
    "source",
    required=True,
    metavar="HOST[:PORT]",
    help="The master, or a slave that serves others: its client port or its HA port. HOST alone is "
    "port 10911.",
)
@flag(
    "--synchronous",
    "Fsync at once and report it: the archive then counts as a replica for SYNC writes.",
)
@seconds(
    "--report-delay",
    REPORT_DELAY,
    "Without --synchronous, report this late; longer than any SYNC write waits at the master.",
    least=LEAST_DELAY,
)
@click.option(
    "--client-port",
    type=Whole(0, 65535),
    metavar="PORT",
    help="The client port, asked where the log begins and ends; PORT is the HA port then. "
    "Default: PORT itself, or the one before an HA port; 0: do not ask.",
)
@access_options
@click.option(
    "--file-size",
    type=Whole(1),
    metavar="BYTES",
    help="mappedFileSizeCommitLog of the master, for a new archive. Default: ask the client port.",
)
@choice(
    "--start",
    FirstSync.BEGINNING,
    "Where a new archive begins: at the first byte that the master has, or at its last file.",
)
@choice(
    "--bad-record",
    BadRecordPolicy.COPY,
    "What to do at an old record that is damaged on the master: copy it as it is, or stop.",
)
@flag(
    "--trust-master", "Receive from this master although its master epoch is lower than one before."
)
@seconds("--fsync-interval", 1.0, "Without --synchronous, the time between two fsyncs.")
@MAX_RATE
@seconds("--log-interval", 60.0, "Time between two log lines about the progress.")
def receive(
    archive: Path,
    source: str,
    client_port: int | None,
    start: str,
    bad_record: str,
    max_rate: int,
    **given: Any,
) -> None:
    """Archive a master's log in DIR, as it grows.

    Runs until SIGTERM or Ctrl-C, connects again by itself, and goes on where the archive ends.
    Without --synchronous no SYNC write is acknowledged by it.  `rmqha restore` makes a store of
    an archive.

    Exit code 78 if only a person can mend what ended it: above all, with the numbers, that the
    master's log does not continue the archive.
    """
    try:
        address, asked = ports_to_call(source, client_port)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from error
    options = ReceiveOptions(
        root=archive.absolute(),
        source=address,
        client=ENDPOINT.show((address[0], asked)) if asked else "",
        settings=HASettings(
            first_sync=FirstSync(start),
            bad_record=BadRecordPolicy(bad_record),
            max_receive_rate=max_rate,
            backoff_max=BACKOFF_MAX,
        ),
        **given,
    )
    sized = options.file_size is not None or ArchiveManifest.read(options.root) is not None
    if not (options.client or sized):
        raise click.UsageError("--client-port 0 needs --file-size for a new archive")
    failed: list[Exception] = []
    with bar("receiving") as shown:
        globalLogBeginner.beginLoggingTo(
            [written_to(sys.stderr, LogSettings(), "receive")], redirectStandardIO=False
        )
        try:
            react(lambda reactor: ensureDeferred(_run(reactor, options, shown, failed)))
        except SystemExit:
            pass
    if failed:
        with as_service():
            raise failed[0]


async def _run(
    reactor: Any, options: ReceiveOptions, shown: Progress | None, failed: list[Exception]
) -> None:
    """Receive until the reactor is to stop, or until that is impossible.

    @param failed: Gets the reason for the second.
    """
    stop, over = Deferred[None](), Deferred[None]()

    def finish(result: Failure | None = None) -> None:
        if not stop.called:
            stop.callback(result)

    def shut_down() -> Deferred[None]:
        finish()
        return over

    reactor.addSystemEventTrigger("before", "shutdown", shut_down)
    try:
        async with options.access.client(reactor) as client:
            receiver = await _receiver(reactor, client, options, shown)
            receiver.startService()
            receiver.ended.addErrback(finish)
            try:
                await stop
            finally:
                await receiver.stopService()
    except Exception as error:
        failed.append(error)
    finally:
        over.callback(None)


async def _receiver(
    reactor: Any, client: RemotingClient, options: ReceiveOptions, shown: Progress | None
) -> Receiver:
    """Open the archive, and give what receives it.

    @raise FileSizeUnknown: If it is new and the master does not tell its file size.
    """
    endpoint = ha_endpoint(reactor, *options.source, tls=options.access.tls.dialling)
    known = await deferToThread(ArchiveManifest.read, options.root)
    if options.file_size is not None:
        config = MasterConfig(options.file_size, "")
    elif known is not None:
        config = MasterConfig(known.file_size, "")
    else:
        config = await ask_config(client, options.client)
    now = int(time.time() * 1000)
    manifest = ArchiveManifest(
        source=ENDPOINT.show(options.source),
        log=LogIdentity(broker=config.broker),
        file_size=config.file_size,
        start=0,
        end=0,
        begun=now,
        updated=now,
    )

    def connected() -> None:
        if options.client:
            ensureDeferred(tell_no_port(client, options.client))

    trusted = manifest.source if options.trust_master else ""
    archive = await deferToThread(Archive.open, options.root, manifest, deferToThread, trusted)
    ask = (lambda: master_bounds.ask(client, options.client)) if options.client else None
    return receiver(
        archive=archive,
        port=MasterClientPort(ask, reactor, manifest.source, endpoint),
        settings=options.settings,
        in_thread=deferToThread,
        fsync=FsyncInThread(deferToThread),
        connected=connected,
        synchronous=options.synchronous,
        report_delay=options.report_delay,
        fsync_interval=options.fsync_interval,
        log_interval=options.log_interval,
        shown=shown,
    )
