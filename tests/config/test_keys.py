"""
The table of keys against RocketMQ's own names, defaults and units.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.foreign import HARMLESS, UNSUPPORTED
from rmqha.config.keys import BY_NAME, FILE, KEYS, Origin
from rmqha.config.load import load
from rmqha.config.settings import (
    BrokerRole,
    ClientAuth,
    DivergencePolicy,
    FirstSync,
    FlushDisk,
    ReplicaIdentity,
    Settings,
    StoreSettings,
    TlsMode,
)
from rmqha.config.values import INT_MAX

MS = 0.001
HOUR = 3600.0
HOME = Path.home()

# key: (RocketMQ's default as its documentation gives it, what that is in our units)
ROCKETMQ_DEFAULTS: dict[str, tuple[str, Any]] = {
    "storePathRootDir": ("${user.home}/store", HOME / "store"),
    "mappedFileSizeCommitLog": ("1073741824", 1 << 30),
    "mappedFileSizeConsumeQueue": ("6000000", 6_000_000),
    "flushIntervalCommitLog": ("500", 0.5),
    "flushIntervalConsumeQueue": ("1000", 1.0),
    "cleanResourceInterval": ("10000", 10.0),
    "deleteCommitLogFilesInterval": ("100", 0.1),
    "deleteFileBatchMax": ("10", 10),
    "deleteWhen": ("04", (4,)),
    "diskMaxUsedSpaceRatio": ("75", 0.75),
    "diskSpaceWarningLevelRatio": ("90", 0.90),
    "diskSpaceCleanForciblyRatio": ("85", 0.85),
    "fileReservedTime": ("72", 72 * HOUR),
    "checkCRCOnRecover": ("true", True),
    "flushCommitLogLeastPages": ("4", 4),
    "flushConsumeQueueLeastPages": ("2", 2),
    "flushCommitLogThoroughInterval": ("10000", 10.0),
    "flushConsumeQueueThoroughInterval": ("60000", 60.0),
    "messageIndexEnable": ("true", True),
    "maxHashSlotNum": ("5000000", 5_000_000),
    "maxIndexNum": ("20000000", 20_000_000),
    "maxMsgsNumBatch": ("64", 64),
    "longPollingEnable": ("true", True),
    "shortPollingTimeMills": ("1000", 1.0),
    "maxTransferBytesOnMessageInMemory": ("262144", 256 << 10),
    "maxTransferCountOnMessageInMemory": ("32", 32),
    "maxTransferBytesOnMessageInDisk": ("65536", 64 << 10),
    "maxTransferCountOnMessageInDisk": ("8", 8),
    "accessMessageInMemoryMaxRatio": ("40", 0.40),
    "slaveReadEnable": ("false", False),
    "offsetCheckInSlave": ("false", False),
    "notifyConsumerIdsChangedEnable": ("true", True),
    "defaultQueryMaxNum": ("32", 32),
    "messageDelayLevel": (
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    ),
    "cleanFileForciblyEnable": ("true", True),
    "flushDiskType": ("ASYNC_FLUSH", FlushDisk.ASYNC_FLUSH),
    "putMessageTimeout": ("8000", 8.0),
    "haMasterAddress": ("", None),
    "haSendHeartbeatInterval": ("5000", 5.0),
    "haHousekeepingInterval": ("20000", 20.0),
    "haTransferBatchSize": ("32768", 32768),
    "haSlaveFallbehindMax": ("268435456", 256 << 20),
    "slaveTimeout": ("3000", 3.0),
    "syncFlushTimeout": ("5000", 5.0),
    "inSyncReplicas": ("1", 1),
    "brokerClusterName": ("DefaultCluster", "DefaultCluster"),
    "listenPort": ("10911", 10911),
    "namesrvAddr": ("", ""),
    "brokerPermission": ("6", 6),
    "regionId": ("DefaultRegion", "DefaultRegion"),
    "traceOn": ("true", True),
    "autoCreateTopicEnable": ("true", True),
    "autoCreateSubscriptionGroup": ("true", True),
    "defaultTopicQueueNums": ("8", 8),
    "clusterTopicEnable": ("true", True),
    "brokerTopicEnable": ("true", True),
    "traceTopicEnable": ("false", False),
    "msgTraceTopicName": ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
    "rejectTransactionMessage": ("false", False),
    "startAcceptSendRequestTimeStamp": ("0", 0.0),
    "storeReplyMessageEnable": ("true", True),
    "bindAddress": ("", ""),
    "tlsMode": ("permissive", TlsMode.PERMISSIVE),
    "tlsKeyPath": ("", None),
    "tlsCertPath": ("", None),
    "tlsTrustCertPath": ("", None),
    "tlsClientAuth": ("none", ClientAuth.NONE),
    "transactionTimeOut": ("6000", 6.0),
    "transactionCheckMax": ("15", 15),
    "transactionCheckInterval": ("60000", 60.0),
    "registerNameServerPeriod": ("30000", 30.0),
    "registerBrokerTimeoutMills": ("6000", 6.0),
    "forceRegister": ("true", True),
    "compressedRegister": ("false", False),
}

OUR_DEFAULTS: dict[str, Any] = {
    "haListenAddress": "",
    "haFirstSync": FirstSync.BEGINNING,
    "haDivergencePolicy": DivergencePolicy.STOP,
    "haAcceptUnproven": False,
    "haVerifyBeforeAck": True,
    "haMaxConnections": 2000,
    "haReplicaIdentity": ReplicaIdentity.ADDRESS,
    "haLocalAddress": "",
    "haMaxTruncateBytes": 256 << 20,
    "haMaxReceiveBytesPerSecond": 0,
    "haMaxSendBytesPerSecond": 0,
    "haAllowedPeers": (),
    "accessMessageInMemoryBytes": 0,
    "adminAllowedPeers": (),
    "haZeroCopy": True,
    "haProbeSilence": 6.0,
    "haReconnectBackoffMax": 30.0,
    "adminListenAddress": "127.0.0.1",
    "publishInterval": 0.1,
}

# keys whose default depends on other keys or on the host, on an otherwise empty master
DEPENDENT_DEFAULTS: dict[str, Any] = {
    "brokerRole": BrokerRole.ASYNC_MASTER,
    "brokerId": 0,
    "storePathCommitLog": HOME / "store" / "commitlog",
    "maxMessageSize": 4 << 20,
    "haListenPort": 10912,
    "haSendFlushedOnly": False,
    "haMasterClientAddress": None,
    "adminListenPort": 10914,
}


SECTIONS = {key.section for key in KEYS}


def value(settings: Settings, name: str) -> Any:
    """
    The value behind a key.
    """
    key = BY_NAME[name]
    return getattr(getattr(settings, key.section), key.field)


class DefaultTests(SynchronousTestCase):
    """
    What an absent key means.
    """

    def test_rocketmq_defaults(self) -> None:
        """
        Keys of RocketMQ have RocketMQ's defaults, as text and as loaded.
        """
        settings = load(None)
        for name, (text, expected) in ROCKETMQ_DEFAULTS.items():
            self.assertEqual(BY_NAME[name].default, text, name)
            self.assertEqual(value(settings, name), expected, name)

    def test_our_and_dependent_defaults(self) -> None:
        """
        The other keys have the defaults the guide promises.
        """
        settings = load(None)
        for name, expected in {**OUR_DEFAULTS, **DEPENDENT_DEFAULTS}.items():
            self.assertEqual(value(settings, name), expected, name)

    def test_every_key_is_in_a_table_above(self) -> None:
        """
        No default goes unchecked; only names and addresses of the host remain.
        """
        known = {*ROCKETMQ_DEFAULTS, *OUR_DEFAULTS, *DEPENDENT_DEFAULTS}
        rest = {key.name for key in KEYS} - known
        self.assertEqual(rest, {"brokerName", "brokerIP1", "brokerIP2"})
        ours = {key.name for key in KEYS if key.origin is Origin.OURS}
        dependent = {"haSendFlushedOnly", "haMasterClientAddress", "adminListenPort"}
        self.assertEqual(ours, {*OUR_DEFAULTS, *dependent})

    def test_settings_have_the_same_defaults(self) -> None:
        """
        Settings made in code and settings of an empty file do not differ.
        """
        loaded, made = load(None), Settings()
        for section in SECTIONS - {"broker"}:
            self.assertEqual(getattr(loaded, section), getattr(made, section))
        self.assertEqual(loaded.broker.name, made.broker.name)

    def test_every_field_has_a_key(self) -> None:
        """
        Nothing can be set in code that cannot be set in a file.
        """
        settings = Settings()
        fields = {
            (section, attribute.name)
            for section in SECTIONS
            for attribute in getattr(settings, section).__attrs_attrs__
        }
        self.assertEqual({(key.section, key.field) for key in KEYS}, fields)

    def test_small_files_lower_the_message_size(self) -> None:
        """
        Settings made in code fit their records into their files too.
        """
        store = StoreSettings(file_size=262144)
        self.assertEqual(store.max_message_size, 262144 - 65536 - 8)
        self.assertEqual(store.max_record + 8, store.file_size)
        self.assertEqual(StoreSettings(file_size=4096).max_message_size, 1)


class TableTests(SynchronousTestCase):
    """
    The three lists of names.
    """

    def test_no_name_twice(self) -> None:
        """
        A name is ours to honour, harmless or unsupported, and only one of them.
        """
        honoured = [name for key in KEYS for name in key.names]
        self.assertEqual(len(honoured), len(set(honoured)))
        for one, other in ((BY_NAME, HARMLESS), (BY_NAME, UNSUPPORTED), (HARMLESS, UNSUPPORTED)):
            self.assertEqual(set(one) & set(other), set())

    def test_show_is_the_inverse_of_parse(self) -> None:
        """
        A value is shown as a text that means the same.
        """
        for key in KEYS:
            if key.default is not None:
                parsed = key.default_value()
                self.assertEqual(key.kind.parse(key.kind.show(parsed)), parsed, key.name)

    @given(st.integers(1, INT_MAX))
    def test_milliseconds_survive(self, number: int) -> None:
        """
        No rounding turns one millisecond into another.
        """
        kind = BY_NAME["slaveTimeout"].kind
        self.assertEqual(kind.show(kind.parse(str(number))), str(number))

    @given(st.text(max_size=30), st.sampled_from(KEYS))
    def test_any_text_parses_or_is_refused(self, text: str, key: Any) -> None:
        """
        No text breaks a parser in an unexpected way.
        """
        try:
            key.kind.show(key.kind.parse(text))
            key.kind.note(text)
        except ValueError:
            self.assertTrue(key.kind.allowed)

    def test_keys_every_broker_conf_has(self) -> None:
        """
        The keys of RocketMQ's own example files are honoured.
        """
        for name in [
            "brokerClusterName",
            "brokerName",
            "brokerId",
            "deleteWhen",
            "fileReservedTime",
            "brokerRole",
            "flushDiskType",
            "namesrvAddr",
            "listenPort",
            "storePathRootDir",
        ]:
            self.assertIn(name, BY_NAME)


class NearestTests(SynchronousTestCase):
    """
    Did you mean.
    """

    def test_typos(self) -> None:
        """
        Case, missing letters and old spellings lead to the right key.
        """
        for typo, meant in {
            "brokerid": "brokerId",
            "BROKERROLE": "brokerRole",
            "flushDiskTyp": "flushDiskType",
            "haMasterAdress": "haMasterAddress",
            "haSlaveFallBehindMax": "haSlaveFallbehindMax",
            "storePathRoot": "storePathRootDir",
            "slaveReadEnabled": "slaveReadEnable",
            "enableDLedgerCommitLog": "enableDLegerCommitLog",
            "maxGapNotInSync": "haMaxGapNotInSync",
        }.items():
            self.assertEqual(FILE.nearest(typo), meant)

    def test_nothing_near(self) -> None:
        """
        A far name gets no advice.
        """
        self.assertEqual(FILE.nearest("colour"), "")
