// The scenario of ../README.md with graphile-worker: two runners that poll once an hour.
'use strict';

const { Pool } = require('pg');
const version = require('./package.json').dependencies['graphile-worker'];
const {
  OTHERS, RETRY_MS, ROWS_PER_TRANSACTION, Steps, TRANSACTIONS, WOKEN, WRITERS, inTransaction, sleep,
} = require('./scenario/scenario.js');

const HOUR_MS = 3600000;
const RUNNERS = 2;

const scenario = new Steps('graphile-worker', version);
const done = new Map(); // number of times, by the job's number
const pool = new Pool({ max: WRITERS });
pool.on('error', () => {}); // without a handler the end of a connection would end the process

// The job itself.
function number(payload) {
  done.set(payload.number, (done.get(payload.number) ?? 0) + 1);
  scenario.changed();
}

// These jobs in one transaction, which commits or not.
const enqueue = (numbers, commit = true) => inTransaction(pool, commit, async (client) => {
  for (const n of numbers) {
    await client.query("SELECT graphile_worker.add_job('number', $1::json)", [JSON.stringify({ number: n })]);
  }
});

const untilDone = (numbers) => scenario.until(
  () => numbers.every((n) => done.has(n)), `all of ${numbers} are done`);

async function reconnect() {
  while ((await pool.query('SELECT 1 FROM graphile_worker.jobs')).rowCount > 0) await sleep(10);
  const began = Date.now();
  await pool.query(OTHERS);
  const enqueued = [];
  for (let n = 20001; !enqueued.some((m) => done.has(m)); n++) {
    scenario.check(Date.now() - began < scenario.deadlineMs, 'no job is done any more');
    try {
      await enqueue([n]);
      enqueued.push(n);
    } catch (error) {
      console.error(`graphile-worker: not enqueued: ${error.message}`);
    }
    await sleep(RETRY_MS);
  }
  await untilDone(enqueued);
  await enqueue([30001]);
  await untilDone([30001]);
}

async function main() {
  const { Logger, run, runMigrations } = await import('graphile-worker');
  const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message); });
  await runMigrations({ pgPool: pool, logger });
  for (let i = 0; i < RUNNERS; i++) {
    await run({ connectionString: process.env.DATABASE_URL, concurrency: 4, pollInterval: HOUR_MS, logger,
      noHandleSignals: true, taskList: { number } });
  }
  await sleep(1000); // until it listens

  scenario.begin('woken');
  for (let n = 1; n <= WOKEN; n++) {
    await enqueue([n]);
    await untilDone([n]);
  }

  scenario.begin('burst');
  const began = Date.now();
  const jobs = WRITERS * TRANSACTIONS * ROWS_PER_TRANSACTION;
  await scenario.writeBurst((writer, first) => enqueue(
    Array.from({ length: ROWS_PER_TRANSACTION }, (_, i) => 1000 * (writer + 1) + first + i)));
  await scenario.until(() => done.size === WOKEN + jobs, `${jobs} jobs are done`);
  scenario.perSecond = (jobs * 1000) / (Date.now() - began);

  scenario.begin('rollback');
  await enqueue([10001], false);
  await enqueue([10002]);
  await untilDone([10002]);

  scenario.begin('reconnect');
  await reconnect();

  scenario.check([...done.values()].every((times) => times === 1), 'a job was done more than once');
  scenario.check(!done.has(10001), 'a job was done that had been rolled back');
  scenario.finish();
}

main();
