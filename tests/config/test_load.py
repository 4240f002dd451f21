"""Files, C{--set} and C{--role} to settings, or all that is wrong with them."""

from __future__ import annotations

import socket
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.broker_settings import BrokerRole
from rmqha.config.errors import (
    ConfigProblems,
    ConfigUnreadable,
    MalformedLine,
    UnknownKey,
    Unsupported,
)
from rmqha.config.load import Row, check, describe, load, load_tls
from rmqha.config.settings import Settings, TlsMode
from rmqha.config.store_settings import FlushDisk
from rmqha.config.vocabulary import BROKER_FILE, HARMLESS, UNSUPPORTED
from rmqha.errors import BadValue, ConfigError
from rmqha.net.allowed_peers import Allowed


class LoadTestCase(SynchronousTestCase):
    """Loading text, and the problems of it."""

    def file(self, text: str | bytes) -> Path:
        path = Path(self.mktemp())
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def load(self, text: str, *overrides: str, role: str | None = None) -> Settings:
        return load(self.file(text), overrides, role)

    def problems(self, text: str, *overrides: str, role: str | None = None) -> list[ConfigError]:
        error = self.assertRaises(ConfigProblems, self.load, text, *overrides, role=role)
        return list(error.problems)

    def problem(self, text: str, *overrides: str, role: str | None = None) -> ConfigError:
        """The one thing that is wrong with this text."""
        found = self.problems(text, *overrides, role=role)
        self.assertEqual(len(found), 1, found)
        return found[0]


