// The scenario of ../README.md with pg-listen: a subscriber that reconnects by itself.
'use strict';

const { Pool } = require('pg');
const createSubscriber = require('pg-listen').default;
const { version } = require('pg-listen/package.json');
const {
  OTHERS, RETRY_MS, ROWS_PER_TRANSACTION, Steps, TRANSACTIONS, WOKEN, WRITERS, inTransaction, sleep,
} = require('./scenario/scenario.js');

const CHANNEL = 'orders';

const scenario = new Steps('pg-listen', version);
const heard = [];
const pool = new Pool({ max: WRITERS });
pool.on('error', () => {}); // without a handler the end of a connection would end the process

// These payloads in one transaction, which commits or not.
const send = (payloads, commit = true) => inTransaction(pool, commit, async (client) => {
  for (const payload of payloads) {
    await client.query('SELECT pg_notify($1, $2)', [CHANNEL, JSON.stringify(payload)]);
  }
});

async function next() {
  await scenario.until(() => heard.length > 0, 'something is heard');
  return heard.shift();
}

async function expect(payload) {
  const got = await next();
  scenario.check(got === payload, `heard "${got}" instead of "${payload}"`);
}

async function burst() {
  const rows = TRANSACTIONS * ROWS_PER_TRANSACTION;
  const expected = Array(WRITERS).fill(0);
  const writing = scenario.writeBurst((writer, first) => send(
    Array.from({ length: ROWS_PER_TRANSACTION }, (_, i) => ({ writer, seq: first + i }))));
  for (let i = 0; i < WRITERS * rows; i++) {
    const { writer, seq } = await next();
    scenario.check(seq === expected[writer], `writer ${writer}: heard ${seq} instead of ${expected[writer]}`);
    expected[writer]++;
  }
  await writing;
}

async function reconnect(subscriber) {
  let connections = 0;
  subscriber.events.on('connected', () => { connections++; });
  const began = Date.now();
  await pool.query(OTHERS);
  for (let attempt = 1; heard.length === 0; attempt++) {
    scenario.check(Date.now() - began < scenario.deadlineMs, 'nothing is heard any more');
    try {
      await send([attempt]);
    } catch (error) {
      console.error(`pg-listen: not sent: ${error.message}`);
    }
    await sleep(RETRY_MS);
  }
  scenario.check(connections === 1, `it has connected ${connections} times`);
  await send(['after reconnecting']);
  for (let last = 0, got; (got = await next()) !== 'after reconnecting'; last = got) {
    scenario.check(got > last, `heard ${got} after ${last}`);
  }
}

async function main() {
  const subscriber = createSubscriber({ connectionString: process.env.DATABASE_URL }, { paranoidChecking: false });
  subscriber.events.on('error', (error) => scenario.fail(error.message));
  subscriber.notifications.on(CHANNEL, (payload) => {
    heard.push(payload);
    scenario.changed();
  });
  await subscriber.connect();
  await subscriber.listenTo(CHANNEL);

  scenario.begin('woken');
  for (let n = 0; n < WOKEN; n++) {
    await subscriber.notify(CHANNEL, `own ${n}`);
    await expect(`own ${n}`);
    await send([`woken ${n}`]);
    await expect(`woken ${n}`);
  }

  scenario.begin('burst');
  const began = Date.now();
  await burst();
  scenario.perSecond = (WRITERS * TRANSACTIONS * ROWS_PER_TRANSACTION * 1000) / (Date.now() - began);

  scenario.begin('rollback');
  await send(['rolled back'], false);
  await send(['committed']);
  await expect('committed');

  scenario.begin('reconnect');
  await reconnect(subscriber);
  scenario.finish();
}

main();
