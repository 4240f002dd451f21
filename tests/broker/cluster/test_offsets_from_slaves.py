"""Offsets of a slave and of its master: none gets lower but by a reset."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from attrs import define, evolve, field
from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from rmqha.broker.broker import Broker
from rmqha.broker.cluster.metadata_offsets import SLICE, OffsetSync, merge, taken_back
from rmqha.broker.cluster.offsets_from_slaves import IN_A_SET, WITHIN
from rmqha.broker.cluster.offsets_owed import WINDOW, Owed
from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.errors import RemotingTimeout, RemotingUnreachable
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets as OffsetTable
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.broker.metadata_master import offsets_body
from tests.broker.support import BrokerTestCase, Client, sending
from tests.support.effort import tries
from tests.support.logs import LogTestCase, now

KEYS = st.sampled_from(["A@g", "A@h", "B@g", "%RETRY%g@g"])
QUEUES = st.dictionaries(st.integers(0, 3), st.integers(0, 50), max_size=4)
TABLES = st.dictionaries(KEYS, QUEUES, max_size=4)

#: Rounds: what the master gives, whether its process is another one, and whether it says so.
ROUNDS = st.lists(st.tuples(TABLES, st.booleans(), st.booleans()), min_size=1, max_size=6)


class OffsetTestCase(LogTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.begin()

    def begin(self) -> None:
        self.offsets = ConsumerOffsetTable(CheckedTables(self.folder()), self.clock, now)
        state: Any = SimpleNamespace(
            offsets=self.offsets,
            clock=self.clock,
            in_thread=now,
            knows=lambda topic, group: True,
            store=SimpleNamespace(queues=SimpleNamespace(end=lambda topic, queue_id: 1000)),
        )
        self.sync = OffsetSync(state, Owed(state))

    def ours(self) -> dict[str, dict[int, int]]:
        return {key: queues for key, queues in self.offsets.table().offset_table.items() if queues}

    def done(self, awaitable: Any) -> Any:
        """Let the reactor turn until it is done."""
        result = Deferred.fromCoroutine(awaitable)
        for _ in range(200):
            self.clock.advance(0)
        return self.successResultOf(result)

    def fill(self, table: dict[str, dict[int, int]]) -> None:
        """Let the slave have some."""
        self.done(merge(self.offsets, table.items(), self.clock))


class MergeTests(OffsetTestCase):
    @given(TABLES, TABLES)
    @run_settings(max_examples=tries(100), deadline=None)
    def test_highest(
        self, one: dict[str, dict[int, int]], other: dict[str, dict[int, int]]
    ) -> None:
        """Afterwards each offset is the higher of both, and nothing else; moves are counted."""
        self.begin()
        self.fill(one)
        moved = self.done(merge(self.offsets, other.items(), self.clock))
        expected: dict[str, dict[int, int]] = {}
        for table in (one, other):
            for key, queues in table.items():
                for queue_id, offset in queues.items():
                    mine = expected.setdefault(key, {})
                    mine[queue_id] = max(offset, mine.get(queue_id, -1))
        self.assertEqual(expected, self.ours())
        before = {key: queues for key, queues in one.items() if queues}
        changed = sum(
            before.get(key, {}).get(queue_id) != offset
            for key, queues in expected.items()
            for queue_id, offset in queues.items()
        )
        self.assertEqual(changed, moved)

    @given(ROUNDS)
    @run_settings(max_examples=tries(150), deadline=None)
    def test_never_lower(self, rounds: list[tuple[dict[str, dict[int, int]], bool, bool]]) -> None:
        """An offset is lowered only as the same process of the master gave it, to what it gives."""
        self.begin()
        boot, given_by, last = 0, -1, {}
        for table, restarted, says in rounds:
            boot += restarted
            before = self.ours()
            self.done(self.sync.adopt(OffsetTable(offset_table=table), boot if says else None, "m"))
            after = self.ours()
            for key, queues in before.items():
                for queue_id, offset in queues.items():
                    found = after.get(key, {}).get(queue_id)
                    told = table.get(key, {}).get(queue_id)
                    was = last.get(key, {}).get(queue_id)
                    if found is not None and found < offset:
                        self.assertTrue(says and given_by == boot)
                        self.assertIsNotNone(was)
                        self.assertEqual(told, found)
                        self.assertLess(found, was or 0)
            for key, queues in table.items():
                for queue_id, offset in queues.items():
                    self.assertGreaterEqual(after[key][queue_id], offset)
            if says or not last:
                given_by, last = (boot if says else -1), table

    def test_in_slices(self) -> None:
        """A large table is merged over several turns of the reactor."""
        table = {f"T@g{n}": {0: n} for n in range(SLICE * 3)}
        result = Deferred.fromCoroutine(merge(self.offsets, table.items(), self.clock))
        self.assertEqual(SLICE, len(self.offsets.table().offset_table))
        for _ in range(5):
            self.clock.advance(0)
        self.assertEqual(SLICE * 3, self.successResultOf(result))

    def test_taken_back(self) -> None:
        """What is lower and what is gone; queues that are new or gone are neither."""
        change = taken_back(
            {"A@g": {0: 5, 1: 5, 2: 5}, "B@g": {0: 1}, "C@g": {0: 1}},
            {"A@g": {0: 4, 1: 6, 3: 1}, "C@g": {0: 1}, "D@g": {0: 9}},
        )
        self.assertEqual(["g in queue 0 of A from 5 to 4"], [str(step) for step in change.back])
        self.assertEqual(("B@g",), change.gone)


class GiveBackTests(OffsetTestCase):
    """Many offsets that the master is owed."""

    def test_windows(self) -> None:
        """They are told some at a time; what is not answered is kept for the next round."""
        for n in range(WINDOW + 5):
            self.sync.owed.note("g", f"T{n:03}", 0, 7)
        asked: list[Command] = []
        waiting: list[Deferred[Command]] = []

        def ask(command: Command) -> Deferred[Command]:
            asked.append(command)
            waiting.append(Deferred())
            return waiting[-1]

        result = Deferred.fromCoroutine(self.sync.owed.give_back(OffsetTable(), ask, "m"))
        self.assertEqual(WINDOW, len(asked))
        for command, answer in zip(asked[:], waiting[:], strict=True):
            answer.callback(command.answer())
        self.assertEqual(WINDOW + 5, len(asked))
        waiting[WINDOW].errback(RemotingTimeout(15, 3.0, "m"))
        for command, answer in list(zip(asked, waiting, strict=True))[WINDOW + 1 :]:
            answer.callback(command.answer())
        self.failureResultOf(result, RemotingTimeout)
        self.assertIn(f"T{WINDOW:03}@g", self.sync.owed.committed)
        self.assertNotIn("T000@g", self.sync.owed.committed)

    def test_committed_meanwhile(self) -> None:
        """What is committed while an offset is on its way is owed still."""
        self.sync.owed.note("g", "T", 0, 7)

        def ask(command: Command) -> Deferred[Command]:
            self.sync.owed.note("g", "T", 0, 8)
            return succeed(command.answer())

        self.done(self.sync.owed.give_back(OffsetTable(), ask, "m"))
        self.assertEqual({"T@g": {0: 8}}, self.sync.owed.committed)


ONE, TWO = "10.0.0.1:9876", "10.0.0.2:9876"
SLAVE, OTHER = "10.0.0.11:10911", "10.0.0.12:10911"


def cluster(addresses: dict[int, str], name: str = "broker-a", of: str = "C") -> bytes:
    """What a name server knows."""
    table = {
        name: {
            "brokerName": name,
            "cluster": of,
            "brokerAddrs": {str(number): address for number, address in addresses.items()},
        }
    }
    return json.dumps({"brokerAddrTable": table, "clusterAddrTable": {of: [name]}}).encode()


@define
class Others:
    """Name servers and slaves: each answers a body, an exception, C{None} (nothing), or a code."""

    bodies: dict[str, Any] = field(factory=dict)
    asked: list[tuple[str, int]] = field(factory=list)

    def request(self, address: str, command: Command, timeout: float = 3.0) -> Deferred[Command]:
        self.asked.append((address, command.code))
        body = self.bodies.get(address)
        if body is None:
            return Deferred()
        if isinstance(body, Exception):
            return fail(body)
        if isinstance(body, int):
            return succeed(command.answer(body, "not now"))
        return succeed(command.answer(body=body))

    def close(self) -> Deferred[None]:
        return succeed(None)


class ReturnTestCase(BrokerTestCase):
    def begin(self, *, slave: bool = False, namesrv: str = ONE, **settings: Any) -> Broker:
        """A broker whose others are the test."""
        self.others = Others()
        broker = self.broker(slave=slave, namesrv=namesrv, **settings)
        for part in (broker._return, broker._return.members, broker.siblings.members):
            for name in ("client", "_client"):
                if hasattr(part, name):
                    setattr(part, name, self.others)
        return broker

    def turns(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        for _ in range(10):
            self.clock.advance(0)


class ReturnTests(ReturnTestCase):
    def setUp(self) -> None:
        """It has five messages in a queue."""
        super().setUp()
        master = self.begin()
        master.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
        client = Client(Connections(self.clock, master.registry, ConnectionLimits()))
        for _ in range(5):
            client.ask(RequestCode.SEND_MESSAGE_V2, sending("T"), b"x")
        self.clock.advance(0.1)
        master.offsets.advance("g", "T", 0, 1)
        self.others.bodies[ONE] = cluster({0: "10.0.0.9:10911", 1: SLAVE})

    def gather(self) -> Deferred[None]:
        gathering = self.serving.prepare()
        self.turns()
        return gathering

    def test_higher(self) -> None:
        """What consumers committed at a slave counts where it is higher and can be true."""
        self.others.bodies[SLAVE] = offsets_body(
            {"T@g": {0: 4, 7: 3}, "T@h": {0: 9}, "Gone@g": {0: 2}}
        )
        self.successResultOf(self.gather())
        self.assertEqual([(ONE, 106), (SLAVE, 43)], self.others.asked)
        offsets = self.serving.offsets
        self.assertEqual(4, offsets.get("g", "T", 0))
        self.assertEqual(5, offsets.get("h", "T", 0), "the queue's end")
        self.assertEqual(3, offsets.get("g", "T", 7), "the queue begins there")
        self.assertIsNone(offsets.get("g", "Gone", 0))

    def test_one_name_server_is_slow(self) -> None:
        """What one name server knows is asked for while another is silent, and nobody twice."""
        self.serving._return.servers = lambda: (TWO, ONE)
        self.others.bodies[SLAVE] = offsets_body({"T@g": {0: 4}})
        gathering = self.gather()
        self.assertEqual(4, self.serving.offsets.get("g", "T", 0))
        self.assertNoResult(gathering)
        self.turns(WITHIN)
        self.successResultOf(gathering)
        self.assertEqual([(TWO, 106), (ONE, 106), (SLAVE, 43)], self.others.asked)

    def test_member_of_a_set(self) -> None:
        """One that leads a set waits little for mute name servers: writes wait meanwhile."""
        self.others.bodies.clear()
        settings = self.serving.current.settings
        controller = evolve(settings.controller, enabled=True)
        self.serving.current.settings = evolve(settings, controller=controller)
        gathering = self.gather()
        self.assertNoResult(gathering)
        self.turns(IN_A_SET)
        self.successResultOf(gathering)

    def test_idle(self) -> None:
        """A queue with nothing left here goes on where a slave's does, or a group at the slave."""
        self.others.bodies[SLAVE] = offsets_body(
            {"T@g": {1: 20}}, queueEnds={"T": {"0": 9, "2": 30}, "Gone": {"0": 4}}
        )
        self.successResultOf(self.gather())
        store = self.serving.store
        self.assertEqual([store.next_offset("T", number) for number in range(4)], [5, 20, 30, 0])
        self.assertEqual(store.next_offset("Gone", 0), 0)
        self.assertEqual(20, self.serving.offsets.get("g", "T", 1))

    def test_not_to_be_seen_yet(self) -> None:
        """What is in the log can be true, though readers of this master do not see it yet."""
        store = self.serving.store
        store.dispatcher.limit = store.log.end
        client = Client(Connections(self.clock, self.serving.registry, ConnectionLimits()))
        for _ in range(2):
            client.ask(RequestCode.SEND_MESSAGE_V2, sending("T"), b"x")
        self.others.bodies[SLAVE] = offsets_body({"T@g": {0: 6}, "T@h": {0: 9}})
        self.successResultOf(self.gather())
        self.assertEqual(6, self.serving.offsets.get("g", "T", 0))
        self.assertEqual(7, self.serving.offsets.get("h", "T", 0))

    def test_lower(self) -> None:
        """What is lower does not."""
        self.serving.offsets.advance("g", "T", 0, 5)
        self.others.bodies[SLAVE] = offsets_body({"T@g": {0: 4}})
        self.successResultOf(self.gather())
        self.assertEqual(5, self.serving.offsets.get("g", "T", 0))

    def test_silent(self) -> None:
        """It serves after three seconds, with what was heard until then."""
        self.others.bodies[ONE] = cluster({1: SLAVE, 2: OTHER})
        self.others.bodies[OTHER] = offsets_body({"T@g": {0: 3}})
        gathering = self.gather()
        self.turns(2.9)
        self.assertNoResult(gathering)
        self.turns(0.2)
        self.successResultOf(gathering)
        self.assertEqual(3, self.serving.offsets.get("g", "T", 0))

    def test_nobody(self) -> None:
        """Without slaves, with bad ones, or without a name server that answers it serves."""
        unreachable = RemotingUnreachable(ONE, "refused")
        for names, slave in (
            (unreachable, None),
            (b"{", None),
            (1, None),
            (b"{}", None),
            (cluster({0: "10.0.0.9:10911"}), None),
            (cluster({1: SLAVE}, of="another"), offsets_body({"T@g": {0: 4}})),
            (cluster({1: SLAVE}, name="broker-b"), offsets_body({"T@g": {0: 4}})),
            (cluster({1: SLAVE}), unreachable),
            (cluster({1: SLAVE}), b"{}"),
            (cluster({1: SLAVE}), 14),
        ):
            self.others.bodies = {ONE: names} | ({SLAVE: slave} if slave is not None else {})
            self.successResultOf(self.gather())
            self.assertEqual(1, self.serving.offsets.get("g", "T", 0), (names, slave))


