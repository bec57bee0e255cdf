'use strict';

const assert = require('node:assert/strict');
const { after, afterEach, before, beforeEach, describe, it } = require('node:test');
const { Servers, Trial, done, notify, prepare, range, until, writeDone } = require('./helpers.js');

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
  const made = new Trial({ connection: servers.uri(), name: 'billing', channels: ['orders'], handle: writeDone, ...options });
  trials.push(made);
  return made;
}

const stored = async () => (await sql.query('SELECT position, epoch::int FROM herald_consumer')).rows[0];

describe('with the table', () => {
  it('calls state at the first start, and handles what comes then, in order', async () => {
    const reasons = [];
    const first = trial({ state: async (reason, transaction) => {
      reasons.push(reason);
      await transaction.query("INSERT INTO done (payload) VALUES ('state')");
    } });
    await first.consumer.start();
    assert.deepEqual(reasons, ['first start']);
    assert.deepEqual(first.events.map(({ event }) => event), ['active', 'state', 'listening']);
    assert.equal(first.all('listening')[0].resumed, false);
    assert.equal(first.all('listening')[0].stock, false);
    assert.equal(first.all('listening')[0].server, `127.0.0.1:${servers.places.primary.port}`);
    assert.ok((await stored()).position, 'the transaction of state stores the first position');
    await notify(sql, 'orders', ...range(1, 20));
    await until('all are handled', async () => (await done(sql)).length === 21);
    assert.deepEqual(await done(sql), ['state', ...range(1, 20)]);
    const last = first.all('handled').at(-1);
    assert.equal((await stored()).position, last.position);
    assert.ok(last.time instanceof Date);
  });

  it('resumes: what was sent while it was away comes, once, and state is not called', async () => {
    const first = trial();
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    await first.event('handled');
    await first.consumer.stop();
    assert.equal(first.events.at(-1).event, 'stopped');
    assert.equal(first.events.at(-1).error, undefined);
    await notify(sql, 'orders', 'b', 'c');
    const second = trial({ state: () => assert.fail('nothing is missing') });
    await second.consumer.start();
    await until('both are handled', async () => (await done(sql)).length === 3);
    assert.deepEqual(await done(sql), ['a', 'b', 'c']);
    assert.equal(second.all('listening')[0].resumed, true);
    assert.equal(second.all('active')[0].epoch, 2);
  });

  it('calls state with "gone" when the position is not good any more', async () => {
    const first = trial();
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    await first.event('handled');
    await sql.end();
    await servers.obey('restart primary');
    sql = await servers.connect();
    const listening = await first.event('listening', 2);
    assert.equal(listening.resumed, false);
    assert.deepEqual(first.all('state').map(({ reason }) => reason), ['first start', 'gone']);
    await notify(sql, 'orders', 'b');
    await until('it is handled', async () => (await done(sql)).includes('b'));
    assert.ok(first.all('disconnected').length >= 1);
  });

  it('handles what came on another channel while one channel has a gap', async () => {
    const first = trial({ channels: ['orders', 'logged_orders'] });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    await first.event('handled');
    await first.consumer.stop();
    await notify(sql, 'logged_orders', ...range(1, 50));
    await sql.query("SELECT pg_notify('logged_orders', i::text) FROM generate_series(51, 150) AS i");
    await sql.end();
    await servers.obey('restart primary');
    sql = await servers.connect();
    const second = trial({ channels: ['orders', 'logged_orders'], batch: 20 });
    await second.consumer.start();
    await until('all are handled', async () => (await done(sql)).length === 151);
    assert.deepEqual(await done(sql), ['a', ...range(1, 150)]);
    assert.deepEqual(second.all('state').map(({ reason }) => reason), ['gone']);
  });

  it('handles each once although its connections break again and again', async () => {
    const first = trial({ batch: 7 });
    await first.consumer.start();
    const sender = (async () => {
      for (const payload of range(1, 400)) await notify(sql, 'orders', payload);
    })();
    const other = await servers.connect();
    for (let breaks = 0; breaks < 10; breaks++) {
      const { rowCount } = await other.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'pg_herald billing' AND ${breaks % 2 ? "query ILIKE '%COMMIT%'" : 'true'}`);
      if (rowCount > 0) await first.event('listening', first.all('listening').length + 1);
    }
    await sender;
    await other.end();
    await until('all are handled', async () => (await done(sql)).length >= 400);
    assert.deepEqual(await done(sql), range(1, 400));
    assert.equal(first.all('state').length, 1);
  });

  it('joins what has come while it works, up to a batch', async () => {
    const sizes = [];
    let open;
    const gate = new Promise((resolve) => { open = resolve; });
    const first = trial({ batch: 10, handle: async (batch) => {
      sizes.push(batch.length);
      await gate;
    } });
    await first.consumer.start();
    await notify(sql, 'orders', 'first');
    await until('it works', () => sizes.length === 1);
    await notify(sql, 'orders', ...range(1, 25));
    open();
    await until('all are handled', () => sizes.reduce((a, b) => a + b) === 26);
    assert.ok(sizes.every((size) => size <= 10) && sizes.length <= 6, `together: ${sizes}`);
  });

  it('handles a large transaction in parts, with one commit', async () => {
    const sizes = [];
    const first = trial({ batch: 100, handle: async (batch, transaction) => {
      sizes.push(batch.length);
      await writeDone(batch, transaction);
    } });
    await first.consumer.start();
    await sql.query("SELECT pg_notify('orders', i::text) FROM generate_series(1, 1050) AS i");
    await first.event('handled');
    assert.equal(first.all('handled')[0].count, 1050);
    assert.deepEqual(await done(sql), range(1, 1050));
    assert.ok(sizes.every((size) => size <= 100));
    const { rows } = await sql.query('SELECT count(DISTINCT xmin::text)::int AS transactions FROM done');
    assert.equal(rows[0].transactions, 1);
  });

  it('receives a large transaction again when a later part fails', async () => {
    let failures = 2;
    const first = trial({ batch: 10, handle: async (batch, transaction) => {
      await writeDone(batch, transaction);
      if (batch.some(({ payload }) => payload === '55') && failures-- > 0) throw new Error('not yet');
    } });
    await first.consumer.start();
    await sql.query("SELECT pg_notify('orders', i::text) FROM generate_series(1, 100) AS i");
    await first.event('handled');
    assert.deepEqual(await done(sql), range(1, 100));
    assert.equal(first.all('failing').length, 2);
    assert.equal(first.all('disconnected').length, 2);
    assert.equal(first.all('disconnected')[0].error.message, 'not yet');
  });

  it('lets the batch in work end when it is stopped', async () => {
    let started;
    let open;
    const gate = new Promise((resolve) => { open = resolve; });
    const first = trial({ handle: async (batch, transaction) => {
      await writeDone(batch, transaction);
      started = true;
      await gate;
    } });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    await until('it works', () => started);
    await notify(sql, 'orders', 'b');
    const stopped = first.consumer.stop();
    open();
    await stopped;
    assert.deepEqual(await done(sql), ['a']);
    const { rows } = await sql.query("SELECT FROM pg_stat_activity WHERE application_name LIKE 'pg_herald%'");
    assert.equal(rows.length, 0);
    await first.consumer.start();
    await until('the other one has come', async () => (await done(sql)).length === 2);
  });

  it('stores a position that stands for nothing new, but not often', async () => {
    const first = trial();
    await first.consumer.start();
    await first.consumer.stop();
    const { position } = await stored();
    await notify(sql, 'others', ...range(1, 10));
    const second = trial({ heartbeat: 200 });
    await second.consumer.start();
    const next = await until('it is stored', async () => {
      const now = (await stored()).position;
      return now !== position && now;
    });
    await notify(sql, 'others', ...range(1, 10));
    await new Promise((resolve) => { setTimeout(resolve, 1000); }); // several heartbeats
    assert.equal((await stored()).position, next);
    assert.equal(second.all('handled').length, 0);
  });

  it('takes a table with a schema', async () => {
    await sql.query('DROP SCHEMA IF EXISTS app CASCADE; CREATE SCHEMA app');
    const { createStore } = require('pg-herald');
    await createStore({ connection: servers.uri(), table: 'app.Positions' });
    await createStore({ connection: servers.uri(), table: 'app.Positions' });
    const first = trial({ table: 'app.Positions' });
    await first.consumer.start();
    const { rows } = await sql.query('SELECT name FROM app."Positions"');
    assert.deepEqual(rows, [{ name: 'billing' }]);
  });
});

describe('two instances', () => {
  it('one is active, and the other takes over', async () => {
    const first = trial();
    const second = trial();
    await first.consumer.start();
    await second.consumer.start();
    assert.deepEqual(second.events.map(({ event }) => event), ['waiting']);
    await notify(sql, 'orders', 'a');
    await first.event('handled');
    await first.consumer.stop();
    await second.event('listening');
    await notify(sql, 'orders', 'b');
    await second.event('handled');
    assert.deepEqual(await done(sql), ['a', 'b']);
    assert.equal(second.all('state').length, 0);
  });

  it('a consumer whose epoch is over writes nothing', async () => {
    let open;
    const gate = new Promise((resolve) => { open = resolve; });
    let started;
    const first = trial({ handle: async (batch, transaction) => {
      await writeDone(batch, transaction);
      started = true;
      await gate;
    } });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    await until('it works', () => started);
    await sql.query('UPDATE herald_consumer SET epoch = epoch + 1');
    open();
    await first.event('superseded');
    await first.event('handled');
    assert.deepEqual(await done(sql), ['a']);
    assert.equal(first.all('active')[1].epoch, 3);
  });

  it('stop ends the wait for the lock', async () => {
    const first = trial();
    const second = trial();
    await first.consumer.start();
    await second.consumer.start();
    await second.consumer.stop();
    assert.equal(second.events.at(-1).event, 'stopped');
  });
});

describe('with a store of its own', () => {
  it('handles without a transaction, and saves', async () => {
    let position = null;
    const received = [];
    const store = { load: async () => position, save: async (text) => { position = text; } };
    const own = () => trial({ store, handle: (batch, transaction) => {
      assert.equal(transaction, undefined);
      received.push(...batch.map(({ payload }) => payload));
    } });
    const first = own();
    await first.consumer.start();
    assert.equal(first.all('state')[0].reason, 'first start');
    assert.ok(position);
    await notify(sql, 'orders', 'a');
    await first.event('handled');
    assert.equal(position, first.all('handled')[0].position);
    await first.consumer.stop();
    await notify(sql, 'orders', 'b');
    const second = own();
    await second.consumer.start();
    await second.event('handled');
    assert.deepEqual(received, ['a', 'b']);
    assert.equal(second.all('state').length, 0);
  });

  it('handles again what was not saved', async () => {
    const received = [];
    let failures = 1;
    let position = null;
    const first = trial({
      store: { load: () => position, save: (text) => {
        if (received.length > 0 && failures-- > 0) throw new Error('the disk is full');
        position = text;
      } },
      handle: (batch) => { received.push(...batch.map(({ payload }) => payload)); },
    });
    await first.consumer.start();
    await notify(sql, 'orders', 'a');
    await first.event('handled');
    assert.deepEqual(received, ['a', 'a']);
    assert.match(first.all('disconnected')[0].error.message, /disk is full/);
    assert.equal(first.all('disconnected')[0].error.name, 'StoreError');
  });
});

describe('shared', () => {
  const shared = (received) => trial({ name: undefined, shared: true,
    handle: (batch) => { received.push(...batch.map(({ payload }) => payload)); } });

  it('each process receives everything, from its start on, also when its connection breaks', async () => {
    const lists = [[], []];
    const both = lists.map(shared);
    for (const each of both) await each.consumer.start();
    assert.deepEqual(both[0].events.map(({ event }) => event), ['state', 'listening']);
    await notify(sql, 'orders', 'a');
    await until('both have it', () => lists.every((list) => list.length === 1));
    await sql.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_herald'");
    await notify(sql, 'orders', 'b');
    await until('both have it', () => lists.every((list) => list.length === 2));
    assert.deepEqual(lists, [['a', 'b'], ['a', 'b']]);
    assert.deepEqual(both[1].all('state').map(({ reason }) => reason), ['first start']);
    assert.equal(both[1].all('listening')[1].resumed, true);
  });

  it('resumes also if nothing has come before its connection breaks', async () => {
    const received = [];
    const one = shared(received);
    await one.consumer.start();
    await sql.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_herald'");
    await notify(sql, 'orders', 'a');
    await until('it has come', () => received.length === 1);
    assert.equal(one.all('state').length, 1);
  });
});
