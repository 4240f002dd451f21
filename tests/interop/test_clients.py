"""What every stock client does: produce, consume in a group, filter by tags, share with a
second consumer, hear the others, and go on after the broker's restart.
"""

from __future__ import annotations

import itertools
from functools import partial

from lab.harness.nodes import until
from lab.stock.clients import COLOURS, Client, Consumer
from tests.interop.sites import SiteTestCase

#: How many messages make a run of them.
RUN = 24


def bodies(word: str, count: int = RUN) -> list[str]:
    """That many bodies that tell their place; not all of them are ASCII."""
    return [f"{word} {n:03} \N{GREEK SMALL LETTER MU}" for n in range(count)]


class ClientsTests(SiteTestCase):
    """Each client by itself, all of them at the same time."""

    #: Whether clients of other languages take part: they have one form, whatever the version.
    all_languages = False

    def test_clients(self) -> None:
        """All clients, then the broker's restart, then the Java client with binary headers."""
        clients = [self.java(), *(self.others() if self.all_languages else [])]
        for client in clients:
            self.make_topic(f"T-{client.slug}")
        self.consumers: dict[Client, Consumer] = {}
        self.side_by_side(self.consumes, clients)
        self.side_by_side(self.filters, clients)
        self.side_by_side(self.shares, clients)
        self.hears(clients)
        for client in clients:
            client.send_surely(f"T-{client.slug}", bodies("before"))
        self.restart_broker()
        # The C++ client takes half a minute to notice that an answer will not come.
        self.side_by_side(
            lambda step: step(),
            [
                *(partial(self.goes_on, client) for client in clients[1:]),
                partial(self.in_turn, clients[0]),
            ],
        )
        self.assert_well()

    def in_turn(self, plain: Client) -> None:
        """The Java client goes on after the restart, and once more with binary headers."""
        self.goes_on(plain)
        binary = self.java("ROCKETMQ")
        self.make_topic(f"T-{binary.slug}")
        for step in (self.consumes, self.filters, self.shares):
            step(binary)

    def consumes(self, client: Client) -> None:
        """A group's only consumer gets every message once, as it was sent."""
        with self.row(client, "produces, and consumes in a group"):
            topic = f"T-{client.slug}"
            consumer = self.consumers[client] = client.consume(topic, f"G-{client.slug}")
            sent = bodies("first")
            answers = client.send(topic, sent)
            self.assertEqual({"SEND_OK"}, {answer.status for answer in answers}, answers)
            got = consumer.until_got(sent)
            self.assertEqual(sorted(sent), sorted(one.body for one in got), "once")
            for one in got:
                at = sent.index(one.body)
                self.assertEqual(
                    (topic, COLOURS[at % 3], one.body, "by the test", 0),
                    (one.topic, one.tag, (one.keys or "").strip(), one.said, one.times),
                )
            # What was sent is where the answer said.
            told = {(answer.queue, answer.offset) for answer in answers if answer.queue >= 0}
            self.assertTrue(told <= {(one.queue, one.offset) for one in got}, (told, got))

    def filters(self, client: Client) -> None:
        """A group that wants some tags gets those."""
        with self.row(client, "filters by tags"):
            topic = f"T-{client.slug}"
            consumer = client.consume(topic, f"F-{client.slug}", "red || blue")
            sent = bodies("tagged")
            client.send_surely(topic, sent)
            wanted = [body for at, body in enumerate(sent) if at % 3 != 1]
            consumer.until_got(wanted)
            self.assertEqual(set(), {one.tag for one in consumer.got} - {"red", "blue"})
            consumer.stop()

    def shares(self, client: Client) -> None:
        """A second consumer of the group gets its share, and leaves it again."""
        with self.row(client, "shares with a second consumer"):
            topic, group = f"T-{client.slug}", f"G-{client.slug}"
            first, second = self.consumers[client], client.consume(topic, group)
            rounds = itertools.count()

            def settled() -> bool:
                # While queues change hands a message may reach both.
                sent = bodies(f"shared {next(rounds)}", 8)
                client.send_surely(topic, sent)
                self.until_all(sent, first, second)
                shares = [
                    [body for body in each.bodies if body in sent] for each in (first, second)
                ]
                return all(shares) and sorted(sent) == sorted(shares[0] + shares[1])

            until(settled, f"{client.title}: each its share", 60, tell=client.process.tail)
            second.stop()
            alone = bodies("alone again")
            client.send_surely(topic, alone)
            first.until_got(alone)

    def until_all(self, sent: list[str], *consumers: Consumer) -> None:
        """Wait until some consumers have all of it between them."""

        def left() -> set[str]:
            return set(sent) - {body for consumer in consumers for body in consumer.bodies}

        until(lambda: not left(), f"{consumers[0].client.title}: all", 60, tell=lambda: str(left()))

    def hears(self, clients: list[Client]) -> None:
        """Each gets what all of them sent, to a topic that the first send makes."""
        topic = f"Shared-{self.names_of}-{self.broker_of}-{self.version.replace('.', '-')}"
        sent = {client: bodies(client.slug, 8) for client in clients}
        clients[0].send_surely(topic, sent[clients[0]])

        def hear(client: Client) -> None:
            with self.row(client, "reads what the others sent, to a topic made by a send"):
                consumer = client.consume(topic, f"H-{client.slug}")
                if client is not clients[0]:
                    client.send_surely(topic, sent[client])
                consumer.until_got([body for each in sent.values() for body in each])
                consumer.stop()

        self.side_by_side(hear, clients)

    def goes_on(self, client: Client) -> None:
        """After the broker's restart nothing is lost and all goes on."""
        with self.row(client, "goes on after the broker's restart"):
            consumer = self.consumers[client]
            consumer.until_got(bodies("before"))
            after = bodies("after")
            client.send_surely(f"T-{client.slug}", after)
            consumer.until_got(after)
            consumer.stop()


class Ours4ClientsTests(ClientsTests):
    """All of ours; 4.9.7, and the other languages."""

    version = "4.9.7"
    all_languages = True


class Ours5ClientsTests(ClientsTests):
    """All of ours; 5.3.3."""

    version = "5.3.3"


class JavaNames4ClientsTests(Ours4ClientsTests):
    """Java's name server, our broker."""

    names_of = "Java"


class JavaNames5ClientsTests(Ours5ClientsTests):
    """Java's name server, our broker."""

    names_of = "Java"


class JavaBroker4ClientsTests(Ours4ClientsTests):
    """Our name server, Java's broker."""

    broker_of = "Java"


class JavaBroker5ClientsTests(Ours5ClientsTests):
    """Our name server, Java's broker."""

    broker_of = "Java"


class Stock4ClientsTests(JavaBroker4ClientsTests):
    """Nothing of ours: what these tests expect is what stock RocketMQ does."""

    names_of = "Java"
    full_only = ("test_clients",)


class Stock5ClientsTests(JavaBroker5ClientsTests):
    """Nothing of ours."""

    names_of = "Java"
    full_only = ("test_clients",)