class ValueTests(LoadTestCase):
    def test_units(self) -> None:
        """Milliseconds and hours become seconds, percentages ratios, bytes stay bytes."""
        settings = self.load(
            "haSendHeartbeatInterval=250\nfileReservedTime=1\ndiskMaxUsedSpaceRatio=50\n"
            "haTransferBatchSize=65536\nflushIntervalCommitLog = 1\n"
        )
        self.assertEqual((settings.ha.heartbeat, settings.store.file_reserved), (0.25, 3600.0))
        self.assertEqual((settings.store.disk_max_used, settings.ha.batch), (0.5, 65536))
        self.assertEqual(settings.store.flush_interval, 0.001)

    def test_bounds(self) -> None:
        """The bounds themselves are allowed, the next number is not, and the error has both."""
        for name, low, high in (
            ("haTransferBatchSize", 1, 4 * 1024 * 1024 - 12),
            ("listenPort", 0, 65535),
            ("haListenPort", 0, 65535),
            ("slaveTimeout", 1, 2**31 - 1),
            ("inSyncReplicas", 1, 1000),
            ("maxIndexNum", 2, 2**31 - 1),
            ("mappedFileSizeCommitLog", 65545, 2**31 - 1),
            ("haSlaveFallbehindMax", 1, 2**63 - 1),
            ("deleteCommitLogFilesInterval", 0, 2**31 - 1),
        ):
            for number in (low - 1, high + 1):
                error = self.problem(f"{name}={number}")
                self.assertIsInstance(error, BadValue)
                for part in (name, str(number), f"from {low} to {high}", ":1: "):
                    self.assertIn(part, str(error))
        self.assertEqual(self.load("haTransferBatchSize=4194292").ha.batch, 4194292)

    def test_numbers_are_javas(self) -> None:
        """Signs are fine; underscores, fractions, other digits and units are not."""
        self.assertEqual(self.load("slaveTimeout=+3000").ha.slave_timeout, 3.0)
        for text in ("3_000", "3.5", "3000ms", "0x10", "٣", "", "1e3", "- 1", "9" * 5000):
            self.assertIsInstance(self.problem(f"slaveTimeout={text}"), BadValue, text)

    def test_blanks_around_values(self) -> None:
        """Trailing blanks, which make RocketMQ drop a value silently, do not count."""
        settings = self.load("brokerId=2  \nbrokerRole=SLAVE\t\nbrokerName = a b \n")
        self.assertEqual((settings.broker.id, settings.broker.name), (2, "a b"))

    def test_comment_behind_a_value(self) -> None:
        """A comment behind a value is part of it, and the error says where it belongs."""
        error = self.problem("brokerId=0 # the master")
        self.assertIn("a line of its own", str(error))

    def test_switches(self) -> None:
        """Only true and false switch, in any case; RocketMQ takes yes for false."""
        self.assertFalse(self.load("checkCRCOnRecover=False").store.check_crc_on_recover)
        self.assertTrue(self.load("haAcceptUnproven=TRUE").ha.accept_unproven)
        self.assertIn("true or false", str(self.problem("checkCRCOnRecover=yes")))

    def test_words(self) -> None:
        """Words are exact, and the error lists them."""
        self.assertIs(self.load("flushDiskType=SYNC_FLUSH").store.flush_disk, FlushDisk.SYNC_FLUSH)
        error = self.problem("flushDiskType=sync_flush")
        self.assertIn("ASYNC_FLUSH, SYNC_FLUSH", str(error))
        error = self.problem("haDivergencePolicy=ignore")
        self.assertIn("stop, truncate, rebootstrap", str(error))

    def test_disk_ratios_clamp_as_rocketmq_does(self) -> None:
        """Three ratios are clamped, and each clamp is told."""
        for name, field, low, high in (
            ("diskMaxUsedSpaceRatio", "disk_max_used", 0.10, 0.95),
            ("diskSpaceWarningLevelRatio", "disk_warning", 0.35, 0.90),
            ("diskSpaceCleanForciblyRatio", "disk_clean_forcibly", 0.30, 0.85),
        ):
            for text, expected in (("1", low), ("-5", low), ("99", high), ("1000", high)):
                settings = self.load(f"{name}={text}")
                self.assertEqual(getattr(settings.store, field), expected)
                (note,) = settings.notes
                self.assertIn(f"{name}={text} is read as {round(expected * 100)}", note)
            settings = self.load(f"{name}={round(high * 100)}")
            self.assertEqual(settings.notes, ())

    def test_queue_files_are_whole_units(self) -> None:
        """A consume queue file is rounded up to whole units, and that is told."""
        settings = self.load("mappedFileSizeConsumeQueue=6001")
        self.assertEqual(settings.store.queue_file_size, 6020)
        self.assertIn("is read as 6020", settings.notes[0])
        self.assertEqual(self.load("mappedFileSizeConsumeQueue=6000").notes, ())

    def test_hours_of_the_day(self) -> None:
        """Several hours, in any writing; not 24, not a list with commas."""
        self.assertEqual(self.load("deleteWhen=04;16; 23").store.delete_when, (4, 16, 23))
        for text in ("24", "4,5", "noon", "", ";"):
            self.assertIsInstance(self.problem(f"deleteWhen={text}"), BadValue, text)

    def test_delay_levels(self) -> None:
        """Levels are kept as text when RocketMQ could read them."""
        self.assertEqual(
            self.load("messageDelayLevel=1s 2m 3h 4d").store.delay_levels, "1s 2m 3h 4d"
        )
        for text in ("1s  5s", "1w", "5", "", "1s,5s"):
            self.assertIsInstance(self.problem(f"messageDelayLevel={text}"), BadValue, text)

    def test_master_address(self) -> None:
        """Names, IPv4 and IPv6 with a port; everything else is refused."""
        for text, expected in (
            ("10.0.0.1:10912", ("10.0.0.1", 10912)),
            ("broker-a.example:1", ("broker-a.example", 1)),
            ("[2001:db8::1]:10912", ("2001:db8::1", 10912)),
            ("2001:db8::1:10912", ("2001:db8::1", 10912)),
            ("", None),
        ):
            settings = self.load(f"haMasterAddress={text}", role="slave")
            self.assertEqual(settings.ha.master, expected)
        for text in ("10.0.0.1", ":10912", "h:0", "h:65536", "h:x", "[1.2:3", "a/b:1", "a:1;b:2"):
            error = self.problem(f"haMasterAddress={text}", role="slave")
            self.assertIn("host:port", str(error), text)

    def test_addresses(self) -> None:
        """Addresses that are bound or written into records are addresses, not names."""
        settings = self.load("brokerIP1=10.0.0.7\nhaListenAddress=::1\nadminListenAddress=0.0.0.0")
        self.assertEqual((settings.broker.ip1, settings.ha.listen_address), ("10.0.0.7", "::1"))
        self.assertEqual(settings.admin.listen_address, "0.0.0.0")
        for name in ("haListenAddress", "haLocalAddress", "adminListenAddress"):
            self.assertIn("an IPv4 or IPv6 address", str(self.problem(f"{name}=localhost")))

    def test_named_host(self) -> None:
        """A broker's address may be a name, and is shown so; unknown or odd ones are refused."""
        found = [(2, 1, 6, "", ("10.0.0.9", 0)), (10, 1, 6, "", ("fd00::9", 0, 0, 0))]

        def look_up(name: str, *_: object, **__: object) -> list[Any]:
            if name != "broker-a.test":
                raise socket.gaierror(-2, "Name or service not known")
            return found[::-1]

        self.patch(socket, "getaddrinfo", look_up)
        settings = self.load("brokerIP1=broker-a.test")
        self.assertEqual(settings.broker.ip1, "10.0.0.9")
        self.assertEqual(
            BROKER_FILE.by_name["brokerIP1"].kind.show(settings.broker.ip1), "broker-a.test"
        )
        for text in ("broker-b.test", "10.0.0.256", "10.1", "a b", "0x7f.1"):
            self.assertIn("a name that this host finds", str(self.problem(f"brokerIP1={text}")))

    def test_allowed_peers(self) -> None:
        """Addresses and networks, with either separator; a network with host bits is refused."""
        settings = self.load("haAllowedPeers=10.0.0.0/8, 192.168.1.7;fd00::/8")
        self.assertEqual(
            settings.ha.allowed_peers,
            (ip_network("10.0.0.0/8"), ip_network("192.168.1.7"), ip_network("fd00::/8")),
        )
        self.assertIn("CIDR", str(self.problem("haAllowedPeers=10.0.0.1/8")))

    def test_allowed_peers_are_never_everybody_by_mistake(self) -> None:
        """A list of separators alone names nobody, where an empty one is everybody."""
        for text in (",", ";", " , ;"):
            self.assertIn("CIDR", str(self.problem(f"haAllowedPeers={text}")), text)
        self.assertEqual(self.load("haAllowedPeers=").ha.allowed_peers, ())

    def test_allowed_peers_of_ipv4_within_ipv6(self) -> None:
        """They are the peers by IPv4, as these are matched."""
        settings = self.load("haAllowedPeers=::ffff:10.0.0.1,::ffff:192.168.0.0/112")
        self.assertEqual(
            settings.ha.allowed_peers, (ip_network("10.0.0.1"), ip_network("192.168.0.0/16"))
        )
        allowed = Allowed(settings.ha.allowed_peers)
        for peer in ("10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1", "192.168.255.1"):
            self.assertTrue(allowed.permits(peer), peer)
        for peer in ("10.0.0.2", "::ffff:10.0.0.2", "192.169.0.0", "::a00:1", "::1"):
            self.assertFalse(allowed.permits(peer), peer)

    def test_name_servers(self) -> None:
        """The list is kept as it was written, after a look at each address."""
        self.assertEqual(self.load("namesrvAddr=a:9876;b:9876").broker.namesrv, "a:9876;b:9876")
        self.assertIsInstance(self.problem("namesrvAddr=a:9876,b"), BadValue)

    def test_folders(self) -> None:
        """The home folder has two names, relative paths become absolute, the log follows it."""
        home = Path.home()
        for text, expected in (
            ("${user.home}/x", home / "x"),
            ("~/x", home / "x"),
            ("/var/x", Path("/var/x")),
            ("x/y", Path.cwd() / "x/y"),
        ):
            settings = self.load(f"storePathRootDir={text}")
            self.assertEqual(settings.store.root, expected)
            self.assertEqual(settings.store.commitlog, expected / "commitlog")
        settings = self.load("storePathCommitLog=/fast/log")
        self.assertEqual(settings.store.commitlog, Path("/fast/log"))

    def test_several_log_folders_are_refused(self) -> None:
        """Multi-path is out, with either separator."""
        for text in ("/a,/b", "/a:/b"):
            self.assertIn("several", str(self.problem(f"storePathCommitLog={text}")))

    def test_log_folder_is_used_for_nothing_else(self) -> None:
        """The log does not lie among the other files."""
        for text in ("/s", "/s/consumequeue", "/s/config"):
            error = self.problem(f"storePathRootDir=/s\nstorePathCommitLog={text}")
            self.assertIn("a folder of its own", str(error))


