"""Which code carries which custom header.

A code that is not here has no meaning we know.  Source: docs/protocol/remoting.md,
Request codes.
"""

from __future__ import annotations

from attrs import AttrsInstance, frozen

from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.headers import admin, clients, namesrv, offsets, pop, pull, send, slave


@frozen(kw_only=True)
class CorrectionOffsetRequest:
    """Code 308: the least offsets of some groups.

    @ivar filter_groups: Groups, with commas between.
    """

    filter_groups: str | None = None
    compare_group: str
    topic: str


@frozen(kw_only=True)
class CloneGroupOffsetRequest:
    """Code 314: copy a group's offsets to another group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@frozen
class Headers:
    """The headers of one code; without fields C{None}."""

    request: type[AttrsInstance] | None = None
    answer: type[AttrsInstance] | None = None


_NONE = Headers()

REQUESTS: dict[int, Headers] = {
    Code.SEND_MESSAGE: Headers(send.SendMessageRequest, send.SendMessageAnswer),
    Code.PULL_MESSAGE: Headers(pull.PullMessageRequest, pull.PullMessageAnswer),
    Code.QUERY_MESSAGE: Headers(pull.QueryMessageRequest, pull.QueryMessageAnswer),
    Code.QUERY_CONSUMER_OFFSET: Headers(offsets.QueryConsumerOffsetRequest, offsets.OffsetAnswer),
    Code.UPDATE_CONSUMER_OFFSET: Headers(offsets.UpdateConsumerOffsetRequest),
    Code.UPDATE_AND_CREATE_TOPIC: Headers(admin.CreateTopicRequest),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _NONE,
    Code.GET_ALL_TOPIC_CONFIG: _NONE,
    Code.UPDATE_BROKER_CONFIG: _NONE,
    Code.GET_BROKER_CONFIG: Headers(None, admin.VersionAnswer),
    Code.GET_BROKER_RUNTIME_INFO: _NONE,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: Headers(offsets.SearchOffsetRequest, offsets.OffsetAnswer),
    Code.GET_MAX_OFFSET: Headers(offsets.MaxOffsetRequest, offsets.OffsetAnswer),
    Code.GET_MIN_OFFSET: Headers(offsets.QueueRequest, offsets.OffsetAnswer),
    Code.GET_EARLIEST_MSG_STORETIME: Headers(offsets.QueueRequest, offsets.StoreTimeAnswer),
    Code.VIEW_MESSAGE_BY_ID: Headers(pull.ViewMessageRequest),
    Code.HEART_BEAT: _NONE,
    Code.UNREGISTER_CLIENT: Headers(clients.UnregisterClientRequest),
    Code.CONSUMER_SEND_MSG_BACK: Headers(send.SendBackRequest),
    Code.END_TRANSACTION: Headers(clients.EndTransactionRequest),
    Code.GET_CONSUMER_LIST_BY_GROUP: Headers(clients.ConsumerGroupRequest),
    Code.CHECK_TRANSACTION_STATE: Headers(clients.CheckTransactionRequest),
    Code.NOTIFY_CONSUMER_IDS_CHANGED: Headers(clients.ConsumerGroupRequest),
    Code.LOCK_BATCH_MQ: _NONE,
    Code.UNLOCK_BATCH_MQ: _NONE,
    Code.GET_ALL_CONSUMER_OFFSET: Headers(
        offsets.ConsumerOffsetsRequest, offsets.ConsumerOffsetsAnswer
    ),
    Code.GET_ALL_DELAY_OFFSET: _NONE,
    Code.CHECK_CLIENT_CONFIG: _NONE,
    Code.UPDATE_AND_CREATE_ACL_CONFIG: Headers(admin.AclConfigRequest),
    Code.DELETE_ACL_CONFIG: Headers(admin.AccessKeyRequest),
    Code.GET_BROKER_CLUSTER_ACL_INFO: Headers(None, admin.AclVersionAnswer),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Headers(admin.GlobalWhiteAddressesRequest),
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: _NONE,
    **{Code(code): _NONE for code in range(3001, 3011)},
    Code.GET_TIMER_CHECK_POINT: _NONE,
    Code.GET_TIMER_METRICS: _NONE,
    Code.PUT_KV_CONFIG: Headers(namesrv.PutKvRequest),
    Code.GET_KV_CONFIG: Headers(namesrv.KvRequest, namesrv.KvAnswer),
    Code.DELETE_KV_CONFIG: Headers(namesrv.KvRequest),
    Code.REGISTER_BROKER: Headers(namesrv.RegisterBrokerRequest, namesrv.RegisterBrokerAnswer),
    Code.UNREGISTER_BROKER: Headers(namesrv.BrokerRequest),
    Code.GET_ROUTEINFO_BY_TOPIC: Headers(namesrv.RouteRequest),
    Code.GET_BROKER_CLUSTER_INFO: _NONE,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _NONE,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _NONE,
    Code.GET_TOPIC_STATS_INFO: Headers(admin.TopicRequest),
    Code.GET_CONSUMER_CONNECTION_LIST: Headers(clients.ConsumerGroupRequest),
    Code.GET_PRODUCER_CONNECTION_LIST: Headers(clients.ProducerGroupRequest),
    Code.WIPE_WRITE_PERM_OF_BROKER: Headers(namesrv.BrokerNameRequest, namesrv.WipeWritePermAnswer),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _NONE,
    Code.DELETE_SUBSCRIPTIONGROUP: Headers(admin.DeleteGroupRequest),
    Code.GET_CONSUME_STATS: Headers(admin.ConsumeStatsRequest),
    Code.DELETE_TOPIC_IN_BROKER: Headers(admin.TopicRequest),
    Code.DELETE_TOPIC_IN_NAMESRV: Headers(namesrv.DeleteTopicRequest),
    Code.REGISTER_TOPIC_IN_NAMESRV: Headers(admin.TopicRequest),
    Code.GET_KVLIST_BY_NAMESPACE: Headers(namesrv.NamespaceRequest),
    Code.RESET_CONSUMER_CLIENT_OFFSET: Headers(offsets.ResetOffsetPush),
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: Headers(admin.TopicGroupRequest),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: Headers(offsets.ResetOffsetRequest),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Headers(offsets.ConsumerStatusRequest),
    Code.GET_TOPICS_BY_CLUSTER: Headers(namesrv.ClusterRequest),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _NONE,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: Headers(admin.TopicRequest),
    Code.QUERY_CONSUME_TIME_SPAN: Headers(admin.TopicGroupRequest),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _NONE,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _NONE,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _NONE,
    Code.GET_CONSUMER_RUNNING_INFO: Headers(clients.RunningInfoRequest),
    Code.QUERY_CORRECTION_OFFSET: Headers(CorrectionOffsetRequest),
    Code.CONSUME_MESSAGE_DIRECTLY: Headers(clients.ConsumeDirectlyRequest),
    Code.SEND_MESSAGE_V2: Headers(send.SendMessageV2Request, send.SendMessageAnswer),
    Code.RECALL_MESSAGE: Headers(send.RecallRequest, send.RecallAnswer),
    Code.POP_MESSAGE: Headers(pop.PopMessageRequest, pop.PopMessageAnswer),
    Code.ACK_MESSAGE: Headers(pop.AckMessageRequest),
    Code.BATCH_ACK_MESSAGE: _NONE,
    Code.PEEK_MESSAGE: Headers(pop.PeekMessageRequest, pop.PopMessageAnswer),
    Code.CHANGE_MESSAGE_INVISIBLETIME: Headers(
        pop.ChangeInvisibleTimeRequest, pop.PopMessageAnswer
    ),
    Code.NOTIFICATION: Headers(pop.NotificationRequest, pop.NotificationAnswer),
    Code.POLLING_INFO: Headers(pop.PollingInfoRequest, pop.PollingInfoAnswer),
    Code.GET_UNIT_TOPIC_LIST: _NONE,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: _NONE,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _NONE,
    Code.CLONE_GROUP_OFFSET: Headers(CloneGroupOffsetRequest),
    Code.VIEW_BROKER_STATS_DATA: Headers(admin.BrokerStatsRequest),
    Code.CLEAN_UNUSED_TOPIC: _NONE,
    Code.GET_BROKER_CONSUME_STATS: Headers(admin.AllConsumeStatsRequest),
    Code.UPDATE_NAMESRV_CONFIG: _NONE,
    Code.GET_NAMESRV_CONFIG: _NONE,
    Code.SEND_BATCH_MESSAGE: Headers(send.SendMessageV2Request, send.SendMessageAnswer),
    Code.QUERY_CONSUME_QUEUE: Headers(pull.QueryConsumeQueueRequest),
    Code.QUERY_DATA_VERSION: Headers(namesrv.BrokerRequest, namesrv.DataVersionAnswer),
    Code.RESUME_CHECK_HALF_MESSAGE: Headers(clients.ResumeCheckRequest),
    Code.SEND_REPLY_MESSAGE: Headers(send.SendMessageRequest, send.SendMessageAnswer),
    Code.SEND_REPLY_MESSAGE_V2: Headers(send.SendMessageV2Request, send.SendMessageAnswer),
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT: Headers(send.PushReplyRequest),
    Code.ADD_WRITE_PERM_OF_BROKER: Headers(namesrv.BrokerNameRequest, namesrv.AddWritePermAnswer),
    Code.GET_ALL_PRODUCER_INFO: _NONE,
    Code.DELETE_EXPIRED_COMMITLOG: _NONE,
    Code.QUERY_TOPICS_BY_CONSUMER: Headers(admin.GroupRequest),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: Headers(admin.TopicGroupRequest),
    Code.GET_TOPIC_CONFIG: Headers(admin.TopicConfigRequest),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: Headers(admin.GroupRequest),
    Code.LITE_PULL_MESSAGE: Headers(pull.PullMessageRequest, pull.PullMessageAnswer),
    Code.QUERY_ASSIGNMENT: _NONE,
    Code.SET_MESSAGE_REQUEST_MODE: _NONE,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: Headers(slave.SlaveTablesRequest),
    Code.GET_BROKER_MEMBER_GROUP: Headers(slave.MemberGroupRequest),
    Code.BROKER_HEARTBEAT: Headers(slave.BrokerHeartbeatRequest),
    Code.EXCHANGE_BROKER_HA_INFO: Headers(slave.HaInfo, slave.HaInfo),
    Code.GET_BROKER_HA_STATUS: _NONE,
    Code.POP_ROLLBACK: _NONE,
}
