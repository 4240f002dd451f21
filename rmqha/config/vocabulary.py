"""What may stand in a file: the keys that settings classes declare, and foreign ones.

Names, units and defaults are RocketMQ's (C{MessageStoreConfig}, C{BrokerConfig},
C{BrokerIdentity}, C{AuthConfig}, C{NettyServerConfig}, C{NettyClientConfig}, C{TlsSystemConfig} and
C{NamesrvConfig} of 4.9 and 5.3), so that its files can be taken as they are; keys of our own say
so.

A foreign key that tunes a part we do not have (thread pools, a mapping strategy, a feature for
clients) is harmless: it is accepted and listed once.  A key that would change what an
acknowledgement promises, who may connect, what lies on the disk or where it lies is
unsupported: when it is switched on, starting without it would be a silent lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from attrs import AttrsInstance, field, frozen

from rmqha.config.broker_settings import (
    BrokerSettings,
    PopSettings,
    PullSettings,
    RegistrationSettings,
    TimerSettings,
    TransactionSettings,
)
from rmqha.config.controller_settings import ControllerSettings
from rmqha.config.ha_settings import HASettings
from rmqha.config.keys import Key, keys_of
from rmqha.config.settings import (
    AccessSettings,
    AdminSettings,
    EtcdSettings,
    LogSettings,
    NamesrvSettings,
    RemotingSettings,
    TlsSettings,
)
from rmqha.config.store_settings import StoreSettings

_GROUPS: dict[str, str] = {
    "it is done differently here, or not at all": """
        accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums
        adminBrokerThreadPoolQueueCapacity allowRecallWhenBrokerNotWriteable appendAckAsync
        appendCkAsync asyncSendEnable autoDeleteUnusedStats bitMapLengthConsumeQueueExt
        broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond brokerFastFailureEnable
        cgColdReadThreshold channelExpiredTimeout clientManageThreadPoolNums
        clientManagerThreadPoolQueueCapacity coldCtrStrategyEnable commercialBaseCount
        commercialBigCount commercialEnable commercialSizePerMsg commercialTimerCount
        commercialTransCount consumerFallbehindThreshold consumerManageThreadPoolNums
        consumerManagerThreadPoolQueueCapacity consumerOffsetUpdateVersionStep
        delayOffsetUpdateVersionStep
        disableConsumeIfConsumerReadSlowly diskFallRecorded enableBroadcastOffsetStore
        enableCalcFilterBitMap enableDetailStat enableMixedMessageType enableNetWorkFlowControl
        enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck
        enablePopBufferMerge enablePopLog enablePopMessageThreshold
        enableScheduleAsyncDeliver enableScheduleMessageStats
        enableSkipLongAwaitingAck endTransactionPoolQueueCapacity endTransactionThreadPoolNums
        estimateAccumulation expectConsumerNumUseFilter filterDataCleanTimeSpan filterSupportRetry
        flushConsumerOffsetHistoryInterval flushConsumerOffsetInterval flushDelayOffsetInterval
        forwardTimeout globalColdReadThreshold heartbeatThreadPoolNums
        heartbeatThreadPoolQueueCapacity highSpeedMode initPopOffsetByCheckMsgInMem
        litePullMessageEnable litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
        loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums
        loadBalanceThreadPoolQueueCapacity maxConsumeQueueScan maxErrorRateOfBloomFilter
        maxFilterMessageSize maxMessageFilterNumForNotification maxPopPollingSize
        osPageCacheBusyTimeOutMills popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
        popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
        popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
        popInflightMessageThreshold popPollingMapSize popPollingSize
        popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
        processReplyMessageThreadPoolNums pullBatchMaxMessageCount pullMessageThreadPoolNums
        pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums putThreadPoolQueueCapacity
        queryMessageThreadPoolNums queryThreadPoolQueueCapacity realTimeNotifyConsumerChange
        rejectPullConsumerEnable replyThreadPoolQueueCapacity
        retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow
        reviveQueueNum reviveScanTime sampleCountThreshold sampleSteps
        scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
        sendMessageThreadPoolNums sendThreadPoolQueueCapacity
        skipWhenCKRePutReachMaxTimes subscriptionExpiredTimeout transactionMetricFlushInterval
        transactionOpBatchInterval transactionOpMsgMaxSize transferMsgByHeap
        travelCqFileNumWhenGetMessage useMessageFilterForNotification usePIDColdCtrStrategy
        useSeparateRetryQueue useServerSideResetOffset useStaticSubscription
        validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
        waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue
        waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue""",
    "rmqha keeps timer messages in another way, and serves no compaction": """
        appendTopicForTimerDeleteKey compactionCqMappedFileSize compactionMappedFileSize
        compactionScheduleInternal compactionThreadNum enableCompaction mappedFileSizeTimerLog
        maxOffsetMapSize timerCheckMetricsWhen timerColdDataCheckIntervalMs timerCongestNumEachSlot
        timerEnableCheckMetrics timerEnableDisruptor timerFlushIntervalMs timerGetMessageThreadNum
        timerInterceptDelayLevel timerMetricSmallThreshold
        timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimelineEnable
        timerSkipUnknownError timerStopDequeue timerStopEnqueue timerWarmEnable""",
    "rmqha registers with name servers in another way": """
        brokerNotActiveTimeoutMillis cleanOfflineBrokerInterval
        compatibleWithOldNameSrv disappearTimeAfterStart enableSingleTopicRegister
        enableSplitMetadata enableSplitRegistration fetchNamesrvAddrInterval rmqAddressServerDomain
        rmqAddressServerSubGroup sendHeartbeatTimeoutMillis skipPreOnline splitMetadataSize
        splitRegistrationSize syncBrokerMemberGroupPeriod updateNameServerAddrPeriod""",
    "it tunes how the Java broker maps, locks, allocates or dispatches": """
        autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums cleanSwapedMapInterval
        coldDataFlowControlEnable coldDataScanEnable commitCommitLogLeastPages
        commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval
        commitLogSwapMapInterval commitLogSwapMapReserveFileNum correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval dataReadAheadEnable debugLockEnable
        deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly dispatchCqCacheNum
        dispatchCqThreads dispatchFromSenderThread enableAsyncReput enableBatchPush
        enableBuildConsumeQueueConcurrently enableCleanExpiredOffset
        enableLogConsumeQueueRepeatedlyBuildWhenRecover fastFailIfNoBufferInStorePool
        flushCommitLogTimed flushLeastPagesWhenWarmMapedFile logicQueueForceSwapMapInterval
        logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
        logicalDiskSpaceCleanForciblyThreshold mappedFileSizeConsumeQueueExt mappedFileSwapEnable
        mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests maxBatchDeleteFilesNum
        maxChecksumRange maxLmqConsumeQueueNum maxRecoveryCommitlogFiles maxTopicLength
        messageIndexSafe putConsumeQueueDataByFileChannel putMsgIndexHightWater readUnCommitted
        recheckReputOffsetFromCq recoverConcurrently recoverThreadPoolNums
        redeleteHangedFileInterval searchBcqByCacheEnable spinLockCollisionRetreatOptimalDegree
        topicQueueLockNum transientStorePoolSize useABSLock useReentrantLockWhenPutMessage
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable writeWithoutMmap""",
    "it belongs to a feature that is refused when switched on": """
        batchWriteKvCqSize bottomMostCompressionTypeForConsumeQueueStore
        checkSyncStateSetPeriod cleanRocksDBDirtyCQIntervalMin combineAssignOffsetCQType
        combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles
        combineCQPreferCQType dLegerGroup
        dLegerPeers dLegerSelfId enableRocksDBLog fetchControllerAddrByDnsLookup
        lockInStrictMode maxHaTransferByteInSecond maxSlaveResendLength
        memTableFlushInterval memTableFlushIntervalMs preferredLeaderId
        realTimePersistRocksDBConfig rocksdbCompressionType rocksdbFlushWalFrequency
        rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec storePathBrokerIdentity
        storePathDLedgerCommitLog storePathEpochFile syncBrokerMetadataPeriod
        syncControllerMetadataPeriod totalReplicas aclCacheExpiredSecond aclCacheMaxNum
        aclCacheRefreshSecond authConfigName authConfigPath authenticationMetadataProvider
        authenticationProvider authenticationStrategy authenticationWhitelist
        authorizationMetadataProvider authorizationProvider authorizationStrategy
        authorizationWhitelist initAuthenticationUser innerClientAuthenticationCredentials
        statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
        statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
        userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond""",
    "certificates of clients that are asked for are always checked": """
        tls.server.authClient""",
    "it is about Java's process, logs or metrics": """
        brokerConfigPath configBlackList isolateLogEnable metricGrpcExporterIntervalInMills
        metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType
        metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
        metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort
        printChannelGroups printChannelGroupsMinNum rocketmqHome""",
    "it tunes Netty": """
        channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
        clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
        clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
        clientWorkerThreads connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup
        enableFastChannelEventProcess enableReconnectForGoAway enableShutdownGracefully
        enableTransparentRetry maxReconnectIntervalTimeSeconds serverAsyncSemaphoreValue
        serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable
        serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
        serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
        shutdownWaitTimeSeconds socksProxyConfig useEpollNativeSelector writeBufferHighWaterMark
        writeBufferLowWaterMark""",
}

HARMLESS: dict[str, str] = {
    name: reason for reason, names in _GROUPS.items() for name in names.split()
}
"""Keys that are accepted, listed once and ignored, with the reason."""


DEAD = frozenset(
    {
        "abortFile",
        "checkTransactionMessageEnable",
        "storeCheckpoint",
        "storePathConsumeQueue",
        "storePathIndex",
    }
)
"""Keys of RocketMQ's own old examples that no release since 4.0 reads."""


