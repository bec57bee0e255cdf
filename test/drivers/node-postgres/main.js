// The scenario of ../README.md with node-postgres: the client's event 'notification'.
'use strict';

const { Client } = require('pg');
const { version } = require('pg/package.json');

const WRITERS = 4;
const ROWS_PER_TRANSACTION = 10;
const WAITING_TRANSACTIONS = 400; // of each writer, while the listener only waits
const BUSY_TRANSACTIONS = 100; // of each writer, while the listener runs statements
const DEADLINE_MS = 60000;
const LARGE = 'ä€😀'.repeat(888) + 'x'.repeat(7); // 7,999 bytes

function check(condition, message) {
  if (!condition) throw new Error(message);
}

// The promise, or an error when the deadline comes first.
function inTime(promise, message) {
  let timer;
  const late = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`${message()} within ${DEADLINE_MS} ms`)), DEADLINE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function connect() {
  const client = new Client();
  await client.connect();
  return client;
}

// A connection that listens, and what it has heard.
class Listener {
  heard = 0;
  lastSeq = new Map(Array.from({ length: WRITERS }, (_, i) => [i + 1, 0]));

  // Connects, or connects again, and listens.
  async connect() {
    this.arrived = [];
    this.client = await connect();
    this.client.on('notification', (message) => {
      this.arrived.push(message);
      this.wake?.();
    });
    // Without a handler for 'error' the end of the connection would end the process.
    this.ended = new Promise((resolve) => {
      this.client.on('error', () => {});
      this.client.on('end', resolve);
    });
    const { rows } = await this.client.query('SELECT pg_backend_pid() AS pid');
    this.pid = rows[0].pid;
    await this.client.query('LISTEN events');
  }

  // The next notification, without running a statement.
  async next() {
    while (this.arrived.length === 0) {
      const arrival = new Promise((resolve) => { this.wake = resolve; });
      await inTime(arrival, () => `heard ${this.heard}, and nothing more`);
    }
    return this.arrived.shift();
  }

  // The next notification must have this payload.
  async expect(payload) {
    const message = await this.next();
    check(message.channel === 'events' && message.payload === payload,
      `heard "${message.payload.slice(0, 40)}" on ${message.channel} instead of "${payload.slice(0, 40)}"`);
    this.heard++;
    return message;
  }

  // Each writer's rows must come in order, none lost and none doubled.
  takeRow({ payload }) {
    const [writer, seq] = payload.split(' ').map(Number);
    const last = this.lastSeq.get(writer);
    check(last !== undefined, `heard "${payload.slice(0, 40)}" during the load`);
    check(seq === last + 1, `writer ${writer}: heard row ${seq} after row ${last}`);
    this.lastSeq.set(writer, seq);
    this.heard++;
  }

  // Takes `count` rows: waiting for each, or those that came with the results of statements.
  async hearRows(count, busy) {
    const wanted = this.heard + count;
    while (this.heard < wanted) {
      if (!busy) {
        this.takeRow(await this.next());
        continue;
      }
      await this.client.query('BEGIN');
      await this.client.query('SELECT count(*) FROM pg_class WHERE oid > $1', [0]);
      await this.client.query('COMMIT');
      this.arrived.splice(0).forEach((message) => this.takeRow(message));
    }
  }
}

// One writer's part of a load, from row `seq` on.
async function writeRows(writer, seq, transactions) {
  const client = await connect();
  for (let i = 0; i < transactions; i++, seq += ROWS_PER_TRANSACTION) {
    await client.query('BEGIN');
    await client.query('INSERT INTO event SELECT $1, s FROM generate_series($2::int, $3::int) s',
      [writer, seq, seq + ROWS_PER_TRANSACTION - 1]);
    await client.query('COMMIT');
  }
  await client.end();
}

// All writers at once, each on a connection of its own, and the listener beside them.
async function load(listener, transactions, busy) {
  const writers = [...listener.lastSeq].map(([writer, last]) => writeRows(writer, last + 1, transactions));
  await Promise.all([listener.hearRows(WRITERS * transactions * ROWS_PER_TRANSACTION, busy), ...writers]);
}

async function main() {
  const listener = new Listener();
  await listener.connect();
  const other = await connect();
  await load(listener, WAITING_TRANSACTIONS, false);
  await load(listener, BUSY_TRANSACTIONS, true);

  await other.query("SELECT pg_notify('events', $1)", [LARGE]);
  await listener.expect(LARGE);

  await listener.client.query("NOTIFY events, 'own'");
  const own = await listener.expect('own');
  check(own.processId === listener.pid, 'the notification of its own has another sender');

  await other.query('BEGIN');
  await other.query("NOTIFY events, 'rolled back'");
  await other.query('ROLLBACK');
  await other.query("NOTIFY events, 'committed'");
  await listener.expect('committed');

  await listener.client.query('UNLISTEN events');
  await other.query("NOTIFY events, 'unheard'");
  await listener.client.query('LISTEN events');
  await other.query("NOTIFY events, 'heard again'");
  await listener.expect('heard again');

  await other.query('SELECT pg_terminate_backend($1)', [listener.pid]);
  await inTime(listener.ended, () => 'the end of the connection was not noticed');
  check(listener.arrived.length === 0, 'a notification came instead of the end of the connection');
  await other.query("NOTIFY events, 'missed'");
  await listener.connect();
  await other.query("NOTIFY events, 'after reconnecting'");
  await listener.expect('after reconnecting');
  await listener.client.end();
  await other.end();

  console.log(JSON.stringify({
    driver: 'node-postgres',
    version,
    heard: listener.heard,
    steps: ['waiting', 'busy', 'large', 'own', 'rollback', 'unlisten', 'reconnect'],
  }));
}

main().catch((error) => {
  console.error(`node-postgres: ${error.message}`);
  process.exit(1);
});
