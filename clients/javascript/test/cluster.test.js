'use strict';

const assert = require('node:assert/strict');
const { after, before, describe, it } = require('node:test');
const { Proxy, Servers, Trial, done, notify, prepare, range, until, writeDone } = require('./helpers.js');

describe('a primary and a standby', () => {
  let servers;

  before(async () => { servers = await Servers.start('primary', 'standby'); });
  after(() => servers.close());

  it('works on the primary, listens on either, and goes on after a failover', async () => {
    let sql = await prepare(servers);
    const { primary, standby } = servers.places;
    const closed = await Proxy.start(1);
    await closed.close();
    const options = { name: 'billing', channels: ['logged_orders'], handle: writeDone };

    const caughtUp = async () => {
      const other = await servers.connect('standby');
      const { rows } = await sql.query('SELECT pg_current_wal_lsn()::text AS lsn');
      await until('the standby has caught up', async () =>
        (await other.query('SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn AS caught_up', [rows[0].lsn])).rows[0].caught_up);
      await other.end();
    };
    await caughtUp();

    const onlyStandby = new Trial({ ...options, connection: servers.uri('standby') });
    await assert.rejects(onlyStandby.consumer.start(), { name: 'UnreachableError', message: /is a standby/ });

    const first = new Trial({ ...options, connection: servers.uriOfPorts(closed.port, standby.port, primary.port) });
    await first.consumer.start();
    assert.equal(first.all('listening')[0].server, `127.0.0.1:${standby.port}`);
    await notify(sql, 'logged_orders', ...range(1, 50));
    await until('all are handled', async () => (await done(sql)).length === 50);

    // On a standby, a channel that is not logged is refused.
    const unlogged = new Trial({ ...options, name: 'others', channels: ['orders'],
      connection: servers.uriOfPorts(standby.port, primary.port) });
    await unlogged.consumer.start();
    assert.equal(unlogged.all('listening')[0].server, `127.0.0.1:${primary.port}`);
    await unlogged.consumer.stop();
    const refused = new Trial({ channels: ['orders'], shared: true, connection: servers.uri('standby'), handle() {} });
    await assert.rejects(refused.consumer.start(), { name: 'UnreachableError' });

    await notify(sql, 'logged_orders', ...range(51, 100));
    await caughtUp();
    await sql.end();
    await servers.obey('kill primary');
    await servers.obey('promote standby');
    sql = await servers.connect('standby');
    await notify(sql, 'logged_orders', ...range(101, 150));
    await until('all are handled', async () => (await done(sql)).length >= 150);
    assert.deepEqual(await done(sql), range(1, 150));
    assert.deepEqual(first.all('state').map(({ reason }) => reason), ['first start']);
    await first.consumer.stop();
    await sql.end();
  });
});

describe('a stock server', () => {
  let servers;

  before(async () => { servers = await Servers.start('stock'); });
  after(() => servers.close());

  it('calls state at each connection, and stores no position', async () => {
    const sql = await prepare(servers, 'stock');
    const first = new Trial({ connection: servers.uri('stock'), name: 'billing', channels: ['Orders "x"', 'customers'], handle: writeDone,
      state: (_reason, transaction) => writeDone([{ payload: 'state' }], transaction) });
    await first.consumer.start();
    assert.equal(first.all('listening')[0].stock, true);
    assert.equal(first.all('listening')[0].resumed, false);
    await notify(sql, 'Orders "x"', 'a');
    await until('it is handled', async () => (await done(sql)).length === 2);
    assert.equal(first.all('handled')[0].position, null);
    await sql.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pg_herald billing'");
    await first.event('listening', 2);
    await notify(sql, 'customers', 'b');
    await until('it is handled', async () => (await done(sql)).length === 4);
    assert.deepEqual(await done(sql), ['state', 'a', 'state', 'b']);
    assert.deepEqual(first.all('state').map(({ reason }) => reason), ['stock', 'stock']);
    const { rows } = await sql.query('SELECT position FROM herald_consumer');
    assert.equal(rows[0].position, null);
    await first.consumer.stop();
    await sql.end();
  });

  it('notices that the server is silent by asking it', async () => {
    const sql = await prepare(servers, 'stock');
    const proxy = await Proxy.start(servers.places.stock.port);
    const first = new Trial({ connection: servers.uri('stock', { port: proxy.port }), shared: true, channels: ['orders'], heartbeat: 200,
      handle() {} });
    await first.consumer.start();
    await new Promise((resolve) => { setTimeout(resolve, 1000); }); // the time itself is tested
    assert.equal(first.all('disconnected').length, 0);
    proxy.silence();
    await first.event('disconnected');
    await first.event('listening', 2);
    await first.consumer.stop();
    await proxy.close();
    await sql.end();
  });

  it('handles what comes in batches, and joins it', async () => {
    const sql = await prepare(servers, 'stock');
    const sizes = [];
    const first = new Trial({ connection: servers.uri('stock'), name: 'billing', channels: ['orders'], batch: 10,
      handle: async (batch, transaction) => {
        sizes.push(batch.length);
        await writeDone(batch, transaction);
      } });
    await first.consumer.start();
    await sql.query("SELECT pg_notify('orders', i::text) FROM generate_series(1, 1000) AS i");
    await until('all are handled', async () => (await done(sql)).length === 1000);
    assert.deepEqual(await done(sql), range(1, 1000));
    assert.ok(Math.max(...sizes) === 10);
    await first.consumer.stop();
    await sql.end();
  });
});