@frozen
class Foreign:
    """A key that must not be ignored.

    @ivar enabled: Whether its text switches the feature on.
    @ivar when: The same in words, for the guide.
    @ivar reason: What ignoring it would break, and what to do instead.
    """

    enabled: Callable[[str], bool]
    when: str
    reason: str


def on(reason: str) -> Foreign:
    """A key that is refused when it is switched on."""
    # What is neither "false" nor empty was meant to be on, whatever Java makes of it.
    return Foreign(lambda text: text.lower() not in ("", "false"), "not false", reason)


def _set(reason: str) -> Foreign:
    return Foreign(bool, "not empty", reason)


def _not(allowed: tuple[str, ...], reason: str) -> Foreign:
    words = " or ".join(word for word in allowed if word)
    return Foreign(lambda text: text.lower() not in allowed, f"not {words}", reason)


def _above(most: int, reason: str) -> Foreign:
    def enabled(text: str) -> bool:
        try:
            return int(text) > most
        except ValueError:
            return bool(text)

    return Foreign(enabled, f"above {most}", reason)


_PASSWORD = _set("a private key is read without a password: decrypt it, and let only rmqha read it")

TLS_UNSUPPORTED: dict[str, Foreign] = {
    "tls.server.keyPassword": _PASSWORD,
    "tls.client.keyPassword": _PASSWORD,
    "tls.test.mode.enable": on(
        "rmqha makes no certificate of its own: set tls.server.keyPath and tls.server.certPath"
    ),
}
"""The same as L{UNSUPPORTED}, of what every node has."""