class TogetherTests(LoadTestCase):
    """What keys must be to each other."""

    def test_message_size_is_lowered_when_not_given(self) -> None:
        """Small log files lower the default body size, and that is told with its numbers."""
        settings = self.load("mappedFileSizeCommitLog=262144")
        self.assertEqual(settings.store.max_message_size, 262144 - 65536 - 8)
        (note,) = settings.notes
        for part in ("196600", "4194304", "262144"):
            self.assertIn(part, note)
        self.assertEqual(self.load("mappedFileSizeCommitLog=1073741824").notes, ())

    def test_message_size_that_does_not_fit(self) -> None:
        """A body size that was asked for and does not fit is refused with what does."""
        error = self.problem("mappedFileSizeCommitLog=262144\nmaxMessageSize=196601")
        for part in ("maxMessageSize=196601", "at most 196600", "262144", ":2: "):
            self.assertIn(part, str(error))
        settings = self.load("mappedFileSizeCommitLog=262144\nmaxMessageSize=196600")
        self.assertEqual(settings.store.max_message_size, 196600)
        self.assertEqual(settings.notes, ())

    def test_index_file_beyond_java(self) -> None:
        """An index file whose size no Java broker could compute is refused."""
        self.assertIn("2167483640", str(self.problem("maxIndexNum=107374180")))

    def test_heartbeat_and_housekeeping(self) -> None:
        """Heartbeats rarer than housekeeping are refused at the key that was given."""
        error = self.problem("haSendHeartbeatInterval=20000")
        self.assertIn("haHousekeepingInterval=20000", str(error))
        error = self.problem("haHousekeepingInterval=4000")
        self.assertIn("haSendHeartbeatInterval=5000", str(error))
        self.assertTrue(str(error).startswith(str(error.where)))  # type: ignore[attr-defined]
        self.load("haHousekeepingInterval=4000\nhaSendHeartbeatInterval=1000")

    def test_roll_window(self) -> None:
        """A message is stored anew before its log file expires."""
        self.assertEqual(self.load("fileReservedTime=72").timers.window_ms, 172_800_000)
        self.assertEqual(self.load("fileReservedTime=24").timers.window_ms, 57_600_000)
        fine = self.load("timerPrecisionMs=300\ntimerRollWindowSlot=1000")
        self.assertEqual((fine.timers.precision, fine.timers.window_ms), (200, 200_000))
        error = self.problem("fileReservedTime=24\ntimerRollWindowSlot=86400")
        self.assertIn("at most 86399 with fileReservedTime=24", str(error))

    def test_ports_follow_the_client_port(self) -> None:
        """The other ports are counted from listenPort unless they are given."""
        settings = self.load("listenPort=20911")
        self.assertEqual((settings.ha.listen_port, settings.admin.listen_port), (20912, 20914))
        settings = self.load("listenPort=20911\nhaListenPort=5\nadminListenPort=0")
        self.assertEqual((settings.ha.listen_port, settings.admin.listen_port), (5, 0))

    def test_ha_port_zero(self) -> None:
        """RocketMQ 5 takes a HA port of 0 for an absent one."""
        self.assertEqual(self.load("haListenPort=0").ha.listen_port, 10912)

    def test_ha_port_of_a_slave(self) -> None:
        """A slave has one as a master has, but 0 turns it off."""
        slave = "brokerRole=SLAVE\nbrokerId=1\n"
        self.assertEqual(self.load(slave).ha.listen_port, 10912)
        self.assertEqual(self.load(slave + "haListenPort=0").ha.listen_port, 0)

    def test_port_clashes(self) -> None:
        """Two services of one node never share a port."""
        error = self.problem("haListenPort=10911")
        self.assertIn("haListenPort=10911", str(error))
        self.assertIn("listenPort", str(error))
        error = self.problem("haListenPort=10914")
        self.assertIn("adminListenPort", str(error))
        self.assertEqual(error.key, "haListenPort")  # type: ignore[attr-defined]
        self.assertIn("65535", str(self.problem("listenPort=65533")))

    def test_vip_port(self) -> None:
        """The port two below listenPort is a port of this node too."""
        self.assertIn("a port of listenPort", str(self.problem("adminListenPort=10909")))
        for number in (1, 2):
            self.assertIn("listenPort", str(self.problem(f"listenPort={number}")))
        self.assertEqual(self.load("listenPort=3").broker.listen_port, 3)

    def test_no_client_port(self) -> None:
        """Without a client port the other ports are where they would be by default."""
        for more in ("", "\nhaListenPort=0"):
            settings = self.load("listenPort=0" + more)
            self.assertEqual((settings.broker.listen_port, settings.ha.listen_port), (0, 10912))
            self.assertEqual(settings.admin.listen_port, 10914)

    def test_tls(self) -> None:
        """TLS needs a key and its certificate, and who asks for certificates needs a root."""
        both = "tlsKeyPath=/k.pem\ntlsCertPath=/c.pem\n"
        settings = self.load(both + "tls.server.mode=enforcing").remoting
        self.assertEqual((settings.tls, settings.tls_key), (TlsMode.ENFORCING, Path("/k.pem")))
        self.assertIn("tlsMode", str(self.problem("tlsMode=enforcing")))
        self.assertIn("tlsCertPath", str(self.problem("tlsKeyPath=/k.pem")))
        self.assertIn("tlsKeyPath", str(self.problem("tlsCertPath=/c.pem")))
        self.assertIn("tlsTrustCertPath", str(self.problem(both + "tlsClientAuth=require")))

    def test_tls_of_own_connections(self) -> None:
        """A node that takes TLS alone connects so too, by default; named roots count alone."""
        both = "tlsKeyPath=/k.pem\ntlsCertPath=/c.pem\n"
        self.assertFalse(self.load(both).tls.enabled)
        self.assertTrue(self.load(both + "tlsMode=enforcing").tls.enabled)
        self.assertFalse(self.load(both + "tlsMode=enforcing\ntls.enable=false").tls.enabled)
        found = self.load("useTLS=true\ntls.client.trustCertPath=/r.pem").tls
        self.assertEqual((found.enabled, found.auth_server), (True, True))
        self.assertEqual(found.client_trusted, Path("/r.pem"))
        self.assertIn("tlsClientCertPath", str(self.problem("tls.client.keyPath=/k.pem")))
        self.assertIn("tlsClientTrustCertPath", str(self.problem("tls.client.authServer=true")))
        self.assertIn("tlsCheckNames", str(self.problem("tlsEnable=true\ntlsCheckNames=true")))

    def test_tls_of_replication(self) -> None:
        """A node whose HA port takes TLS alone connects to others so too, unless told otherwise."""
        both = "haTlsKeyPath=/k.pem\nhaTlsCertPath=/c.pem\n"
        found = self.load(both + "haTlsMode=enforcing").tls
        self.assertEqual((found.ha_mode, found.ha_enabled), (TlsMode.ENFORCING, True))
        self.assertFalse(self.load(both).tls.ha_enabled)
        self.assertIn("haTlsKeyPath", str(self.problem("haTlsMode=enforcing")))
        self.assertIn("haTlsCertPath", str(self.problem("haTlsKeyPath=/k.pem")))

    def test_tls_config_file(self) -> None:
        """RocketMQ's file of TLS counts as the configuration; it has no more; options win."""
        path = Path(self.mktemp()).absolute()
        path.write_text("tls.enable=true\ntls.client.trustCertPath=/r.pem\n")
        text = f"tls.config.file={path}"
        self.assertEqual(self.load(text).tls.client_trusted, Path("/r.pem"))
        self.assertFalse(self.load(text, "tlsEnable=false").tls.enabled)
        path.write_text("listenPort=1\n")
        self.assertIn("listenPort", str(self.problem(text)))
        self.assertIn("No such file", str(self.problem("tls.config.file=/nowhere")))

    def test_tls_of_a_tool(self) -> None:
        """A tool reads a client's keys of the same file; a port's do not disturb it."""
        path = Path(self.mktemp())
        path.write_text("tls.server.mode=enforcing\ntls.client.trustCertPath=/r.pem\n")
        found = load_tls(path)
        self.assertEqual((found.enabled, found.client_trusted), (True, Path("/r.pem")))
        path.write_text("tls.client.keyPassword=secret\n")
        with self.assertRaises(ConfigProblems) as caught:
            load_tls(path)
        self.assertIn("without a password", str(caught.exception))

    def test_permission(self) -> None:
        """A broker can be read, written or both."""
        for number in (2, 4, 6):
            found = self.load(f"brokerPermission={number}").broker.permission
            self.assertEqual(found, number)
        for number in (0, 1, 3, 7, 8):
            self.assertIn("2 (writing)", str(self.problem(f"brokerPermission={number}")))

    def test_sync_flush_sends_only_what_is_flushed(self) -> None:
        """SYNC_FLUSH turns haSendFlushedOnly on unless the file says otherwise."""
        self.assertFalse(self.load("").ha.send_flushed_only)
        self.assertTrue(self.load("flushDiskType=SYNC_FLUSH").ha.send_flushed_only)
        settings = self.load("flushDiskType=SYNC_FLUSH\nhaSendFlushedOnly=false")
        self.assertFalse(settings.ha.send_flushed_only)
        self.assertTrue(self.load("haSendFlushedOnly=true").ha.send_flushed_only)

    def test_a_slave_never_follows_itself(self) -> None:
        """A master address that is this node's own is refused."""
        for host in ("127.0.0.1", "localhost", "[::1]", "10.0.0.7"):
            error = self.problem(f"haMasterAddress={host}:10912\nbrokerIP1=10.0.0.7", role="slave")
            self.assertIn("this is the node's own", str(error))
        self.load("haMasterAddress=127.0.0.1:10902", role="slave")
        self.load("haMasterAddress=127.0.0.1:10912\nhaListenAddress=127.0.0.2", role="slave")

    def test_master_client_address(self) -> None:
        """A master's client port is the one below its HA port, or said otherwise, or none."""
        master = "haMasterAddress=10.0.0.1:10912\n"
        for text, expected in (
            ("", None),
            (master, ("10.0.0.1", 10911)),
            ("haMasterAddress=[::1]:20912\n", ("::1", 20911)),
            ("haMasterAddress=10.0.0.1:1\n", None),
            (master + "haMasterClientAddress=10.0.0.2:9", ("10.0.0.2", 9)),
            (master + "haMasterClientAddress=off", None),
            (master + "haMasterClientAddress=", None),
        ):
            self.assertEqual(self.load(text, role="slave").ha.master_client, expected, text)
        for wrong in ("10911", "10.0.0.1:0", "on"):
            error = self.problem(f"{master}haMasterClientAddress={wrong}", role="slave")
            self.assertIn("host:port, port 1 to 65535; or off", str(error))
        rows = {row.key: row for row in check(self.file(master), role="slave")[1]}
        row = rows["haMasterClientAddress"]
        self.assertEqual((row.value, row.is_default), ("10.0.0.1:10911", True))
        off = check(self.file(master + "haMasterClientAddress=off"), role="slave")[1]
        row = {row.key: row for row in off}["haMasterClientAddress"]
        self.assertEqual((row.value, row.is_default), ("off", False))

    def test_a_master_does_not_need_a_master_address(self) -> None:
        """A master address on a master is told, not used and not refused."""
        (note,) = self.load("haMasterAddress=10.0.0.1:10912").notes
        self.assertIn("haMasterAddress=10.0.0.1:10912", note)


