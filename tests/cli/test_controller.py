"""C{rmqha controller}."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from attrs import define
from click.testing import CliRunner
from twisted.internet.defer import fail

from lab.harness import golden
from rmqha.cli.controller import elect, explain, status
from rmqha.controller.identity import IdentityFiles
from rmqha.controller.overview import look
from rmqha.errors import NoController, RemotingUnreachable
from rmqha.ha.master_epoch import EpochJournal, EpochStart
from rmqha.store.files.lock import StoreLock
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.controller import ElectMasterRequest
from tests.cli.command import CommandTestCase
from tests.controller.fake_controllers import FakeControllers
from tests.controller.test_group import A, B, GroupTestCase, refused, said
from tests.controller.test_other_members import EPOCHS, MEMBER, SET
from tests.support.commands import nobody, rmqha
from tests.support.effort import slow

ELECTED = {
    "masterBrokerId": "2",
    "masterAddress": "10.0.0.2:10911",
    "masterEpoch": "5",
    "syncStateSetEpoch": "9",
}
TWO = b'{"syncStateSet":[2,1]}'


@define
class Asking:
    """A client that asks controllers and members."""

    request: Any


class ShownTestCase(GroupTestCase):
    def printed(self, show: Any) -> tuple[int, str, str]:
        """Call it as a command does, and return exit code, stdout and stderr."""

        @click.command()
        def command() -> None:
            raise SystemExit(show())

        result = CliRunner().invoke(command)
        return result.exit_code, result.stdout, result.stderr


class StatusTests(ShownTestCase):
    """C{rmqha controller status}, of controllers that answer here."""

    def shown(self, *names: str, as_json: bool = False) -> tuple[int, str, str]:
        self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = said({}, SET)
        seen = self.result(look(self.group, names))
        return self.printed(lambda: status.show(seen, as_json=as_json))

    def test_tables(self) -> None:
        """Who leads, and each member: id, address, role, alive, in sync."""
        code, out, err = self.shown("a")
        self.assertEqual((code, err), (0, ""))
        lines = [" ".join(line.split()) for line in out.splitlines() if line.strip()]
        self.assertEqual(
            lines,
            [
                "controller state",
                f"{A} follows {B}",
                f"{B} leads",
                f"h:3 follows {B}",
                "set a: master epoch 1, SyncStateSet epoch 2",
                "id address role alive in sync",
                "1 10.0.0.1:10911 master yes yes",
                "2 10.0.0.2:10911 slave no no",
            ],
        )

    def test_json(self) -> None:
        """The same as one object."""
        code, out, _ = self.shown("a", as_json=True)
        self.assertEqual(code, 0)
        found = json.loads(out)
        self.assertEqual((found["leader"], found["problems"]), (B, []))
        self.assertEqual([each["leads"] for each in found["controllers"]], [False, True, False])
        self.assertEqual(
            found["sets"]["a"],
            {
                "masterId": 1,
                "masterAddress": "10.0.0.1:10911",
                "masterEpoch": 1,
                "syncStateSetEpoch": 2,
                "members": [
                    {"id": 1, "address": "10.0.0.1:10911", "alive": True, "inSync": True},
                    {"id": 2, "address": "10.0.0.2:10911", "alive": False, "inSync": False},
                ],
            },
        )

    def test_unknown_set(self) -> None:
        """A set that is not known is exit code 1, and the others are shown."""
        code, out, err = self.shown("a", "b")
        self.assertEqual((code, err), (1, "rmqha: the controllers know no set b\n"))
        self.assertIn("set a", out)
        self.assertIsNone(json.loads(self.shown("b", as_json=True)[1])["sets"]["b"])

    def test_addresses(self) -> None:
        """Addresses are written as in C{controllerAddr}, or one by one."""
        for wrong in ("localhost", "h:1;x", "h:0", ":1"):
            self.assertRaises(click.UsageError, status.addresses_of, (wrong,))
        self.assertEqual(status.addresses_of(("h:1; h:2", "h:3;")), ("h:1", "h:2", "h:3"))
        self.assertRaises(click.UsageError, status.addresses_of, (";",))


class ExplainTests(ShownTestCase):
    LOST = SET.replace(b'"alive":true', b'"alive":null').replace(b"false", b"true")
    LOST = LOST.replace(b"null", b"false")

    def shown(self, body: bytes, *, as_json: bool = False) -> tuple[int, str, str]:
        self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = said({}, body)
        member = FakeControllers((MEMBER,), MEMBER)
        member.handlers[Code.GET_BROKER_EPOCH_CACHE] = said({}, EPOCHS)
        ask = self.controllers.request

        def request(address: str, command: Command, timeout: float) -> Any:
            if address == "10.0.0.1:10911":
                return fail(RemotingUnreachable(address, "connection refused"))
            return (member.request if address == MEMBER else ask)(address, command, timeout)

        self.patch(self.group, "client", Asking(request))
        seen = self.result(explain.explained(self.group))
        return self.printed(lambda: explain.show(seen, as_json=as_json))

    def test_led(self) -> None:
        """A set with a master says who could take its place."""
        code, out, _ = self.shown(SET)
        self.assertEqual(code, 0)
        self.assertIn("set a: id 1 is master; no other member can be elected\n", out)
        self.assertIn("no: it is not in sync, and may lack what was acknowledged", out)

    def test_nobody(self) -> None:
        """Where nobody can be elected it says who may be, and the ways out with what each loses."""
        code, out, _ = self.shown(self.LOST)
        self.assertEqual(code, 1)
        self.assertIn("no member can be elected: only [1] may be, and none of them is alive", out)
        self.assertIn("1. loses nothing: start id 1 at 10.0.0.1:10911", out)
        self.assertIn("2. loses all that [1] alone have", out)
        self.assertIn("id 2 has the longest log, up to byte 344675", out)
        self.assertIn("enableElectUncleanMaster=true", out)

    def test_json(self) -> None:
        """The same as one object."""
        found = json.loads(self.shown(self.LOST, as_json=True)[1])
        self.assertIsNone(found["masterId"])
        self.assertEqual([each["logEnd"] for each in found["members"]], [None, 344675])
        self.assertEqual(len(found["waysOut"]), 2)

    def test_unknown_set(self) -> None:
        """A set that the controllers do not know is an error."""
        self.controllers.handlers[Code.GET_SYNC_STATE_DATA] = said({}, b'{"replicasInfoTable":{}}')
        self.failed(explain.explained(self.group), click.ClickException)


class ElectTests(ShownTestCase):
    def elect(self, member: int, handler: Any, *, as_json: bool = False) -> tuple[int, str, str]:
        self.controllers.handlers[Code.ELECT_MASTER] = handler
        state = self.result(elect.elected(self.group, member))
        return self.printed(lambda: elect.show(state, "a", member, as_json=as_json))

    def refusal(self, handler: Any) -> str:
        """What is said where it is refused."""
        self.controllers.handlers[Code.ELECT_MASTER] = handler
        error = self.failed(elect.elected(self.group, 2), click.ClickException)
        assert isinstance(error, click.ClickException)
        return error.format_message()

    def test_elected(self) -> None:
        """A designated election is asked for, and its outcome told."""
        code, out, err = self.elect(2, said(ELECTED, TWO))
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out, "set a: id 2 at 10.0.0.2:10911 is master, in master epoch 5\n")
        asked: Command = self.controllers.asked[-1][1]
        header = from_ext(ElectMasterRequest, asked.ext)
        self.assertEqual((header.broker_id, header.designate_elect), (2, True))

    def test_json(self) -> None:
        """The same as one object."""
        code, out, _ = self.elect(2, said(ELECTED, TWO), as_json=True)
        self.assertEqual(code, 0)
        self.assertEqual(
            json.loads(out),
            {
                "set": "a",
                "masterId": 2,
                "masterAddress": "10.0.0.2:10911",
                "masterEpoch": 5,
                "syncStateSet": [1, 2],
                "syncStateSetEpoch": 9,
            },
        )

    def test_master_already(self) -> None:
        """To elect the master is no fault; that another one stays is."""
        still = said(ELECTED, TWO, 2011)
        self.assertEqual(self.elect(2, still)[0], 0)
        code, _, err = self.elect(1, still)
        self.assertEqual(code, 1)
        self.assertIn("id 1 was not elected in set a: id 2 is its master", err)

    def test_refused(self) -> None:
        """Each refusal has its code, and what to do."""
        self.assertIn("alive and in sync can be elected", self.refusal(refused(2012)))
        self.assertIn("answered 2012: no", self.refusal(refused(2012)))
        self.assertIn("rmqha controller explain --set", self.refusal(refused(2012)))
        self.assertIn("check --set and --id", self.refusal(refused(2010)))
        self.assertTrue(self.refusal(refused(1)).endswith("answered 1: no"))

    def test_unanswered(self) -> None:
        """Without an answer nobody knows, and that is said."""
        self.group.leader = B
        self.controllers.silent.add(B)
        self.assertIn("may have been elected", self.refusal(refused(1)))

    def test_no_leader(self) -> None:
        """Nobody is elected where nobody leads."""
        self.controllers.leader = ""
        self.failed(elect.elected(self.group, 2), NoController)


class ResetTests(CommandTestCase):
    def setUp(self) -> None:
        self.store = golden.store(golden.VERSIONS[-1])
        files = IdentityFiles.of(self.store, "C", "a")
        files.given(files.apply(2, "code"))
        EpochJournal(number=7, starts=(EpochStart(7, 500, 2),)).write(self.store)

    def test_reset(self) -> None:
        """It says who the store was, where all is, and how to go on."""
        said = self.succeed("controller", "reset", self.store)
        self.assertIn("it was id 2 of set a in cluster C\n", said)
        self.assertIn("newest master epoch is 7, from byte 500, led by this member\n", said)
        self.assertIn("rmqha/before-reset-1: ", said)
        self.assertIn("brokerIdentity\n", said)
        self.assertIn("master last first", said)
        self.assertFalse((self.store / "brokerIdentity").exists())
        self.assertIn("nothing to put aside", self.fails(1, "controller", "reset", self.store))

    def test_json(self) -> None:
        """The same as one object."""
        found = self.answer("controller", "reset", self.store)
        self.assertEqual((found["id"], found["set"], found["newestEpoch"]), (2, "a", 7))
        self.assertTrue(found["ledLast"])
        self.assertIn("brokerIdentity", found["moved"])
        self.assertTrue(Path(found["folder"]).is_dir())

    def test_refused(self) -> None:
        """Nothing is moved while a node runs, and nothing of what is no whole store."""
        part = self.store.parent / "part"
        (self.store / "commitlog").rename(part)
        said = self.fails(1, "controller", "reset", part)
        part.rename(self.store / "commitlog")
        self.assertIn("not a part of a store", said)
        lock = StoreLock(self.store / "lock")
        lock.take()
        self.addCleanup(lock.release)
        said = self.fails(1, "controller", "reset", self.store)
        self.assertIn("held by a running node", said)
        self.assertTrue((self.store / "brokerIdentity").exists())


class AskingTests(CommandTestCase):
    def test_mistakes(self) -> None:
        """What is no address, and a member without an id, is exit code 2."""
        self.assertIn("is not HOST:PORT", self.fails(2, "controller", "status", "localhost"))
        self.assertIn("--id", self.fails(2, "controller", "elect", A, "--cluster=C", "--set=a"))

    @slow
    def test_nobody(self) -> None:
        """With nobody listening each ends in lines of its own and exit code 3."""
        with nobody() as address:
            for command in (("status",), ("elect", "--cluster=C", "--set=a", "--id=1")):
                name, *options = command
                done = rmqha("controller", name, address, *options)
                self.assertEqual(done.returncode, 3, done)
                self.assertIn("rmqha: no controller", done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertIn(address, done.stdout + done.stderr)