UNSUPPORTED: dict[str, Foreign] = {
    # another log, or another way to agree on it
    "enableDLegerCommitLog": on("DLedger has another log format and another replication protocol"),
    "enableSlaveActingMaster": on("an rmqha slave never takes over a master's work by itself"),
    "enableRemoteEscape": on("an rmqha slave never writes to another broker"),
    "brokerContainer": on("an rmqha process is one broker"),
    "inBrokerContainer": on("an rmqha process is one broker"),
    "messageStorePlugIn": _set("a plug-in changes how messages are stored"),
    # what an acknowledgement promises
    "enableAutoInSyncReplicas": on(
        "the number of copies that a write waits for is never lowered automatically"
    ),
    "syncMasterFlushOffsetWhenStartup": on("a log is never cut without comparing it first"),
    "syncFromLastFile": on("set haFirstSync=last-file to start an empty slave at the last file"),
    "haFlowControlEnable": on("set haMaxSendBytesPerSecond to limit what a slave is sent"),
    # what lies on the disk, and where
    "transientStorePoolEnable": on("writes go to the mapped file, never to a separate pool"),
    "readOnlyCommitLogStorePaths": _set("the log is in one folder; other folders are not read"),
    "duplicationEnable": on(
        "dispatch follows the log's verified end, not a separate confirm offset"
    ),
    "enableMultiDispatch": on("a message belongs to one queue; its other queues would stay empty"),
    "enableLmq": on("a message belongs to one queue; its light queues would stay empty"),
    "enableConsumeQueueExt": on("consume queue units would refer to files that are not written"),
    "storeType": _not(("default", ""), "consume queues are files, not RocksDB"),
    "rocksdbCQDoubleWriteEnable": on("consume queues are files, without a copy in RocksDB"),
    "transferOffsetJsonToRocksdb": on("offsets are JSON tables, not RocksDB"),
    "enabledAppendPropCRC": on("records are written without a CRC of the whole record"),
    "forceVerifyPropCRC": on("records are checked by the CRC of their body"),
    "enableAcceleratedRecovery": on("recovery always checks the log"),
    "replicasPerDiskPartition": _above(
        1, "disk ratios refer to the whole disk, not to a share of it"
    ),
    # who may connect, and how
    "authenticationEnabled": on(
        "rmqha has the access control of RocketMQ 4, set aclEnable; without it every client could "
        "connect"
    ),
    "authorizationEnabled": on(
        "rmqha has the access control of RocketMQ 4, set aclEnable; without it every client could "
        "do anything"
    ),
    "migrateAuthFromV1Enabled": on("rmqha goes on with plain_acl.yml"),
    **TLS_UNSUPPORTED,
    # ours once
    "haMaxUnprovenPerAddress": _not(
        ("8", ""), "an address always has 8; haAllowedPeers says who may connect at all"
    ),
    "haVerifyBeforeAck": _not(
        ("true", ""), "a slave always checks records before it acknowledges them"
    ),
    # where name servers are found
    "fetchNamesrvAddrByAddressServer": on("name servers are taken from namesrvAddr alone"),
    "fetchNameSrvAddrByDnsLookup": on("name servers are taken from namesrvAddr alone"),
}
"""Keys that refuse to start when they are switched on."""

