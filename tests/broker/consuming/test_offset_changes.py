"""What a slave is told of consumers' offsets: everything, or what changed."""

from __future__ import annotations

import json
from typing import Any

from rmqha.broker.broker import Broker
from rmqha.broker.consuming import offset_changes
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from tests.broker.support import BrokerTestCase, Client

PAUSE = 0.15


class ChangesTests(BrokerTestCase):
    """A master with a group, and a slave that asks for offsets."""

    def setUp(self) -> None:
        super().setUp()
        self.master: Broker = self.broker()
        self.slave = self.client()
        self.commit(5)
        self.clock.advance(PAUSE)

    def commit(self, offset: int, queue_id: int = 0, group: str = "g") -> None:
        self.master.offsets.commit(group, "T", queue_id, offset, "10.0.0.1:1")

    def asked(self, client: Client | None = None, **ext: Any) -> Command | None:
        """Ask for offsets; C{None} while there is no answer."""
        fields = {name: str(value) for name, value in ext.items()}
        return (client or self.slave).ask(RequestCode.GET_ALL_CONSUMER_OFFSET, fields)

    def table(self, answer: Command | None) -> dict[str, dict[int, int]]:
        assert answer is not None
        self.assertEqual(answer.code, 0, answer.remark)
        found: dict[str, dict[int, int]] = fastjson.loads(bytes(answer.body))["offsetTable"]
        return {
            key: {int(queue_id): offset for queue_id, offset in queues.items()}
            for key, queues in found.items()
        }

    def version(self) -> str:
        answer = self.asked(offsetsSince="")
        assert answer is not None
        self.assertNotIn("changesOnly", answer.ext)
        return answer.ext["offsetsVersion"]

    def heard(self) -> Command | None:
        answers = self.slave.heard()
        return answers[0] if answers else None

    def test_stock(self) -> None:
        """A stock slave is given the table with a version, and nothing that it does not know."""
        answer = self.asked()
        assert answer is not None
        self.assertEqual(answer.ext, {})
        found = fastjson.loads(bytes(answer.body))
        self.assertEqual(set(found), {"offsetTable", "dataVersion"})
        self.assertEqual(set(found["dataVersion"]), {"counter", "timestamp", "stateVersion"})
        self.assertIn(b'"offsetTable":{"T@g":{0:5}}', bytes(answer.body))
        self.commit(6)
        self.clock.advance(PAUSE)
        after = self.asked()
        assert after is not None
        later = fastjson.loads(bytes(after.body))["dataVersion"]
        self.assertGreater(later["counter"], found["dataVersion"]["counter"])

    def test_idle_queues(self) -> None:
        """Ours is told where queues go on that have no message left; a stock slave is not."""
        self.master.store.queues.begin("T", 3, 20)
        for ext, told in (({}, None), ({"offsetsSince": ""}, {"T": {"3": 20}})):
            answer = self.asked(**ext)
            assert answer is not None
            self.assertEqual(fastjson.loads(bytes(answer.body)).get("queueEnds"), told)

    def test_changed(self) -> None:
        """What changed since the version, as soon as that is durable, and the version after it."""
        version = self.version()
        self.assertIsNone(self.asked(offsetsSince=version, waitMillis=10_000))
        self.commit(6)
        self.commit(1, queue_id=3)
        self.assertIsNone(self.heard())
        self.clock.advance(PAUSE)
        answer = self.heard()
        assert answer is not None
        self.assertEqual((answer.ext["changesOnly"], answer.ext["keysGone"]), ("true", "false"))
        self.assertEqual(self.table(answer), {"T@g": {0: 6, 3: 1}})
        self.commit(2, queue_id=3)
        self.clock.advance(PAUSE)
        since = {"offsetsSince": answer.ext["offsetsVersion"], "waitMillis": 10_000}
        self.assertEqual(self.table(self.asked(**since)), {"T@g": {3: 2}})

    def test_nothing(self) -> None:
        """Where nothing changes the answer comes after the wait, with the same version."""
        version = self.version()
        self.assertIsNone(self.asked(offsetsSince=version, waitMillis=2_000))
        self.clock.advance(1.9)
        self.assertIsNone(self.heard())
        self.clock.advance(0.2)
        answer = self.heard()
        assert answer is not None
        self.assertEqual((answer.ext["offsetsVersion"], self.table(answer)), (version, {}))

    def test_deleted(self) -> None:
        """That offsets were deleted is said, and which changed since."""
        version = self.version()
        self.commit(9, group="h")
        self.master.offsets.remove("g", "T")
        self.clock.advance(PAUSE)
        answer = self.asked(offsetsSince=version)
        assert answer is not None
        self.assertEqual(answer.ext["keysGone"], "true")
        self.assertEqual(self.table(answer), {"T@h": {0: 9}})

    def test_stirred(self) -> None:
        """A group's mode that is set makes slaves ask for all tables, now and later."""
        version = self.version()
        self.assertIsNone(self.asked(offsetsSince=version, waitMillis=5000))
        self.master.topics.put(TopicConfig(topic_name="T"))
        mode = {"topic": "T", "consumerGroup": "g", "mode": "POP"}
        answer = self.client().ask(
            RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode()
        )
        assert answer is not None
        self.assertEqual(answer.code, 0, answer.remark)
        for answer in (self.heard(), self.asked(offsetsSince=version)):
            assert answer is not None
            self.assertEqual((answer.ext["keysGone"], self.table(answer)), ("true", {}))
        self.assertIsNone(self.asked(offsetsSince=answer.ext["offsetsVersion"], waitMillis=5000))

    def test_unknown_version(self) -> None:
        """Who has a version of another life, or none that makes sense, is given everything."""
        version = self.version()
        life, _, number = version.rpartition("-")
        for wrong in (f"{life}-{int(number) + 1}", f"other-{number}", "x", f"{life}-x", "-1"):
            answer = self.asked(offsetsSince=wrong, waitMillis=10_000)
            assert answer is not None, wrong
            self.assertEqual(answer.ext, {"offsetsVersion": version})
            self.assertEqual(self.table(answer), {"T@g": {0: 5}})

    def test_gone(self) -> None:
        """A slave that is gone is not answered, whenever it goes."""
        version = self.version()
        self.assertIsNone(self.asked(offsetsSince=version, waitMillis=10_000))
        self.slave.connection.connectionLost()
        self.commit(6)
        self.clock.advance(PAUSE)
        self.assertEqual(self.master._changes._waiting, [])

    def test_many(self) -> None:
        """Not more than some wait: what comes above is answered at once."""
        self.patch(offset_changes, "MOST", 2)
        version = self.version()
        for _ in range(2):
            other = self.client()
            self.assertIsNone(self.asked(other, offsetsSince=version, waitMillis=9_000))
        self.assertEqual(self.table(self.asked(offsetsSince=version, waitMillis=9_000)), {})

    def test_stop(self) -> None:
        """A stop refuses those that wait."""
        self.assertIsNone(self.asked(offsetsSince=self.version(), waitMillis=9_000))
        self.master._changes.stop()
        answer = self.heard()
        assert answer is not None
        self.assertEqual(answer.code, ResponseCode.SERVICE_NOT_AVAILABLE)

    def test_no_journal(self) -> None:
        """A master without a journal answers as a stock one."""
        self.master.offsets.journal.interval = 0.0
        answer = self.asked(offsetsSince="", waitMillis=9_000)
        assert answer is not None
        self.assertEqual(answer.ext, {})
        self.assertIn("offsetTable", json.loads(bytes(answer.body).replace(b"0:", b'"0":')))
