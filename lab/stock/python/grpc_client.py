"""What users of the official Python client of gRPC do, each by itself and all side by side.

    PYTHONPATH=FOLDER python grpc_client.py 127.0.0.1:8081 [scenario ...]

Needs the topics and groups of GrpcClient.java, a topic plain whose kind is not said, and a group
g-codes.  Prints PASS or FAIL, the name, how long it took and what was wrong.
"""

import os
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType, MessagingServiceStub, definition_pb2, service_pb2

ENDPOINT = sys.argv[1]
RUN = str(int(time.time()))


def configuration():
    """Where the proxy is."""
    return ClientConfiguration(ENDPOINT, Credentials("", ""))


def message(topic, body, **more):
    """A message with these properties of it."""
    built = Message()
    built.topic, built.body = topic, body.encode()
    for name, value in more.items():
        setattr(built, name, value)
    return built


def named(kind, *rest):
    """A body that no other run and scenario has."""
    return "-".join(["p" + kind, RUN, *map(str, rest)])


class Seen(MessageListener):
    """Keeps what arrives."""

    def __init__(self, decide=lambda body: ConsumeResult.SUCCESS):
        self.all, self.decide = [], decide

    def consume(self, got):
        self.all.append((time.time(), got))
        return self.decide(got.body.decode())

    @property
    def bodies(self):
        return [got.body.decode() for _, got in list(self.all) if RUN in got.body.decode()]

    def until(self, seconds, *wanted):
        end = time.time() + seconds
        while not set(wanted) <= set(self.bodies):
            assert time.time() < end, f"only {self.bodies}"
            time.sleep(0.05)


def producer(*topics, checker=None):
    """One that runs."""
    made = Producer(configuration(), list(topics), checker=checker)
    made.startup()
    return made


def push(group, topic, seen, expression=None):
    """A push consumer that runs."""
    made = PushConsumer(configuration(), group, seen, {topic: expression or FilterExpression()})
    made.startup()
    return made


def end(*clients):
    """Stop them."""
    for client in clients:
        client.shutdown()


def normal():
    """Sends, in turn and at once, and pushes: keys, tag, properties, ids."""
    seen = Seen()
    consumer, sender = push("g-push", "normal", seen), producer("normal")
    first = message("normal", named("n"), tag="TagA", keys="k1")
    first.add_property("colour", "blue")
    receipt = sender.send(first)
    rest = [named("n", n) for n in range(20)]
    for future in [sender.send_async(message("normal", body)) for body in rest]:
        assert future.result(20).message_id
    seen.until(40, named("n"), *rest)
    got = next(got for _, got in seen.all if got.body.decode() == named("n"))
    found = got.message_id, got.tag, got.properties["colour"], got.delivery_attempt
    assert found == (receipt.message_id, "TagA", "blue", 1), found
    assert "k1" in got.keys, got.keys
    end(sender, consumer)


def simple():
    """Receives, asks for more time, and is given it again."""
    consumer = SimpleConsumer(
        configuration(), "g-simple", {"single": FilterExpression()}, await_duration=5
    )
    consumer.startup()
    sender = producer("single")
    sender.send(message("single", named("s")))
    attempt, last = 0, time.time() + 90
    while attempt < 2 and time.time() < last:
        for got in consumer.receive(16, 10):
            if got.body.decode() != named("s"):
                consumer.ack(got)
                continue
            attempt = got.delivery_attempt
            if attempt == 1:
                consumer.change_invisible_duration(got, 12)
            else:
                consumer.ack(got)
    assert attempt == 2, f"attempt {attempt}"
    end(sender, consumer)


def filters():
    """By tags and SQL92."""
    tagged, sql = Seen(), Seen()
    consumers = (
        push("g-filter-tag", "normal", tagged, FilterExpression("TagX || TagY")),
        push("g-filter-sql", "normal", sql, FilterExpression("price > 10", FilterType.SQL)),
    )
    time.sleep(3)
    sender = producer("normal")
    for at, tag in enumerate(("TagX", "TagY", "TagZ")):
        sent = message("normal", named("f", at), tag=tag)
        sent.add_property("price", str(5 + 10 * at))
        sender.send(sent)
    tagged.until(30, named("f", 0), named("f", 1))
    sql.until(30, named("f", 1), named("f", 2))
    time.sleep(2)
    assert named("f", 2) not in tagged.bodies, tagged.bodies
    assert named("f", 0) not in sql.bodies, sql.bodies
    end(sender, *consumers)


def fifo():
    """In order, also what it failed with."""
    failed = set()

    def decide(body):
        if body == named("o", 3) and body not in failed:
            failed.add(body)
            return ConsumeResult.FAILURE
        return ConsumeResult.SUCCESS

    seen = Seen(decide)
    consumer, sender = push("g-fifo", "fifo", seen), producer("fifo")
    for at in range(8):
        sender.send(message("fifo", named("o", at), message_group="order-1"))
    seen.until(60, named("o", 7))
    wanted = [named("o", at) for at in (0, 1, 2, 3, 3, 4, 5, 6, 7)]
    assert seen.bodies == wanted, seen.bodies
    end(sender, consumer)


