"""C{twistd rmqha}: options to settings to a service."""

from __future__ import annotations

import gc
import socket
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from signal import SIGHUP, signal
from typing import Any, cast

from twisted.application.service import IService
from twisted.logger import ILogObserver
from twisted.python import usage
from twisted.python.reflect import namedAny

from rmqha.admin.log_output import LogThreshold, observer
from rmqha.config.errors import ConfigProblems
from rmqha.config.load import BEFORE, MEMBER, NAMESRV, OF_A_SLAVE, load
from rmqha.config.settings import Settings
from rmqha.config.values import ENDPOINT, FOLDER
from rmqha.errors import BadValue, ConfigError, Refused, RemotingFrameError, RmqhaError, StoreError
from rmqha.net import lean_reactor
from rmqha.net.key_file import KeyFileInvalid
from rmqha.net.remoting.credentials import read_credentials
from rmqha.net.remoting.ha_port import PATIENCE, ports_of
from rmqha.roles.host.exit_codes import FOR_A_PERSON, exit_code
from rmqha.roles.host.garbage import SetAside

MASTER = "master"

SLAVE = "slave"

SLAVE_OF = "--slave-of"

ROLES = {
    MASTER: "rmqha.roles.master.MasterNode",
    SLAVE: "rmqha.roles.slave.SlaveNode",
    MEMBER: "rmqha.roles.member.MemberNode",
    NAMESRV: "rmqha.roles.namesrv.NamesrvNode",
}
"""Each role's service, by dotted name: a process imports only the one it runs."""


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


def keys_of_master(text: str) -> list[str]:
    """What C{--slave-of} configures a slave with.

    @param text: C{HOST}, or C{HOST:PORT}.
    @return: C{key=value} each.
    @raise BadValue: If it is no address.
    @raise MasterPortUnknown: If the port is none of RocketMQ's, and cannot be asked.
    """
    show = ENDPOINT.show
    try:
        found = ports_of(text.strip())
    except ValueError as error:
        wanted = "HOST, or HOST:PORT with a port from 1 to 65535"
        raise BadValue(SLAVE_OF, text, wanted) from error
    except (OSError, RemotingFrameError) as error:
        raise MasterPortUnknown(text.strip(), _reason(error)) from error
    keys = [f"haMasterAddress={show(found.ha)}"]
    return keys if found.client is None else [*keys, f"haMasterClientAddress={show(found.client)}"]


def _reason(error: OSError | RemotingFrameError) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {PATIENCE:g} s"
    return (getattr(error, "strerror", None) or str(error)).rstrip(".")


class LogChoice:
    """What twistd is to log with, for it to find by name: there is one in a process.

    @ivar made: Makes it, once a command line was read.
    """

    made: Callable[[], ILogObserver]


