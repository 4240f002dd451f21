"""A broker with access control, and clients that sign or do not."""

from __future__ import annotations

from attrs import define

from rmqha.broker.access.acl_file import AclFile
from rmqha.broker.broker import RequestHandler
from rmqha.wire.remoting.command import Command
from tests.broker.support import PEER, BrokerTestCase, Client
from tests.support.access_table import PLAIN_ACL, credentials
from tests.support.logs import now


@define
class Signing:
    """A client that signs with its account, or does not."""

    client: Client
    account: str = ""

    def ask(self, code: int, body: bytes = b"", **ext: str) -> Command:
        command = Command(code=code, ext=ext, body=body)
        if self.account:
            credentials(self.account).sign(command)
        answer = self.client.ask(code, command.ext, body)
        assert answer is not None, f"{code} is not answered"
        return answer


class AccessTestCase(BrokerTestCase):
    def begin(self, *, slave: bool = False, more: tuple[RequestHandler, ...] = ()) -> None:
        """Serve, with the accounts of the table."""
        self.path = self.folder() / "plain_acl.yml"
        self.path.write_bytes(PLAIN_ACL.read_bytes())
        self.accounts = AclFile(path=self.path, clock=self.clock, in_thread=now)
        self.accounts.start()
        self.broker(slave=slave, accounts=self.accounts, more=more)

    def by(self, account: str = "") -> Signing:
        return Signing(self.client(), account)

    def client_of(self, host: str) -> Client:
        client = self.client()
        client.connection.host = host
        client.connection.peer = (host, PEER.port)
        return client

    def assert_denied(self, answer: Command) -> None:
        self.assertEqual(answer.code, 1)
        self.assertIn("AclException", str(answer.remark))
