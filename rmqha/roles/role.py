"""
Roles by name: what the plugin file holds, so that listing plugins imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from attrs import frozen
from twisted.plugin import IPlugin
from twisted.python.reflect import namedAny
from zope.interface import implementer

from rmqha.roles.interfaces import IRole

if TYPE_CHECKING:
    from twisted.application.service import IService

    from rmqha.config.settings import Settings


@implementer(IPlugin, IRole)
@frozen
class LazyRole:
    """
    A role whose code is imported when it is started.

    @ivar maker: Dotted name of a C{make_service} function.
    """

    name: str
    maker: str
    description: str

    def make_service(self, settings: Settings, reactor: Any, *, repair: bool) -> IService:
        """
        Import the role and make its service.
        """
        return cast("IService", namedAny(self.maker)(settings, reactor, repair=repair))
