"""A name server's file."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.errors import ConfigProblems
from rmqha.config.load import check, load
from rmqha.config.settings import NamesrvSettings
from rmqha.config.vocabulary import NAMESRV_UNSUPPORTED


class NamesrvTests(SynchronousTestCase):
    def refused(self, *overrides: str) -> str:
        return str(self.assertRaises(ConfigProblems, load, None, overrides, "namesrv"))

    def test_defaults(self) -> None:
        """What an absent key means is what code means by nothing."""
        settings = load(None, role="namesrv")
        self.assertEqual(settings.namesrv, NamesrvSettings())
        self.assertEqual(settings.admin.listen_port, 9879)

    def test_values(self) -> None:
        """Times are milliseconds, and each row says where its value comes from."""
        given = ("brokerChannelGrace=30000", "namesrvAllowedPeers=10.0.0.0/8", "listenPort=9000")
        settings, rows = check(None, given, "namesrv")
        self.assertEqual(settings.namesrv.channel_grace, 30.0)
        self.assertEqual(str(settings.namesrv.allowed_peers[0]), "10.0.0.0/8")
        self.assertEqual(settings.admin.listen_port, 9003)
        sources = {row.key: row.source for row in rows}
        self.assertEqual((sources["listenPort"], sources["kvConfigPath"]), ("--set", "default"))
        self.assertNotIn("brokerRole", sources)

    def test_refused(self) -> None:
        """A broker's keys, bad values and one port for two things are refused by name."""
        self.assertIn("unknown key brokerName", self.refused("brokerName=a"))
        self.assertIn("did you mean listenPort", self.refused("listenport=1"))
        self.assertIn("already a port of", self.refused("listenPort=9000", "adminListenPort=9000"))
        self.assertIn("kvConfigPath", self.refused("kvConfigPath="))

    def test_foreign(self) -> None:
        """Keys that tune Java are listed; a feature that is not there refuses to start."""
        settings = load(None, ["serverWorkerThreads=8", "supportActingMaster=false"], "namesrv")
        self.assertEqual(set(settings.ignored), {"serverWorkerThreads", "supportActingMaster"})
        for name in NAMESRV_UNSUPPORTED:
            self.assertIn("is not supported", self.refused(f"{name}=true"))
