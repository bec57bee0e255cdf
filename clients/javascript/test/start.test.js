'use strict';

const assert = require('node:assert/strict');
const net = require('node:net');
const { after, before, beforeEach, afterEach, it } = require('node:test');
const herald = require('pg-herald');
const { Servers, Trial, prepare, until, writeDone } = require('./helpers.js');

let servers;
let sql;

before(async () => { servers = await Servers.start('primary', 'stock'); });
after(() => servers.close());
beforeEach(async () => { sql = await prepare(servers); });
afterEach(() => sql.end());

async function fails(type, options, message = /./) {
  const trial = new Trial({ connection: servers.uri(), name: 'billing', channels: ['orders'], handle: writeDone, ...options });
  await assert.rejects(trial.consumer.start(), (error) => {
    assert.equal(error.name, type, error.stack);
    assert.ok(error instanceof herald[type] && error instanceof herald.HeraldError);
    assert.match(error.message, message);
    return true;
  });
  assert.deepEqual(trial.all('stopped'), []);
  assert.equal(trial.error, undefined);
  return until('no connection is left', async () => {
    const { rows } = await sql.query("SELECT FROM pg_stat_activity WHERE application_name LIKE 'pg_herald%'");
    return rows.length === 0;
  });
}

const closedPort = () => new Promise((resolve) => {
  const server = net.createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

it('no server answers', async () => {
  const port = await closedPort();
  await fails('UnreachableError', { connection: servers.uri('primary', { port }) }, /ECONNREFUSED/);
  await fails('UnreachableError', { connection: `postgresql://postgres@localhost:${port},127.0.0.1:${port}/postgres` }, /;/);
  await fails('UnreachableError', { connection: servers.uri('primary', { port }), workConnection: servers.uri() });
});

it('a server that is silent', async () => {
  const silent = net.createServer(() => {}).listen(0, '127.0.0.1');
  await new Promise((resolve) => { silent.once('listening', resolve); });
  await fails('UnreachableError', { connection: servers.uri('primary', { port: silent.address().port }), heartbeat: 500 }, /time/);
  silent.close();
});

it('the password is wrong', () => fails('AuthenticationError', { connection: servers.uri('primary', { password: 'x' }) }, /password/));
it('there is no password', () => fails('AuthenticationError',
  { connection: `postgresql://postgres@127.0.0.1:${servers.places.primary.port}/postgres` }));
it('the database is missing', () => fails('DatabaseMissingError', { connection: servers.uri('primary', { database: 'none' }) }, /none/));
it('the table is missing', () => fails('StoreError', { table: 'another' }, /"another"/));

it('the table has other columns', async () => {
  await sql.query('CREATE TABLE IF NOT EXISTS odd (name text PRIMARY KEY)');
  await fails('StoreError', { table: 'odd' });
});

it('the table is not permitted', async () => {
  await sql.query(`DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN PASSWORD 'clerk'; GRANT USAGE ON SCHEMA public TO clerk`);
  const connection = servers.uri().replace(/postgres:[^@]*@/, 'clerk:clerk@');
  await fails('StoreError', { connection }, /permission denied/);
  await sql.query('GRANT SELECT, UPDATE ON herald_consumer TO clerk');
  await fails('StoreError', { connection }, /permission denied/);
  await sql.query('GRANT INSERT ON herald_consumer TO clerk');
  const trial = new Trial({ connection, name: 'billing', channels: ['orders'], handle: writeDone });
  await trial.consumer.start();
  await trial.consumer.stop();
  await sql.query('DROP OWNED BY clerk; DROP ROLE clerk');
});

it('createStore needs no privilege if the table is there, and can be called at the same time', async () => {
  await sql.query(`DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN PASSWORD 'clerk'`);
  const connection = servers.uri().replace(/postgres:[^@]*@/, 'clerk:clerk@');
  await herald.createStore({ connection });
  await assert.rejects(herald.createStore({ connection, table: 'fresh' }), { name: 'StoreError' });
  await Promise.all(Array.from({ length: 8 }, () => herald.createStore({ connection: servers.uri(), table: 'fresh' })));
  await herald.createStore({ connection, table: 'fresh' });
  await sql.query('DROP TABLE fresh; DROP ROLE clerk');
});

it('the stored position is none', async () => {
  await sql.query("INSERT INTO herald_consumer (name, position) VALUES ('billing', 'somewhere')");
  await fails('StoreError', {}, /position/);
});

it('a store of its own that fails', () => fails('StoreError',
  { store: { load() { throw new Error('no disk'); }, save() {} } }, /no disk/));

it('a store of its own that does not answer', () => fails('StoreError',
  { workTimeout: 500, store: { load: () => new Promise(() => {}), save() {} } }, /longer than 500 ms/));

it('after a wrong configuration, says so again', async () => {
  const consumer = new herald.Consumer({ connection: servers.uri(), name: 'billing', channels: [], handle: writeDone });
  for (let times = 0; times < 2; times++) await assert.rejects(consumer.start(), /channel/);
});

it('the database does not have the extension', async () => {
  const connection = servers.uri('primary', { database: 'bare' });
  await fails('ExtensionMissingError', { connection, shared: true, name: undefined }, /CREATE EXTENSION/);
  await fails('ExtensionMissingError', { connection, workConnection: servers.uri() });
});

it('the server has no pg_herald, and require is set', async () => {
  const connection = servers.uri('stock');
  await fails('StockServerError', { connection, require: true, shared: true, name: undefined });
  await fails('StockServerError', { connection, workConnection: servers.uri(), require: true });
});

it('is started already', async () => {
  const trial = new Trial({ connection: servers.uri(), name: 'billing', channels: ['orders'], handle: writeDone });
  const begins = trial.consumer.start();
  await assert.rejects(trial.consumer.start(), herald.ConfigurationError);
  await begins;
  await trial.consumer.stop();
});

it('is stopped while it begins', async () => {
  const silent = net.createServer(() => {}).listen(0, '127.0.0.1');
  await new Promise((resolve) => { silent.once('listening', resolve); });
  const trial = new Trial({ connection: servers.uri('primary', { port: silent.address().port }), name: 'billing', channels: ['orders'],
    handle: writeDone, heartbeat: 30000 });
  const begins = trial.consumer.start();
  await trial.consumer.stop();
  await begins;
  assert.deepEqual(trial.events.map(({ event }) => event), ['stopped']);
  silent.close();
});

it('what fails after the start is an event, and is tried again', async () => {
  const trial = new Trial({ connection: servers.uri(), name: 'billing', channels: ['orders'], handle: writeDone });
  await trial.consumer.start();
  await sql.query('ALTER TABLE herald_consumer RENAME TO hidden');
  await sql.query("SELECT pg_notify('orders', 'a')");
  await trial.event('disconnected', 2);
  assert.equal(trial.all('disconnected')[0].error.name, 'StoreError');
  await sql.query('ALTER TABLE hidden RENAME TO herald_consumer');
  await trial.event('handled');
  await trial.consumer.stop();
});