_NAMESRV_GROUPS = {
    "it is about Java's process": """
        clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity defaultThreadPoolNums
        defaultThreadPoolQueueCapacity unRegisterBrokerQueueCapacity""",
    "changes that administrators make at run time last until the next start or reload": """
        configStorePath""",
    "it belongs to a feature that is refused when switched on": """
        notifyMinBrokerIdChanged""",
    "a name server makes no connections": """
        tls.enable useTLS tls.client.authServer tls.client.certPath tls.client.keyPath
        tls.client.trustCertPath""",
    "certificates of clients that are asked for are always checked": """
        tls.server.authClient""",
    "clients do not use it": """
        productEnvName returnOrderTopicConfigToBroker enableAllTopicList enableTopicList
        needWaitForService waitSecondsForService""",
}

_SHARED = ("it tunes Netty", "it is about Java's process, logs or metrics")
"""The reasons that hold for a name server too."""

NAMESRV_HARMLESS: dict[str, str] = {
    **{name: reason for name, reason in HARMLESS.items() if reason in _SHARED},
    **{name: reason for reason, names in _NAMESRV_GROUPS.items() for name in names.split()},
}
"""The same as L{HARMLESS} of a name server's file."""

NAMESRV_UNSUPPORTED: dict[str, Foreign] = {
    **TLS_UNSUPPORTED,
    "clusterTest": on("routes are never fetched from a product environment"),
    "supportActingMaster": on("a slave is never shown as its master"),
    "enableControllerInNamesrv": on("rmqha has no controller"),
    "deleteTopicWithBrokerRegistration": on(
        "a route stays until the topic is deleted at the name server too"
    ),
}
"""The same as L{UNSUPPORTED} of a name server's file."""


