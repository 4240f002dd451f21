"""Who has what: the table of routes by itself, by example and by random histories."""

from __future__ import annotations

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from twisted.trial.unittest import SynchronousTestCase

from rmqha.namesrv.routes import BrokerRegistration, LostBroker, RegistrationResult, RouteTable
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.route import QueueData
from rmqha.wire.remoting.bodies.tables import TopicConfig
from tests.support.machines import run_machine

MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"


def registration(
    address: str = MASTER, number: int = 0, *topics: str, version: int = 1, **values: object
) -> BrokerRegistration:
    """What broker-a says of itself."""
    plain = BrokerRegistration(
        cluster="c",
        name="broker-a",
        id=number,
        address=address,
        ha_address=address.replace("10911", "10912"),
        topics=[TopicConfig(topic_name=topic, read_queue_nums=4) for topic in topics],
        version=DataVersion(counter=version),
    )
    return evolve(plain, **values)  # type: ignore[arg-type]


class RouteTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.table = RouteTable()

    def addresses(self, topic: str = "t") -> dict[int, str]:
        route = self.table.route(topic)
        return {} if route is None else route.broker_datas[0].broker_addrs

    def perm(self, topic: str = "t") -> int:
        route = self.table.route(topic)
        assert route is not None
        return route.queue_datas[0].perm

    def test_slave_is_told_its_master(self) -> None:
        """A slave hears where its master is, once that is live; a master hears nothing."""
        self.assertEqual(
            self.table.register(registration(SLAVE, 1), 0.0), RegistrationResult(new=True)
        )
        self.assertEqual(self.table.register(registration(), 0.0), RegistrationResult(new=True))
        self.assertEqual(
            self.table.register(registration(SLAVE, 1), 1.0),
            RegistrationResult(master=MASTER, ha="10.0.0.1:10912", epoch=0),
        )

    def test_topics_stay_until_they_change(self) -> None:
        """Topics are taken when their version differs; those that are missing stay."""
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        self.table.register(registration(MASTER, 0, "u"), 1.0)
        self.assertEqual(self.table.topics(), ("t",))
        self.table.register(registration(MASTER, 0, "u", version=2), 2.0)
        self.assertEqual(self.table.topics(), ("t", "u"))

    def test_dead_master(self) -> None:
        """Without its master a slave is still found, and without both the topic is gone."""
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        self.table.register(registration(SLAVE, 1, "t"), 0.0)
        self.assertEqual(self.addresses(), {0: MASTER, 1: SLAVE})
        self.assertTrue(self.table.unregister("broker-a", 0, MASTER))
        self.assertEqual(self.addresses(), {1: SLAVE})
        self.assertTrue(self.table.unregister("broker-a", 1, SLAVE))
        self.assertIsNone(self.table.route("t"))
        self.assertEqual(self.table.cluster_info().cluster_addr_table, {})

    def test_slave_alone(self) -> None:
        """A slave whose master never came brings its topics; the master's then win."""
        self.table.register(registration(SLAVE, 1, "t", version=9), 0.0)
        self.assertEqual(self.addresses(), {1: SLAVE})
        read_only = [TopicConfig(topic_name="t", perm=4)]
        self.table.register(registration(topics=read_only), 1.0)
        self.assertEqual(self.perm(), 4)
        self.table.register(registration(SLAVE, 1, "t", version=10), 2.0)
        self.assertEqual(self.perm(), 4)

    def test_unregister_needs_the_address(self) -> None:
        """Nobody unregisters a broker by its name and id alone."""
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        self.assertFalse(self.table.unregister("broker-a", 0, "10.9.9.9:1"))
        self.assertFalse(self.table.unregister("broker-a", 1, MASTER))
        self.assertFalse(self.table.unregister("broker-b", 0, MASTER))
        self.assertEqual(self.addresses(), {0: MASTER})

    def test_takes_the_place(self) -> None:
        """Another address with the same name and id takes the place, and says whose."""
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        found = self.table.register(registration("10.0.0.9:1", 0, "t"), 1.0)
        self.assertEqual((found.replaced, self.addresses()), (MASTER, {0: "10.0.0.9:1"}))

    def test_higher_master(self) -> None:
        """Of two masters the one with the higher epoch is routed, whichever registers last."""
        other = "10.0.0.9:1"
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        found = self.table.register(registration(other, 0, "t", epoch=2), 1.0)
        self.assertEqual((found.replaced, found.replaced_epoch), (MASTER, 0))
        for seconds, new in ((2.0, True), (3.0, False)):
            self.assertEqual(
                self.table.register(registration(MASTER, 0, "t", "u", epoch=1), seconds),
                RegistrationResult(master=other, ha=other, epoch=2, new=new, refused=True),
            )
        self.assertEqual(self.addresses(), {0: other})
        self.assertIsNone(self.table.route("u"))
        self.assertIsNone(self.table.seen(MASTER, DataVersion(counter=1), 3.0))
        (row,) = self.table.refused_status(4.0)
        self.assertEqual(
            row,
            {"address": MASTER, "brokerName": "broker-a", "masterEpoch": 1, "secondsSilent": 1.0},
        )

    def test_equal_masters(self) -> None:
        """Of two with one epoch the last counts, as with stock brokers."""
        for address in (MASTER, "10.0.0.9:1", MASTER):
            self.table.register(registration(address, 0, "t", epoch=3), 0.0)
            self.assertEqual(self.addresses(), {0: address})

    def test_higher_master_is_gone(self) -> None:
        """A higher one that is gone is in the way of no other, nor is a slave ever refused."""
        other = "10.0.0.9:1"
        self.table.register(registration(other, 0, "t", epoch=2), 0.0)
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        self.assertFalse(self.table.register(registration(SLAVE, 1, "t"), 0.0).refused)
        self.table.unregister("broker-a", 0, other)
        self.assertFalse(self.table.register(registration(MASTER, 0, "t"), 1.0).refused)
        self.assertEqual(self.addresses(), {0: MASTER, 1: SLAVE})
        self.assertEqual(self.table.refused_status(1.0), [])

    def test_refused_master_is_gone(self) -> None:
        """It is forgotten when it leaves, when its connection ends, and when it is silent."""
        self.table.register(registration("10.0.0.9:1", 0, "t", epoch=2, expiry=1e9), 0.0)
        low = registration(MASTER, 0, "t", channel="low")
        for forget in (
            lambda: self.table.unregister("broker-a", 0, MASTER),
            lambda: self.table.closed("low"),
            lambda: self.table.expire(121.0),
            lambda: self.table.register(evolve(low, id=3), 0.0),
        ):
            self.assertTrue(self.table.register(low, 0.0).new)
            forget()
            self.assertEqual(self.table.refused_status(0.0), [])

    def test_changes_its_role(self) -> None:
        """An address has one id: a slave that became master is no slave any more."""
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        self.table.register(registration(SLAVE, 1, "t"), 0.0)
        self.table.unregister("broker-a", 0, MASTER)
        self.table.register(registration(SLAVE, 0, "t"), 1.0)
        self.assertEqual(self.addresses(), {0: SLAVE})

    def test_changes_its_name(self) -> None:
        """An address that comes with another name is gone from the old one, its topics with it."""
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        self.table.register(registration(MASTER, 0, "t", name="broker-b"), 1.0)
        route = self.table.route("t")
        assert route is not None
        self.assertEqual([data.broker_name for data in route.queue_datas], ["broker-b"])

    def test_expires(self) -> None:
        """A broker that is silent for longer than it said is gone; a sign of life counts."""
        self.table.register(registration(MASTER, 0, "t", expiry=10.0, channel=self), 0.0)
        self.assertEqual(self.table.expire(10.0), [])
        self.assertTrue(self.table.beat(MASTER, 9.0))
        self.assertEqual(self.table.expire(19.0), [])
        self.assertEqual(
            self.table.seen(MASTER, DataVersion(counter=1), 18.0), DataVersion(counter=1)
        )
        self.table.seen(MASTER, DataVersion(counter=2), 27.0)
        self.assertEqual(self.table.expire(28.5), [LostBroker("broker-a", MASTER, self)])
        self.assertIsNone(self.table.route("t"))

    def test_closed(self) -> None:
        """A connection takes its own brokers along, and no broker that has a newer one."""
        self.table.register(registration(MASTER, 0, "t", channel="old"), 0.0)
        self.table.register(registration(MASTER, 0, "t", channel="new"), 1.0)
        self.assertEqual((self.table.closed("old"), self.addresses()), ([], {0: MASTER}))
        self.assertEqual(self.table.closed("new"), [LostBroker("broker-a", MASTER, "new")])

    def test_write_permission(self) -> None:
        """Wiping ends with the next change of the topics, or when it is undone."""
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        self.assertEqual((self.table.wipe_write_perm("broker-a"), self.perm()), (1, 4))
        self.table.register(registration(MASTER, 0, "t"), 1.0)
        self.assertEqual((self.perm(), self.table.add_write_perm("broker-a")), (4, 1))
        self.assertEqual((self.perm(), self.table.wipe_write_perm("nobody")), (6, 0))

    def test_delete_topic(self) -> None:
        """A topic is deleted everywhere, or from one cluster's brokers."""
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        self.table.register(registration(SLAVE, 0, "t", name="broker-b", cluster="d"), 0.0)
        self.assertEqual(self.table.topics_of("d"), ("t",))
        self.assertTrue(self.table.delete_topic("t", "d"))
        self.assertEqual(self.table.topics_of("d"), ())
        self.assertEqual(self.addresses(), {0: MASTER})
        self.assertTrue(self.table.delete_topic("t"))
        self.assertFalse(self.table.delete_topic("t"))
        self.assertEqual(self.table.topics(), ())

    def test_lists(self) -> None:
        """The other lists: names that are topics, topics with a flag, and added ones."""
        self.table.register(registration(MASTER, 0, "t"), 0.0)
        self.assertEqual(self.table.system_topics(), (("c", "broker-a"), MASTER))
        self.table.add_topic(
            "u",
            [
                QueueData(
                    broker_name=name,
                    read_queue_nums=1,
                    write_queue_nums=1,
                    perm=6,
                    topic_sys_flag=1,
                )
                for name in ("broker-a", "nobody")
            ],
        )
        self.assertEqual(self.table.topics(lambda flags: flags == 1), ("u",))
        self.assertEqual(self.addresses("u"), {0: MASTER})

    def test_status(self) -> None:
        """The status tells each live address, and for how long it is silent."""
        self.table.register(registration(MASTER, 0, "t"), 5.0)
        (row,) = self.table.status(7.0)
        self.assertEqual((row["address"], row["brokerId"]), (MASTER, 0))
        self.assertEqual(row["secondsSilent"], 2.0)


