"""C{pyrocketmq} as a child process, with the Java client's jars in its own JVM."""

import os
import sys
import threading

import jpype
import jpype.imports
from lines import Consumers, say, serve

# pyrocketmq imports the Java classes as it is imported itself.
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # Look at a group's queues soon after a restart, not after 20 s.
    "-Drocketmq.client.rebalance.waitInterval=1000",
)
jpype.startJVM(*_OPTIONS, f"-Duser.home={sys.argv[2]}", classpath=sys.argv[1].split(":"))

from pyrocketmq.client.consumer.consumer import PushConsumer  # noqa: E402
from pyrocketmq.client.consumer.listener import (  # noqa: E402
    ConsumeConcurrentlyStatus,
    MessageListenerConcurrently,
)
from pyrocketmq.client.producer import Producer  # noqa: E402
from pyrocketmq.common.common import ConsumeFromWhere  # noqa: E402
from pyrocketmq.common.message import Message  # noqa: E402

producers = {}
consumers = Consumers()
starting = threading.Lock()
made = iter(range(1000))


def prepare(client, namesrv):
    """What every client is told: whom to ask, and to be quick."""
    client.setNamesrvAddr(namesrv)
    client.setInstanceName(f"{os.getpid()}-{next(made)}")
    client.setPollNameServerInterval(1000)
    client.setHeartbeatBrokerInterval(1000)
    client.setVipChannelEnabled(False)


def send(number, namesrv, group, topic, bodies, tags, keys, how="sync", level=0, **_):
    """Send each body and answer what came of it."""
    with starting:
        if group not in producers:
            producer = Producer(group)
            prepare(producer, namesrv)
            producer.start()
            producers[group] = producer
    results = []
    for body, tag, key in zip(bodies, tags, keys, strict=True):
        message = Message(topic=topic, tags=tag, keys=key, body=body.encode())
        message.putUserProperty("told", "by the test")
        if level:
            message.setDelayTimeLevel(level)
        try:
            result = producers[group].send(message)
        except Exception as error:
            results.append({"status": type(error).__name__, "error": str(error)})
            continue
        results.append(
            {
                "status": result.sendStatus.name,
                "id": result.msgId,
                "queue": result.messageQueue.queueId,
                "offset": result.queueOffset,
            }
        )
    return results


class Teller(MessageListenerConcurrently):
    """A listener that reports each message."""

    def __init__(self, number):
        self.number = number

    def _consumeMessage(self, messages, context):
        for message in messages:
            say(
                number=self.number,
                topic=message.topic,
                body=bytes(message.body).decode(),
                tag=message.tags,
                keys=message.keys,
                queue=message.queueId,
                offset=message.queueOffset,
                times=message.reconsumeTimes,
                id=message.msgId,
                said=message.getUserProperty("told"),
            )
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def consume(number, name, namesrv, group, topic, tags="*", **_):
    """Tell each message, until stopped."""
    with starting:
        consumer = PushConsumer(group)
        prepare(consumer, namesrv)
        consumer.setPersistConsumerOffsetInterval(500)
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer.subscribe(topic, tags)
        consumer.registerMessageListener(Teller(number))
        consumer.start()
    return consumers.run(name, number, consumer)


serve({"send": send, "consume": consume, "stop": consumers.stop})
os._exit(0)  # a JVM with consumers would hold it up
