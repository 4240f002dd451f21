"""
C{twistd rmqha}: options to settings to a service.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.plugin import getPlugins
from twisted.python import usage

from rmqha.config.errors import ConfigProblems
from rmqha.config.load import load
from rmqha.errors import ConfigError
from rmqha.roles.interfaces import IRole


def roles() -> dict[str, IRole]:
    """
    The roles there are, by name.
    """
    return {role.name: role for role in getPlugins(IRole)}


class Options(usage.Options):
    """
    The command line of C{twistd rmqha}.
    """

    synopsis = "[--role master|slave|namesrv] [--conf FILE] [--set KEY=VALUE]..."
    optParameters = [
        [
            "role",
            "r",
            None,
            "master, slave or namesrv; what brokerRole says when absent.",
        ],
        [
            "conf",
            "c",
            None,
            "The role's file to read; RocketMQ's defaults when absent.",
        ],
    ]
    optFlags = [
        [
            "repair",
            None,
            "Cut a damaged log at the damage; what followed is kept in a quarantine file.",
        ],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["set"] = []

    def opt_set(self, assignment: str) -> None:
        """
        KEY=VALUE: set a configuration key; it wins over the file and may be repeated.
        """
        self["set"].append(assignment)

    opt_s = opt_set

    def postOptions(self) -> None:
        """
        Load the configuration, so that mistakes are told before anything starts.
        """
        known = roles()
        name = self["role"]
        if name is not None and name not in known:
            raise usage.UsageError(f"--role {name}: there are {', '.join(sorted(known))}")
        conf = Path(self["conf"]) if self["conf"] is not None else None
        try:
            self.settings = load(conf, self["set"], name)
        except ConfigProblems as error:
            raise usage.UsageError("\n".join(str(problem) for problem in error.problems)) from error
        except ConfigError as error:
            raise usage.UsageError(str(error)) from error
        if name is None:
            name = "master" if self.settings.broker.role.is_master else "slave"
        self.chosen = known[name]


def makeService(options: Options, reactor: Any = None) -> IService:
    """
    The service tree of the chosen role.

    @param reactor: Given by tests; twistd's own otherwise.
    """
    if reactor is None:
        from twisted.internet import reactor
    # Twisted's timers follow the wall clock, which jumps; a node's must not.
    reactor.seconds = time.monotonic
    return options.chosen.make_service(options.settings, reactor, repair=bool(options["repair"]))
