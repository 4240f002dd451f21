"""
Controller mode: who says which member of a set is its master.

L{rmqha.config.settings} tells how these settings are written.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from rmqha.config.keys import Origin, key
from rmqha.config.values import Choice, Endpoints, Switch


class CutPolicy(StrEnum):
    """
    C{controllerCutPolicy}: what of its log a node of a set cuts off to be like its master.
    """

    UNCONFIRMED = "unconfirmed"
    ALL = "all"
    NEVER = "never"


@frozen(kw_only=True)
class ControllerSettings:
    """
    How a node takes part in a set whose master is elected.
    """

    enabled: bool = key("enableControllerMode", Switch(), "false", origin=Origin.RMQ53)
    """Whether a controller elects the set's master. A slave needs asyncLearner=true with it: it
    follows whoever is master, and is never elected itself."""

    addresses: str = key("controllerAddr", Endpoints(), "", origin=Origin.RMQ53)
    """The controllers, host:port, several separated by ;."""

    learner: bool = key("asyncLearner", Switch(), "false", origin=Origin.RMQ53)
    """Whether this node is no member of the set: no write waits for it, and it is never elected.
    Its readers see the log up to the confirm offset that the master tells."""

    cut_policy: CutPolicy = key(
        "controllerCutPolicy", Choice(CutPolicy), "unconfirmed", origin=Origin.OURS
    )
    """What a node may cut off its own log to be like the elected master: what lies above the
    confirm offset, which no reader has seen (C{unconfirmed}), all, or nothing (C{never}). What is
    cut off is kept in quarantine. haMaxTruncateBytes limits it too."""
