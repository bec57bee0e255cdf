// Drives the package from outside: one argument, a JSON object; one line of JSON on stdout for each event.
'use strict';

const fs = require('node:fs');
const { ConfigurationError, Consumer } = require('pg-herald');

const given = JSON.parse(process.argv[2]);
const ms = (seconds) => (seconds === undefined ? undefined : seconds * 1000);
const EVENTS = ['waiting', 'active', 'state', 'listening', 'handled', 'failing', 'poison', 'disconnected', 'superseded', 'stopped'];

function write(event, fields) {
  fs.writeSync(process.stdout.fd, `${JSON.stringify({ event, ...fields })}\n`);
}

function plain({ time, ...fields }) {
  if (fields.error) fields.error = fields.error.message || String(fields.error);
  if (fields.pause !== undefined) fields.pause /= 1000;
  return { at: time.getTime() / 1000, ...fields };
}

const failures = new Map(Object.entries(given.handler?.fail_times ?? {})); // how often a payload still fails

async function handle(batch, transaction) {
  const { delay, fail_always: never, hide_failure: hidden, kill_connection: killer } = given.handler ?? {};
  for (const { channel, payload } of batch) {
    if (payload === never) throw new Error(`"${payload}" always fails`);
    if (failures.get(payload) > 0) {
      failures.set(payload, failures.get(payload) - 1);
      throw new Error(`"${payload}" fails this time`);
    }
    if (payload === killer) await transaction?.query('SELECT pg_terminate_backend(pg_backend_pid())');
    if (!transaction) {
      write('notification', { channel, payload });
    } else if (payload === hidden) {
      await transaction.query('SELECT 1 / 0').catch(() => {});
      return;
    } else if (/^\d+$/.test(payload)) {
      await transaction.query(`INSERT INTO bill (order_id, by) VALUES ($1, 'handle')
        ON CONFLICT (order_id) DO UPDATE SET handled = bill.handled + 1`, [payload]);
    }
  }
  if (delay) await new Promise((resolve) => { setTimeout(resolve, ms(delay)); });
}

async function state(_reason, transaction) {
  await transaction?.query("INSERT INTO bill SELECT id, 'state', 0 FROM orders ON CONFLICT DO NOTHING");
}

async function poison({ payload }, error, transaction) {
  if (given.poison === 'skip') {
    await transaction?.query('INSERT INTO dead_letter (payload, error) VALUES ($1, $2)', [payload, error.message]);
  }
  return given.poison;
}

// In a file, which is replaced as a whole.
const store = {
  load() {
    try {
      return fs.readFileSync(given.store_file, 'utf8');
    } catch (error) {
      if (error.code === 'ENOENT') return null;
      throw error;
    }
  },
  save(position) {
    const file = fs.openSync(`${given.store_file}.new`, 'w');
    fs.writeSync(file, position);
    fs.fsyncSync(file);
    fs.closeSync(file);
    fs.renameSync(`${given.store_file}.new`, given.store_file);
  },
};

async function main() {
  const { mode = 'store' } = given;
  if (!['store', 'own', 'shared'].includes(mode)) throw new ConfigurationError(`there is no mode "${mode}"`);
  const consumer = new Consumer({
    connection: given.connection,
    workConnection: given.work_connection,
    name: mode === 'shared' ? undefined : given.name,
    channels: given.channels,
    handle,
    state,
    poison: given.poison === undefined || given.poison === 'none' ? undefined : poison,
    store: mode === 'own' ? store : undefined,
    shared: mode === 'shared' || undefined,
    require: given.require,
    heartbeat: ms(given.heartbeat),
    batch: given.batch,
    attempts: given.attempts,
    backoff: given.backoff && { first: ms(given.backoff[0]), max: ms(given.backoff[1]) },
    workTimeout: ms(given.work_timeout),
    table: given.table,
  });
  for (const event of EVENTS) consumer.on(event, (fields) => write(event, plain(fields)));
  consumer.on('error', fail);
  process.on('SIGTERM', () => consumer.stop().catch(fail));
  await consumer.start();
}

function fail(error) {
  write('failed', { type: error.name, message: error.message });
  process.exitCode = 1;
}

main().catch(fail);
