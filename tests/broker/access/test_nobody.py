"""Every request code, sent by somebody who may do nothing."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.broker.access.acl_requests import USERS_OF_5
from rmqha.broker.access.needs import ANY_ACCOUNT
from rmqha.broker.cluster.set_requests import SetRequests
from rmqha.broker.cluster.stock_followers import StockFollowers
from rmqha.broker.ports import NOT_ON_VIP, ServedPort
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.wire.remoting.bodies.clients import (
    CheckClientConfig,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    QueueLocks,
    SubscriptionData,
)
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.bodies.controller import EpochCache
from rmqha.wire.remoting.bodies.pop import BatchAck, BatchAckBody
from rmqha.wire.remoting.bodies.request_modes import AssignmentQuery, GroupMode
from rmqha.wire.remoting.bodies.tables import (
    GroupConfig,
    GroupConfigList,
    TopicConfig,
    TopicConfigList,
)
from rmqha.wire.remoting.codes import ControllerRequestCode, ResponseCode
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command, SerializeType
from rmqha.wire.remoting.json_body import write
from rmqha.wire.remoting.signature import Credentials
from tests.broker.access.cases import AccessTestCase
from tests.broker.support import SEND_V2, Client, batch, sending
from tests.support.access_table import credentials
from tests.support.bad_input import good_fields
from tests.support.request_headers import REQUESTS

TOPIC, GROUP, KEY, BODY = "Vault", "vault-keepers", "vault-key", b"vault-body"
SECRETS = (TOPIC.encode(), GROUP.encode(), KEY.encode(), BODY, b"keeper@1")

NAMED = (*map(int, Code), *map(int, ControllerRequestCode))
CODES = frozenset((*NAMED, *range(500), 9_999))
"""More than are known."""

LARGE = 1 << 15
"""The first code for which a binary header has no room."""

WISH = SubscriptionData(topic=TOPIC)
QUEUES = write(
    QueueLocks(
        client_id="keeper@1", consumer_group=GROUP, mq_set=(MessageQueue("broker-a", 0, TOPIC),)
    )
)
BODIES: dict[int, bytes] = {
    Code.UPDATE_AND_CREATE_TOPIC_LIST: write(
        TopicConfigList(topic_config_list=(TopicConfig(topic_name="Made"),))
    ),
    Code.UPDATE_BROKER_CONFIG: b"fileReservedTime=1\n",
    Code.SEND_BATCH_MESSAGE: batch((BODY, "")),
    Code.HEART_BEAT: write(
        HeartbeatData(
            client_id="keeper@1",
            producer_data_set=(ProducerData(group_name=GROUP),),
            consumer_data_set=(ConsumerData(group_name=GROUP, subscription_data_set=(WISH,)),),
        )
    ),
    Code.LOCK_BATCH_MQ: QUEUES,
    Code.UNLOCK_BATCH_MQ: QUEUES,
    Code.CHECK_CLIENT_CONFIG: write(
        CheckClientConfig(client_id="keeper@1", group=GROUP, subscription_data=WISH)
    ),
    Code.QUERY_ASSIGNMENT: write(
        AssignmentQuery(
            topic=TOPIC, consumer_group=GROUP, client_id="keeper@1", strategy_name="AVG"
        )
    ),
    Code.BATCH_ACK_MESSAGE: write(BatchAckBody(acks=(BatchAck(group=GROUP, topic=TOPIC),))),
    Code.SET_MESSAGE_REQUEST_MODE: write(GroupMode(topic=TOPIC, consumer_group=GROUP)),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: write(GroupConfig(group_name="made")),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: write(
        GroupConfigList(group_config_list=(GroupConfig(group_name="made"),))
    ),
}
"""What would do something, were it permitted."""

NOT_DONE = frozenset(
    {
        Code.GET_CONSUMER_RUNNING_INFO,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        Code.CONSUME_MESSAGE_DIRECTLY,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
        Code.VIEW_BROKER_STATS_DATA,
        Code.RESUME_CHECK_HALF_MESSAGE,
        Code.RECALL_MESSAGE,
        Code.PEEK_MESSAGE,
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        ControllerRequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        ControllerRequestCode.ALTER_SYNC_STATE_SET,
        ControllerRequestCode.ELECT_MASTER,
        ControllerRequestCode.REGISTER_BROKER,
        ControllerRequestCode.GET_REPLICA_INFO,
        ControllerRequestCode.GET_NEXT_BROKER_ID,
        ControllerRequestCode.APPLY_BROKER_ID,
        *USERS_OF_5,
    }
)
"""What is not answered 0 even to an administrator: a client has to answer, nothing was counted, the
half message is ended already, all was handed out, it is switched off, a field is missing, or it is
not here."""


class NobodyTests(AccessTestCase):
    """No data, and no change."""

    def serve(self, *, slave: bool = False) -> None:
        """Serve on both ports; there are messages, a half one, an online group, and offsets."""
        self.followers: dict[int, str] = {}
        labels = EpochCache(cluster_name="C", broker_name="broker-a", broker_id=1, max_offset=0)
        followers = StockFollowers(
            cluster="C", name="broker-a", address="", state=lambda: None, addresses=self.followers
        )
        members = SetRequests(lambda token: labels, lambda told: None)
        self.begin(slave=slave, more=(members, followers))
        serving = self.serving
        serving.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        serving.groups.put(GroupConfig(group_name=GROUP))
        self.places = {"offset": 0, "commit_log_offset": 0, "tran_state_table_offset": 0}
        self.half_id = ""
        self.keeper = self.by("operator")
        if not slave:
            self.fill()
            serving.timers.start()
            self.clock.advance(0.01)
            self.addCleanup(serving.timers.stop)
        here = Command(code=Code.HEART_BEAT, body=BODIES[Code.HEART_BEAT])
        credentials("operator").sign(here)
        self.keeper.client.send(here)
        serving.offsets.commit(GROUP, TOPIC, 0, 1, "10.0.0.1")
        self.keeper.client.heard()
        self.ports = []
        for without in ((), NOT_ON_VIP):
            port = ServedPort(without)
            port.open(serving.registry)
            self.ports.append(Connections(self.clock, port, ConnectionLimits()))

    def fill(self) -> None:
        """Messages, of which one is a half one."""
        properties = {"UNIQ_KEY": "U1", "KEYS": KEY, "PGROUP": GROUP}
        told = self.keeper.ask(SEND_V2, BODY, **sending(TOPIC, properties=properties))
        self.assertEqual(told.code, 0)
        ext = sending(TOPIC, sys_flag=4, properties=properties | {"TRAN_MSG": "true"})
        half = self.keeper.ask(SEND_V2, BODY, **ext)
        self.clock.advance(0.01)
        self.half_id = half.ext["msgId"]
        self.places |= {
            "offset": int(told.ext["msgId"][-16:], 16),
            "commit_log_offset": int(half.ext["msgId"][-16:], 16),
            "tran_state_table_offset": int(half.ext["queueOffset"]),
        }

    def request(self, code: int) -> Command:
        """What would have an answer or do something, were it permitted."""
        known = {
            "topic": TOPIC,
            "group": GROUP,
            "group_name": GROUP,
            "consumer_group": GROUP,
            "producer_group": GROUP,
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "read_queue_nums": 4,
            "write_queue_nums": 4,
            "perm": 6,
            "topic_filter_type": "SINGLE_TAG",
            "subscription": "*",
            "expression_type": "TAG",
            "client_id": "keeper@1",
            "key": KEY,
            "max_num": 32,
            "max_msg_nums": 32,
            "sys_flag": 4 if code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE) else 0,
            "boundary_type": "lower",
            "batch": code == Code.SEND_BATCH_MESSAGE,
            "properties": "REPLY_TO_CLIENT\x01keeper@1\x02",
            "stats_name": "TOPIC_PUT_NUMS",
            "stats_key": TOPIC,
            "count": 10,
            "is_force": True,
            "commit_or_rollback": 8,
            "access_key": "producer",
            "secret_key": "another-secret",
            "global_white_addrs": "10.99.0.1",
            "attributes": None,
            "topic_perms": f"{TOPIC}=PUB",
            "group_perms": f"{GROUP}=SUB",
            "white_remote_address": None,
            "acl_file_full_path": None,
            "end_timestamp": 1 << 60,
            "msg_id": self.half_id,
            "queue_id": 0,
            "handle": "0 1 1 0 0 broker-a 0 0",
            "expression": "*",
            "born_time": 0,
            "poll_time": 0,
            **self.places,
        }
        header = REQUESTS[Code(code)].request if code in REQUESTS else None
        return Command(
            code=code, version=407, ext=good_fields(header, known), body=BODIES.get(code, BODY)
        )

    def state(self) -> object:
        serving = self.serving
        return (
            serving.store.log.end,
            serving.offsets.table(),
            serving.topics.text(),
            serving.groups.text(),
            {group.name: tuple(group.members) for group in serving.producers},
            {group.name: tuple(group.members) for group in serving.consumers},
            dict(serving._locks._groups),
            dict(self.followers),
            serving.current.settings,
            self.path.read_bytes(),
            self.keeper.client.heard(),
        )

    def nobodies(self) -> Iterator[tuple[str, Credentials | None]]:
        yield "unsigned", None
        yield "wrongly signed", Credentials("operator", "not-its-secret")
        yield "an account that may do nothing", credentials("nothing")

    def each(self) -> None:
        before = self.state()
        needs = self.serving.needs
        ways = [
            (connections, who, signs, kind)
            for connections in self.ports
            for who, signs in self.nobodies()
            for kind in SerializeType
        ]
        for connections, who, signs, kind in ways:
            client = Client(connections)
            for number, code in enumerate(sorted(CODES), 1):
                if kind is SerializeType.ROCKETMQ and code >= LARGE:
                    continue
                said = f"{code} {who} {kind.name}"
                command = self.request(code)
                command.opaque, command.serialize = number, kind
                if signs is not None:
                    signs.sign(command)
                client.send(command)
                (answer,) = client.heard()
                self.assertEqual(answer.opaque, number, said)
                told = bytes(answer.body) + str(answer.ext).encode()
                self.assertEqual([], [secret for secret in SECRETS if secret in told], said)
                served = code in needs and connections.registry.handles(code)
                open_to_all = code in needs and needs[code] is ANY_ACCOUNT
                if code not in needs:
                    self.assertEqual(answer.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, said)
                elif served and not (open_to_all and who.startswith("an account")):
                    self.assert_denied(answer)
                command.flag = 2
                client.send(command)
                self.assertEqual([], client.heard(), said)
        self.clock.advance(0.01)
        self.assertEqual(before, self.state())

    def test_master(self) -> None:
        """At a master, on the client port and the VIP port: by each code nobody learns or changes
        anything, whichever header it has and whether it wants an answer.
        """
        self.serve()
        self.each()

    def test_slave(self) -> None:
        """At a slave the same."""
        self.serve(slave=True)
        self.each()

    def test_could(self) -> None:
        """It is permission that they lack: an administrator's are done, but for the few that a
        client is asked about, or that name what is not there.
        """
        self.serve()
        client = Client(self.ports[0])
        last = (Code.DELETE_ACL_CONFIG, Code.DELETE_SUBSCRIPTIONGROUP, Code.DELETE_TOPIC_IN_BROKER)
        answers = []
        order = sorted(self.serving.needs, key=lambda code: (code in last, code))
        for number, code in enumerate(order):
            command = self.request(code)
            command.opaque = number
            credentials("operator").sign(command)
            client.send(command)
            if code == Code.UPDATE_AND_CREATE_TOPIC:
                self.clock.advance(2)  # until the name servers would know of it
            answers += [heard for heard in client.heard() if heard.is_response]
        answered = {order[answer.opaque]: answer.code for answer in answers}
        done = {code for code, answer in answered.items() if answer == ResponseCode.SUCCESS}
        self.assertEqual(set(), (set(self.serving.needs) - done) ^ NOT_DONE)
