"""The C++ client of the wheel C{rocketmq} as a child process: see lab/stock/clients.py."""

import os
import threading

from lines import Consumers, say, serve
from rocketmq.client import Message, Producer, PushConsumer, SendStatus

producers = {}
consumers = Consumers()
starting = threading.Lock()


def send(
    number,
    namesrv,
    group,
    topic,
    bodies,
    tags,
    keys,
    how="sync",
    level=0,
    accessKey="",
    secretKey="",
    **_,
):
    """Send each body and answer what came of it."""
    with starting:
        if (group, accessKey) not in producers:
            producer = Producer(group)
            producer.set_namesrv_addr(namesrv)
            if accessKey:
                producer.set_session_credentials(accessKey, secretKey, "ALIYUN")
            producer.start()
            producers[group, accessKey] = producer
    results = []
    for body, tag, key in zip(bodies, tags, keys, strict=True):
        message = Message(topic)
        message.set_tags(tag)
        message.set_keys(key)
        message.set_body(body)
        message.set_property("told", "by the test")
        if level:
            message.set_delay_time_level(level)
        try:
            result = producers[group, accessKey].send_sync(message)
        except Exception as error:
            results.append({"status": type(error).__name__, "error": str(error)})
            continue
        status = "SEND_OK" if result.status is SendStatus.OK else result.status.name
        results.append({"status": status, "id": result.msg_id, "offset": result.offset})
    return results


def consume(
    number, name, namesrv, group, topic, tags="*", orderly=False, accessKey="", secretKey="", **_
):
    """Tell each message, until stopped."""
    consumer = PushConsumer(group, orderly=orderly)
    consumer.set_namesrv_addr(namesrv)
    if accessKey:
        consumer.set_session_credentials(accessKey, secretKey, "ALIYUN")
    consumer.set_instance_name(f"{os.getpid()}-{name}")

    def got(message):
        say(
            number=number,
            topic=message.topic,
            body=message.body.decode(),
            tag=message.tags.decode(),
            keys=message.keys.decode(),
            queue=message.queue_id,
            offset=message.queue_offset,
            times=message.reconsume_times,
            id=message.id,
            said=message.get_property("told").decode(),
        )

    with starting:
        consumer.subscribe(topic, got, tags)
        consumer.start()
    return consumers.run(name, number, consumer)


serve({"send": send, "consume": consume, "stop": consumers.stop})
os._exit(0)  # its own threads would hold it up