class Options(usage.Options):
    """The command line of C{twistd rmqha}."""

    threshold: LogThreshold | None = None
    synopsis = (
        "[--role master|slave|member|namesrv] [--slave-of HOST[:PORT]] [--store DIR] "
        "[--conf FILE] [--set KEY=VALUE]..."
    )
    optParameters = [
        ["role", "r", None, "master, slave, member or namesrv; what brokerRole says when absent."],
        ["conf", "c", None, "The role's file to read; RocketMQ's defaults when absent."],
        [
            "slave-of",
            None,
            None,
            "HOST or HOST:PORT: run a slave of the master there; its client port or its HA port.",
        ],
        ["store", None, None, "The folder of the store, like --set storePathRootDir=DIR."],
    ]
    optFlags = [
        [
            "repair",
            None,
            "Cut a damaged log at the damage; what followed is kept in a quarantine file.",
        ],
        [
            "force",
            None,
            "Start a master although another one of its brokerName is live, or was met.",
        ],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["set"] = []
        self.conf: Path | None = None
        self._named: str | None = None

    def opt_set(self, assignment: str) -> None:
        """KEY=VALUE: set a configuration key; it wins over the file and may be repeated."""
        self["set"].append(assignment)

    opt_s = opt_set

    def opt_version(self) -> None:
        """Display the version of rmqha and exit."""
        sys.stdout.write(f"rmqha {version('rmqha')}\n")
        raise SystemExit(0)

    def read(self) -> Settings:
        """Read the configuration, now or once more.

        @raise ConfigProblems: With everything that is wrong.
        """
        settings = load(self.conf, self["set"], self["role"])
        if self.conf is not None:
            # A daemon may be somewhere else when it reads again.
            self.conf = self.conf.absolute()
        return settings

    def keeps_a_slave(self) -> str:
        """What of the command line makes a slave of this node whatever the file says; C{""} for
        nothing.
        """
        if self["slave-of"] is not None:
            return f"its command line says --slave-of {self['slave-of']}"
        if self._named == SLAVE:
            return "its command line names the role slave"
        for given in self["set"]:
            if given.partition("=")[0].strip() in OF_A_SLAVE:
                return f"its command line says --set {given}"
        return ""

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read the command line, and the configuration that it names.

        @raise UsageError: With everything that is wrong, if nobody is there to be told.
        @raise SystemExit: Otherwise; twistd would show all options first, and end with 1.
        """
        try:
            super().parseOptions(options)
        except usage.UsageError as error:
            if self.parent is None:
                raise
            for line in str(error).splitlines():
                sys.stderr.write(f"rmqha: {line}\n")
            cause = error.__cause__
            raise SystemExit(FOR_A_PERSON if cause is None else exit_code(cause)) from error

    def postOptions(self) -> None:
        """Load the configuration, so that mistakes are told before anything starts."""
        if self["conf"] is not None:
            self.conf = Path(self["conf"])
        if self["role"] is not None and self["role"] not in ROLES:
            raise usage.UsageError(f"unknown role {self['role']}; roles are {', '.join(ROLES)}")
        unnamed = self["role"] is None and self.conf is None
        self._take_place()
        self._named = name = self["role"]
        try:
            self.settings = self.read()
            read_credentials(self.settings.access.credentials)
        except ConfigProblems as error:
            raise usage.UsageError("\n".join(str(problem) for problem in error.problems)) from error
        except KeyFileInvalid as error:
            raise usage.UsageError(f"{error} (aclCredentialsFile)") from error
        except ConfigError as error:
            raise usage.UsageError(str(error)) from error
        if name is None:
            name = MASTER if self.settings.broker.role.is_master else SLAVE
            if self.settings.controller.member:
                name = MEMBER
        if unnamed and name == MASTER:
            self._refuse_slaves_store()
        if self["force"] and name != MASTER:
            raise usage.UsageError("--force is for a master")
        self.role: str = name
        self._log_as_configured()

    def _take_place(self) -> None:
        """Make keys of C{--store} and C{--slave-of}, which win over the file as C{--set} does."""
        made: list[str] = []
        store, master = self["store"], self["slave-of"]
        if self["role"] == NAMESRV and (store is not None or master is not None):
            raise usage.UsageError("--store and --slave-of are for brokers, not for a name server")
        try:
            if store is not None:
                made.append(f"storePathRootDir={_folder(store)}")
            if master is not None:
                if self["role"] not in (None, SLAVE):
                    raise usage.UsageError(
                        f"--slave-of {master} is for a slave, not for --role {self['role']}"
                    )
                self["role"] = SLAVE
                made += keys_of_master(master)
        except RmqhaError as error:
            raise usage.UsageError(str(error)) from error
        keys = {key.partition("=")[0] for key in made}
        for given in self["set"]:
            if (key := given.partition("=")[0].strip()) in keys:
                option = "--store" if key == "storePathRootDir" else SLAVE_OF
                raise usage.UsageError(f"{option} and --set {given}: give one of the two")
        self["set"] += made

    def _refuse_slaves_store(self) -> None:
        """A store that follows a master becomes no master's only because a role was left out."""
        from rmqha.ha.slave.followed import FollowedMaster  # a name server needs it never

        root = self.settings.store.root
        try:
            row = FollowedMaster.read(root)
        except StoreError:
            return  # the node finds that itself, and says so
        if row is not None and row.following:
            raise usage.UsageError(
                f"{root} is the store of a slave of {row.address}: start it with --slave-of "
                f"{row.address}, or make it a master's with `rmqha promote {root}`"
            )

    def _log_as_configured(self) -> None:
        """Have twistd log as the configuration says, unless its command line says how."""
        twistd = self.parent
        # Of twist, or of a test, there is none to tell.
        if twistd is None or "logger" not in twistd or twistd["logger"] or twistd.get("syslog"):
            return
        path = twistd.get("logfile") or ("" if twistd.get("nodaemon") else "twistd.log")
        settings, server = self.settings, self.role == NAMESRV
        who = "namesrv" if server else _who(settings)
        self.threshold = LogThreshold(settings.log.level)
        LogChoice.made = staticmethod(lambda: observer(settings.log, who, path, self.threshold))
        # It takes names only.
        twistd["logger"] = f"{__name__}.{LogChoice.__name__}.made"


def _who(settings: Settings) -> str:
    return f"{settings.broker.name}/{settings.broker.id}"


def _folder(text: str) -> Path:
    """What C{--store} names.

    @raise BadValue: If it is no folder.
    """
    folder = FOLDER
    try:
        found: Path = folder.parse(text)
    except ValueError as error:
        raise BadValue("--store", text, folder.allowed) from error
    return found


def makeService(options: Options, reactor: Any = None) -> IService:
    """The service tree of the chosen role.

    @param reactor: Given by tests; twistd's own otherwise.
    @raise SystemExit: If what a store says of its last run cannot be read.
    """
    own = reactor is None
    if own:
        lean_reactor.install()
        from twisted.internet import reactor
    # Twisted's timers follow the wall clock, which jumps; a node's must not.
    reactor.seconds = time.monotonic
    try:
        if options.role == MASTER:
            _finish_promotion(options)
        made = _node(options, reactor)
    except StoreError as error:
        # twistd has not begun to log, so there is no other place for it.
        sys.stderr.write(f"Cannot start: {error}\n")
        raise SystemExit(exit_code(error)) from error
    if own:
        made.set_aside = SetAside(reactor)
        # What would end the process by default.
        signal(SIGHUP, lambda *_: reactor.callFromThread(lambda: present(made).reload()))
    return cast(IService, made)


def _finish_promotion(options: Options) -> None:
    """A running slave was to become the master, and its process ended before it had.

    @raise Refused: If something listens again where the master was.
    """
    from rmqha.ha import promotion  # a name server needs it never

    store, before = options.settings.store, f"{options.conf}{BEFORE}"
    master = promotion.replaced(store.root)
    if master and not options["force"] and _listens(master):
        raise Refused(
            "promotion",
            f"the master at {master} is back, or another process listens there, and this node was "
            f"killed before it had taken its place. Make it a slave again: `mv {before} "
            f"{options.conf}`, and start it; or stop the other one; --force starts this one as "
            "the master all the same",
        )
    done = promotion.finish(store)
    for line in () if done is None else promotion.told(done):
        sys.stderr.write(f"{line}\n")


def _listens(address: str) -> bool:
    """Whether one of three connections to an address is taken.  Blocking."""
    for look in range(3):
        time.sleep(min(look, 1))
        try:
            socket.create_connection(ENDPOINT.parse(address), 3.0).close()
        except OSError:
            continue
        return True
    return False


def _node(options: Options, reactor: Any) -> Any:
    how = {}
    if options.role != NAMESRV:  # it has no log to repair
        how["repair"] = bool(options["repair"])
    if options.role == MASTER:
        how["force"] = bool(options["force"])
    made = namedAny(ROLES[options.role])(options.settings, reactor, **how)
    made.reread = options.read
    if options.threshold is not None:
        made.log_from = options.threshold.set
    if options.role == SLAVE:
        _make_promotable(made, options, reactor)
    return made


def _make_promotable(slave: Any, options: Options, reactor: Any) -> None:
    from rmqha.roles.live_promotion import LivePromotion  # the others need it never

    def successor(settings: Settings) -> Any:
        options.settings, options.role = settings, MASTER
        # A log that is a master's is not cut without being told to.
        options["repair"] = 0
        if options.threshold is not None:
            options.threshold.node = _who(settings)
        master = _node(options, reactor)
        master.set_aside = slave.set_aside
        # What is left of the slave is in nobody's way now, and would be set aside for ever.
        gc.unfreeze()
        gc.collect()
        return master

    slave.promotion = LivePromotion(
        node=slave,
        conf=options.conf,
        keeps=options.keeps_a_slave(),
        reread=options.read,
        successor=successor,
    )


def present(made: Any) -> Any:
    """The node of a process: that which was made, or what it has become."""
    promotion = made.promotion
    return made if promotion is None else promotion.node
