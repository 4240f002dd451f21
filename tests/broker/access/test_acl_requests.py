"""A broker with access control, asked by clients that sign, and by some that do not."""

from __future__ import annotations

import json
from unittest import skipUnless

from attrs import evolve

from rmqha.broker.access.acl_file import LOOK_EVERY
from rmqha.net.remoting.needs import AUDIT
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.remoting.command import Command, SerializeType
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.frame import encode
from rmqha.wire.remoting.headers.admin import CreateTopicRequest
from tests.broker.access.cases import AccessTestCase
from tests.broker.support import PEER, SEND_V2, sending
from tests.support.access_table import access_rows, credentials
from tests.support.log_lines import log_lines


class AccessTests(AccessTestCase):
    def test_table(self) -> None:
        """What the table denies is refused before it is worked at, by master and slave."""
        for slave in (False, True):
            self.root = self.folder() / "store"
            self.begin(slave=slave)
            for row in access_rows():
                client = self.client_of("127.0.0.1")
                client.send(row.request())
                answers = [each for each in client.heard() if each.is_response]
                denied = any("AclException" in str(answer.remark) for answer in answers)
                self.assertEqual(row.verdict, "denied" if denied else "allowed", row.what)

    def test_all_codes(self) -> None:
        """Nothing is answered without an account, and only administrators administer."""
        self.begin()
        codes = self.serving.registry.codes()
        for code in codes:
            self.assert_denied(self.by().ask(code))
        for code, need in self.serving.needs.items():
            if need.administrator:
                self.assert_denied(self.by("everything").ask(code))
            else:
                self.assertFalse(need.listed, code)

    def test_stored(self) -> None:
        """A message that is allowed is stored, and one that is not leaves nothing."""
        self.begin()
        ext = sending("Payments")
        self.assertEqual(self.by("producer").ask(SEND_V2, b"x", **ext).code, 0)
        end = self.serving.store.log.end
        self.assert_denied(self.by("consumer").ask(SEND_V2, b"x", **ext))
        self.assert_denied(self.by().ask(SEND_V2, b"x", **ext))
        self.assertEqual(self.serving.store.log.end, end)

    def test_oneway(self) -> None:
        """A refused one-way request is not answered, and leaves nothing."""
        self.begin()
        end = self.serving.store.log.end
        self.assertIsNone(self.client().ask(SEND_V2, sending("Payments"), b"x", oneway=True))
        self.assertEqual(self.serving.store.log.end, end)

    @skipUnless(COMPILED, "the write lane is not compiled here")
    def test_lane(self) -> None:
        """The short way of messages takes nothing unsigned, but from white addresses."""
        self.begin()
        assert self.serving.lane is not None
        self.by("operator").ask(17, **MADE)
        requests = b"".join(
            encode(
                Command(
                    code=SEND_V2,
                    opaque=number,
                    version=401,
                    ext=sending("Payments"),
                    body=b"x",
                    serialize=kind,
                )
            )
            for kind in SerializeType
            for number in range(20)
        )
        end = self.serving.store.log.end
        stranger = self.client()
        stranger.connection.dataReceived(requests)
        self.clock.advance(1)
        answers = stranger.heard()
        self.assertEqual(len(answers), 40)
        for answer in answers:
            self.assert_denied(answer)
        self.assertEqual((self.serving.store.log.end, self.serving.lane.messages), (end, 0))
        friend = self.client_of("10.10.103.9")
        friend.connection.dataReceived(requests)
        self.clock.advance(1)
        self.assertEqual({answer.code for answer in friend.heard()}, {0})
        self.assertEqual(self.serving.lane.messages, 40)

    @skipUnless(COMPILED, "the write lane is not compiled here")
    def test_lane_signed(self) -> None:
        """The short way takes what is signed by who may send, as long as there is the account."""
        self.begin()
        lane = self.serving.lane
        assert lane is not None
        self.by("operator").ask(17, **MADE)

        def answers(account: str) -> list[Command]:
            commands = [
                Command(code=SEND_V2, opaque=number, ext=sending("Payments"), serialize=kind)
                for kind in SerializeType
                for number in range(20)
            ]
            for command in commands:
                credentials(account).sign(command)
            client = self.client()
            client.connection.dataReceived(b"".join(map(encode, commands)))
            self.clock.advance(1)
            return client.heard()

        for account, taken in ("producer", 40), ("consumer", 40), ("operator", 80):
            codes = {answer.code for answer in answers(account)}
            self.assertEqual((codes, lane.messages), ({int(account == "consumer")}, taken))
        self.assertEqual(self.by("operator").ask(51, accessKey="producer").code, 0)
        for answer in answers("producer"):
            self.assert_denied(answer)
        self.assertEqual(lane.messages, 80)


MADE = to_ext(
    CreateTopicRequest(
        topic="Payments",
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
    )
)


