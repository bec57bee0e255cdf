'use strict';

const assert = require('node:assert/strict');
const { after, afterEach, before, beforeEach, describe, it } = require('node:test');
const { HandlerError } = require('pg-herald');
const { Servers, Trial, done, notify, prepare, until, writeDone } = require('./helpers.js');

let servers;
let sql;
let trials;

before(async () => { servers = await Servers.start('primary'); });
after(() => servers.close());
beforeEach(async () => {
  sql = await prepare(servers);
  trials = [];
});
afterEach(async () => {
  for (const trial of trials) await trial.consumer.stop();
  await sql.end();
});

function trial(options) {
  const made = new Trial({ connection: servers.uri(), name: 'billing', channels: ['orders'], attempts: 3, ...options });
  trials.push(made);
  return made;
}

// Writes, and then fails at a payload: always, or so many times.
function failing(payload, times = Infinity) {
  return async (batch, transaction) => {
    await writeDone(batch, transaction);
    if (batch.some((each) => each.payload === payload) && times-- > 0) throw new Error(`not ${payload}`);
  };
}

const writeDead = async ({ payload }, error, transaction) => {
  await transaction.query('INSERT INTO dead VALUES ($1, $2)', [payload, error.message]);
  return 'skip';
};

const dead = async () => (await sql.query('SELECT payload, error FROM dead')).rows;
const together = (...payloads) => sql.query("SELECT pg_notify('orders', payload) FROM unnest($1::text[]) AS payload", [payloads]);

async function ended(made) {
  await made.event('stopped');
  await until('the error', () => made.error);
  assert.ok(made.error instanceof HandlerError, String(made.error.stack));
  assert.equal(made.all('stopped')[0].error, made.error);
  return made.error;
}

