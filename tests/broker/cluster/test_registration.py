"""What name servers are told of a broker, when, and what their answers do."""

from __future__ import annotations

import json
import zlib
from functools import partial
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionLost
from twisted.logger import LogLevel, formatEvent

from rmqha.broker.cluster import registration
from rmqha.broker.cluster.registration import BRIEF, FAREWELL, Registration
from rmqha.config.broker_settings import BrokerRole, RegistrationSettings
from rmqha.config.ha_settings import HASettings
from rmqha.config.values import NamedAddress
from rmqha.errors import RemotingTimeout, RemotingUnreachable, RequestRefused
from rmqha.net.remoting.server_names import PERIOD, ServerNames
from rmqha.wire.remoting.bodies import register
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer, RegisterBrokerRequest
from tests.broker.support import BrokerTestCase
from tests.support.bad_input import Complaints
from tests.support.frames import frames
from tests.support.health import unhealthy
from tests.support.log_lines import log_events

ONE, TWO, THREE = "10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876"
NAME = "names.test"


@define
class NameServers:
    """A client whose name servers are the test: all requests so far, and what each answers."""

    asked: list[tuple[str, Command]] = field(factory=list)
    answers: dict[str, Any] = field(factory=dict)
    patience: dict[str, float] = field(factory=dict)

    def request(self, address: str, command: Command, timeout: float = 3.0) -> Deferred[Command]:
        self.asked.append((address, command))
        self.patience[address] = timeout
        answer = self.answers.get(address)
        if isinstance(answer, Deferred):
            return answer
        if isinstance(answer, Exception):
            return fail(answer)
        ext, body = answer or ({}, b"")
        found = command.answer(body=body)
        found.ext = dict(ext)
        return succeed(found)

    def taken(self) -> list[tuple[str, Command]]:
        """What was asked since the last time."""
        taken, self.asked[:] = list(self.asked), []
        return taken