class RoleTests(LoadTestCase):
    def test_absent(self) -> None:
        """Without a word a node is an asynchronous master 0, or slave 1 by --role."""
        for role, expected in (
            (None, (BrokerRole.ASYNC_MASTER, 0)),
            ("master", (BrokerRole.ASYNC_MASTER, 0)),
            ("slave", (BrokerRole.SLAVE, 1)),
        ):
            broker = self.load("", role=role).broker
            self.assertEqual((broker.role, broker.id), expected)

    def test_agreement(self) -> None:
        """What the file says counts when it does not contradict --role."""
        broker = self.load("brokerRole=SYNC_MASTER\nbrokerId=0", role="master").broker
        self.assertEqual((broker.role, broker.id), (BrokerRole.SYNC_MASTER, 0))
        broker = self.load("brokerId=7", role="slave").broker
        self.assertEqual((broker.role, broker.id), (BrokerRole.SLAVE, 7))
        broker = self.load("brokerRole=SLAVE").broker
        self.assertEqual((broker.role, broker.id), (BrokerRole.SLAVE, 1))

    def test_contradictions(self) -> None:
        """A role or an id that contradicts is refused at its own place."""
        for text, role, key, part in (
            ("brokerRole=SLAVE", "master", "brokerRole", "--role master"),
            ("brokerRole=ASYNC_MASTER", "slave", "brokerRole", "--role slave"),
            ("brokerRole=SYNC_MASTER\nbrokerId=0", "slave", "brokerRole", "SLAVE"),
            ("brokerId=0", "slave", "brokerId", "1 or more"),
            ("brokerId=1", "master", "brokerId", "a master (ASYNC_MASTER) has 0"),
            ("brokerId=1", None, "brokerId", "brokerRole=SLAVE"),
            ("brokerRole=SLAVE\nbrokerId=0", None, "brokerId", "1 or more"),
            ("brokerRole=SYNC_MASTER\nbrokerId=2", None, "brokerId", "SYNC_MASTER"),
            ("brokerId=-1", None, "brokerId", "from 0"),
        ):
            error = self.problem(text, role=role)
            self.assertEqual(error.key, key, text)  # type: ignore[attr-defined]
            self.assertIn(part, str(error))
            self.assertIn(
                f":{text.split(chr(10)).index(text.splitlines()[-1]) + 1}: "
                if key == "brokerId"
                else ":1: ",
                str(error),
            )

    def test_unknown_role(self) -> None:
        """--role knows two words."""
        self.assertIn("master or slave", str(self.problem("", role="SLAVE")))

    def test_slave_without_a_master(self) -> None:
        """A slave without a master address is fine: it runs and waits."""
        self.assertIsNone(self.load("", role="slave").ha.master)