def delay():
    """At its time; another one recalled."""
    seen = Seen()
    consumer, sender = push("g-delay", "delay", seen), producer("delay")
    due = int(time.time()) + 8
    sender.send(message("delay", named("d", "kept"), delivery_timestamp=due))
    gone = sender.send(message("delay", named("d", "gone"), delivery_timestamp=due + 4))
    assert sender.recall_message("delay", gone.recall_handle)
    seen.until(40, named("d", "kept"))
    late = next(at for at, got in seen.all if got.body.decode() == named("d", "kept")) - due
    # The client tells seconds.
    assert -1 <= late <= 10, late
    time.sleep(8)
    assert named("d", "gone") not in seen.bodies, "what was recalled came"
    end(sender, consumer)


class Checker(TransactionChecker):
    """Commits what it is asked about."""

    asked = []

    def check(self, half):
        self.asked.append(half.body.decode())
        return TransactionResolution.COMMIT


def transaction():
    """Committed, rolled back, and asked about."""
    seen, checker = Seen(), Checker()
    consumer, sender = push("g-tx", "tx", seen), producer("tx", checker=checker)
    for word in ("commit", "rollback", "orphan"):
        begun = sender.begin_transaction()
        sender.send(message("tx", named("t", word)), begun)
        if word != "orphan":
            getattr(begun, word)()
    seen.until(20, named("t", "commit"))
    seen.until(120, named("t", "orphan"))
    assert named("t", "orphan") in checker.asked, checker.asked
    assert named("t", "rollback") not in seen.bodies, seen.bodies
    end(sender, consumer)


def dead_letter():
    """Given up after the last attempt, in order too."""
    seen, ordered = (Seen(lambda body: ConsumeResult.FAILURE) for _ in range(2))
    consumers = push("g-dlq", "letters", seen), push("g-fifodlq", "ordered", ordered)
    time.sleep(3)
    sender = producer("letters", "ordered")
    sender.send(message("letters", named("x")))
    sender.send(message("ordered", named("y"), message_group="order-9"))
    last = time.time() + 100
    while len(seen.bodies) < 2 and time.time() < last:
        time.sleep(0.2)
    time.sleep(25)
    assert len(seen.bodies) == len(ordered.bodies) == 2, seen.bodies + ordered.bodies
    end(sender, *consumers)


# --- what is refused, and how -----------------------------------------------------

HEADERS = {
    "x-mq-client-id": "codes",
    "x-mq-language": "PYTHON",
    "x-mq-client-version": "5.1.2",
}


def named_resource(name):
    """A topic or a group."""
    return definition_pb2.Resource(name=name)


def sending(topic="normal", body=b"x", kind=definition_pb2.NORMAL, user=None, **system):
    """A request to send one message."""
    built = definition_pb2.SystemProperties(
        message_type=kind,
        body_encoding=definition_pb2.IDENTITY,
        born_host="127.0.0.1",
        message_id=f"01{time.time_ns():030X}",
    )
    built.born_timestamp.GetCurrentTime()
    built.MergeFrom(definition_pb2.SystemProperties(**system))
    one = definition_pb2.Message(
        topic=named_resource(topic), body=body, user_properties=user or {}, system_properties=built
    )
    return service_pb2.SendMessageRequest(messages=[one])


def receiving(topic="normal", invisible=10, expression="*", kind=definition_pb2.TAG):
    """A request for messages."""
    built = service_pb2.ReceiveMessageRequest(
        group=named_resource("g-codes"),
        message_queue=definition_pb2.MessageQueue(topic=named_resource(topic), id=-1),
        filter_expression=definition_pb2.FilterExpression(type=kind, expression=expression),
        batch_size=8,
    )
    built.invisible_duration.FromSeconds(invisible)
    built.long_polling_timeout.FromSeconds(5)
    return built


def acking(handle):
    """An ack with this handle."""
    return service_pb2.AckMessageRequest(
        group=named_resource("g-codes"),
        topic=named_resource("normal"),
        entries=[service_pb2.AckMessageEntry(message_id="m", receipt_handle=handle)],
    )


def at(seconds):
    """A moment so many seconds from now."""
    return Timestamp(seconds=int(time.time() + seconds))


