"""Every request code, sent to a name server by a peer that C{namesrvAllowedPeers} does not name."""

from __future__ import annotations

from rmqha.config.values import NETWORKS
from rmqha.wire.remoting.codes import ControllerRequestCode, ResponseCode
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command, SerializeType
from rmqha.wire.remoting.frame import encode
from tests.namesrv.test_bad_input import GOOD
from tests.namesrv.test_requests import TOPICS, NamesrvCase
from tests.support.bad_input import good_fields
from tests.support.request_headers import REQUESTS

NAMED = (*map(int, Code), *map(int, ControllerRequestCode))
CODES = sorted(code for code in {*NAMED, *range(500), 9_999} if code < 1 << 15)


class UnlistedTests(NamesrvCase):
    """No change, and no answer but to what any peer may ask."""

    def test_all_codes(self) -> None:
        """Whichever header a request has and whether it wants an answer, a peer that is not listed
        changes nothing, and learns what clients look up alone.
        """
        self.start(allowed_peers=NETWORKS.parse("10.0.0.0/24"))
        self.assertEqual(self.register(self.peer("10.0.0.9")).code, 0)
        before = self.state()
        stranger, answered = self.peer("10.9.9.9"), set()
        for kind in SerializeType:
            for code in CODES:
                header = REQUESTS[Code(code)].request if code in REQUESTS else None
                ext = good_fields(header, GOOD | {"broker_name": "broker-a"})
                command = Command(code=code, opaque=1, ext=ext, body=TOPICS, serialize=kind)
                (answer,) = stranger.send(encode(command))
                need = self.server.needs.get(code)
                if need is None:
                    self.assertEqual(answer.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, code)
                elif need.listed:
                    self.assertEqual(answer.code, ResponseCode.NO_PERMISSION, code)
                else:
                    answered.add(code)
                command.flag = 2
                self.assertEqual([], stranger.send(encode(command)), code)
        self.assertEqual(before, self.state())
        self.assertEqual(answered, {101, 105, 106, 206, 219, 224, 304, 311, 312, 313, 319, 901})

    def state(self) -> object:
        table = self.server.table
        topics = table.topics(lambda flags: True)
        return (
            table.cluster_info(),
            [table.route(topic) for topic in topics],
            self.server.configuration.settings,
            self.saved,
        )