class ForeignTests(LoadTestCase):
    """RocketMQ's other keys, and keys nobody knows."""

    def test_harmless_keys_are_listed_once(self) -> None:
        """Harmless keys are accepted with any value and listed once, in order."""
        settings = self.load(
            "sendMessageThreadPoolNums=4\nenableDetailStat=maybe\nsendMessageThreadPoolNums=8\n",
            "printChannelGroups=false",
        )
        self.assertEqual(
            settings.ignored,
            ("sendMessageThreadPoolNums", "enableDetailStat", "printChannelGroups"),
        )

    def test_all_harmless_keys(self) -> None:
        """A file of all harmless keys loads."""
        settings = self.load("".join(f"{name}=1\n" for name in HARMLESS))
        self.assertEqual(set(settings.ignored), set(HARMLESS))

    def test_unsupported_keys_off(self) -> None:
        """Switched off, unsupported keys are as harmless as the others."""
        off = {
            "tls.server.mode": ("permissive", "disabled"),
            "tls.server.need.client.auth": ("none", "optional"),
            "storeType": ("default",),
            "brokerPermission": ("6",),
            "minInSyncReplicas": ("1", "0"),
            "startAcceptSendRequestTimeStamp": ("0",),
            "replicasPerDiskPartition": ("1",),
            "messageStorePlugIn": ("",),
            "readOnlyCommitLogStorePaths": ("",),
            "tls.server.keyPassword": ("",),
            "tls.client.keyPassword": ("",),
            "haMaxUnprovenPerAddress": ("8", ""),
            "haVerifyBeforeAck": ("true", ""),
        }
        for name in UNSUPPORTED:
            for text in off.get(name, ("false", "FALSE", "")):
                self.assertEqual(self.load(f"{name}={text}").ignored, (name,))

    def test_unsupported_keys_on(self) -> None:
        """Switched on, they are refused with their value, their reason and their place."""
        on = {
            "tls.server.mode": "enforcing",
            "tls.server.need.client.auth": "require",
            "storeType": "defaultRocksDB",
            "brokerPermission": "4",
            "minInSyncReplicas": "2",
            "startAcceptSendRequestTimeStamp": "1",
            "replicasPerDiskPartition": "2",
            "messageStorePlugIn": "com.example.Store",
            "readOnlyCommitLogStorePaths": "/old",
            "haMaxUnprovenPerAddress": "9",
            "haVerifyBeforeAck": "false",
        }
        for name, foreign in UNSUPPORTED.items():
            text = on.get(name, "true")
            error = self.problem(f"\n{name}={text}")
            self.assertIsInstance(error, Unsupported)
            for part in (f"{name}={text}", foreign.reason, ":2: "):
                self.assertIn(part, str(error))

    def test_half_words_count_as_on(self) -> None:
        """What is not clearly off is refused, whatever Java would make of it."""
        self.assertIsInstance(self.problem("tls.test.mode.enable=yes"), Unsupported)
        self.assertIsInstance(self.problem("replicasPerDiskPartition=two"), Unsupported)

    def test_controller_mode(self) -> None:
        """A node of a set is a member or a learner, and each needs what belongs to it; what means
        something there alone is refused elsewhere.
        """
        mode = "enableControllerMode=true\ncontrollerAddr=10.0.0.1:9878\n"
        self.assertTrue(self.load(mode).controller.member)
        self.assertTrue(self.load(mode, role="member").controller.member)
        slave = self.load(mode + "brokerRole=SLAVE\nbrokerId=1", role="member")
        self.assertEqual(slave.ha.listen_port, 10912)
        learner = mode + "asyncLearner=true\nbrokerRole=SLAVE\nbrokerId=9\n"
        self.assertFalse(self.load(learner, role="slave").controller.member)
        told = self.load(mode + "allAckInSyncStateSet=false").notes
        self.assertEqual(len(told), 1)
        for text, role in (
            ("enableControllerMode=true", None),
            (mode, "master"),
            (mode + "brokerRole=SLAVE\nbrokerId=1", "slave"),
            ("brokerRole=SYNC_MASTER", "member"),
            (learner, "member"),
            (learner.replace("SLAVE", "SYNC_MASTER").replace("=9", "=0"), None),
            (learner + "haListenPort=10912", None),
            (mode + "haMasterAddress=10.0.0.2:10912", None),
            ("asyncLearner=true", None),
            ("allAckInSyncStateSet=true", None),
            ("minInSyncReplicas=2", None),
        ):
            self.problem(text, role=role)

    def test_etcd(self) -> None:
        """A set is coordinated by etcd or by controllers, and needs the addresses of what it is."""
        mode = "enableControllerMode=true\ncontrollerType=etcd\n"
        made = self.load(
            mode + "etcdAddresses=10.0.0.1:2379, 10.0.0.2:2379;[::1]:2379", role="member"
        )
        self.assertTrue(made.controller.etcd)
        self.assertEqual(made.etcd.addresses, ("10.0.0.1:2379", "10.0.0.2:2379", "[::1]:2379"))
        self.assertEqual((made.etcd.prefix, made.etcd.lease), ("/rmqha", 10))
        whole = mode + "etcdAddresses=10.0.0.1:2379\n"
        for text in (
            mode,
            mode + "controllerAddr=10.0.0.1:9878",
            mode + "etcdAddresses=10.0.0.1",
            whole + "etcdLeaseSeconds=1",
            whole + "etcdUser=rmqha",
            whole + "etcdPasswordFile=/p",
            whole + "etcdTlsKeyPath=/k.pem\netcdTlsCertPath=/c.pem",
            "enableControllerMode=true\netcdAddresses=10.0.0.1:2379",
        ):
            self.problem(text, role="member")

    def test_features_that_are_out(self) -> None:
        """Each feature that is out of scope and matters is refused when switched on."""
        for name in [
            "enableDLegerCommitLog",
            "duplicationEnable",
            "enableMultiDispatch",
            "enableLmq",
            "transientStorePoolEnable",
            "enableConsumeQueueExt",
            "enableSlaveActingMaster",
            "tls.test.mode.enable",
        ]:
            self.assertIsInstance(self.problem(f"{name}=true"), Unsupported)

    def test_unknown_keys(self) -> None:
        """Unknown keys are named with their place and the nearest key."""
        error = self.problem("\n\nflushDisktype=SYNC_FLUSH")
        self.assertEqual((error.key, error.nearest), ("flushDisktype", "flushDiskType"))  # type: ignore[attr-defined]
        self.assertTrue(
            str(error).endswith(":3: unknown key flushDisktype; did you mean flushDiskType?")
        )
        error = self.problem("colour=red")
        self.assertIsInstance(error, UnknownKey)
        self.assertTrue(str(error).endswith("unknown key colour"))


