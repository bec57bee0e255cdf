'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const net = require('node:net');
const { after, afterEach, before, beforeEach, describe, it } = require('node:test');
const { Proxy, Servers, Trial, done, notify, prepare, range, until, writeDone } = require('./helpers.js');

const MEGABYTE = 1e6;

let servers;
let sql;
let trials;
let proxies;

before(async () => { servers = await Servers.start('primary'); });
after(() => servers.close());
beforeEach(async () => {
  sql = await prepare(servers);
  trials = [];
  proxies = [];
});
afterEach(async () => {
  for (const trial of trials) await trial.consumer.stop();
  for (const proxy of proxies) await proxy.close();
  await sql.end();
});

function trial(options) {
  const made = new Trial({ connection: servers.uri(), name: 'billing', channels: ['orders'], handle: writeDone, ...options });
  trials.push(made);
  return made;
}

async function proxied() {
  const proxy = await Proxy.start(servers.places.primary.port);
  proxies.push(proxy);
  return { proxy, uri: servers.uri('primary', { port: proxy.port }) };
}

describe('a connection that is silent', () => {
  it('the listening one is left after two heartbeats, and what was sent meanwhile comes', async () => {
    const { proxy, uri } = await proxied();
    const first = trial({ connection: uri, workConnection: servers.uri(), heartbeat: 500 });
    await first.consumer.start();
    proxy.silence();
    const silentAt = Date.now();
    await notify(sql, 'orders', 'a');
    const { error, time } = await first.event('disconnected');
    assert.match(error.message, /nothing has come from .* for 1000 ms/);
    assert.equal(error.name, 'UnreachableError');
    assert.ok(time - silentAt < 1900, `after ${time - silentAt} ms`);
    await first.event('handled');
    assert.deepEqual(await done(sql), ['a']);
  });

  it('a quiet one stays, since heartbeats come', async () => {
    const first = trial({ heartbeat: 200 });
    await first.consumer.start();
    await new Promise((resolve) => { setTimeout(resolve, 2000); }); // the time itself is tested
    assert.deepEqual(first.events.map(({ event }) => event), ['active', 'state', 'listening']);
  });

  it('one that is not read, since the handler is slow, stays', async () => {
    const first = trial({ heartbeat: 200, batch: 5, handle: async (batch, transaction) => {
      await new Promise((resolve) => { setTimeout(resolve, 1000); });
      await writeDone(batch, transaction);
    } });
    await first.consumer.start();
    await notify(sql, 'orders', ...range(1, 12));
    await until('all are handled', async () => (await done(sql)).length === 12);
    assert.equal(first.all('disconnected').length, 0);
  });

  it('the work connection is left after the time for a statement', async () => {
    const { proxy, uri } = await proxied();
    const first = trial({ workConnection: uri, workTimeout: 700, attempts: 3 });
    await first.consumer.start();
    proxy.silence();
    await notify(sql, 'orders', 'a');
    await first.event('disconnected');
    proxy.reset(); // where the network itself is silent, the server notices that by its keepalives
    await first.event('handled');
    assert.deepEqual(await done(sql), ['a']);
  });

  it('with a store of its own, the work connection is asked before the handler is called', async () => {
    const { proxy, uri } = await proxied();
    let calls = 0;
    let position = null;
    const first = trial({ workConnection: uri, workTimeout: 700, handle: () => { calls++; },
      store: { load: () => position, save: (text) => { position = text; } } });
    await first.consumer.start();
    proxy.silence();
    await notify(sql, 'orders', 'a');
    await first.event('disconnected');
    assert.equal(calls, 0);
    proxy.reset(); // see above
    await first.event('handled');
    assert.equal(calls, 1);
  });

  it('does not delay stop', async () => {
    const { proxy, uri } = await proxied();
    const first = trial({ connection: uri, heartbeat: 30000 });
    await first.consumer.start();
    proxy.silence();
    const began = Date.now();
    await first.consumer.stop();
    assert.ok(Date.now() - began < 5000);
    await until('the connections are left', () => proxy.connections === 0);
  });
});

