'use strict';

/**
 * The official Node SDK under a test's control: commands on stdin, events on stdout, both one JSON object a line, as
 * tests/support/sdk_process.py lists them. The argument is the address of the proxy; transport is the SDK's default,
 * plaintext, or TLS with SDK_TLS; SDK_ACCESS_KEY and SDK_SECRET_KEY sign.
 */
const readline = require('node:readline');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const log = (...words) => console.error(...words);
const { SDK_TLS, SDK_ACCESS_KEY, SDK_SECRET_KEY } = process.env;
const common = {
  endpoints: process.argv[2],
  namespace: '',
  sslEnabled: SDK_TLS !== undefined,
  sessionCredentials: SDK_ACCESS_KEY && { accessKey: SDK_ACCESS_KEY, accessSecret: SDK_SECRET_KEY },
  logger: { info() {}, debug() {}, warn: log, error: log },
};
const clients = new Map();
const received = new Map();
const deliveries = new Map();

function print(event, fields) {
  process.stdout.write(JSON.stringify({ event, at_ms: Date.now(), ...fields }) + '\n');
}

function described(name, message) {
  return {
    name,
    id: message.messageId,
    topic: message.topic,
    body: message.body.toString(),
    tag: message.tag || null,
    keys: message.keys,
    message_group: message.messageGroup || null,
    properties: Object.fromEntries(message.properties),
    attempt: message.deliveryAttempt,
  };
}

function consumerOptions(command) {
  const filter = command.sql ? new FilterExpression(command.sql, FilterType.SQL) : new FilterExpression(command.tag);
  return { ...common, consumerGroup: command.group, subscriptions: new Map([[command.topic, filter]]) };
}

function consume(name, message) {
  print('message', described(name, message));
  const key = name + message.messageId;
  const delivery = (deliveries.get(key) || 0) + 1;
  deliveries.set(key, delivery);
  return delivery <= Number(message.properties.get('failures') || 0) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
}

async function check(name, message) {
  print('check', described(name, message));
  const resolution = message.properties.get('check');
  return resolution ? TransactionResolution[resolution] : TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED;
}

async function started(command, client) {
  await client.startup();
  clients.set(command.name, client);
}

async function send(command) {
  const producer = clients.get(command.name);
  const message = {
    topic: command.topic,
    body: Buffer.from(command.body),
    tag: command.tag,
    keys: command.keys,
    messageGroup: command.message_group,
    delay: command.delay_ms,
    properties: new Map(Object.entries(command.properties || {})),
  };
  const transaction = command.transaction ? producer.beginTransaction() : undefined;
  const receipt = await producer.send(message, transaction);
  if (command.transaction === 'COMMIT') await transaction.commit();
  if (command.transaction === 'ROLLBACK') await transaction.rollback();
  return { id: receipt.messageId, handle: receipt.recallHandle };
}

const verbs = {
  producer: command => started(command, new Producer({
    ...common, topics: [command.topic], checker: { check: message => check(command.name, message) },
  })),
  push: command => started(command, new PushConsumer({
    ...consumerOptions(command), messageListener: { consume: message => consume(command.name, message) },
  })),
  simple: command => started(command, new SimpleConsumer({
    ...consumerOptions(command), awaitDuration: command.await_ms,
  })),
  send,
  recall: async command => ({ id: (await clients.get(command.name).recallMessage(command.topic, command.handle)).messageId }),
  async receive(command) {
    const messages = await clients.get(command.name).receive(command.max, command.invisible_ms);
    for (const message of messages) {
      received.set(command.name + message.messageId, message);
      print('message', described(command.name, message));
    }
    return { count: messages.length };
  },
  ack: command => clients.get(command.name).ack(received.get(command.name + command.id)),
  change: command => clients.get(command.name).changeInvisibleDuration(
    received.get(command.name + command.id), command.invisible_ms),
  async stop(command) {
    await clients.get(command.name).shutdown();
    clients.delete(command.name);
  },
};

async function answer(command) {
  try {
    print('done', { n: command.n, ...await verbs[command.do](command) });
  } catch (failure) {
    print('failed', { n: command.n, error: String(failure) });
  }
}

print('ready', { version: require('rocketmq-client-nodejs/package.json').version });
readline.createInterface({ input: process.stdin }).on('line', line => answer(JSON.parse(line))).on('close', () => process.exit());