class AclRequestsTests(AccessTestCase):
    def test_account(self) -> None:
        """An account is made, changed and removed, each at once, and a log line with no secret."""
        self.begin()
        said = self.audited()
        admin = self.by("operator")
        made = {
            "accessKey": "newcomer",
            "secretKey": "newcomer-secret",
            "admin": "false",
            "defaultTopicPerm": "DENY",
            "topicPerms": "Payments=PUB|SUB,Orders=SUB",
        }
        self.assertEqual(admin.ask(50, **made).code, 0)
        account = self.accounts.table.accounts["newcomer"]
        self.assertEqual(account.secret_key, "newcomer-secret")
        self.assertEqual(sorted(account.explicit), ["Orders", "Payments"])
        changed = {"accessKey": "newcomer", "secretKey": "another-secret", "admin": "true"}
        self.assertEqual(admin.ask(50, **changed).code, 0)
        account = self.accounts.table.accounts["newcomer"]
        self.assertEqual((account.admin, account.secret_key), (True, "another-secret"))
        self.assertEqual(sorted(account.explicit), ["Orders", "Payments"])
        self.assertIn("another-secret", self.path.read_text(encoding="utf-8"))
        self.assertEqual(admin.ask(51, accessKey="newcomer").code, 0)
        self.assertNotIn("newcomer", self.accounts.table.accounts)
        refused = {"accessKey": "newcomer", "secretKey": "short", "admin": "false"}
        self.assertEqual(admin.ask(50, **refused).code, 209)
        who = f"Audit: {PEER.host}:{PEER.port}:"
        self.assertEqual(
            [(line.startswith(who), *line.removeprefix(who).split()[:2]) for line in said],
            [
                (True, name, "AccessKey=operator")
                for name in (
                    "UPDATE_AND_CREATE_ACL_CONFIG",
                    "UPDATE_AND_CREATE_ACL_CONFIG",
                    "DELETE_ACL_CONFIG",
                    "UPDATE_AND_CREATE_ACL_CONFIG",
                )
            ],
        )
        self.assertIn("accessKey=newcomer", said[2])
        self.assertTrue(said[2].endswith(": done"), said[2])
        self.assertIn("refused with code 209", said[3])
        for secret in ("newcomer-secret", "another-secret", "short", "operator-secret"):
            self.assertNotIn(secret, "\n".join(said))

    def audited(self) -> list[str]:
        return log_lines(self, namespace=AUDIT)

    def test_wrong(self) -> None:
        """What makes no account is answered why, with the code that mqadmin knows."""
        self.begin()
        admin = self.by("operator")
        before = self.path.read_bytes()
        for code, ext, answer in (
            (50, {"accessKey": "short", "secretKey": "x", "admin": "false"}, 209),
            (50, {"accessKey": "producer", "admin": "false", "topicPerms": "Orders"}, 209),
            (51, {"accessKey": "nobody-known"}, 210),
            (53, {"globalWhiteAddrs": "10.0"}, 211),
            (53, {"globalWhiteAddrs": "10.0.0.1", "aclFileFullPath": "/etc/passwd"}, 211),
        ):
            self.assertEqual(admin.ask(code, **ext).code, answer, ext)
        self.assertEqual(before, self.path.read_bytes())

    def test_white(self) -> None:
        """White addresses are set anew."""
        self.begin()
        self.assert_denied(self.by().ask(28))
        answer = self.by("operator").ask(53, globalWhiteAddrs="10.1.2.{3,4},10.2.*.*")
        self.assertEqual(answer.code, 0)
        self.assertEqual(self.accounts.table.white_texts, ("10.1.2.{3,4}", "10.2.*.*"))
        self.assertEqual(self.by().ask(28).code, 0)

    def test_version(self) -> None:
        """The version grows with each change, and is told with the file's name."""
        self.begin()
        admin = self.by("operator")
        counters = []
        for _ in range(2):
            ext = admin.ask(52).ext
            counters.append(json.loads(ext["version"])["counter"])
            files = json.loads(ext["allAclFileVersion"])
            self.assertEqual(files[str(self.path)]["counter"], counters[-1])
            self.assertEqual((ext["brokerName"], ext["clusterName"]), ("broker-a", "C"))
            admin.ask(53, globalWhiteAddrs="10.3.*.*")
        self.assertEqual(counters, [0, 1])

    def test_shown(self) -> None:
        """Accounts are shown without their secrets."""
        self.begin()
        body = bytes(self.by("operator").ask(54).body)
        shown = json.loads(body)
        self.assertEqual(shown["globalWhiteAddrs"], ["10.10.103.*", "192.168.0.{1,2}"])
        rows = {row["accessKey"]: row for row in shown["plainAccessConfigs"]}
        self.assertTrue(rows["operator"]["admin"])
        self.assertEqual(rows["producer"]["topicPerms"][0], "Orders=PUB")
        self.assertNotIn(b"operator-secret", body)
        self.assertNotIn(b"12345678", body)

    def test_reload(self) -> None:
        """An account that is taken out of the file is refused a second later."""
        self.begin()
        self.assertEqual(self.by("nothing").ask(28).code, 0)
        text = self.path.read_text(encoding="utf-8")
        self.path.write_text(text.replace("nothing-secret", "another-secret"), encoding="utf-8")
        self.clock.advance(LOOK_EVERY)
        self.assert_denied(self.by("nothing").ask(28))

    def test_off(self) -> None:
        """Without access control all are taken as ever; those about accounts hear it is off."""
        self.broker()
        row = evolve(access_rows()[0], signed="wrongly").request()
        answer = self.client().ask(row.code, row.ext, bytes(row.body))
        assert answer is not None
        self.assertEqual(answer.code, 0)
        for code, answer_code in ((50, 209), (51, 210), (52, 1), (53, 211), (54, 1)):
            ext = {"accessKey": "producer", "globalWhiteAddrs": "10.0.0.1"}
            answer = self.client().ask(code, ext)
            assert answer is not None
            self.assertEqual(answer.code, answer_code)
            self.assertIn("aclEnable", str(answer.remark))

    def test_of_5(self) -> None:
        """Requests about users and ACLs of RocketMQ 5 are told what there is instead."""
        self.begin()
        for code in range(3001, 3011):
            answer = self.by("operator").ask(code)
            self.assertEqual(answer.code, 3)
            self.assertIn("RocketMQ 5", str(answer.remark))
            self.assertIn("updateAclConfig", str(answer.remark))