class SourceTests(LoadTestCase):
    """The file, the command line, and what is said about both."""

    def test_overrides_win(self) -> None:
        """--set replaces the file's value, by an alias too, and even one that is wrong."""
        self.assertEqual(self.load("slaveTimeout=1", "slaveTimeout=2").ha.slave_timeout, 0.002)
        settings = self.load("haSlaveFallbehindMax=1", "haMaxGapNotInSync=2")
        self.assertEqual(settings.ha.fallbehind_max, 2)
        settings = self.load("aclEnable=true\nslaveTimeout=x", "aclEnable=false", "slaveTimeout=1")
        self.assertEqual(settings.ha.slave_timeout, 0.001)

    def test_errors_name_set(self) -> None:
        """What is wrong on the command line says so."""
        for override in (
            "slaveTimeout=x",
            "slaveTimeuot=1",
            "tls.test.mode.enable=true",
            "slaveTimeout",
            "=1",
        ):
            self.assertTrue(str(self.problem("", override)).startswith("--set: "), override)

    def test_override_keeps_later_equals_signs(self) -> None:
        """Only the first equals sign separates."""
        self.assertEqual(self.load("", "brokerName = a=b").broker.name, "a=b")

    def test_aliases(self) -> None:
        """Names of other versions mean the same key."""
        self.assertEqual(self.load("haMaxGapNotInSync=5").ha.fallbehind_max, 5)
        settings = self.load("mapedFileSizeCommitLog=131072\nmapedFileSizeConsumeQueue=40")
        self.assertEqual(settings.store.file_size, 131072)
        self.assertEqual(settings.store.queue_file_size, 40)

    def test_alias_and_name_that_differ(self) -> None:
        """One key under two names must have one value."""
        self.load("haMaxGapNotInSync=5\nhaSlaveFallbehindMax=5")
        error = self.problem("haMaxGapNotInSync=5\nhaSlaveFallbehindMax=6")
        self.assertIn("haMaxGapNotInSync=5", str(error))
        self.assertIn(":2: ", str(error))

    def test_repeated_keys(self) -> None:
        """The last one counts, as in Java, and that is told with both places."""
        settings = self.load("slaveTimeout=1\nslaveTimeout=2\nslaveTimeout=2")
        self.assertEqual(settings.ha.slave_timeout, 0.002)
        (note,) = settings.notes
        self.assertIn(":2: slaveTimeout=2 replaces 1 (", note)

    def test_all_problems_at_once(self) -> None:
        """Every problem is reported, in the order of the file, one place each."""
        found = self.problems(
            "brokerRole=MASTER\nbrokerid=1\nslaveTimeout=0\n=x\nenableLmq=true\nbrokerName=\\u12\n",
            "haFirstSync=middle",
        )
        kinds = [type(error) for error in found]
        self.assertEqual(
            sorted(kind.__name__ for kind in kinds),
            sorted(
                kind.__name__
                for kind in (
                    MalformedLine,
                    MalformedLine,
                    BadValue,
                    UnknownKey,
                    BadValue,
                    Unsupported,
                    BadValue,
                )
            ),
        )
        text = str(ConfigProblems(tuple(found)))
        for part in (":1: ", ":2: ", ":3: ", ":4: ", ":5: ", ":6: ", "--set: "):
            self.assertIn(part, text)

    def test_no_follow_up_problems(self) -> None:
        """A value that is refused does not make its neighbours look wrong."""
        self.problem("brokerRole=SLAV\nbrokerId=1")
        self.problem("mappedFileSizeCommitLog=x\nmaxMessageSize=1999999999")
        self.problem("haHousekeepingInterval=x\nhaSendHeartbeatInterval=50000")
        self.problem("listenPort=x\nhaListenPort=10911")

    def test_missing_file(self) -> None:
        """A file that cannot be read is one problem with its path."""
        path = Path(self.mktemp())
        error = self.assertRaises(ConfigProblems, load, path)
        self.assertIsInstance(error.problems[0], ConfigUnreadable)
        self.assertIn(str(path), str(error))
        self.assertRaises(ConfigProblems, load, Path("/"))

    def test_latin_1_file(self) -> None:
        """A file in Latin-1 is read as Java reads it."""
        settings = load(self.file(b"brokerName=caf\xe9\n"))
        self.assertEqual(settings.broker.name, "café")