SECTIONS: dict[str, type[AttrsInstance]] = {
    "broker": BrokerSettings,
    "remoting": RemotingSettings,
    "store": StoreSettings,
    "pull": PullSettings,
    "transactions": TransactionSettings,
    "timers": TimerSettings,
    "pop": PopSettings,
    "registration": RegistrationSettings,
    "ha": HASettings,
    "tls": TlsSettings,
    "controller": ControllerSettings,
    "etcd": EtcdSettings,
    "admin": AdminSettings,
    "log": LogSettings,
    "access": AccessSettings,
    "namesrv": NamesrvSettings,
}
"""What L{Settings <rmqha.config.settings.Settings>} is made of, in the order of the guide."""

KEYS: tuple[Key, ...] = tuple(
    key for section, declared in SECTIONS.items() for key in keys_of(section, declared)
)
"""Every key that means something here, a broker's and a name server's."""


@frozen
class Vocabulary:
    """All that may stand in one kind of file.

    @ivar keys: What means something.
    @ivar harmless: What is accepted and means nothing, with the reason.
    @ivar unsupported: What must not be switched on.
    @ivar dead: What RocketMQ itself passes over.
    @ivar by_name: Keys by name and by alias.
    """

    keys: tuple[Key, ...]
    harmless: Mapping[str, str]
    unsupported: Mapping[str, Foreign]
    dead: frozenset[str] = frozenset()
    by_name: dict[str, Key] = field(init=False)

    @by_name.default
    def _names(self) -> dict[str, Key]:
        return {name: key for key in self.keys for name in key.names}

    def nearest(self, unknown: str) -> str:
        """The known key somebody probably meant, or C{""}.

        @param unknown: A key nobody knows; its case does not matter.
        """
        known = (*self.harmless, *self.unsupported, *self.by_name)
        lowered = {name.lower(): name for name in known}
        matches = get_close_matches(unknown.lower(), lowered, n=1, cutoff=0.7)
        return lowered[matches[0]] if matches else ""


BROKER_FILE = Vocabulary(
    tuple(key for key in KEYS if key.section != "namesrv"), HARMLESS, UNSUPPORTED, DEAD
)
"""A C{broker.conf}."""

NAMESRV_FILE = Vocabulary(
    tuple(
        key
        for section in ("namesrv", "remoting", "admin", "log")
        for key in keys_of(section, SECTIONS[section])
        if key.name != "adminAllowedPeers"
    ),
    NAMESRV_HARMLESS,
    NAMESRV_UNSUPPORTED,
)
"""A C{namesrv.properties}.  Who may change anything is said by C{namesrvAllowedPeers} there."""

TLS_FILE = Vocabulary(
    keys_of("tls", TlsSettings),
    {
        key.names[-1]: "it is a port's"
        for key in keys_of("remoting", RemotingSettings)
        if key.names[-1].startswith("tls.")
    }
    | {name: why for name, why in HARMLESS.items() if name.startswith("tls.")},
    TLS_UNSUPPORTED,
)
"""What a tool reads that connects to nodes, of a file like mqadmin's C{tls.config.file}."""
