"""What C{twistd} finds of rmqha: one service maker.  It names the module that does the work,
so that listing plugins imports nothing heavy.
"""

from twisted.application.service import ServiceMaker

rmqha = ServiceMaker(
    "rmqha",
    "rmqha.roles.tap",
    "RocketMQ master/slave high availability: a master, a slave or a name server.",
    "rmqha",
)
