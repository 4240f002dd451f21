'use strict';
// ali-ons as a child process that is told what to do: see lab/stock/clients.py.

const readline = require('readline');
const { Consumer, Producer, Message } = require(`${process.argv[2]}/node_modules/ali-ons`);

const logger = {
  debug() {},
  info() {},
  warn: (...words) => console.error(...words),
  error: (...words) => console.error(...words),
};
const producers = new Map();
const consumers = new Map();
let made = 0;

function say(content) {
  process.stdout.write(JSON.stringify(content) + '\n');
}

function options(asked) {
  return {
    nameSrv: asked.namesrv,
    instanceName: `node-${process.pid}-${++made}`,
    clientIP: '127.0.0.1',
    httpclient: {},
    accessKey: asked.accessKey,
    secretKey: asked.secretKey,
    logger,
    pollNameServerInteval: 1000,
    heartbeatBrokerInterval: 1000,
    persistConsumerOffsetInterval: 500,
    rebalanceInterval: 2000,
  };
}

const commands = {
  async send(asked) {
    const name = `${asked.group} ${asked.accessKey}`;
    if (!producers.has(name)) {
      const given = { ...options(asked), producerGroup: asked.group, retryTimesWhenSendFailed: 1 };
      const producer = new Producer(given);
      producer.on('error', error => console.error(error));
      await producer.ready();
      producers.set(name, producer);
    }
    const results = [];
    for (const [ at, body ] of asked.bodies.entries()) {
      const message = new Message(asked.topic, asked.tags[at], Buffer.from(body));
      message.keys = [ asked.keys[at] ];
      message.properties.told = 'by the test';
      if (asked.level) {
        message.delayTimeLevel = asked.level;
      }
      try {
        const sent = await producers.get(name).send(message);
        results.push({
          status: sent.sendStatus === 'SEND_OK' ? 'SEND_OK' : String(sent.sendStatus),
          id: sent.msgId,
          queue: Number(sent.messageQueue.queueId),
          offset: Number(sent.queueOffset),
        });
      } catch (error) {
        results.push({ status: error.name, error: error.message });
      }
    }
    return results;
  },

  async consume(asked) {
    const consumer = new Consumer({
      ...options(asked),
      consumerGroup: asked.group,
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
      isBroadcast: Boolean(asked.broadcast),
      pullTimeDelayMillsWhenException: 500,
    });
    consumer.on('error', error => console.error(error));
    const stopped = new Promise(resolve => consumers.set(asked.name, { consumer, resolve }));
    consumer.subscribe(asked.topic, asked.tags, async message => {
      say({
        number: asked.number,
        topic: message.topic,
        body: message.body.toString(),
        tag: message.tags,
        keys: message.keys,
        queue: message.queueId,
        offset: Number(message.queueOffset),
        times: message.reconsumeTimes,
        id: message.msgId,
        said: message.properties.told,
      });
    });
    await consumer.ready();
    say({ number: asked.number, started: true });
    await stopped;
    return 'stopped';
  },

  async stop(asked) {
    const found = consumers.get(asked.name);
    if (found) {
      consumers.delete(asked.name);
      await found.consumer.close();
      found.resolve();
    }
    return 'stopped';
  },
};

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', async line => {
  const asked = JSON.parse(line);
  try {
    const answer = await commands[asked.do](asked);
    say({ number: asked.number, done: true, answer });
  } catch (error) {
    console.error(error);
    say({ number: asked.number, done: true, error: `${error.name}: ${error.message}` });
  }
});
lines.on('close', () => process.exit(0));
say({ news: 'ready' });
