"""
What C{twistd} finds of rmqha: one service maker, and the roles it can start.
"""

from twisted.application.service import ServiceMaker

from rmqha.roles.role import LazyRole

rmqha = ServiceMaker(
    "rmqha",
    "rmqha.roles.tap",
    "RocketMQ master/slave high availability: a master, a slave or a name server.",
    "rmqha",
)

master = LazyRole("master", "rmqha.roles.master.make_service", "Serve the log to slaves.")
slave = LazyRole("slave", "rmqha.roles.slave.make_service", "Follow a master.")
namesrv = LazyRole(
    "namesrv", "rmqha.roles.namesrv.make_service", "Tell clients who has which topic."
)