def asked(here):
    """Each call with what is wrong with it, and the code that a stock broker had of the proxy."""
    now = int(time.time() * 1000)
    route = service_pb2.QueryRouteRequest
    assign = service_pb2.QueryAssignmentRequest
    fifo_kind, delay_kind = definition_pb2.FIFO, definition_pb2.DELAY
    two = sending()
    two.messages.extend(sending().messages)
    group = named_resource("g-codes")

    def of(topic):
        return {"topic": named_resource(topic), "endpoints": here}

    yield "a known topic", "QueryRoute", route(**of("normal")), "OK"
    yield "no kind", "QueryRoute", route(**of("plain")), "OK"
    yield "no topic", "QueryRoute", route(**of("no-such")), "TOPIC_NOT_FOUND"
    yield "a system topic", "QueryRoute", route(**of("TBW102")), "ILLEGAL_TOPIC"
    yield "no topic", "QueryAssignment", assign(group=group, **of("no-such")), "TOPIC_NOT_FOUND"
    yield "a known topic", "QueryAssignment", assign(group=group, **of("normal")), "OK"
    conflict = "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    yield "no topic", "SendMessage", sending("no-such"), conflict
    yield "another kind", "SendMessage", sending(kind=fifo_kind, message_group="g"), conflict
    yield "no kind", "SendMessage", sending("plain"), "OK"
    yield "too long", "SendMessage", sending(body=b"x" * ((4 << 20) + 1)), "MESSAGE_BODY_TOO_LARGE"
    yield "the longest", "SendMessage", sending(body=b"x" * (4 << 20)), "OK"
    yield "two messages", "SendMessage", two, "OK"
    later = sending("delay", kind=delay_kind, delivery_timestamp=at(25 * 3600))
    yield "a delay of 25 hours", "SendMessage", later, "ILLEGAL_DELIVERY_TIME"
    past = sending("delay", kind=delay_kind, delivery_timestamp=at(-60))
    yield "a time that is over", "SendMessage", past, "OK"
    unknown = service_pb2.EndTransactionRequest(
        topic=named_resource("tx"),
        message_id="x",
        transaction_id="x",
        resolution=definition_pb2.COMMIT,
    )
    yield "no transaction", "EndTransaction", unknown, "INTERNAL_SERVER_ERROR"
    over = acking(f"0 {now - 70000} 60000 0 0 broker-a 0 0 0")
    yield "a handle whose time is over", "AckMessage", over, "INVALID_RECEIPT_HANDLE"
    other = acking(f"0 {now} 60000 0 0 nobody 0 0 0")
    yield "a handle of no broker", "AckMessage", other, "INVALID_RECEIPT_HANDLE"
    recall = service_pb2.RecallMessageRequest(topic=named_resource("delay"), recall_handle="xx")
    yield "no handle", "RecallMessage", recall, "INTERNAL_SERVER_ERROR"
    sql = receiving(expression="a >", kind=definition_pb2.SQL)
    yield "no SQL", "ReceiveMessage", sql, "INTERNAL_SERVER_ERROR"
    yield "too short a time", "ReceiveMessage", receiving(invisible=5), "ILLEGAL_INVISIBLE_TIME"
    yield "no topic", "ReceiveMessage", receiving("no-such"), "TOPIC_NOT_FOUND"


def codes():
    """All of L{asked} have the codes that they should have."""
    host, port = ENDPOINT.split(":")
    here = definition_pb2.Endpoints(
        scheme=definition_pb2.IPv4,
        addresses=[definition_pb2.Address(host=host, port=int(port))],
    )
    channel = grpc.insecure_channel(ENDPOINT, [("grpc.max_send_message_length", -1)])
    stub, headers = MessagingServiceStub(channel), list(HEADERS.items())
    settings = definition_pb2.Settings(
        client_type=definition_pb2.SIMPLE_CONSUMER,
        access_point=here,
        subscription=definition_pb2.Subscription(
            group=named_resource("g-codes"),
            subscriptions=[
                definition_pb2.SubscriptionEntry(
                    topic=named_resource("normal"),
                    expression=definition_pb2.FilterExpression(
                        type=definition_pb2.TAG, expression="*"
                    ),
                )
            ],
        ),
    )
    done = threading.Event()

    def commands():
        yield service_pb2.TelemetryCommand(settings=settings)
        done.wait(60)

    answers = stub.Telemetry(commands(), metadata=headers)
    assert next(answers).status.code == definition_pb2.OK
    wrong = []
    for label, method, request, wanted in asked(here):
        answer = getattr(stub, method)(request, timeout=20, metadata=headers)
        for each in [answer] if hasattr(answer, "status") else answer:
            if each.HasField("status"):
                found = definition_pb2.Code.Name(each.status.code)
                if found != wanted:
                    wrong.append(f"{method}, {label}: {found} {each.status.message}")
    done.set()
    assert not wrong, wrong


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (normal, simple, filters, fifo, delay, transaction, dead_letter, codes)
}


def one(name):
    """Do a scenario, and print what became of it."""
    began, verdict, fault = time.time(), "PASS", ""
    try:
        SCENARIOS[name]()
    except Exception as error:
        traceback.print_exc()
        verdict, fault = "FAIL", f"{type(error).__name__} {error}".replace("\n", " ")
    print(f"{verdict} {name} {time.time() - began:.1f} {fault}", flush=True)


with ThreadPoolExecutor(len(SCENARIOS)) as pool:
    list(pool.map(one, sys.argv[2:] or SCENARIOS))
sys.stdout.flush()
# Threads of the client stay.
os._exit(0)