class OtherMastersTests(ReturnTestCase):
    def test_no_names(self) -> None:
        """A master without name servers asks nobody, nor does a slave."""
        self.successResultOf(self.begin(namesrv="").prepare())
        self.assertEqual([], self.others.asked)

    def test_slave(self) -> None:
        """A slave asks nobody for offsets before it serves."""
        self.successResultOf(self.begin(slave=True, id=1).prepare())
        self.assertEqual([], self.others.asked)


class SiblingTests(ReturnTestCase):
    """Two brokers of one name and id."""

    def look(self, brokers: dict[int, str], *, registered: bool = True) -> str:
        """Let a slave look at its siblings."""
        slave = self.begin(slave=True, id=1, namesrv=f"{ONE};{TWO}")
        if registered:
            slave.registration._known = {ONE: "registered", TWO: "cannot connect"}
        self.others.bodies[ONE] = cluster(brokers)
        slave.siblings.start()
        self.turns(10.0)
        return str(slave.status()["twin"])

    def test_alone(self) -> None:
        """Nothing is said where the place is ours, or nobody's."""
        own = "10.0.0.9:10911"
        self.assertEqual("", self.look({0: SLAVE, 1: own, 2: OTHER}))
        self.assertEqual([(ONE, 106)], self.others.asked)

    def test_twin(self) -> None:
        """Another broker in our place is named, until it was not seen for two minutes."""
        twin = self.look({0: SLAVE, 1: OTHER})
        self.assertIn(f"{OTHER} with brokerId=1 too", twin)
        self.others.bodies[ONE] = cluster({1: "10.0.0.9:10911"})
        self.turns(60.0)
        self.assertIn(OTHER, self.serving.status()["twin"])
        for _ in range(8):
            self.turns(10.0)
        self.assertEqual("", self.serving.status()["twin"])

    def test_frozen(self) -> None:
        """R4: what one name server lists is told while another stands still."""
        self.look({0: SLAVE, 1: "10.0.0.9:10911"})
        self.serving.registration._known[TWO] = "registered"
        self.others.bodies[ONE] = cluster({1: OTHER})
        self.turns(10.0)
        self.assertIn(OTHER, self.serving.status()["twin"])

    def test_before(self) -> None:
        """A name server that does not know us yet may know us by another address."""
        self.assertEqual("", self.look({1: OTHER}, registered=False))
        self.assertEqual([], self.others.asked)
