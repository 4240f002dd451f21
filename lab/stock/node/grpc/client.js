// What users of the official Node client of gRPC do.
//
//     node client.js FOLDER 127.0.0.1:8081
//
// FOLDER is the one with node_modules.  Needs the topics normal and single and the groups g-simple and
// g-push.  Prints PASS or FAIL, the name, how long it took and what was wrong.

'use strict';

const path = require('path');
const [, , folder, endpoints] = process.argv;
const found = require.resolve('rocketmq-client-nodejs', { paths: [path.resolve(folder)] });
const { Producer, SimpleConsumer, PushConsumer, ConsumeResult } = require(found);

const run = String(Date.now());
const still = () => {};
const common = {
  endpoints,
  sslEnabled: false,
  logger: { info: still, debug: still, warn: still, log: still, error: console.error },
};
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function simple() {
  const producer = new Producer({ ...common, topics: ['single'] });
  const consumer = new SimpleConsumer({
    ...common,
    consumerGroup: 'g-simple',
    subscriptions: new Map([['single', '*']]),
    awaitDuration: 5000,
  });
  await producer.startup();
  await consumer.startup();
  const sent = await producer.send({
    topic: 'single',
    tag: 'Node',
    keys: ['k1'],
    properties: new Map([['colour', 'blue']]),
    body: Buffer.from(`simple-${run}`),
  });
  let got = null;
  for (let turn = 0; turn < 10 && got === null; turn++) {
    for (const message of await consumer.receive(16, 10000)) {
      if (message.body.toString() === `simple-${run}`) got = message;
      await consumer.ack(message);
    }
  }
  if (got === null) throw new Error('it did not come');
  const colour = got.properties.get('colour');
  if (got.messageId !== sent.messageId || got.tag !== 'Node' || colour !== 'blue') {
    throw new Error(`it came as ${got.messageId} ${got.tag} ${colour}`);
  }
  for (const message of await consumer.receive(16, 10000)) {
    if (message.body.toString() === `simple-${run}`) throw new Error('it came again');
  }
  await consumer.shutdown();
  await producer.shutdown();
}

async function push() {
  const wanted = new Set(Array.from({ length: 20 }, (_, at) => `push-${run}-${at}`));
  const left = new Set(wanted);
  const consumer = new PushConsumer({
    ...common,
    namespace: '',
    consumerGroup: 'g-push',
    subscriptions: new Map([['normal', '*']]),
    messageListener: {
      async consume(message) {
        left.delete(message.body.toString());
        return ConsumeResult.SUCCESS;
      },
    },
  });
  const producer = new Producer(common);
  await consumer.startup();
  await producer.startup();
  for (const body of wanted) await producer.send({ topic: 'normal', body: Buffer.from(body) });
  for (let turn = 0; turn < 300 && left.size; turn++) await sleep(100);
  if (left.size) throw new Error(`${left.size} of ${wanted.size} did not come`);
  await producer.shutdown();
  await consumer.shutdown();
}

async function one(scenario) {
  const began = Date.now();
  let verdict = 'PASS';
  let fault = '';
  try {
    await scenario();
  } catch (error) {
    verdict = 'FAIL';
    fault = String(error).replace(/\n/g, ' ');
  }
  console.log(verdict, scenario.name, ((Date.now() - began) / 1000).toFixed(1), fault);
}

Promise.all([simple, push].map(one)).then(() => process.exit(0));
