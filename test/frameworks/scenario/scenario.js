// What the programs in JavaScript share: see scenario.py.
'use strict';

const WOKEN = 20; // one after the other, each when nothing else is to be done
const WRITERS = 4;
const TRANSACTIONS = 25; // of each writer
const ROWS_PER_TRANSACTION = 10;
const RETRY_MS = 250;
const OTHERS = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`;

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// What `work` does with a connection of the pool in one transaction, which commits or not.
async function inTransaction(pool, commit, work) {
  const client = await pool.connect();
  let broken;
  client.on('error', () => {}); // without a handler the end of a connection would end the process
  try {
    await client.query('BEGIN');
    await work(client);
    await client.query(commit ? 'COMMIT' : 'ROLLBACK');
  } catch (error) {
    broken = error;
    throw error;
  } finally {
    client.removeAllListeners('error');
    client.release(broken);
  }
}

// A program says where it is, and ends with what came out of it.
class Steps {
  deadlineMs = Number(process.env.DEADLINE_S) * 1000;
  steps = [];
  perSecond = 0;
  wakers = new Set();

  constructor(framework, version) {
    Object.assign(this, { framework, version });
    process.on('uncaughtException', (error) => this.fail(error.stack));
    process.on('unhandledRejection', (error) => this.fail(error.stack));
  }

  begin(step) {
    this.steps.push(step);
  }

  fail(message) {
    console.error(`${this.framework}: ${this.steps.at(-1) ?? 'start'}: ${message}`);
    process.exit(1);
  }

  check(condition, message) {
    if (!condition) this.fail(message);
  }

  // Something has happened that until() may wait for.
  changed() {
    for (const wake of this.wakers) wake();
    this.wakers.clear();
  }

  async until(condition, what) {
    const end = Date.now() + this.deadlineMs;
    while (!condition()) {
      this.check(Date.now() < end, `not within ${this.deadlineMs} ms: ${what}`);
      let timer;
      await new Promise((resolve) => {
        this.wakers.add(resolve);
        timer = setTimeout(resolve, end - Date.now());
      });
      clearTimeout(timer);
    }
  }

  // Several writers at once; `write` takes a writer's number and the first of some rows.
  async writeBurst(write) {
    await Promise.all(Array.from({ length: WRITERS }, async (_, writer) => {
      for (let i = 0; i < TRANSACTIONS; i++) await write(writer, i * ROWS_PER_TRANSACTION);
    }));
  }

  finish() {
    const { framework, version, steps, perSecond } = this;
    console.log(JSON.stringify({ framework, version, steps, per_second: Math.round(perSecond) }));
    process.exit(0);
  }
}

module.exports = { OTHERS, RETRY_MS, ROWS_PER_TRANSACTION, Steps, TRANSACTIONS, WOKEN, WRITERS, inTransaction, sleep };
