"""
What a role is: something C{twistd rmqha --role NAME} can start.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService
from zope.interface import Attribute, Interface

from rmqha.config.settings import Settings


class IRole(Interface):
    """
    A role, found by C{getPlugins(IRole)}: another package can bring its own.
    """

    name: str = Attribute("What C{--role} says.")
    description: str = Attribute("One line for C{--help}.")

    def make_service(settings: Settings, reactor: Any, *, repair: bool) -> IService:
        """
        Turn settings into a service tree; nothing is opened before it starts.

        @param settings: The node's settings, of this role.
        @param reactor: Clock, threads and sockets.
        @param repair: Whether a damaged log may be cut.
        """
