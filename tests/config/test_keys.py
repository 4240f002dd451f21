"""The declared keys: their defaults against what stock brokers say, and their names and texts."""

from __future__ import annotations

from typing import Any

from attrs import evolve, fields, frozen
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.broker_settings import BrokerRole, BrokerSettings
from rmqha.config.keys import Derived, Origin, key, keys_of
from rmqha.config.load import load
from rmqha.config.settings import Settings
from rmqha.config.store_settings import StoreSettings
from rmqha.config.values import INT_MAX, millis, whole
from rmqha.config.vocabulary import BROKER_FILE, KEYS, NAMESRV_FILE, SECTIONS
from rmqha.wire.remoting.codes import RequestCode
from tests.support.frames import frames

GIVEN = {
    "brokerName",
    "brokerClusterName",
    "brokerIP1",
    "brokerIP2",
    "listenPort",
    "haListenPort",
    "namesrvAddr",
    "defaultTopicQueueNums",
    "traceTopicEnable",
    "storePathRootDir",
    "storePathCommitLog",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "diskMaxUsedSpaceRatio",
    "messageDelayLevel",
    "maxTransferCountOnMessageInMemory",
    "transactionTimeOut",
    "transactionCheckInterval",
    "enablePropertyFilter",
}
"""What the recorded brokers were told or took from their host, instead of the default."""

DIFFERENT = {
    "5.3.3": {"bindAddress", "registerBrokerTimeoutMills"},  # 0.0.0.0 and 24000; 4.9 has 6000
    "4.9.7": set(),
}
"""Defaults that are not that release's."""

UNTOLD = {"haMasterAddress"}
"""What stock brokers read from their file and do not tell; nor do they tell C{tls...}."""


def told(version: str) -> dict[str, str]:
    """All keys of a stock broker and their values, as it told mqadmin."""
    body = next(
        frame.body
        for frame in frames(f"mqadmin-{version}")
        if frame.is_answer and frame.request_code == RequestCode.GET_BROKER_CONFIG
    )
    return dict(line.split("=", 1) for line in body.decode().splitlines() if "=" in line)


@frozen(kw_only=True)
class Sample:
    """A section with a key of each sort."""

    pause: float = key("pauseMillis", millis(), "1500")
    twice: float = key(
        "twice", millis(), derived=Derived("two pauses", lambda of: 2 * of("pauseMillis"))
    )
    port: int = key("port", whole(0), "7", derived=Derived("base", lambda of: of("base") + 1))


class DeclarationTests(SynchronousTestCase):
    def test_made_in_code(self) -> None:
        """A field has its key's default in our units, or what is derived from its own section;
        where that needs another section, the default counts.
        """
        self.assertEqual(Sample(), Sample(pause=1.5, twice=3.0, port=7))
        self.assertEqual(Sample(pause=2.0).twice, 4.0)

    def test_absent_in_a_file(self) -> None:
        """In a file, what is derived is derived of all keys."""
        pause, twice, port = keys_of("sample", Sample)
        of = {"pauseMillis": 5.0, "base": 100}.__getitem__
        self.assertEqual([k.absent(of) for k in (pause, twice, port)], [1.5, 10.0, 101])
        self.assertEqual((port.section, port.field), ("sample", "port"))


class DefaultTests(SynchronousTestCase):
    def test_stock_defaults(self) -> None:
        """RocketMQ's keys have the defaults that stock brokers have."""
        settings = load(None)
        for version, different in DIFFERENT.items():
            theirs = told(version)
            for one in BROKER_FILE.keys:
                if one.name in theirs and one.name not in GIVEN | different:
                    ours = one.kind.show(one.value_in(settings))
                    self.assertEqual(ours, theirs[one.name], f"{one.name} of {version}")

    def test_origins(self) -> None:
        """A key is said to be of the release that has it."""
        known = {Origin.RMQ49: told("4.9.7"), Origin.RMQ53: told("5.3.3")}
        for one in BROKER_FILE.keys:
            if one.name not in UNTOLD and not one.name.startswith("tls"):
                has = [origin for origin, theirs in known.items() if one.name in theirs]
                self.assertEqual(one.origin, [*has, Origin.OURS][0], one.name)

    def test_made_in_code(self) -> None:
        """Settings made in code are those of an empty file, but for the host's address."""
        loaded, made = load(None), Settings()
        for section in set(SECTIONS) - {"broker"}:
            self.assertEqual(getattr(loaded, section), getattr(made, section))
        self.assertEqual(evolve(loaded.broker, ip1="127.0.0.1", ip2="127.0.0.1"), made.broker)

    def test_every_default_is_allowed(self) -> None:
        """The text that stands for an absent key could be given."""
        for one in KEYS:
            if one.default is not None:
                parsed = one.kind.parse(one.default)
                self.assertEqual(one.kind.parse(one.kind.show(parsed)), parsed, one.name)
                self.assertEqual(one.kind.note(one.default), "", one.name)

    def test_slave_made_in_code(self) -> None:
        """The role decides the default of the id in code too."""
        self.assertEqual(BrokerSettings(role=BrokerRole.SLAVE).id, 1)

    def test_small_files_lower_the_message_size(self) -> None:
        """Settings made in code fit their records into their files too."""
        self.assertEqual(StoreSettings(file_size=262144).max_message_size, 262144 - 65536 - 8)
        self.assertEqual(StoreSettings(file_size=4096).max_message_size, 1)


class VocabularyTests(SynchronousTestCase):
    """The names of each kind of file."""

    def test_no_name_twice(self) -> None:
        """A name is ours to honour, harmless or unsupported, and only one of them."""
        for file in (BROKER_FILE, NAMESRV_FILE):
            names = [name for key in file.keys for name in key.names]
            names += [*file.harmless, *file.unsupported]
            self.assertEqual(len(names), len(set(names)))

    def test_every_section(self) -> None:
        """All parts of the settings can be set in a file."""
        parts = {part.name for part in fields(Settings)}
        self.assertEqual(set(SECTIONS) | {"ignored", "notes"}, parts)
        for part, declared in SECTIONS.items():
            self.assertIsInstance(getattr(Settings(), part), declared)

    @given(st.integers(1, INT_MAX))
    def test_milliseconds_survive(self, number: int) -> None:
        """No rounding turns one millisecond into another."""
        kind = BROKER_FILE.by_name["slaveTimeout"].kind
        self.assertEqual(kind.show(kind.parse(str(number))), str(number))

    @given(st.text(max_size=30), st.sampled_from(KEYS))
    def test_any_text_parses_or_is_refused(self, text: str, key: Any) -> None:
        """No text breaks a parser in an unexpected way."""
        try:
            key.kind.show(key.kind.parse(text))
            key.kind.note(text)
        except ValueError:
            self.assertTrue(key.kind.allowed)

    def test_keys_every_broker_conf_has(self) -> None:
        """The keys of RocketMQ's own example files are honoured."""
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
            self.assertIn(name, BROKER_FILE.by_name)


class NearestTests(SynchronousTestCase):
    def test_typos(self) -> None:
        """Case, missing letters and old spellings lead to the right key."""
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
            self.assertEqual(BROKER_FILE.nearest(typo), meant)

    def test_nothing_near(self) -> None:
        """A far name gets no advice."""
        self.assertEqual(BROKER_FILE.nearest("colour"), "")
