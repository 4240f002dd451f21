"""What the documentation says of request codes, against what is answered and what was recorded."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from attrs import frozen
from twisted.internet.defer import succeed
from twisted.internet.task import Clock

from rmqha.broker.cluster.set_requests import SetRequests
from rmqha.broker.cluster.stock_followers import StockFollowers
from rmqha.config.settings import NamesrvSettings
from rmqha.namesrv.kv import KvConfig
from rmqha.namesrv.service import NameServer
from rmqha.wire.remoting import bodies
from rmqha.wire.remoting.bodies.controller import EpochCache
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from tests.broker.support import BrokerTestCase
from tests.support import captured_bodies
from tests.support.frames import RECORDINGS, frames
from tests.support.request_headers import REQUESTS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rmqha"
PAGE = ROOT / "docs" / "protocol" / "remoting.md"
#: Codes that are handled alike: where, what they need, and which.
ROW = re.compile(r"^\| ([\w ,]+) \| ([^|]*)\| (\d+ [A-Z][^|]*) \|$", re.MULTILINE)
#: One of them: its number, its name and the body of its answer.
CODE = re.compile(r"(\d+) ([A-Z]\w*)(?: \(([\w ]+)\))?(?:, |$)")
ANSWER = re.compile(r"^\| ([\d, ]+) \| ([A-Z_, ]+) \|", re.MULTILINE)
GIVEN = re.compile(r"\bResponseCode\.([A-Z_]+)")
RANGE = re.compile(r"(\d+) to (\d+)")

HERE = {
    "broker",
    "name server",
    "to clients",
    "broker, to clients",
    "not supported",
    "never sent here",
}


@frozen
class Row:
    """What the table says of a code; where nothing is answered it needs no right."""

    code: int
    name: str
    here: str
    body: str
    needs: str


def rows() -> list[Row]:
    """The table."""
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("## Request codes\n") : text.index("## Answer codes\n")]
    found = [
        Row(int(code), name, here, body, needs.strip())
        for here, needs, codes in ROW.findall(table)
        for code, name, body in CODE.findall(codes)
    ]
    return sorted(found, key=lambda row: row.code)


def saying(word: str) -> set[int]:
    """The codes of which the table says that."""
    return {row.code for row in rows() if word in row.here.split(", ")}


def answers() -> list[tuple[int, str]]:
    """The table of answer codes, and their names."""
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("## Answer codes\n") :]
    return [
        (int(code), name)
        for codes, names in ANSWER.findall(table)
        for code, name in zip(codes.split(", "), names.split(", "), strict=True)
    ]


def listed(before: str) -> set[int]:
    """The codes the page lists behind some words, up to the end of that sentence or clause."""
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    after = re.split(r"[.;]", text[text.index(before) + len(before) :], maxsplit=1)[0]
    ranges = (range(int(first), int(last) + 1) for first, last in RANGE.findall(after))
    return {int(number) for number in re.findall(r"\d+", after)}.union(*ranges)


def name_server() -> NameServer:
    """A name server that keeps nothing."""
    return NameServer(NamesrvSettings(), Clock(), KvConfig(lambda table: succeed(None)))


class DocumentedTests(BrokerTestCase):
    def test_all(self) -> None:
        """Every code that has a name is there once, and says one of six things."""
        self.assertEqual(
            sorted((int(code), code.name) for code in RequestCode),
            [(row.code, row.name) for row in rows()],
        )
        self.assertEqual(set(), {row.here for row in rows()} - HERE)

    def test_broker(self) -> None:
        """It is the broker that handles exactly those the table says it does."""
        self.assertEqual(saying("broker"), {int(code) for code in self.broker().registry.codes()})

    def test_name_server(self) -> None:
        """So does the name server."""
        codes = name_server().factory.connections.registry.codes()
        self.assertEqual(saying("name server"), {int(code) for code in codes})

    def test_slave(self) -> None:
        """A slave handles what a master does, if only to refuse it."""
        codes = self.broker(slave=True).registry.codes()
        self.assertEqual(saying("broker"), {int(code) for code in codes})

    def test_others(self) -> None:
        """All others are answered that they are not supported, with the code named."""
        registries = {
            "broker": self.broker().registry,
            "name server": name_server().factory.connections.registry,
        }
        connection = self.client().connection
        for who, registry in registries.items():
            for code in {row.code for row in rows()} - saying(who):
                answer = registry.serve(connection, Command(code=code))
                assert isinstance(answer, Command), (who, code)
                self.assertEqual(answer.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, (who, code))
                self.assertEqual(answer.remark, f" request type {code} not supported")

    def test_fields(self) -> None:
        """The fields of a code are known where somebody sends it, and not where nobody does."""
        handled = saying("broker") | saying("name server") | saying("to clients")
        self.assertEqual(set(), handled - set(REQUESTS))
        self.assertEqual(set(), set(REQUESTS) & saying("never sent here"))

    def test_bodies(self) -> None:
        """A body that has a class's name has a class."""
        modules = [
            import_module(f"{bodies.__name__}.{found.name}")
            for found in iter_modules(bodies.__path__)
        ] + [captured_bodies]
        for row in rows():
            if row.body[:1].isupper():
                self.assertTrue(any(hasattr(module, row.body) for module in modules), row)

    def test_answers(self) -> None:
        """Every code that we answer with is in the table of answers."""
        table = answers()
        for code, name in table:
            self.assertEqual(ResponseCode[name], code)
        given = {
            name
            for part in ("broker", "namesrv", "net")
            for path in (PACKAGE / part).rglob("*.py")
            for name in GIVEN.findall(path.read_text(encoding="utf-8"))
        }
        self.assertEqual(set(), given - {name for _, name in table})

    def test_needs(self) -> None:
        """The table says what each request needs in the words that stand beside its handler; so it
        does where the page lists those that a slave refuses, and a member's.
        """
        stated = {**self.broker().needs, **name_server().needs}
        said = {code: need.said for code, need in stated.items()}
        wrong = [
            f"| {row.here} | {said.get(row.code, '')} | {row.code} {row.name} |"
            for row in rows()
            if row.needs != said.get(row.code, "")
        ]
        self.assertEqual([], wrong)
        masters = {code for code, need in self.serving.needs.items() if need.master}
        self.assertEqual(listed("A slave refuses "), masters)
        page = (ROOT / "docs" / "protocol" / "controller.rst").read_text(encoding="utf-8")
        members = SetRequests(EpochCache, lambda told: None).handlers().values()  # type: ignore[arg-type]
        followers = StockFollowers(
            cluster="C", name="a", address="", state=lambda: None, addresses={}
        )
        asked = (*members, *followers.handlers().values())
        self.assertEqual({"any account"}, {need.said for need, _ in asked})
        self.assertIn("1007 and 1008 need any account", page)

    def test_recorded(self) -> None:
        """What a real peer sent to a broker or a name server is handled, or said to be not
        supported; what a broker sent to a client is said to go there.
        """
        asked, told = set[int](), set[int]()
        for recording in RECORDINGS:
            for frame in frames(recording):
                if not frame.is_answer:
                    to_client = frame.note["to"] in ("client", "mqadmin")
                    (told if to_client else asked).add(frame.request_code)
        answered = saying("broker") | saying("name server") | saying("not supported")
        self.assertEqual(set(), asked - answered)
        self.assertEqual(set(), told - saying("to clients"))