class DescribeTests(LoadTestCase):
    def test_rows(self) -> None:
        """Each key has its value in the file's units, and where it comes from."""
        path = self.file("slaveTimeout=1500\nflushDiskType=SYNC_FLUSH\ndeleteWhen=4;5\n")
        settings, rows = check(path, ["listenPort=20911"], "slave")
        found = {row.key: row for row in rows}
        for row in (
            Row("slaveTimeout", "1500", False, f"{path}:1"),
            Row("listenPort", "20911", False, "--set"),
            Row("haListenPort", "20912", True, "default"),
            Row("haSendFlushedOnly", "true", True, "default"),
            Row("deleteWhen", "04;05", False, f"{path}:3"),
            Row("brokerRole", "SLAVE", False, "--role"),
            Row("brokerId", "1", True, "default"),
            Row("haMasterAddress", "", True, "default"),
        ):
            self.assertEqual(found[row.key], row)
        self.assertEqual([row.value for row in describe(settings)], [row.value for row in rows])

    def test_rows_load_again(self) -> None:
        """What is shown can be given again and means the same."""
        first = self.load(
            "haAllowedPeers=10.0.0.0/8;::1\nhaMasterAddress=[2001:db8::1]:5\n"
            "diskMaxUsedSpaceRatio=57\nfileReservedTime=13\nmaxMessageSize=100",
            role="slave",
        )
        text = "".join(f"{row.key}={row.value}\n" for row in describe(first))
        self.assertEqual(self.load(text), first)

    def test_check_raises_too(self) -> None:
        """A check of a wrong file raises all its problems."""
        self.assertRaises(ConfigProblems, check, self.file("x=1"))
