"""All that the stock Java client can do, besides what every client does."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from lab.harness.nodes import until
from lab.stock import jars
from lab.stock.clients import Client, Consumer
from tests.interop.sites import SiteTestCase
from tests.interop.test_clients import RUN, bodies

#: Longest wait for what a broker does by itself: stock 5.3.3 first checks transactions
#: after half a minute, whatever it is told.
PATIENT = 60.0


class JavaClientTests(SiteTestCase):
    """Every scenario with topics and groups of its own, all at the same time."""

    def test_java_client(self) -> None:
        """All scenarios, with JSON headers; the sends also with binary ones."""
        client = self.java()
        every = (
            self.sends,
            self.ordered,
            self.broadcast,
            self.pulls,
            self.delayed,
            self.transactions,
            self.replies,
            self.dead_letters,
            self.queries,
            self.traces,
            self.vip,
            self.tls,
            self.filters,
        )
        self.side_by_side(lambda scenario: scenario(client), every)
        binary = self.java("ROCKETMQ")
        again: tuple[Callable[[Client], None], ...] = (
            self.sends,
            self.ordered,
            self.pulls,
            self.transactions,
            self.replies,
        )
        self.side_by_side(lambda scenario: scenario(binary), again)
        self.assert_well()

    def own_topic(self, client: Client, word: str, queues: int = 4) -> str:
        name = f"{word}-{client.slug}"
        self.make_topic(name, queues)
        return name

    def sends(self, client: Client) -> None:
        """Every way to send arrives once, whole and in order within its queue."""
        topic = self.own_topic(client, "Sends")
        consumer = client.consume(topic, f"G-{topic}")
        for how in ("sync", "async", "oneway", "batch", "ordered"):
            with self.row(client, f"sends: {how}"):
                sent = bodies(how)
                answers = client.send(topic, sent, how)
                wanted = "SENT" if how == "oneway" else "SEND_OK"
                self.assertEqual({wanted}, {answer.status for answer in answers}, answers)
                got = consumer.until_got(sent)
                self.assertEqual(sorted(sent), sorted(one.body for one in got))
        with self.row(client, "sends: bodies that the client compresses"):
            large = [f"{n} " + "squeezed " * 2000 for n in range(4)]
            client.send_surely(topic, large)
            consumer.until_got(large)
        consumer.stop()

    def ordered(self, client: Client) -> None:
        """Orderly consumers lock queues and get messages in order, also when a second joins."""
        with self.row(client, "orderly consumers, the second joins on the way"):
            topic = self.own_topic(client, "Ordered")
            sent = {key: bodies(key, 40) for key in ("one", "two", "three", "four", "five")}
            first = client.consume(topic, f"G-{topic}", orderly=True)
            halves = [{key: all_[:20] for key, all_ in sent.items()}, {}]
            halves[1] = {key: all_[20:] for key, all_ in sent.items()}
            consumers = [first]
            for half in halves:
                for key, some in half.items():
                    client.send(topic, some, "ordered", keys=[key] * len(some))
                self.until_all([body for some in half.values() for body in some], consumers)
                if half is halves[0]:
                    consumers.append(client.consume(topic, f"G-{topic}", orderly=True))
                    self.until_both(client, topic, consumers)
            for key, all_ in sent.items():
                for consumer in consumers:
                    got = [one.body for one in consumer.got if one.keys == key]
                    self.assertEqual(sorted(got), got, key)
                together = [body for each in consumers for body in each.bodies if body in all_]
                self.assertEqual(sorted(all_), sorted(together), "each once")
            for consumer in consumers:
                consumer.stop()

    def until_both(self, client: Client, topic: str, consumers: list[Consumer]) -> None:
        """Wait until a run of messages is shared by both."""

        def both() -> bool:
            before = [len(consumer.got) for consumer in consumers]
            sent = [f"filler {time.monotonic()} {n}" for n in range(8)]
            client.send_surely(topic, sent)
            self.until_all(sent, consumers)
            after = [len(consumer.got) for consumer in consumers]
            return all(now > then for now, then in zip(after, before, strict=True))

        until(both, "both consume", PATIENT, tell=client.process.tail)

    def until_all(self, sent: list[str], consumers: list[Consumer]) -> None:
        """Wait until some consumers have all of it between them."""

        def left() -> set[str]:
            return set(sent) - {body for consumer in consumers for body in consumer.bodies}

        until(lambda: not left(), "all arrive", PATIENT, tell=lambda: str(sorted(left())[:5]))

    def broadcast(self, client: Client) -> None:
        """Each consumer of a broadcast group gets everything."""
        with self.row(client, "broadcast to two consumers"):
            topic = self.own_topic(client, "Broadcast")
            both = [client.consume(topic, f"G-{topic}", broadcast=True) for _ in range(2)]
            # They begin at the end: sends before they have looked are not theirs.
            sent = bodies("to all")
            hello = bodies("hello", 8)

            def heard() -> bool:
                client.send_surely(topic, hello)
                return all(set(hello) <= set(consumer.bodies) for consumer in both)

            until(heard, "both listen", PATIENT, tell=client.process.tail, pause=0.3)
            client.send_surely(topic, sent)
            for consumer in both:
                consumer.until_got(sent)
                consumer.stop()

    def pulls(self, client: Client) -> None:
        """Pull consumers read all, and the group's offsets are theirs to move."""
        topic = self.own_topic(client, "Pulls")
        sent = bodies("pulled")
        begun = int(time.time() * 1000) - 60_000
        client.send_surely(topic, sent)
        with self.row(client, "pull consumer: all of a topic, queue by queue"):
            # Queues are a few milliseconds behind the log: a warm JVM can be quicker.
            until(
                lambda: len({row.place for row in self.pull_all(client, topic)}) == RUN,
                "all can be pulled",
                PATIENT,
                tell=client.process.tail,
            )
        with self.row(client, "pull consumer: offsets by queue, by time, committed and lowered"):
            asked = {"namesrv": client.names, "topic": topic, "group": f"G-{topic}", "time": begun}
            found: list[list[int]] = []

            def moved(to: int) -> bool:
                # A commit is a oneway, and stock 5.3.3 sometimes loses a connection's first.
                self.ask(client, "offsets", **asked, set=to)
                found[:] = self.ask(client, "offsets", **asked)
                return {row[1] for row in found} == {to}

            for to in (3, 1):
                until(partial(moved, to), f"committed {to}", 10, tell=lambda: str(found))
            self.assertEqual({(0, RUN // 4, 0)}, {(row[2], row[3], row[4]) for row in found})
        with self.row(client, "lite pull consumer: subscribes, polls and commits"):
            polled = self.ask(
                client,
                "lite",
                namesrv=client.names,
                topic=topic,
                group=f"L-{topic}",
                tags="*",
                count=RUN,
            )
            self.assertEqual(sorted(sent), sorted(one["body"] for one in polled))

    def pull_all(self, client: Client, topic: str) -> list[Any]:
        return self.tool.pull(topic, client.names)

    def ask(self, client: Client, what: str, **content: Any) -> Any:
        """Give the helper a command that can take a while."""
        return client.process.do(what, PATIENT, **content)

    def delayed(self, client: Client) -> None:
        """Messages with a delay level arrive after that delay."""
        topic = self.own_topic(client, "Delayed")
        with self.row(client, "delayed messages arrive when they are due"):
            consumer = client.consume(topic, f"G-{topic}")
            waits = {"later": (2, 3.0), "soon": (1, 1.0)}
            for word, (level, _) in waits.items():
                answers = client.send(topic, bodies(word, 4), level=level)
                self.assertEqual({"SEND_OK"}, {answer.status for answer in answers}, answers)
            consumer.until_got([body for word in waits for body in bodies(word, 4)])
            for got in consumer.got:
                (wait,) = (wait for word, (_, wait) in waits.items() if got.body.startswith(word))
                waited = (got.stored - got.born) / 1000
                self.assertGreaterEqual(waited, wait, got)
                # Stock brokers look every 100 ms; this machine may be busy.
                self.assertLess(waited, wait + 1.5, got)
            consumer.stop()

    def transactions(self, client: Client) -> None:
        """Committed messages arrive, rolled back ones never, unknown ones once asked."""
        with self.row(client, "transactions: commit, rollback, and the broker's check"):
            topic = self.own_topic(client, "Transactions")
            consumer = client.consume(topic, f"G-{topic}")
            sent = [f"{kind} {n}" for n in range(3) for kind in ("commit", "rollback", "unknown")]
            group = f"P-{topic}"
            answers = client.send(topic, sent, "transaction", group=group)
            self.assertEqual({"SEND_OK"}, {answer.status for answer in answers}, answers)
            consumer.until_got([body for body in sent if body.startswith("commit")], 20)
            consumer.until_got([body for body in sent if body.startswith("unknown")], PATIENT)
            self.assertEqual([], [body for body in consumer.bodies if body.startswith("rollback")])
            consumer.stop()

    def replies(self, client: Client) -> None:
        """Requests get the replies of whoever consumes them."""
        # The synchronous form of 5.3.3 fails inside its own client.
        how = "sync" if self.version < "5" else "async"
        with self.row(client, f"request and reply ({how})"):
            topic = self.own_topic(client, "Requests")
            server = client.consume(topic, f"G-{topic}", reply=True)
            sent = bodies("question", 5)
            content = {"tags": ["red"] * 5, "keys": sent, "bodies": sent, "how": how}
            got = self.ask(
                client, "request", namesrv=client.names, topic=topic, group=f"P-{topic}", **content
            )
            self.assertEqual([f"reply to {body}" for body in sent], got)
            server.stop()

    def dead_letters(self, client: Client) -> None:
        """What a consumer cannot take comes back, and in the end goes to the dead letters."""
        retries = 2
        with self.row(client, "failed messages: retried twice, then dead letters"):
            topic = self.own_topic(client, "Failing")
            group = f"G-{topic}"
            consumer = client.consume(topic, group, fail=True, max=retries)
            sent = bodies("fails", 4)
            client.send_surely(topic, sent)

            def dead() -> bool:
                return len(self.pull_all(client, f"%DLQ%{group}")) == len(sent)

            consumer.until_got(sent)
            until(self.tolerant(dead), "dead letters", PATIENT, pause=0.5, tell=self.tool.tail)
            got = {(one.body, one.times) for one in consumer.got}
            wanted = {(body, times) for body in sent for times in range(retries + 1)}
            self.assertEqual(wanted, got)
            consumer.stop()

    def tolerant(self, condition: Callable[[], bool]) -> Callable[[], bool]:
        """A condition about a topic that may not be there yet."""

        def tried() -> bool:
            try:
                return condition()
            except AssertionError:
                return False

        return tried

    def queries(self, client: Client) -> None:
        """Stored messages are found by key, by where they are, and by their unique key."""
        with self.row(client, "message queries by key, by id and by unique key"):
            topic = self.own_topic(client, "Queries")
            sent = bodies("sought", 4)
            answers = client.send(topic, sent, keys=[f"key{n} both" for n in range(4)])
            asked = {"namesrv": client.names, "topic": topic}

            def found() -> bool:
                by_key = {
                    key: sorted(one["body"] for one in self.ask(client, "query", **asked, key=key))
                    for key in ("key2", "both")
                }
                return by_key == {"key2": [sent[2]], "both": sent}

            until(self.tolerant(found), "found by key", 20, pause=0.2, tell=self.tool.tail)
            for name, id in (("id", answers[1].place), ("unique", answers[1].id)):
                (one,) = self.ask(client, "query", **asked, **{name: id})
                self.assertEqual(sent[1], one["body"], name)

    def traces(self, client: Client) -> None:
        """A producer that traces leaves its traces, others none."""
        with self.row(client, "message trace on and off"):
            topic = self.own_topic(client, "Traced")
            quiet, told = (
                client.send(topic, ["quiet"])[0],
                client.send(topic, ["told"], trace=True)[0],
            )
            consumer = client.consume("RMQ_SYS_TRACE_TOPIC", f"G-{topic}")
            until(
                lambda: told.id in "".join(consumer.bodies),
                "a trace",
                PATIENT,
                tell=client.process.tail,
            )
            self.assertNotIn(quiet.id, "".join(consumer.bodies))
            consumer.stop()

    def vip(self, client: Client) -> None:
        """Clients may also come by the port two below."""
        with self.row(client, "sends by the VIP port"):
            topic = self.own_topic(client, "Vip")
            answers = client.send(topic, ["vip"], vip=True)
            self.assertEqual(["SEND_OK"], [answer.status for answer in answers], answers)

    def tls(self, client: Client) -> None:
        """Clients may come with TLS to the same port, and to the name server's."""
        with self.row(client, "sends with TLS"):
            topic = self.own_topic(client, "Tls")
            consumer = client.consume(topic, f"G-{topic}", tls=True)
            sent = bodies("secret", 8)
            answers = client.send(topic, sent, tls=True)
            self.assertEqual({"SEND_OK"}, {answer.status for answer in answers}, answers)
            consumer.until_got(sent)
            consumer.stop()

    def filters(self, client: Client) -> None:
        """A consumer that filters by properties gets what matches, also what comes while it waits,
        and is told of a filter that is none.
        """
        topic = self.own_topic(client, "Sql")
        with self.row(client, "SQL filters: only what matches arrives"):
            wanted = "KEYS IN ('in', 'too') AND told IS NOT NULL AND NOT (KEYS = 'out')"
            consumer = client.consume(topic, f"G-{topic}", sql=wanted)
            keys = ["in", "out", "too", "other"] * 5
            sent = bodies("filtered", len(keys))
            matching = [body for body, key in zip(sent, keys, strict=True) if key in ("in", "too")]
            for half in (slice(None, 8), slice(8, None)):
                client.send(topic, sent[half], "ordered", keys=keys[half])
                consumer.until_got([body for body in sent[half] if body in matching])
            self.assertEqual(sorted(matching), sorted(consumer.bodies))
            consumer.stop()
        with self.row(client, "SQL filters: one that cannot be read is refused"):
            self.assertIn("CODE: 23", self.failed(client, topic))

    def failed(self, client: Client, topic: str) -> str:
        try:
            client.consume(topic, f"G-{topic}", sql="a >")
        except AssertionError as error:
            return str(error)
        self.fail("it started")


class OursJavaClient4Tests(JavaClientTests):
    """All of ours; 4.9.7."""

    version = "4.9.7"


class OursJavaClient5Tests(JavaClientTests):
    """All of ours; 5.3.3."""

    version = "5.3.3"


class StockJavaClient4Tests(JavaClientTests):
    """Nothing of ours: what these tests expect is what stock RocketMQ does."""

    version = "4.9.7"
    names_of = broker_of = "Java"
    jvm = jars.BRIEF
    full_only = ("test_java_client",)


class StockJavaClient5Tests(StockJavaClient4Tests):
    """Nothing of ours."""

    version = "5.3.3"
