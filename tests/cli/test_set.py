"""C{rmqha set}; with real etcd it is tried in C{tests/faults/test_etcd.py}."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from lab.harness.ports import free_ports
from rmqha.cli import set as set_commands
from rmqha.controller.etcd.etcd_set import EtcdSet
from rmqha.controller.etcd.set_keys import IdEntry, Living
from rmqha.errors import RemotingTimeout
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.command import Command
from tests.cli.command import CommandTestCase
from tests.cli.test_controller import ShownTestCase
from tests.controller.etcd.fake_etcd import FakeEtcd, Kept
from tests.controller.test_group import said
from tests.controller.test_other_members import EPOCHS, SET
from tests.support.commands import rmqha
from tests.support.effort import slow


class SetTests(CommandTestCase):
    """What it says where there is nobody to ask."""

    def conf(self, *lines: str) -> Path:
        path = Path(self.mktemp())
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    def test_no_set(self) -> None:
        """The file has to be that of a member."""
        said = self.fails(1, "set", "list", self.conf("brokerName=a"))
        self.assertIn("has no enableControllerMode=true", said)

    def test_controllers(self) -> None:
        """What controllers cannot do is refused, with what to use."""
        conf = self.conf("enableControllerMode=true", "controllerAddr=127.0.0.1:9878")
        for command, told in (
            (["init"], "`rmqha controller status` says whether they answer"),
            (["pause"], "`rmqha set elect` puts the master back"),
            (["resume"], "are never paused"),
            (["history"], "their own log has their elections"),
            (["remove", "--id", "2"], "`mqadmin cleanBrokerMetadata`"),
        ):
            said = self.fails(1, "set", *command, conf)
            self.assertIn(f"set {command[0]} refused: {conf} has no controllerType=etcd", said)
            self.assertIn(told, said)

    @slow
    def test_nobody(self) -> None:
        """Without an answer it is said who was asked, of either kind."""
        (port,) = free_ports(1)
        for kind, key, command in (
            ("etcd", "etcdAddresses", ["elect", "--id", "2"]),
            ("rocketmq", "controllerAddr", ["list"]),
        ):
            mode = ("enableControllerMode=true", f"controllerType={kind}")
            conf = self.conf(*mode, f"{key}=127.0.0.1:{port}")
            done = rmqha("set", *command, conf)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(f"127.0.0.1:{port}", done.stderr)


class ListTests(ShownTestCase):
    """C{rmqha set list} and C{history}, of an etcd in memory and controllers that answer here."""

    def setUp(self) -> None:
        """Ids 1 and 2 live, 3 does not, and 4 was removed; 2 is master."""
        super().setUp()
        etcd = FakeEtcd(Clock())
        self.set = EtcdSet.named(etcd.client("10.1.0.1:2379"), "/rmqha", "C", "a")
        self.set.operator, self.set.now = "kim@desk", lambda: "2026-11-27T12:00:00Z"
        keys: dict[str, str] = {}
        for number in (1, 2, 3, 4):
            address = f"10.0.0.{number}:10911"
            entry = IdEntry(token="t", address=address, removed="noon" * (number // 4))
            keys[f"ids/{number}"] = entry.render()
            if number < 3:
                keys[f"live/{number}"] = Living(token="t", address=address).render()
                etcd.leases[f"7{number}"] = 7.5, 10
        keys["set"] = json.dumps({"master": 1, "masterEpoch": 1, "inSync": [1, 2], "setEpoch": 5})
        for name, value in keys.items():
            lease = f"7{name[-1]}" if name.startswith("live") else ""
            etcd.keys[f"/rmqha/C/a/{name}"] = Kept(value, 1, 1, lease)
        self.result(self.elected())
        self.ends = {"10.0.0.1:10911": 344_000, "10.0.0.2:10911": 344_675}

    async def elected(self) -> None:
        await self.set.elect(2, designated=True)

    def request(self, address: str, command: Command, timeout: float) -> Deferred[Command]:
        if address not in self.ends:
            return fail(RemotingTimeout(command.code, timeout, address))
        body = EPOCHS.replace(b"344675", b"%d" % self.ends[address])
        return succeed(said({}, body)(command))

    def shown(self, group: Any, *, as_json: bool = False) -> tuple[int, str, str]:
        seen = self.result(set_commands.listed(group, self, "a"))
        return self.printed(lambda: set_commands.show(seen, as_json=as_json))

    def test_table(self) -> None:
        """Members, their leases, and where their logs end; none that was removed."""
        self.result(self.set.pause())
        code, out, err = self.shown(self.set)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(
            [" ".join(line.split()) for line in out.splitlines()],
            [
                "set a: master epoch 2, SyncStateSet epoch 6",
                "paused since 2026-11-27T12:00:00Z by kim@desk: no member is elected by itself",
                "id address role alive in sync lease epoch log end behind",
                "1 10.0.0.1:10911 slave yes no 7 2 344000 675",
                "2 10.0.0.2:10911 master yes yes 7 2 344675 0",
                "3 10.0.0.3:10911 slave no no - - - -",
            ],
        )

    def test_json(self) -> None:
        """The same for programs."""
        self.result(self.set.pause())
        found = json.loads(self.shown(self.set, as_json=True)[1])
        self.assertEqual(found["paused"], {"since": "2026-11-27T12:00:00Z", "by": "kim@desk"})
        self.assertEqual((found["set"], found["masterId"], found["masterEpoch"]), ("a", 2, 2))
        self.assertEqual(
            found["members"][0],
            {
                "id": 1,
                "address": "10.0.0.1:10911",
                "alive": True,
                "inSync": False,
                "leaseSeconds": 7,
                "epoch": 2,
                "logEnd": 344_000,
                "behind": 675,
            },
        )
        self.assertIsNone(found["members"][2]["logEnd"])

    def test_silent(self) -> None:
        """One that lives and does not answer is named, and nobody is behind a silent master."""
        del self.ends["10.0.0.2:10911"]
        code, out, err = self.shown(self.set)
        self.assertEqual(code, 3)
        self.assertIn("id 2 at 10.0.0.2:10911 says nothing of its log: ", err)
        self.assertRegex(out, r"(?m)^1 .* 344000 +- *$")

    def test_controllers(self) -> None:
        """The same as far as controllers know it: they have no leases."""
        self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = said({}, SET)
        code, out, _ = self.shown(self.group)
        self.assertEqual(code, 0)
        self.assertEqual(
            [" ".join(line.split()) for line in out.splitlines()],
            [
                "set a: master epoch 1, SyncStateSet epoch 2",
                "id address role alive in sync epoch log end behind",
                "1 10.0.0.1:10911 master yes yes 2 344000 0",
                "2 10.0.0.2:10911 slave no no - - -",
            ],
        )

    def test_no_master(self) -> None:
        """A set without one is exit code 1."""
        self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = said(
            {}, SET.replace(b"true", b"false")
        )
        code, _, err = self.shown(self.group)
        self.assertEqual((code, err), (1, "rmqha: set a has no living master\n"))

    def history(self, *, as_json: bool = False) -> str:
        found = self.result(self.set.view()).elections()
        return self.printed(lambda: set_commands.show_history(found, as_json=as_json))[1]

    def test_history(self) -> None:
        """Each election, in words and for programs."""
        self.assertEqual(
            [" ".join(line.split()) for line in self.history().splitlines()],
            [
                "when from to master epoch set epoch why",
                "2026-11-27T12:00:00Z 1 2 2 6 chosen by kim@desk",
            ],
        )
        self.assertEqual(
            json.loads(self.history(as_json=True)),
            {
                "elections": [
                    {
                        "at": "2026-11-27T12:00:00Z",
                        "from": 1,
                        "to": 2,
                        "masterEpoch": 2,
                        "setEpoch": 6,
                        "why": "chosen by kim@desk",
                    }
                ]
            },
        )