describe('a handler that fails', () => {
  it('is called again, and everything is written once', async () => {
    const first = trial({ handle: failing('b', 2) });
    await first.consumer.start();
    await together('a', 'b', 'c');
    await first.event('handled');
    assert.deepEqual(await done(sql), ['a', 'b', 'c']);
    assert.deepEqual(first.all('failing').map(({ attempt, error }) => [attempt, error.message]), [[1, 'not b'], [2, 'not b']]);
    assert.equal(first.all('disconnected').length, 0);
  });

  it('goes on without the notification that poison skips, and commits what poison has written', async () => {
    const first = trial({ handle: failing('b'), poison: writeDead });
    await first.consumer.start();
    await together('a', 'b', 'c');
    await first.event('handled');
    assert.deepEqual(await done(sql), ['a', 'c']);
    assert.deepEqual(await dead(), [{ payload: 'b', error: 'not b' }]);
    assert.equal(first.all('failing').length, 3);
    const { channel, payload, error, decision } = first.all('poison')[0];
    assert.deepEqual([channel, payload, error.message, decision], ['orders', 'b', 'not b', 'skip']);
    await notify(sql, 'orders', 'd');
    await first.event('handled', 2);
  });

  it('ends the consumer when poison says stop, and nothing of the batch is written', async () => {
    const first = trial({ handle: failing('b'), poison: () => 'stop' });
    await first.consumer.start();
    await together('a', 'b', 'c');
    const error = await ended(first);
    assert.equal(error.cause.message, 'not b');
    assert.equal(error.notification.payload, 'b');
    assert.deepEqual(await done(sql), []);
    assert.equal(first.all('poison')[0].decision, 'stop');
  });

  it('ends the consumer without poison', async () => {
    const first = trial({ handle: failing('b') });
    await first.consumer.start();
    await together('a', 'b', 'c');
    assert.equal((await ended(first)).notification.payload, 'b');
    assert.equal(first.all('failing').length, 3);
  });

  it('ends the consumer when poison fails again and again, or returns something else', async () => {
    for (const [poison, message] of [[() => { throw new Error('no'); }, /failed 6 times: no/], [() => true, /neither/]]) {
      const first = trial({ handle: failing('b'), poison });
      await first.consumer.start();
      await notify(sql, 'orders', 'b');
      assert.match((await ended(first)).message, message);
    }
  });

  it('handles a large transaction without the notification that poison skips', async () => {
    const first = trial({ handle: failing('25'), poison: writeDead, batch: 10 });
    await first.consumer.start();
    await sql.query("SELECT pg_notify('orders', i::text) FROM generate_series(1, 50) AS i");
    await first.event('handled');
    assert.equal((await done(sql)).length, 49);
    assert.deepEqual(await dead(), [{ payload: '25', error: 'not 25' }]);
    assert.equal(first.all('disconnected').length, 3);
  });

  it('does not hide that a statement has failed', async () => {
    const first = trial({ poison: writeDead, handle: async (batch, transaction) => {
      await writeDone(batch, transaction);
      if (batch.some(({ payload }) => payload === 'b')) await transaction.query('SELECT 1 / 0').catch(() => {});
    } });
    await first.consumer.start();
    await together('a', 'b', 'c');
    await first.event('handled');
    assert.deepEqual(await done(sql), ['a', 'c']);
    assert.match(first.all('failing')[0].error.message, /a statement in its transaction has failed/);
  });

  it('must not end the transaction', async () => {
    const first = trial({ handle: async (batch, transaction) => { await transaction.query('COMMIT'); } });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    assert.match((await ended(first)).message, /ended its transaction|SAVEPOINT/);
  });

  it('finds the notification that violates a deferred constraint', async () => {
    await sql.query(`DROP TABLE IF EXISTS child, parent; CREATE TABLE parent (id text PRIMARY KEY);
      CREATE TABLE child (id text REFERENCES parent DEFERRABLE INITIALLY DEFERRED)`);
    const first = trial({ poison: writeDead, handle: async (batch, transaction) => {
      for (const { payload } of batch) {
        await transaction.query('INSERT INTO child VALUES ($1)', [payload]);
        if (payload !== 'b') await transaction.query('INSERT INTO parent VALUES ($1)', [payload]);
      }
    } });
    await first.consumer.start();
    await together('a', 'b', 'c');
    await first.event('handled');
    const { rows } = await sql.query("SELECT string_agg(id, '' ORDER BY id) AS ids FROM child");
    assert.equal(rows[0].ids, 'ac');
    assert.equal((await dead())[0].payload, 'b');
  });

  it('cannot write any more once it has failed', async () => {
    let late;
    const first = trial({ handle: async (batch, transaction) => {
      if (!late) {
        late = new Promise((resolve) => { setTimeout(resolve, 200); }).then(() => writeDone([{ payload: 'late' }], transaction));
        late.catch(() => {});
        throw new Error('now');
      }
      await writeDone(batch, transaction);
    } });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    await first.event('handled');
    await assert.rejects(late, /the transaction is over/);
    assert.deepEqual(await done(sql), ['a']);
  });
});

describe('without a transaction', () => {
  it('calls the handler again, then one by one', async () => {
    const received = [];
    const first = trial({ name: undefined, shared: true, poison: () => 'skip', handle: (batch) => {
      if (batch.some(({ payload }) => payload === 'b')) throw new Error('not b');
      received.push(...batch.map(({ payload }) => payload));
    } });
    await first.consumer.start();
    await together('a', 'b', 'c');
    await first.event('handled');
    assert.deepEqual(received, ['a', 'c']);
    assert.equal(first.all('failing').length, 3);
    assert.equal(first.all('poison').length, 1);
  });

  it('gives up a handler that takes too long', async () => {
    let calls = 0;
    let aborted;
    const first = trial({ name: undefined, shared: true, workTimeout: 200, handle: async (batch, _none, { signal }) => {
      if (calls++ > 0) return;
      signal.addEventListener('abort', () => { aborted = true; });
      await new Promise(() => {});
    } });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    await first.event('handled');
    assert.match(first.all('failing')[0].error.message, /longer than 200 ms/);
    assert.ok(aborted);
  });
});

