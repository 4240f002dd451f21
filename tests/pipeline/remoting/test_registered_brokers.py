"""Tests for L{rmqha.pipeline.remoting.name_servers} and
L{rmqha.pipeline.remoting.store_places}: which brokers there are, and where their stores are.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.pipeline.remoting.errors import BrokerUnplaced, NameServersSilent
from rmqha.pipeline.remoting.name_servers import FRESH, RegisteredBrokers
from rmqha.pipeline.remoting.store_places import ANY, StorePlaces
from rmqha.wire.remoting.bodies.route import BrokerData
from rmqha.wire.remoting.frame import encode
from tests.support.fake_broker import Answering
from tests.support.own_name_server import OwnNameServer


class RegisteredTests(SynchronousTestCase):
    """Brokers come and go as a name server says."""

    def setUp(self) -> None:
        self.server = OwnNameServer()
        self.addCleanup(self.server.close)
        self.now = 0.0

    def brokers(self, *addresses: str, cluster: str | None = None) -> RegisteredBrokers:
        """Who asks them, by a clock that stands."""
        given = addresses or (self.server.address,)
        return RegisteredBrokers(given, cluster, clock=lambda: self.now)

    def test_found(self) -> None:
        """All members of all brokers are found, or those of one cluster."""
        self.server.register("b", host="10.0.0.3", cluster="other")
        self.server.register("a")
        self.server.register("a", 1, "10.0.0.2")
        found = self.brokers().registered()
        self.assertEqual(["a", "b"], list(found))
        self.assertEqual({0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}, found["a"].broker_addrs)
        self.assertEqual(["b"], list(self.brokers(cluster="other").registered()))

    def test_asked_seldom(self) -> None:
        """A stream may look many times a second; a name server is asked every half a minute."""
        brokers = self.brokers()
        self.server.register("a")
        self.assertEqual(["a"], list(brokers.registered()))
        self.server.register("b", host="10.0.0.2")
        self.now = FRESH - 0.1
        self.assertEqual(["a"], list(brokers.registered()))
        self.assertEqual(1, len(self.server.requests))
        self.now = FRESH
        self.assertEqual(["a", "b"], list(brokers.registered()))
        self.assertEqual(2, len(self.server.requests))

    def test_silent(self) -> None:
        """Without an answer there are no brokers at first; later the former, seldom asked."""
        gone = Answering(lambda request: None)
        gone.close()
        self.assertRaises(NameServersSilent, self.brokers(gone.address).registered)
        self.server.register("a")
        brokers = self.brokers(gone.address, self.server.address)
        self.assertEqual(["a"], list(brokers.registered()))
        self.server.close()
        self.now = FRESH
        self.assertEqual(["a"], list(brokers.registered()))
        self.assertEqual(["a"], list(brokers.registered()))

    def test_nonsense(self) -> None:
        """What answers and is no name server is passed over."""
        odd = Answering(lambda request: encode(request.answer(body=b'{"brokerAddrTable": 5}')))
        self.addCleanup(odd.close)
        self.assertRaises(NameServersSilent, self.brokers(odd.address).registered)
        self.server.register("a")
        found = self.brokers(odd.address, self.server.address).registered()
        self.assertEqual(["a"], list(found))

    def test_left(self) -> None:
        """An unregistered broker is there for its readers, as last seen, or as its name says."""
        self.server.register("a")
        self.server.register("b", host="10.0.0.2")
        brokers = self.brokers()
        seen = brokers.registered()["b"]
        self.server.unregister("b", host="10.0.0.2")
        self.now = FRESH
        self.assertEqual(["a"], list(brokers.with_known([])))
        self.assertEqual(seen, brokers.with_known(["b"])["b"])
        anew = self.brokers(cluster="c").with_known(["b"])["b"]
        self.assertEqual(("b", "c", {}), (anew.broker_name, anew.cluster, anew.broker_addrs))

    def test_travels(self) -> None:
        """What was found travels to the tasks, where nobody asks again."""
        self.server.register("a")
        brokers = RegisteredBrokers((self.server.address,))
        brokers.registered()
        self.assertEqual(["a"], list(pickle.loads(pickle.dumps(brokers)).registered()))
        self.assertEqual(1, len(self.server.requests))


def broker(name: str = "a", cluster: str | None = "c", **members: str) -> BrokerData:
    """A broker with members on hosts by their ids: C{m0="10.0.0.1"}."""
    return BrokerData(
        broker_name=name,
        cluster=cluster,
        broker_addrs={int(number[1:]): f"{host}:10911" for number, host in members.items()},
    )


class PlaceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.top = Path(self.mktemp()).absolute()

    def place(self, pattern: str, found: BrokerData) -> str | None:
        """Where a broker's store is, below this test's folder."""
        stores = dict(StorePlaces({ANY: f"{self.top}/{pattern}"}).of({found.broker_name: found}))
        store = stores.get(found.broker_name)
        return None if store is None else str(store.relative_to(self.top))

    def test_names(self) -> None:
        """Names stand for themselves, and a broker may have a pattern of its own."""
        self.assertEqual("c/a/store", self.place("{cluster}/{broker}/store", broker(m0="h")))
        places = StorePlaces({ANY: "/all/{broker}", "odd": "/elsewhere"})
        found = places.of({"odd": broker("odd"), "a": broker("a")})
        self.assertEqual((("a", Path("/all/a")), ("odd", Path("/elsewhere"))), found)

    def test_members(self) -> None:
        """Of several copies the slave's is read, if this host sees it, else the master's."""
        of_two = broker(m0="10.0.0.1", m1="10.0.0.2", m2="fd00::7")
        self.assertEqual("10.0.0.2/store", self.place("{host}/store", of_two))
        (self.top / "10.0.0.1/store").mkdir(parents=True)
        self.assertEqual("10.0.0.1/store", self.place("{host}/store", of_two))
        (self.top / "fd00::7/store").mkdir(parents=True)
        two = BrokerData(broker_name="a", broker_addrs={0: "10.0.0.1:1", 2: "[fd00::7]:1"})
        self.assertEqual("fd00::7/store", self.place("{host}/store", two))
        self.assertEqual("a-2", self.place("{broker}-{id}", broker(m0="h", m2="i")))

    def test_left(self) -> None:
        """A broker that is not registered has the place that its name gives, if that is enough."""
        self.assertEqual("a", self.place("{broker}", broker(cluster=None)))
        self.assertEqual("c/a", self.place("{cluster}/{broker}", broker()))
        self.assertIsNone(self.place("{cluster}/{broker}", broker(cluster=None)))
        self.assertIsNone(self.place("{host}", broker()))

    @given(st.sampled_from(["", ".", "..", "a/b", "../a", "/", "a\0"]))
    def test_no_way_out(self, name: str) -> None:
        """A broker's name leads to no other folder."""
        places = StorePlaces({ANY: "/data/{broker}/store"})
        error = self.assertRaises(BrokerUnplaced, places.of, {name: broker(name, m0="h")})
        self.assertEqual(name, error.value)

    def test_patterns(self) -> None:
        """A pattern tells brokers apart and asks for nothing that is not there."""
        for patterns, apart in (
            ({ANY: "/data/{broker}"}, True),
            ({ANY: "/data/{host}/{id}/{cluster}"}, True),
            ({ANY: "/data/{cluster}"}, False),
            ({ANY: "/data/{broker}/{store}"}, False),
            ({"a": "/data/{broker}"}, False),
            ({ANY: "/data/{broker}", "a": "/data/{what}"}, False),
        ):
            self.assertEqual(apart, StorePlaces(patterns).tell_apart, patterns)