class RegistrationTests(BrokerTestCase):
    def begin(self, **settings: Any) -> Registration:
        more = {"namesrv": f"{ONE};{TWO}"} | settings
        broker = self.broker(**more)
        self.servers = NameServers()
        self.addresses: dict[str, tuple[str, ...]] = {
            NAME: ("10.0.0.1", "10.0.0.2"),
            "broker-a.test": ("10.0.0.9", "10.0.0.10"),
        }
        self.heard: list[RegisterBrokerAnswer] = []
        self.registration = Registration(
            broker,
            self.servers,  # type: ignore[arg-type]
            self.heard.append,
            partial(ServerNames, lambda name: succeed(self.addresses[name]), self.clock),
        )
        self.registration.start()
        self.clock.advance(0)
        return self.registration

    def test_whole(self) -> None:
        """At the start each name server gets the addresses and all topics."""
        self.begin(permission=6)
        taken = self.servers.taken()
        self.assertEqual([address for address, _ in taken], [ONE, TWO])
        _, request = taken[0]
        header = from_ext(RegisterBrokerRequest, request.ext)
        self.assertEqual(header.broker_addr, "10.0.0.9:10911")
        self.assertEqual(header.ha_server_addr, "10.0.0.9:10912")
        self.assertEqual((header.broker_name, header.cluster_name), ("broker-a", "C"))
        self.assertEqual((header.broker_id, header.compressed), (0, False))
        self.assertEqual(header.body_crc32, zlib.crc32(request.body) & 0x7FFFFFFF)
        body = register.read(request.body, version=request.version, compressed=False)
        self.assertEqual(body.topic_config_serialize_wrapper, self.serving.topics.table())

    def test_like_java(self) -> None:
        """Header and body have the names a stock broker's have, and the master epoch."""
        self.begin()
        _, ours = self.servers.taken()[0]
        theirs = next(
            frame
            for frame in frames("broker-namesrv-4.9.7")
            if frame.request_code == RequestCode.REGISTER_BROKER and not frame.is_answer
        )
        self.assertEqual(ours.ext.keys(), theirs.ext.keys() | {"masterEpoch"})
        mine, stock = json.loads(bytes(ours.body)), json.loads(theirs.body)
        self.assertEqual(mine.keys(), stock.keys())
        wrapper = "topicConfigSerializeWrapper"
        self.assertEqual(mine[wrapper].keys(), stock[wrapper].keys())
        table = "topicConfigTable"
        self.assertEqual(
            mine[wrapper][table]["SELF_TEST_TOPIC"], stock[wrapper][table]["SELF_TEST_TOPIC"]
        )

    def test_written_once(self) -> None:
        """What name servers are told is written in a thread, and again only when it is other."""
        broker = self.begin(permission=6) and self.serving
        written: list[bytes] = []
        real = registration.write

        def write(body: Any, compressed: bool) -> bytes:
            written.append(real(body, compressed=compressed))
            return written[-1]

        self.patch(registration, "write", write)
        for _ in range(3):
            self.clock.advance(30)
            self.clock.advance(0)
        self.assertEqual(len(written), 0)
        broker.topics.ensure("Another", 4)
        self.clock.advance(0)
        self.clock.advance(0)
        self.assertEqual(len(written), 1)
        self.assertIn(b"Another", written[0])

    def test_goes_on_after_an_error(self) -> None:
        """A registration that cannot be made is a failure of the job, and not the last one."""
        self.begin()
        self.servers.taken()
        self.registration._made = None
        patched = self.patch(registration, "write", lambda body, compressed: 1 / 0)
        for _ in range(3):
            self.clock.advance(30)
            self.clock.advance(0)
        job = self.registration._timed
        self.assertIn("failed 3 times in a row: ZeroDivisionError", unhealthy(job))
        patched.restore()
        self.clock.advance(30)
        self.clock.advance(0)
        self.assertEqual((len(self.servers.taken()), unhealthy(job)), (2, ""))
        self.flushLoggedErrors(ZeroDivisionError)

    def test_nobody_there(self) -> None:
        """Name servers that cannot be reached are no failure of the job."""
        self.begin()
        for server in (ONE, TWO):
            self.servers.answers[server] = RemotingUnreachable(server, "refused")
        for _ in range(4):
            self.clock.advance(30)
            self.clock.advance(0)
        job = self.registration._timed
        self.assertEqual((job.failures, job.runs), (0, 5))

    def test_not_listed(self) -> None:
        """A broker that no name server lists is unwell after a minute; with one it is well."""
        self.begin(registration=RegistrationSettings(force=False))
        self.servers.answers = {
            ONE: RemotingUnreachable(ONE, "refused"),
            TWO: RequestRefused(1, "not you", 103),
        }
        self.rounds(85)
        self.assertEqual(unhealthy(self.registration), "")
        self.rounds(15)
        told = unhealthy(self.registration)
        for word in ("not-registered: ", ONE, TWO, "not you", "refused"):
            self.assertIn(word, told)
        self.servers.answers[TWO] = ({"changed": "false"}, b"")
        self.rounds(10)
        self.assertEqual(unhealthy(self.registration), "")
        self.assertEqual(self.registration.status()[TWO], "registered")
        self.servers.answers[TWO] = RemotingUnreachable(TWO, "refused")
        self.rounds(50)
        self.assertEqual(unhealthy(self.registration), "", "not for a minute")

    def test_one_is_slow(self) -> None:
        """A name server that does not answer delays no other, nor who waits for it later."""
        self.begin()
        self.servers.answers[ONE] = Deferred()
        self.again()
        for number in range(3):
            self.servers.taken()
            self.serving.topics.put(TopicConfig(topic_name=f"T{number}"))
            waiting = self.registration.publication()
            self.clock.advance(0)
            ((server, request),) = self.servers.taken()
            body = register.read(request.body, version=request.version, compressed=False)
            told = body.topic_config_serialize_wrapper.topic_config_table
            self.assertEqual((server, f"T{number}" in told), (TWO, True))
            if not number:
                self.assertNoResult(waiting)
                slow = self.servers.answers[ONE]
                self.servers.answers[ONE] = Deferred()
                slow.errback(RemotingTimeout(103, 6.0, ONE))
            else:
                self.successResultOf(waiting)
        self.clock.advance(0)
        slow, self.servers.answers = self.servers.answers[ONE], {}
        slow.errback(RemotingTimeout(103, 6.0, ONE))
        (request,) = [request for server, request in self.servers.taken() if server == ONE]
        body = register.read(request.body, version=request.version, compressed=False)
        self.assertIn("T2", body.topic_config_serialize_wrapper.topic_config_table, "the newest")

    def test_acting_master(self) -> None:
        """A slave among acting stock slaves says so as well: the last word counts for all."""
        self.begin(slave=True, role=BrokerRole.SLAVE)
        told = [
            request.ext.get("enableActingMaster")
            for _, request in self.servers.taken()
            if request.code == RequestCode.REGISTER_BROKER
        ]
        self.assertEqual(told, [None, None])
        group = {
            "brokerName": "broker-a",
            "cluster": "C",
            "brokerAddrs": {"1": "10.0.0.7:10911"},
            "enableActingMaster": True,
        }
        body = json.dumps({"brokerAddrTable": {"broker-a": group}, "clusterAddrTable": {}})
        self.servers.answers = {ONE: ({}, body.encode())}
        self.again()
        told = [
            (server, request.ext.get("enableActingMaster"))
            for server, request in self.servers.taken()
            if request.code == RequestCode.REGISTER_BROKER
        ]
        self.assertEqual(sorted(told, key=str), [(ONE, "true"), (TWO, None)])

    def test_one_that_goes(self) -> None:
        """A name server whose connection ends before it answered is a line, and no traceback."""
        self.begin()
        complaints = Complaints.of(self)
        self.servers.answers[ONE] = ConnectionLost("stopped")
        self.clock.advance(30)
        self.clock.advance(0)
        self.assertFalse(complaints.events)
        self.assertIn("stopped", self.registration.status()[ONE])

    def test_again(self) -> None:
        """They are told every 30 seconds, with a period of less than 10 every 10."""
        self.begin()
        self.servers.taken()
        self.clock.advance(30)
        self.clock.advance(0)
        self.assertEqual(len(self.servers.taken()), 2)
        self.serving.current.change({"registerNameServerPeriod": "1"})
        self.clock.advance(9)
        self.assertEqual(self.servers.taken(), [])
        self.clock.advance(1)
        self.clock.advance(0)
        self.assertEqual(len(self.servers.taken()), 2)

    def rounds(self, seconds: int) -> list[int]:
        """In which of the next seconds the first name server is told."""
        found = []
        for second in range(1, seconds + 1):
            self.servers.taken()
            self.clock.advance(1)
            self.clock.advance(0)
            if ONE in dict(self.servers.taken()):
                found.append(second)
        return found

    def test_no_master_yet(self) -> None:
        """Before its master a slave asks after 1, 2, 4, 8 s and every ten; then in its period."""
        self.begin(slave=True, role=BrokerRole.SLAVE)
        self.serving.current.change({"registerNameServerPeriod": "60000"})
        self.assertEqual(self.rounds(30), [1, 3, 7, 15, 25])
        theirs = {"haServerAddr": "10.0.0.8:10912", "masterAddr": "10.0.0.8:10911"}
        self.servers.answers = {ONE: (theirs, b"")}
        self.assertEqual((self.rounds(29), self.heard[-1].master_addr), ([5], "10.0.0.8:10911"))
        self.assertEqual(self.rounds(60), [1])
        # It has lost it.
        self.servers.answers = {}
        self.assertEqual(self.rounds(10), [1, 2, 4, 8])

    def test_silent(self) -> None:
        """A broker that none of its name servers answers does so too, and not when one does."""
        self.begin(registration=RegistrationSettings(force=False))
        theirs = RemotingUnreachable(ONE, "refused")
        self.servers.answers = {ONE: theirs, TWO: theirs}
        # The next of its period.
        self.clock.advance(29)
        self.assertEqual(self.rounds(12), [1, 2, 4, 8])
        self.servers.answers[TWO] = ({"changed": "false"}, b"")
        self.assertEqual(self.rounds(15), [4])

    def test_master_configured(self) -> None:
        """A slave with a C{haMasterAddress} looks for no master: it asks in its period."""
        ha = HASettings(master=("10.0.0.8", 10912))
        self.begin(slave=True, role=BrokerRole.SLAVE, ha=ha)
        self.assertEqual(self.rounds(60), [30, 60])

    def test_sooner_ends(self) -> None:
        """One that stops, or was fenced, looks for nobody."""
        self.begin(slave=True, role=BrokerRole.SLAVE)
        self.registration.suspend("fenced")
        self.assertEqual(self.rounds(20), [])
        self.successResultOf(self.registration.stop())
        self.assertEqual(self.rounds(20), [])

    def test_change(self) -> None:
        """Many changes of topics at once are one registration; later ones are told after it."""
        self.begin()
        self.servers.taken()
        slow: Deferred[Command] = Deferred()
        self.servers.answers[ONE] = slow
        for number in range(100):
            self.serving.topics.put(TopicConfig(topic_name=f"T{number}"))
        self.clock.advance(0)
        self.assertEqual(len(self.servers.taken()), 2)
        self.serving.topics.put(TopicConfig(topic_name="late"))
        published = self.registration.publication()
        self.clock.advance(0)
        ((server, request),) = self.servers.taken()
        self.assertEqual((server, b'"late"' in bytes(request.body)), (TWO, True))
        self.assertNoResult(published)
        del self.servers.answers[ONE]
        slow.callback(Command(code=0))
        ((server, request),) = self.servers.taken()
        self.assertEqual((server, b'"late"' in bytes(request.body)), (ONE, True))
        self.successResultOf(published)

    def test_nobody_waits_for_ever(self) -> None:
        """Who made a topic does not wait for a name server that is gone."""
        self.begin()
        self.servers.answers[TWO] = Deferred()
        self.serving.topics.put(TopicConfig(topic_name="T"))
        published = self.registration.publication()
        self.clock.advance(1.9)
        self.assertNoResult(published)
        self.clock.advance(0.2)
        self.successResultOf(published)

    def told(self) -> list[str]:
        """Who was told since the last time."""
        self.clock.advance(0)
        return [server for server, _ in self.servers.taken()]

    def test_named(self) -> None:
        """Q10: a name is all its addresses, and looked up again: who is new is told at once, who
        is gone is told no more and forgotten, and takes no part in what is believed.
        """
        theirs = {"haServerAddr": "10.0.0.8:10912", "masterAddr": "10.0.0.8:10911"}
        self.begin(namesrv=f"{NAME}:9876", registration=RegistrationSettings(period=60.0))
        self.assertEqual(self.told(), [ONE, TWO])
        slow: Deferred[Command] = Deferred()
        self.servers.answers = {ONE: slow}
        self.serving.topics.put(TopicConfig(topic_name="T"))
        self.assertEqual(self.told(), [ONE, TWO])
        self.addresses[NAME] = ("10.0.0.2", "10.0.0.3")
        self.clock.advance(PERIOD)
        self.assertEqual(self.told(), [TWO, THREE])
        self.heard.clear()
        slow.callback(Command(code=0, flag=1, ext=theirs))
        registered = {TWO: "registered", THREE: "registered"}
        self.assertEqual((self.registration.status(), self.heard), (registered, []))
        self.addresses[NAME] = ()
        self.clock.advance(PERIOD)
        self.assertEqual((self.told(), self.registration.status()), ([TWO, THREE], registered))
        self.successResultOf(self.registration.stop())
        self.assertEqual(self.told(), [TWO, THREE])
        self.addresses[NAME] = ("10.0.0.1",)
        self.clock.advance(PERIOD)
        self.assertEqual(self.told(), [])

    def test_own_name(self) -> None:
        """A broker whose own address is given by name and moves tells name servers the new one."""
        events = log_events(self)
        self.begin(ip1=NamedAddress("10.0.0.9", "broker-a.test"))
        self.assertEqual(self.registration.address, "10.0.0.9:10911")
        self.servers.taken()
        self.addresses["broker-a.test"] = ("10.0.0.10",)
        self.clock.advance(PERIOD)
        self.clock.advance(0)
        told = {
            from_ext(RegisterBrokerRequest, request.ext).broker_addr
            for _, request in self.servers.taken()
        }
        self.assertIn("10.0.0.10:10911", told)
        (warning,) = (formatEvent(each) for each in events if each["log_level"] is LogLevel.warn)
        self.assertIn("10.0.0.10:10911, which brokerIP1 is now; messages and controllers", warning)
        self.addresses["broker-a.test"] = ()
        self.clock.advance(PERIOD)
        self.assertEqual(self.registration.address, "10.0.0.10:10911")

    def test_name_for_slaves(self) -> None:
        """A name in brokerIP2 is told as it is: slaves look it up when they connect."""
        self.begin(ip2="broker-a-ha.test")
        (_, first), *_ = self.servers.taken()
        header = from_ext(RegisterBrokerRequest, first.ext)
        self.assertEqual("broker-a-ha.test:10912", header.ha_server_addr)
        self.assertEqual("10.0.0.9:10911", header.broker_addr)

    def test_first_answer(self) -> None:
        """The first of the configured ones that answers is believed."""
        theirs = {"haServerAddr": "10.0.0.8:10912", "masterAddr": "10.0.0.8:10911"}
        self.begin()
        self.servers.answers = {ONE: RemotingUnreachable(ONE, "refused"), TWO: (theirs, b"")}
        self.heard.clear()
        self.clock.advance(30)
        self.clock.advance(0)
        self.assertEqual(
            self.registration.status(),
            {ONE: f"cannot connect to {ONE}: refused", TWO: "registered"},
        )
        (answer,) = self.heard
        self.assertEqual(answer.ha_server_addr, "10.0.0.8:10912")
        self.assertEqual(answer.master_addr, "10.0.0.8:10911")

    def test_disagreement(self) -> None:
        """Name servers that know different masters are told apart; the first one is believed."""
        first = {"haServerAddr": "10.0.0.8:10912", "masterAddr": "10.0.0.8:10911"}
        other = {"haServerAddr": "10.0.0.7:10912", "masterAddr": "10.0.0.7:10911"}
        self.begin()
        self.assertEqual(self.registration.disagreement, "")
        for second, parts in (
            (other, ("10.0.0.8:10911", "10.0.0.7:10911")),
            ({}, ("10.0.0.8:10911", f"{TWO} says none")),
            (first, ()),
        ):
            self.servers.answers = {ONE: (first, b""), TWO: (second, b"")}
            self.clock.advance(30)
            self.clock.advance(0)
            self.assertEqual(bool(parts), bool(self.registration.disagreement))
            for part in parts:
                self.assertIn(part, self.registration.disagreement)
            self.assertEqual(self.heard[-1].master_addr, "10.0.0.8:10911")

    def again(self) -> None:
        self.clock.advance(30)
        self.clock.advance(0)

    def test_highest_epoch(self) -> None:
        """The master with the highest epoch is believed; one told without does not disagree."""
        stock = {"haServerAddr": "10.0.0.8:10912", "masterAddr": "10.0.0.8:10911"}
        other = {"haServerAddr": "10.0.0.7:10912", "masterAddr": "10.0.0.7:10911"}
        self.begin()
        for first, second, expected, agree in (
            (stock, other | {"masterEpoch": "0"}, "10.0.0.7:10911", False),
            (stock | {"masterEpoch": "1"}, other | {"masterEpoch": "2"}, "10.0.0.7:10911", False),
            (stock | {"masterEpoch": "2"}, other | {"masterEpoch": "2"}, "10.0.0.8:10911", False),
            (stock, stock | {"masterEpoch": "2"}, "10.0.0.8:10911", True),
        ):
            self.servers.answers = {ONE: (first, b""), TWO: (second, b"")}
            self.again()
            self.assertEqual(self.heard[-1].master_addr, expected)
            self.assertEqual(self.registration.disagreement == "", agree)

    def test_tells_its_epoch(self) -> None:
        """Each registration has the master epoch of the moment."""
        self.begin()
        epochs = self.serving.epochs
        epochs.become(epochs.journal.raised(0))
        self.again()
        told = [request.ext["masterEpoch"] for _, request in self.servers.taken()]
        self.assertEqual(told, ["0", "0", "1", "1"])

    def test_refused(self) -> None:
        """A master that is not in the routes is not called registered."""
        self.begin()
        theirs = {"masterAddr": "10.0.0.8:10911", "masterEpoch": "2"}
        self.servers.answers = {ONE: (theirs, b"")}
        self.again()
        self.assertEqual(
            self.registration.status(),
            {ONE: "refused: 10.0.0.8:10911 is master with master epoch 2", TWO: "registered"},
        )

    def test_suspended(self) -> None:
        """A fenced one tells nothing more, and takes no leave, which would unroute the other."""
        self.begin()
        self.servers.taken()
        self.registration.suspend("fenced")
        self.again()
        self.serving.topics.put(TopicConfig(topic_name="T"))
        self.clock.advance(0)
        self.successResultOf(self.registration.stop())
        self.assertEqual(self.servers.taken(), [])
        self.assertEqual(self.registration.status()[ONE], "not registered: fenced")

    def test_order(self) -> None:
        """Name servers say which topics are ordered, and saying it twice changes nothing."""
        self.begin()
        self.serving.topics.put(TopicConfig(topic_name="T1"))
        self.serving.topics.put(TopicConfig(topic_name="T2", order=True))
        self.servers.answers[ONE] = ({}, b'{"table":{"T1":"broker-a:4"}}')
        self.clock.advance(30)
        for _ in range(3):
            self.clock.advance(0)
        topics = self.serving.topics
        one, two = topics.get("T1"), topics.get("T2")
        assert one is not None and two is not None
        self.assertEqual((one.order, two.order), (True, False))
        version = topics.version
        self.clock.advance(30)
        self.clock.advance(0)
        self.assertEqual(topics.version, version)

    def test_permission(self) -> None:
        """What the broker does not permit, none of its topics is announced with."""
        self.begin(permission=4)
        _, request = self.servers.taken()[0]
        body = register.read(request.body, version=request.version, compressed=False)
        table = body.topic_config_serialize_wrapper.topic_config_table
        self.assertEqual({topic.perm for topic in table.values()}, {4})
        own = self.serving.topics.get("SELF_TEST_TOPIC")
        assert own is not None
        self.assertEqual(own.perm, 6)

    def test_permission_changes(self) -> None:
        """A change of it is told at once, as another version, or topics would not be looked at."""
        self.begin()
        versions, permissions = [], []
        for text in ("6", "4", "4", "6"):
            self.serving.current.change({"brokerPermission": text})
            self.clock.advance(0)
            for _, request in self.servers.taken()[-1:]:
                body = register.read(request.body, version=request.version, compressed=False)
                table = body.topic_config_serialize_wrapper
                versions.append(table.data_version.counter)
                permissions.append({topic.perm for topic in table.topic_config_table.values()})
        self.assertEqual(versions, sorted(set(versions)))
        self.assertEqual(permissions[-2], {4})
        self.assertNotEqual(permissions[-1], {4})

    def test_only_news(self) -> None:
        """With forceRegister=false a name server that knows it all is only asked."""
        self.begin(registration=RegistrationSettings(force=False))
        self.servers.taken()
        self.servers.answers = {ONE: ({"changed": "false"}, b""), TWO: ({"changed": "true"}, b"")}
        self.clock.advance(30)
        self.clock.advance(0)
        codes = [(address, command.code) for address, command in self.servers.taken()]
        self.assertEqual(sorted(codes), [(ONE, 322), (TWO, 103), (TWO, 322)])

    def test_compressed(self) -> None:
        """With compressedRegister the body is compressed, and says so."""
        self.begin(registration=RegistrationSettings(compressed=True))
        _, request = self.servers.taken()[0]
        self.assertEqual(request.ext["compressed"], "true")
        body = register.read(request.body, version=request.version, compressed=True)
        self.assertIn("SELF_TEST_TOPIC", body.topic_config_serialize_wrapper.topic_config_table)

    def test_stop(self) -> None:
        """At the end all are told that the broker goes, reachable or not."""
        self.begin()
        self.servers.taken()
        self.servers.answers[TWO] = RemotingUnreachable(TWO, "refused")
        self.successResultOf(self.registration.stop())
        taken = self.servers.taken()
        self.assertEqual([(address, one.code) for address, one in taken], [(ONE, 104), (TWO, 104)])
        self.assertEqual(
            taken[0][1].ext,
            {
                "brokerName": "broker-a",
                "brokerAddr": "10.0.0.9:10911",
                "clusterName": "C",
                "brokerId": "0",
            },
        )
        self.serving.topics.put(TopicConfig(topic_name="T"))
        self.clock.advance(100)
        self.assertEqual(self.servers.taken(), [])

    def test_stop_where_one_is_mute(self) -> None:
        """Leave is taken of all, and who has not answered before has a moment for it: a member of a
        set that changes its role takes no writes meanwhile.
        """
        self.begin()
        self.servers.answers = {TWO: ConnectionLost()}
        self.clock.advance(30)
        self.clock.advance(0)
        self.servers.taken()
        self.registration.stop()
        asked = [(address, command.code) for address, command in self.servers.taken()]
        self.assertEqual(asked, [(ONE, 104), (TWO, 104)])
        self.assertEqual(self.servers.patience, {ONE: FAREWELL, TWO: BRIEF})

    def test_stop_while_asking(self) -> None:
        """Who has taken leave does not come back when a name server says what it knew before."""
        self.begin(registration=RegistrationSettings(force=False))
        self.servers.taken()
        slow: Deferred[Command] = Deferred()
        self.servers.answers = {ONE: slow, TWO: ({"changed": "false"}, b"")}
        self.clock.advance(30)
        self.clock.advance(0)
        self.servers.answers = {}
        self.registration.stop()
        slow.callback(Command(code=0, flag=1, ext={"changed": "true"}))
        codes = [command.code for _, command in self.servers.taken()]
        self.assertEqual(codes, [322, 322, 104, 104])

    def test_none(self) -> None:
        """Without name servers nobody is told, and nobody waits."""
        self.begin(namesrv="")
        self.serving.topics.put(TopicConfig(topic_name="T"))
        self.clock.advance(100)
        self.assertEqual(self.servers.taken(), [])
        self.successResultOf(self.registration.publication())
        self.successResultOf(self.registration.stop())