describe('a connection that breaks during the work', () => {
  it('is no failure of the handler', async () => {
    let times = 3;
    const first = trial({ attempts: 2, handle: async (batch, transaction) => {
      await writeDone(batch, transaction);
      if (times-- > 0) await transaction.query('SELECT pg_terminate_backend(pg_backend_pid())');
    } });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    await first.event('handled');
    assert.deepEqual(await done(sql), ['a']);
    assert.equal(first.all('failing').length, 0);
    assert.equal(first.all('disconnected').length, 3);
  });

  it('ends the consumer after twice the attempts', async () => {
    const first = trial({ attempts: 2,
      handle: (batch, transaction) => transaction.query('SELECT pg_terminate_backend(pg_backend_pid())') });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    const error = await ended(first);
    assert.match(error.message, /broken during 4 attempts/);
    assert.equal(error.notification.payload, 'a');
  });

  it('is left when the handler takes too long, and the server ends its statement', async () => {
    let calls = 0;
    const first = trial({ workTimeout: 1500, handle: async (batch, transaction) => {
      if (calls++ === 0) await transaction.query('SELECT pg_sleep(3600)');
      await writeDone(batch, transaction);
    } });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    await first.event('handled');
    assert.deepEqual(await done(sql), ['a']);
    assert.equal(first.all('failing').length, 1);
    assert.match(first.all('disconnected')[0].error.message, /longer than 1500 ms/);
  });

  it('ends the consumer when the handler takes too long again and again', async () => {
    const first = trial({ workTimeout: 500, heartbeat: 500, attempts: 2, handle: () => new Promise(() => {}) });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    const error = await ended(first);
    assert.equal(error.notification.payload, 'a');
    assert.equal(first.all('failing').length, 3);
  });
});

it('with a store of its own, poison is not asked once the lock is lost', async () => {
  let position = null;
  const first = trial({ workTimeout: 1000, attempts: 1, poison: () => 'skip', handle: () => new Promise(() => {}),
    store: { load: () => position, save: (text) => { position = text; } } });
  await first.consumer.start();
  await notify(sql, 'orders', 'a');
  assert.match((await ended(first)).message, /longer than 1000 ms/);
  assert.equal(first.all('poison').length, 0);
});

describe('a state that fails', () => {
  it('is called again, and its work is undone meanwhile', async () => {
    let times = 2;
    const first = trial({ handle: writeDone, state: async (_reason, transaction) => {
      await writeDone([{ payload: 'state' }], transaction);
      if (times-- > 0) throw new Error('not yet');
    } });
    await first.consumer.start();
    assert.deepEqual(await done(sql), ['state']);
    assert.deepEqual(first.events.map(({ event }) => event), ['active', 'state', 'failing', 'failing', 'listening']);
  });

  it('ends the consumer: start fails', async () => {
    const first = trial({ handle: writeDone, state: () => { throw new Error('never'); } });
    await assert.rejects(first.consumer.start(), (error) => error instanceof HandlerError && error.cause.message === 'never');
    assert.equal(first.all('failing').length, 2);
    assert.equal(first.error, undefined);
  });
});

it('an error of a listener of an event is not one of the handler', async () => {
  const first = trial({ handle: writeDone });
  first.consumer.on('handled', () => { throw new Error('of the listener'); });
  await first.consumer.start();
  const uncaught = new Promise((resolve) => { process.prependOnceListener('uncaughtException', resolve); });
  const others = process.listeners('uncaughtException').slice(1);
  for (const other of others) process.off('uncaughtException', other);
  await notify(sql, 'orders', 'a');
  assert.equal((await uncaught).message, 'of the listener');
  for (const other of others) process.on('uncaughtException', other);
  assert.deepEqual(await done(sql), ['a']);
  assert.equal(first.all('failing').length, 0);
});