it('connections that are reset again and again lose nothing', async () => {
  const { proxy, uri } = await proxied();
  const first = trial({ connection: uri, batch: 7 });
  await first.consumer.start();
  for (let i = 0; i < 300; i += 30) {
    await notify(sql, 'orders', ...range(i + 1, i + 30));
    await until('it has connected again', () => proxy.connections > 0);
    proxy.reset();
  }
  await until('all are handled', async () => (await done(sql)).length >= 300);
  assert.deepEqual(await done(sql), range(1, 300));
  assert.ok(first.all('disconnected').length >= 5);
  assert.equal(first.all('state').length, 1);
});

// A pooler's session, that still hears what another client has listened to: at the end of the first answer in a transaction.
class LentSession extends net.Socket {
  push(data) {
    const isBegun = data?.toString('latin1').endsWith('Z\0\0\0\x05T');
    return super.push(isBegun ? Buffer.concat([data, ...['orders', 'herald_position'].map(LentSession.#old)]) : data);
  }

  static #old(channel) {
    const body = `\0\0\0\x07${channel}\0old\0`;
    return Buffer.from(`A\0\0\0${String.fromCharCode(4 + body.length)}${body}`);
  }
}

it('what comes before LISTEN is committed is dropped', async () => {
  const received = [];
  const first = trial({ connection: { connectionString: servers.uri(), stream: () => new LentSession() },
    workConnection: servers.uri(), handle: (batch) => { received.push(...batch.map(({ payload }) => payload)); } });
  await first.consumer.start();
  const { rows } = await sql.query('SELECT position FROM herald_consumer');
  assert.ok(rows[0].position);
  assert.notEqual(rows[0].position, 'old');
  await notify(sql, 'orders', 'a');
  await first.event('handled');
  assert.deepEqual(received, ['a']);
});

describe('a slow handler bounds what is read', () => {
  async function backlog(before) {
    const { proxy, uri } = await proxied();
    let open;
    const gate = new Promise((resolve) => { open = resolve; });
    let count = 0;
    const options = { connection: uri, workConnection: servers.uri(), batch: 100, handle: async (batch) => {
      count += batch.length;
      await gate;
    } };
    let first = trial(options);
    await first.consumer.start();
    if (before) await first.consumer.stop();
    for (let i = 0; i < 30; i++) {
      await sql.query("SELECT count(pg_notify('orders', repeat('x', 1000) || i || '-' || $1)) FROM generate_series(1, 1000) AS i", [i]);
    }
    if (before) {
      first = trial(options);
      await first.consumer.start();
    }
    await until('it works', () => count > 0);
    // What is not read fills the buffers of the system; then nothing more is passed on.
    let bytes = -1;
    await until('nothing more comes', async () => {
      const last = bytes;
      bytes = proxy.bytes;
      await new Promise((resolve) => { setTimeout(resolve, 500); });
      return last === bytes;
    });
    assert.equal(count, 100);
    assert.ok(bytes < 15 * MEGABYTE, `${bytes} bytes of 30 MB`);
    open();
    await until('all are handled', () => count === 30000);
    assert.ok(proxy.bytes > 30 * MEGABYTE);
    assert.equal(first.all('disconnected').length, 0);
  }

  it('of what is sent', () => backlog(false));
  it('of what was sent before it came back', () => backlog(true));
});

it('works over TLS: pauses, and leaves a silent connection', async () => {
  const { proxy, uri } = await proxied();
  const secure = (connectionString) => ({ connectionString, ssl: { ca: fs.readFileSync(`${servers.places.primary.data}/server.crt`) } });
  const first = trial({ connection: secure(uri), workConnection: secure(servers.uri()), batch: 10, heartbeat: 500 });
  await first.consumer.start();
  const { rows } = await sql.query('SELECT count(*)::int AS secure FROM pg_stat_ssl WHERE ssl');
  assert.equal(rows[0].secure, 2);
  await sql.query("SELECT pg_notify('orders', i::text) FROM generate_series(1, 5000) AS i");
  await first.event('handled');
  proxy.silence();
  await first.event('listening', 2);
  assert.equal(proxy.connections, 1, 'the silent one is left');
  await notify(sql, 'orders', 'a');
  await until('it is handled', async () => (await done(sql)).length === 5001);
});
