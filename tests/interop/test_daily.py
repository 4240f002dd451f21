"""The daily commands beside mqadmin: each says of a broker, stock or ours, what the stock tool
says, and what one does the other finds.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

from lab.harness.nodes import until
from rmqha.wire.remoting import fastjson
from tests.interop.pairs import TIMER, Pair, PairsTestCase
from tests.interop.sites import SiteTestCase
from tests.support.commands import RMQHA, rmqha

HELD = 16.0
"""Seconds after which a stock broker holds no pull of who has left: one makes its group anew."""


class DailyTests(SiteTestCase):
    """All commands, in an order in which each finds something."""

    def setUp(self) -> None:
        super().setUp()
        self.roles = f"{self.roles}, rmqha and mqadmin"
        self.pair = Pair(self.tool, "the", self.names, self.address, self.address, "-")
        self.at_broker = ("-b", self.address)
        self.at_names = ("-n", self.names)

    def broker(self, name: str = "java", *, of: str = "", **keys: Any) -> Any:
        """A stock one that can delete a topic."""
        return super().broker(name, of=of, **({**keys, **TIMER} if self.version > "5" else keys))

    # --- the two tools ----------------------------------------------------------

    def run_ours(self, *words: str) -> subprocess.CompletedProcess[str]:
        return rmqha(*words)

    def ours(self, *words: str) -> Any:
        """What C{rmqha} says, as JSON; of more than one section all."""
        done = self.run_ours(*words, "--json")
        self.assertEqual(0, done.returncode, f"{words}: {done.stderr}")
        found = json.loads(done.stdout)
        return next(iter(found.values())) if len(found) == 1 else found

    def refused(self, *words: str) -> str:
        """What it says when it does not do it."""
        done = self.run_ours(*words)
        self.assertEqual(1, done.returncode, f"{words}: {done.stdout}{done.stderr}")
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        return done.stderr

    def stock(self, line: str) -> str:
        said = self.pair.mqadmin(line)
        self.assertEqual("", said.error, said)
        return said.printed

    def route(self, topic: str) -> tuple[int, ...]:
        """Queues to read, to write, and permission, as mqadmin says."""
        found = fastjson.loads(self.stock(f"topicRoute -t {topic}").encode())["queueDatas"]
        self.assertEqual(1, len(found))
        return tuple(found[0][key] for key in ("readQueueNums", "writeQueueNums", "perm"))

    def rows(self, line: str, head: str, *columns: int) -> list[tuple[str, ...]]:
        """Some columns of the lines of a table of mqadmin that begin so."""
        printed = self.pair.mqadmin(line).printed  # nothing of a group that committed nothing
        lines = [each.split() for each in printed.splitlines() if each.startswith(head)]
        return sorted(tuple(words[column] for column in columns) for words in lines)

    # --- what is tried ------------------------------------------------------------

    def test_topics_and_offsets(self) -> None:
        """Topics as mqadmin's topicList, topicRoute and topicStatus tell them, and offsets."""
        with self.scenario("rmqha topic"):
            self.topics()
        with self.scenario("rmqha offset"):
            self.offsets()
        with self.scenario("rmqha topic delete"):
            self.deleted()
        self.assert_well()

    def topics(self) -> None:
        """Made and changed by ours, seen by mqadmin; and the other way round."""
        self.ours("topic", "create", "Daily", "--read", "4", "--write", "4", *self.at_names)
        self.assertEqual((4, 4, 6), self.route("Daily"))
        self.ours("topic", "change", "Daily", "--perm", "r", *self.at_broker)
        self.assertEqual((4, 4, 4), self.route("Daily"))
        self.stock("updateTopicPerm -c interop -t Daily -p 6")
        self.stock("updateTopic -b {master} -t Theirs -r 2 -w 2")
        (row,) = self.ours("topic", "show", "Daily", *self.at_broker)["settings"]
        self.assertEqual(("rw", 4), (row["perm"], row["readQueues"]))
        listed = {row["topic"] for row in self.ours("topic", "list", *self.at_names)}
        self.assertLessEqual({"Daily", "Theirs"}, listed)
        everything = {row["topic"] for row in self.ours("topic", "list", "--all", *self.at_names)}
        self.assertLessEqual(set(self.stock("topicList").split()), everything)
        for body in range(6):
            line = f"sendMessage -t Daily -p body{body} -b broker-a -i {body % 2}"
            self.assertIn("SEND_OK", self.stock(line))
        until(lambda: self.status()[0][3] == "3", "mqadmin sees what was sent", 20.0)
        queues = self.ours("topic", "show", "Daily", *self.at_broker)["queues"]
        shown = [("broker-a", *(str(row[k]) for k in ("queue", "first", "end"))) for row in queues]
        self.assertEqual(self.status(), sorted(shown))
        self.assertIn("is already at", self.refused("topic", "create", "Daily", *self.at_broker))
        self.assertIn(
            "is not at", self.refused("topic", "change", "No", "--perm", "r", *self.at_names)
        )
        if self.version > "5":
            self.ours(
                "topic", "create", "Typed", "--attribute", "+message.type=FIFO", *self.at_broker
            )
            (row,) = self.ours("topic", "change", "Typed", "--write", "2", *self.at_broker)
            self.assertEqual({"message.type": "FIFO"}, row["attributes"])

    def status(self) -> list[tuple[str, ...]]:
        """Broker, queue, first offset and end, as mqadmin says."""
        return self.rows("topicStatus -t Daily", "broker-a", 0, 1, 2, 3)

    def progress(self, group: str = "Readers") -> list[tuple[str, ...]]:
        """Queue, end and offset of a group, as mqadmin says."""
        return self.rows(f"consumerProgress -g {group}", "Daily", 2, 3, 4)

    def lag(self, group: str = "Readers") -> list[tuple[str, ...]]:
        rows = self.ours("offset", "show", group, "Daily", *self.at_broker)
        return sorted(tuple(str(row[k]) for k in ("queue", "end", "offset")) for row in rows)

    def offsets(self) -> None:
        """Moved by ours, seen by mqadmin; with a consumer that is there, and without."""
        self.pair.consume("Daily", "Readers")
        until(lambda: len(self.pair.got) >= 6, "all is consumed", 60.0, tell=self.tool.tail)
        wanted = [("0", "3", "3"), ("1", "3", "3"), ("2", "0", "0"), ("3", "0", "0")]
        until(lambda: self.progress() == wanted, "all is committed", 30.0, tell=self.tool.tail)
        self.assertEqual(self.progress(), self.lag())
        told = self.refused("offset", "set", "Readers", "Daily", "0", "1", *self.at_broker)
        self.assertIn("has members online", told)
        moved = self.ours("offset", "reset", "Readers", "Daily", "--to", "earliest", *self.at_names)
        self.assertEqual([0, 0, 0, 0], [row["after"] for row in moved])
        until(lambda: len(self.pair.got) >= 12, "all once more", 60.0, tell=self.tool.tail)
        until(lambda: self.progress() == wanted, "all is committed", 30.0, tell=self.tool.tail)
        self.pair.leave()
        until(lambda: not self.online(), "nobody is online", 20.0)
        begin = ("offset", "reset", "Readers", "Daily", "--to", "earliest", *self.at_broker)
        look = self.ours(*begin, "--dry-run")
        self.assertEqual([(3, 0), (3, 0), (0, 0), (0, 0)], places(look))
        self.assertEqual(wanted, self.progress())
        self.assertEqual(look, self.ours(*begin))
        self.assertEqual(["0", "0", "0", "0"], [row[2] for row in self.progress()])
        self.ours("offset", "set", "Readers", "Daily", "1", "2", *self.at_names)
        self.assertEqual(("1", "3", "2"), self.progress()[1])
        self.stock("skipAccumulatedMessage -g Readers -t Daily")
        self.assertEqual(wanted, self.lag())
        self.by_time()
        told = self.refused("offset", "set", "Readers", "Daily", "0", "9", *self.at_broker)
        self.assertIn("has offsets 0 to 3, and 9 is none of them", told)

    def by_time(self) -> None:
        """A time means the same to both: that of each queue's second message."""
        stored = [
            row["storeTimestamp"]
            for row in self.lines("message", "tail", "Daily", *self.at_broker)
            if row["queueOffset"] == 1
        ]
        for when in stored:
            moment = datetime.fromtimestamp(when / 1000, UTC).isoformat()
            to = ("offset", "reset", "Readers", "Daily", "--to", moment, *self.at_broker)
            look = self.ours(*to, "--dry-run")
            self.stock(f"resetOffsetByTime -g Readers -t Daily -s {when}")
            said = [row[2] for row in self.progress()]
            self.assertEqual(said, [str(row["after"]) for row in look], moment)
            self.stock("skipAccumulatedMessage -g Readers -t Daily")
            self.ours(*to)
            self.assertEqual(said, [row[2] for row in self.progress()], moment)

    def lines(self, *words: str) -> list[dict[str, Any]]:
        """What it says in lines of JSON."""
        done = self.run_ours(*words, "--json")
        self.assertEqual(0, done.returncode, f"{words}: {done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def online(self) -> bool:
        return "127.0.0.1" in self.pair.mqadmin("consumerConnection -g Readers").printed

    def deleted(self) -> None:
        """Deleted by ours at the broker and at its name server."""
        done = self.ours("topic", "delete", "Daily", *self.at_broker)
        self.assertEqual([self.address, self.names], [row["at"] for row in done])
        self.assertNotEqual("", self.pair.mqadmin("topicRoute -t Daily").error)
        self.assertNotIn("Daily", self.stock("topicList").split())
        told = self.refused("topic", "show", "Daily", *self.at_broker)
        self.assertIn(f"topic Daily is not at {self.address}", told)

    def test_groups(self) -> None:
        """Groups as mqadmin's getConsumerConfig, consumerConnection, consumerProgress tell."""
        with self.scenario("rmqha group"):
            self.ours("group", "create", "Readers", "--retries", "3", *self.at_names)
            self.assertEqual(("true", "3"), self.config("consumeEnable", "retryMaxTimes"))
            self.ours("group", "change", "Readers", "--no-consume", *self.at_broker)
            self.assertEqual(("false", "3"), self.config("consumeEnable", "retryMaxTimes"))
            self.stock("updateSubGroup -c interop -g Readers -s true -q 2 -r 5")
            (row,) = self.ours("group", "show", "Readers", *self.at_broker)["settings"]
            self.assertEqual((True, 2, 5), (row["consume"], row["retryQueues"], row["retries"]))
            listed = {row["group"] for row in self.ours("group", "list", *self.at_names)}
            self.assertIn("Readers", listed)
            told = self.refused("group", "change", "No", "--retries", "1", *self.at_names)
            self.assertIn(f"group No is not at {self.address}", told)
        with self.scenario("rmqha group: members and lag"):
            self.make_topic("Daily")
            for body in range(4):
                self.stock(f"sendMessage -t Daily -p body{body} -b broker-a -i {body}")
            self.pair.consume("Daily", "Readers")
            until(lambda: len(self.pair.got) >= 4, "all is consumed", 60.0, tell=self.tool.tail)
            done = [(str(queue), "1", "1") for queue in range(4)]
            until(lambda: self.progress() == done, "all is committed", 30.0, tell=self.tool.tail)
            shown = self.ours("group", "show", "Readers", *self.at_broker)
            connected = self.stock("consumerConnection -g Readers")
            (member,) = shown["members"]
            for text in (member["client"], member["from"], member["language"]):
                self.assertIn(text, connected)
            lag = [row["lag"] for row in shown["offsets"] if row["topic"] == "Daily"]
            self.assertEqual([0, 0, 0, 0], lag)
            told = self.refused("group", "delete", "Readers", *self.at_broker)
            self.assertIn(f"has members online ({member['client']}): stop them", told)
        with self.scenario("rmqha group delete"):
            self.pair.leave()
            until(lambda: not self.online(), "nobody is online", 20.0)
            time.sleep(HELD)
            done = self.ours("group", "delete", "Readers", "--offsets", *self.at_broker)
            names = {row["name"] for row in done}
            self.assertEqual({"Readers", "%RETRY%Readers"}, names)
            self.assertNotIn("%RETRY%Readers", self.stock("topicList").split())
            told = self.refused("group", "show", "Readers", *self.at_broker)
            self.assertIn("group Readers is not at", told)
            done = self.run_ours("group", "create", "Readers", *self.at_broker)
            said = self.run_ours("offset", "show", "Readers", *self.at_broker)
            self.assertIn("note: group Readers has committed nothing", said.stderr, done.stderr)
        self.assert_well()

    def config(self, *names: str) -> tuple[str, ...]:
        """Settings of the group, as mqadmin says; none if it is not there."""
        said = self.stock("getConsumerConfig -g Readers")
        found = dict(re.findall(r"(?m)^(\w+)\s*= *(\S+) *$", said))
        return tuple(found[name] for name in names if name in found)

    def test_messages(self) -> None:
        """Messages as mqadmin's sendMessage, printMsg and its queries tell of them."""
        self.make_topic("Daily")
        with self.scenario("rmqha message send, show"):
            self.sent()
        with self.scenario("rmqha message find, tail"):
            self.read()
        self.assert_well()

    def sent(self) -> None:
        """What ours sends is what mqadmin shows, and the other way round."""
        words = "--tag", "red", "--key", "key1", "--queue", "1"
        (row,) = self.ours("message", "send", "Daily", "--body", "ours", *words, *self.at_names)
        topic = "" if self.version < "5" else "-t Daily "
        until(lambda: "key1" in self.query(row["id"]), "its id is known", 20.0)
        for said in (
            self.stock(f"queryMsgById {topic}-i {row['offsetId']}"),
            self.query(row["id"]),
        ):
            told = dict(re.findall(r"(?m)^([A-Z][\w ]+?): +(.*?) *$", said))
            shown = self.ours_of(row["offsetId"], *self.at_broker)
            self.assertEqual(
                ("Daily", "[red]", "[key1]", "1", "0"),
                tuple(told[key] for key in ("Topic", "Tags", "Keys", "Queue ID", "Queue Offset")),
            )
            self.assertIn(told.get("OffsetID"), (shown["offsetMsgId"], None))
            self.assertEqual(told["CommitLog Offset"], str(shown["physicalOffset"]))
        self.stock("sendMessage -t Daily -p theirs -k key2 -c blue -b broker-a -i 2")
        until(lambda: "#" in self.stock("queryMsgByKey -t Daily -k key2"), "indexed", 20.0)
        (found,) = self.ours("message", "find", "Daily", "--key", "key2", *self.at_names)
        self.assertEqual(("theirs", 2), (found["text"], found["queueId"]))
        by_id = self.ours_of(found["properties"]["UNIQ_KEY"], "--topic", "Daily", *self.at_broker)
        self.assertEqual(found, by_id)
        queried = self.stock("queryMsgByKey -t Daily -k key2")
        self.assertIn(f"{found['properties']['UNIQ_KEY']} ", queried)
        told = self.refused("message", "find", "Daily", "--key", "none", *self.at_broker)
        self.assertIn("no message of topic Daily", told)
        told = self.refused("message", "show", "1", *self.at_broker)
        self.assertIn(f"{self.address} answered request 33", told)
        told = self.refused("message", "send", "No", "--body", "x", *self.at_broker)
        self.assertIn("topic No is not at", told)

    def query(self, unique: str) -> str:
        """What mqadmin says of a producer's id."""
        return self.pair.mqadmin(f"queryMsgByUniqueKey -t Daily -i {unique}").printed

    def ours_of(self, *words: str) -> dict[str, Any]:
        done = self.run_ours("message", "show", *words, "--json")
        self.assertEqual(0, done.returncode, done.stderr)
        return dict(json.loads(done.stdout))

    def read(self) -> None:
        """What mqadmin's printMsg prints, ours finds by time and at the topic's end."""
        for body in range(3):
            self.stock(f"sendMessage -t Daily -p more{body} -b broker-a -i {body}")
        printed = sorted(re.findall(r"BODY: (\w+)", self.stock("printMsg -t Daily -d true")))
        self.assertEqual(["more0", "more1", "more2", "ours", "theirs"], printed)
        since = "2020-01-01T00:00:00Z"
        found = self.ours("message", "find", "Daily", "--from", since, *self.at_names)
        self.assertEqual(printed, sorted(row["text"] for row in found))
        before = self.run_ours("message", "find", "Daily", "--from", since, "--to", since)
        self.assertNotEqual(0, before.returncode)
        tail = ("message", "tail", "Daily", *self.at_broker)
        lines = self.lines(*tail, "--last", "2")
        self.assertEqual(["more1", "more2"], [line["text"] for line in lines])
        follow = (*tail, "--last", "1", "-f", "--count", "3", "--json")
        command = [sys.executable, RMQHA, *follow]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
            self.addCleanup(following.kill)
            assert following.stdout is not None
            texts = [json.loads(following.stdout.readline())["text"]]
            for body in ("come1", "come2"):
                self.stock(f"sendMessage -t Daily -p {body} -b broker-a -i 3")
                texts.append(json.loads(following.stdout.readline())["text"])
            self.assertEqual(0, following.wait(30))
        self.assertEqual(["more2", "come1", "come2"], texts)


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Before and after, by queue; none before is where the queue begins."""
    return [(row["before"] or 0, row["after"]) for row in rows]


class Daily4Tests(DailyTests):
    version = "4.9.7"


class Daily5Tests(DailyTests):
    version = "5.3.3"


class JavaDaily4Tests(DailyTests):
    version = "4.9.7"
    long = True
    names_of = broker_of = "Java"


class JavaDaily5Tests(DailyTests):
    version = "5.3.3"
    long = True
    names_of = broker_of = "Java"


class DailyPairTests(PairsTestCase):
    """A master and its slave, ours and stock."""

    def test_slaves(self) -> None:
        """A slave is read from as its master is, and takes no writes: its master is named."""
        for pair in self.both:
            with self.scenario("rmqha on a slave", f"a pair, {pair.title}"):
                self.slave(pair)

    def slave(self, pair: Pair) -> None:
        """Read from a slave, and try to write to it."""
        self.well("topic", "create", "Daily", "--read", "1", "--write", "1", "-n", pair.names)
        self.well("group", "create", "Readers", "-b", pair.master)
        sent = self.well("message", "send", "Daily", "--body", "x", "-n", pair.names)["sent"][0]
        shown = ("message", "show", sent["offsetId"], "-b", pair.slave)
        until(lambda: rmqha(*shown).returncode == 0, "the slave has it", 30.0)
        self.assertEqual("x", self.well(*shown)["text"])
        listed = ("topic", "show", "Daily", "-b")
        until(lambda: rmqha(*listed, pair.slave).returncode == 0, "and the topic", 60.0)
        ends = [self.well(*listed, address)["queues"][0]["end"] for address in self.of(pair)]
        self.assertEqual([1, 1], ends)
        for words in (
            ("topic", "change", "Daily", "--perm", "r"),
            ("topic", "delete", "Daily"),
            ("group", "change", "Readers", "--retries", "1"),
            ("offset", "set", "Readers", "Daily", "0", "1"),
            ("message", "send", "Daily", "--body", "y"),
        ):
            done = rmqha(*words, "-b", pair.slave)
            told = f"{pair.slave} is a slave of broker-a, which takes no writes"
            self.assertEqual(1, done.returncode, done.stdout)
            self.assertIn(f"{told}: write to its master, -b {pair.master}", done.stderr)

    def of(self, pair: Pair) -> tuple[str, str]:
        return pair.master, pair.slave

    def well(self, *words: str) -> Any:
        """What a command says that ends well."""
        done = rmqha(*words, "--json")
        self.assertEqual(0, done.returncode, f"{words}: {done.stderr}")
        return json.loads(done.stdout)


class DailyPair4Tests(DailyPairTests):
    version = "4.9.7"


class DailyPair5Tests(DailyPairTests):
    version = "5.3.3"