NAMES = st.sampled_from(["a", "b"])
IDS = st.integers(0, 2)
ADDRESSES = st.sampled_from([f"h:{n}" for n in range(1, 5)])
TOPICS = st.sets(st.sampled_from("tuv")).map(sorted)
CHANNELS = st.integers(0, 3)


class Histories(RuleBasedStateMachine):
    """Brokers come and go in any order; beside the table stands a plain account of who is live."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now = 0.0
        self.live: dict[str, tuple[str, int, float, int]] = {}
        self.epochs: dict[str, int] = {}

    @rule(
        name=NAMES,
        number=IDS,
        address=ADDRESSES,
        topics=TOPICS,
        channel=CHANNELS,
        epoch=st.integers(0, 2),
    )
    def register(
        self, name: str, number: int, address: str, topics: list[str], channel: int, epoch: int
    ) -> None:
        """One comes; its name's former one is gone, unless a master of a higher epoch."""
        found = self.table.register(
            registration(
                address, number, *topics, name=name, cluster=f"c-{name}",
                version=len(topics), channel=channel, epoch=epoch,
            ),
            self.now,
        )  # fmt: skip
        higher = [
            one
            for one, place in self.live.items()
            if place[:2] == (name, 0) and one != address and self.epochs[one] > epoch
        ]
        assert found.refused == bool(higher and number == 0)
        if found.refused:
            assert found.master == higher[0]
            self.live.pop(address, None)
            return
        self.epochs[address] = epoch
        taken = [
            one
            for one, place in self.live.items()
            if place[:2] == (name, number) and one != address
        ]
        assert ([found.replaced] if found.replaced else []) == taken
        for one in taken:
            del self.live[one]
        self.live[address] = (name, number, self.now, channel)

    @rule(name=NAMES, number=IDS, address=ADDRESSES)
    def unregister(self, name: str, number: int, address: str) -> None:
        known = self.live.get(address, ("", -1))[:2] == (name, number)
        assert self.table.unregister(name, number, address) == known
        if known:
            del self.live[address]

    @rule(channel=CHANNELS)
    def close(self, channel: int) -> None:
        gone = {one for one, place in self.live.items() if place[3] == channel}
        assert {one.address for one in self.table.closed(channel)} == gone
        for one in gone:
            del self.live[one]

    @rule(seconds=st.sampled_from([1.0, 60.0, 121.0]))
    def pass_time(self, seconds: float) -> None:
        """Time passes, and who was silent is removed."""
        self.now += seconds
        gone = {one for one, place in self.live.items() if self.now - place[2] > 120.0}
        assert {one.address for one in self.table.expire(self.now)} == gone
        for one in gone:
            del self.live[one]

    @rule(name=NAMES)
    def wipe(self, name: str) -> None:
        self.table.wipe_write_perm(name)

    @rule(topic=st.sampled_from("tuv"), name=NAMES)
    def delete(self, topic: str, name: str) -> None:
        """A topic is deleted in one cluster."""
        self.table.delete_topic(topic, f"c-{name}")

    @invariant()
    def brokers_are_the_live_ones(self) -> None:
        """Every live address is in the table under its name and id, and nothing else is."""
        expected: dict[str, dict[int, str]] = {}
        for address, (name, number, _, _) in self.live.items():
            expected.setdefault(name, {})[number] = address
        info = self.table.cluster_info()
        found = {name: data.broker_addrs for name, data in info.broker_addr_table.items()}
        assert found == expected
        assert {name for names in info.cluster_addr_table.values() for name in names} == set(found)
        assert len(self.table.status(self.now)) == len(self.live)

    @invariant()
    def routes_name_the_living(self) -> None:
        """A topic that is listed has a route, and that names nobody who is dead."""
        names = {place[0] for place in self.live.values()}
        for topic in self.table.topics():
            route = self.table.route(topic)
            assert route is not None
            assert route.queue_datas
            assert {data.broker_name for data in route.queue_datas} <= names
            assert [data.broker_name for data in route.broker_datas] == [
                data.broker_name for data in route.queue_datas
            ]


class HistoryTests(SynchronousTestCase):
    """L{Histories}, under both runners: trial does not run a C{runTest}."""

    def test_histories(self) -> None:
        """Whatever the order in which brokers come and go, the routes name those that live."""
        run_machine(Histories, count=60, steps=30)
