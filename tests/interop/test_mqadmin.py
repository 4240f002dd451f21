"""Stock mqadmin against ours, and what it prints compared with a stock site that holds the same."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from lab.harness.nodes import until
from tests.interop.pairs import Pair, PairsTestCase, Said

# --- what is not compared ---------------------------------------------------------------

TPS = r"(?m)(?<=Consume TPS: ).*$"

#: Any number with a point: rates, ages and shares.
RATE = r"\b\d+\.\d+(?:E-?\d+)?"

#: Of records: those of 5.3.3 and ours are some bytes longer.
SIZES = (
    r"(?<=storeSize=)\d+",
    r"(?<=commitLogOffset=)\d+",
    r"(?<=physicOffset=)\d+",
    r"(?<=physicSize=)\d+",
    r"(?<=CommitLog Offset:).*",
)

#: Of request 28: what is the machine's, the version's or the moment's.
MOMENT = re.compile(
    r"bootTimestamp|brokerVersion|DiskRatio|Capacity|commitLogMaxOffset|earliest|Tps$|runtime|"
    r"Latency|TimeMax|Distribute|SizeTotal|AverageSize|ToFlush|msgGetTotalTodayNow"
)

#: Settings of a place; of a stock slave's memory a tenth is taken away before it is asked.
PLACES = {
    "storePathRootDir",
    "storePathCommitLog",
    "bindAddress",
    "registerBrokerTimeoutMills",
    "accessMessageInMemoryMaxRatio",
}

#: How many messages there are in the beginning.
SENT = 22


class MqadminTests(PairsTestCase):
    """All commands, in an order in which each finds something."""

    def test_commands(self) -> None:
        """What each prints of our pair is what it prints of a stock one."""
        self.tables()
        self.sends()
        self.listings()
        self.messages()
        self.consumers()
        self.moves()
        self.settings_of_brokers()
        self.modes()
        self.name_servers()
        self.figures()
        self.cleaning()
        self.exports()
        self.refusals()
        self.consumer_gone()
        self.deleted()
        self.assertEqual([], self.faults, "\n\n".join(self.faults))
        for node in self.nodes:
            self.assertEqual([], node.complaints(), node.log()[-20_000:])

    def tables(self) -> None:
        """Topics and groups are made and changed."""
        self.same("updateTopic -c interop -t Orders -r 4 -w 4")
        self.same("updateTopic -b {master} -t Sorted -o true")
        self.same("updateTopic -c interop -t Pairs -r 2 -w 2 -o true")
        self.same("topicRoute -t Orders")
        self.same("updateTopicPerm -c interop -t Orders -p 4")
        self.same("topicRoute -t Orders", when="its permission changed")
        self.same("updateTopicPerm -b {master} -t Orders -p 6")
        group = "-g Readers -s true -m true -d true -q 1 -r 16"
        self.same(f"updateSubGroup -c interop {group} -i 0 -w 1")
        self.same("getConsumerConfig -g Readers")
        self.same(f"updateSubGroup -b {{master}} {group} -i 1 -w 2")
        self.same("getConsumerConfig -g Readers", when="-i and -w changed")
        self.same(f"updateSubGroup -b {{master}} {group} -i 0 -w 1", when="back")
        self.same("updateSubGroup -c interop -g Copies")

    def modes(self) -> None:
        """How a group consumes is set, with releases that have POP."""
        if self.version < "5":
            return
        self.same("setConsumeMode -b {master} -t Orders -g Copies -m POP -q 0")
        self.same("setConsumeMode -c interop -t Orders -g Copies -m PULL", when="back")
        self.same("setConsumeMode -b {master} -t Nowhere -g Copies -m POP -q 0", fails=True)

    def sends(self) -> None:
        """Messages of mqadmin and of a producer that stays; a consumer of all of them."""
        self.same("sendMessage -t Orders -p hello -k key0 -c red -b broker-a -i 0")
        self.same("sendMessage -t Orders -p again -k key1 -c red -b broker-a -i 0", when="again")
        for pair in self.both:
            pair.consume("Orders", "Readers")
            answers = pair.do(
                "send",
                group="Senders",
                topic="Orders",
                how="ordered",
                bodies=[f"body {n}" for n in range(20)],
                tags=["red", "blue"] * 10,
                keys=[f"k{n}" for n in range(20)],
            )
            pair.words |= {"place": answers[3]["place"], "id": answers[3]["id"]}
        self.until_got(SENT)

    def until_got(self, count: int) -> None:
        """Wait until the consumers have got so many messages."""
        for pair in self.both:
            until(
                lambda pair=pair: len(pair.got) >= count,
                f"{pair.title}: {count} messages",
                60.0,
                tell=lambda pair=pair: f"only {len(pair.got)}\n{self.tool.tail()}",
            )

    def listings(self) -> None:
        how = "the same, in any order"
        self.same("topicList", read=Pair.rows, wait=20, has="%RETRY%Readers", how=how)
        self.same("topicList -c", read=Pair.rows, wait=20, has="Readers", how=how)
        self.same("topicClusterList -t Orders")
        self.same("topicStatus -t Orders")
        self.same("allocateMQ -t Orders -i 10.0.0.1,10.0.0.2")

    def messages(self) -> None:
        topic = "" if self.version < "5" else "-t Orders "
        how = "the same but for ids, times and sizes"
        shown = (
            f"queryMsgById {topic}-i {{place}}",
            "queryMsgByUniqueKey -t Orders -i {id}",
            "queryMsgByOffset -t Orders -b broker-a -i 0 -o 1",
            "printMsg -t Orders -d true",
            "printMsgByQueue -t Orders -a broker-a -i 0 -p true",
            "consumeMessage -t Orders -b broker-a -i 0 -o 0 -c 2",
        )
        self.same(
            "consumerProgress -g Readers",
            TPS,
            wait=20,
            has="Diff Total: 0",
            how="the same but for rates",
        )
        for line in shown:
            self.same(line, *SIZES, how=how)
        self.same("queryMsgByKey -t Orders -k k3", has="#Offset")
        self.same(
            "queryCq -t Orders -q 0 -i 0 -c 3 -b {master} -g Readers",
            *SIZES,
            r"(?<=eval=)\w+",
            how="the same but for sizes, and that ours tells what the group's filter lets pass",
        )

    def consumers(self) -> None:
        how = "the same but for rates"
        self.same("consumerProgress -g Readers -s true", TPS, how=how)
        self.same("consumerProgress", r"(?<=CLUSTERING) +\d+", how=how)
        self.same("consumerConnection -g Readers")
        self.same("consumerStatus -g Readers", r"<ms>/\S+")
        self.same("producerConnection -g Senders -t Orders")
        self.same(
            "producer -b {master}",
            # Other tests' producers may still be in this JVM, and find the stock broker.
            read=lambda pair, said: {line for line in pair.lines(said) if "(Senders)" in line},
            how="the same for the group, however often",
        )
        self.same("brokerConsumeStats -b {master}", read=Pair.rows, how="the same, in any order")

    def moves(self) -> None:
        """Groups are moved, while their consumer is there."""
        rows = "brokerConsumeStats -b {master}"
        self.same("cloneGroupOffset -s Readers -d Copies -t Orders")
        self.same(rows, read=Pair.rows, has="Copies", how="the same, in any order", when="cloned")
        self.same("resetOffsetByTime -g Readers -t Orders -s 0")
        self.until_got(2 * SENT)  # all once more
        when = "after it was reset and all consumed again"
        self.same("consumerProgress -g Readers", TPS, wait=20, has="Diff Total: 0", when=when)

    def settings_of_brokers(self) -> None:
        def table(pair: Pair, line: str) -> dict[str, str]:
            return pair.mqadmin(line).table

        keys = set.intersection(*(set(table(p, "getBrokerConfig -b {master}")) for p in self.both))
        self.assertGreater(len(keys), 60)
        keys -= PLACES | {"listenPort", "haListenPort", "namesrvAddr"}

        def shared(pair: Pair, said: Said) -> dict[str, str]:
            return {name: said.table[name] for name in sorted(keys)}

        how = "the same value of every key that both have"
        self.same("getBrokerConfig -b {master}", read=shared, how=how)
        self.same("updateBrokerConfig -b {master} -k longPollingEnable -v false")
        self.same("getBrokerConfig -b {master}", read=shared, how=how, when="changed")
        self.same("updateBrokerConfig -c interop -k longPollingEnable -v true")
        self.same("getBrokerConfig -c interop", read=shared, how=how)

    def name_servers(self) -> None:
        how = "the same but for the number of stock's own topics"
        self.same("wipeWritePerm -b broker-a", r"\d+$|(?<=, )\d+", how=how)
        self.same("topicRoute -t Orders", when="wiped")
        self.same("addWritePerm -b broker-a", r"\d+$|(?<=, )\d+", how=how)
        self.same("topicRoute -t Orders", when="writable again")

        def ordered(pair: Pair, said: Said) -> str:
            return said.table["orderMessageEnable"]

        how = "the same value of the key that both have"
        self.same("getNamesrvConfig", read=ordered, how=how)
        self.same("updateNamesrvConfig -k orderMessageEnable -v true")
        self.same("getNamesrvConfig", read=ordered, how=how, when="changed")
        self.same("updateKvConfig -s SPACE -k key -v value")
        self.same("deleteKvConfig -s SPACE -k key")
        self.same("updateOrderConf -t Sorted -m put -v broker-a:4")
        self.same("updateOrderConf -t Sorted -m get", has="broker-a:4", when="get")
        self.same("topicRoute -t Sorted", has="orderTopicConf", when="with its order")
        self.same("updateOrderConf -t Sorted -m delete", when="delete")
        self.same("updateOrderConf -t Sorted -m get", fails=True, when="get what is not there")

    def figures(self) -> None:
        def totals(pair: Pair, said: Said) -> list[str]:
            # A slave of 5.3.3 does not count what it is sent, all others do.
            found = pair.lines(said, r"(?m)(?<= )\d+ *$")
            return found[: 2 if self.version >= "5" else 3]

        self.same(
            "clusterList",
            r"V\d_\d_\d",
            RATE,
            r"\d+-\d+(?=\()",
            how="the same but for versions, rates and ages",
        )
        how = "the same but for what was read more than once"
        self.same("clusterList -m", read=totals, wait=20, has=str(SENT), how=how)
        how = "the same but for rates"
        self.same("statsAll -a -t Orders", RATE, wait=30, has="22", how=how)
        rows = lambda pair, said: pair.rows(said, RATE)  # noqa: E731
        self.same("statsAll", read=rows, wait=20, how=f"{how}, in any order")
        for where in ("-b {master}", "-c interop"):
            self.status(f"brokerStatus {where}")
        self.same(
            "sendMsgStatus -b broker-a -s 10 -c 2", r"(?<=rt=)\d+", how="the same but for ids"
        )
        took = r"(?<=true) +\d+", r"(?<=Avg RT: ).*"
        self.same("checkMsgSendRT -t Orders -a 3 -s 10", *took, how="the same but for times")
        sends = "clusterRT -a 3 -s 10 -c interop -i 60"
        how = "the same but for times; it sends for ever"
        self.same(sends, RATE, seconds=3, fails=True, has="#successCount", how=how)
        if self.version >= "5":
            size = r"(?<=\s)\d{4,6}\b"
            how = "the same but for sizes and speeds"
            self.same("haStatus -b {master}", RATE, size, wait=20, how=how)
            self.same("haStatus -b {slave}", RATE, size, how=how, when="of the slave")
            self.same("haStatus -c interop", RATE, size, how=how)

    def status(self, line: str) -> None:
        """The runtime information has stock's keys, and the numbers that should agree, agree."""
        names = self.both[1].mqadmin(line).table.keys()

        def rows(pair: Pair, said: Said) -> dict[str, str]:
            path = re.compile(r"(?<=_)/\S+")
            found = {
                path.sub("<path>", name): "<...>" if MOMENT.search(name) else value
                for name, value in said.table.items()
                if name in names or path.search(name)
            }
            return dict(sorted(found.items()))

        how = "stock's keys; the same but for rates, times and sizes"
        self.same(line, read=rows, wait=10, how=how)

    def cleaning(self) -> None:
        for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
            self.same(f"{command} -b {{master}}")
            self.same(f"{command} -c interop")

    def exports(self) -> None:
        for pair in self.both:
            folder = self.folder / f"exports-{pair.title}"
            folder.mkdir()
            pair.words["folder"] = str(folder)
            pair.known[str(folder)] = "<folder>"
        # Whether a topic is ordered a broker hears when it registers the next time.
        moment = re.compile(r"/exportTime|Tps=|AverageSize=|Ratio=|/order=")
        # 5.3.3 has no filter servers and says nothing of them; 4.9.7 insists on them.  It takes
        # the topic of timer messages, which it has not got, for a user's.
        other = re.compile("filterServerNums" + ("|rmq_sys_wheel|topicSize" * (self.version < "5")))
        for name in ("Metadata", "Configs", "Metrics"):
            file = f"{name.lower()}.json"

            def written(pair: Pair, said: Said, file: str = file) -> list[str]:
                text = (Path(pair.words["folder"]) / file).read_text(encoding="utf-8")
                found = sorted(leaves(json.loads(text)))
                return [moment.split(line)[0] for line in found if not other.search(line)]

            how = "the same file but for times, rates and sizes"
            self.same(f"export{name} -c interop -f {{folder}}", read=written, how=how)

    def refusals(self) -> None:
        no_epochs = "request type 1007 not supported"
        refused = {"getBrokerEpoch -b broker-a": no_epochs, "getBrokerEpoch -c interop": no_epochs}
        if self.version < "5":
            off = "access control is off"
            refused = {
                "clusterAclConfigVersion -b {master}": off,
                "updateAclConfig -b {master} -a somebody -s secretly": off,
                "deleteAclConfig -b {master} -a somebody": off,
                "updateGlobalWhiteAddr -b {master} -g 10.0.0.1": off,
            }
        else:
            for line in ("listUser -b {master}", "listAcl -b {master}"):
                refused[line] = "no users and ACLs as RocketMQ 5 has"
        for line, told in refused.items():
            begun = time.monotonic()
            said = self.both[0].mqadmin(line)
            well = told in said.error
            how = "access control is off" if "is off" in told else "it is not supported"
            self.tell(line, "", f"told that {how}", well, begun)
            if not well:
                self.faults.append(f"{line}\n{said}")

    def consumer_gone(self) -> None:
        """With the consumer gone, groups are moved by themselves."""
        progress = "consumerProgress -g Readers"
        self.same(progress, TPS, wait=20, has="Diff Total: 0", when="all consumed")
        for pair in self.both:
            pair.leave()
        self.same("consumerConnection -g Readers", wait=10, fails=True, when="offline")
        self.same(progress, TPS, wait=10, has="Diff Total: 0", when="offline")
        self.same("resetOffsetByTime -g Readers -t Orders -s 0", when="offline")
        self.same(progress, TPS, has="Diff Total: 25", when="offline, reset")
        self.same("skipAccumulatedMessage -g Readers -t Orders", when="offline")
        self.same(progress, TPS, has="Diff Total: 0", when="offline, skipped")

    def deleted(self) -> None:
        self.same("deleteSubGroup -c interop -g Readers -r true")
        self.same("getConsumerConfig -g Readers", when="deleted")
        self.same("deleteTopic -c interop -t Orders")
        self.same("topicRoute -t Orders", fails=True, when="deleted")

        def rest(pair: Pair, said: Said) -> list[str]:
            # 5.3.3 asks slaves as well, sometimes before the master, and stops as they refuse.
            return [line for line in pair.rows(said) if "%RETRY%" not in line]

        self.same("topicList", read=rest, wait=20, how="the same, in any order", when="at the end")


def leaves(value: Any, path: str = "") -> list[str]:
    """All values of an object of JSON, with their paths."""
    if isinstance(value, dict):
        return [leaf for name, part in value.items() for leaf in leaves(part, f"{path}/{name}")]
    if isinstance(value, list):
        return [leaf for n, part in enumerate(value) for leaf in leaves(part, f"{path}/{n}")]
    return [f"{path}={value}"]


class Mqadmin4Tests(MqadminTests):
    version = "4.9.7"


class Mqadmin5Tests(MqadminTests):
    version = "5.3.3"
