'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, it } = require('node:test');
const { Servers, notify, prepare, until } = require('./helpers.js');

const PROGRAM = path.join(__dirname, '..', 'conformance.js');

let servers;
let sql;
let folder;

before(async () => {
  servers = await Servers.start('primary');
  sql = await prepare(servers);
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'pg-herald-'));
  await sql.query(`CREATE TABLE orders (id bigint PRIMARY KEY); INSERT INTO orders VALUES (1);
    CREATE TABLE bill (order_id bigint PRIMARY KEY, by text NOT NULL, handled int NOT NULL DEFAULT 1);
    CREATE TABLE dead_letter (payload text, error text)`);
});
after(async () => {
  await sql.end();
  await servers.close();
  fs.rmSync(folder, { recursive: true });
});

class Program {
  lines = [];
  #rest = '';

  constructor(given) {
    const all = { connection: servers.uri(), name: 'billing', channels: ['orders'], heartbeat: 0.5, backoff: [0.02, 0.2], ...given };
    this.process = spawn(process.execPath, [PROGRAM, JSON.stringify(all)], { stdio: ['ignore', 'pipe', 'ignore'] });
    this.ended = once(this.process, 'close').then(([code]) => code);
    this.process.stdout.on('data', (data) => {
      const lines = (this.#rest + data).split('\n');
      this.#rest = lines.pop();
      this.lines.push(...lines.map((line) => JSON.parse(line)));
    });
  }

  event(name) {
    return until(name, () => this.lines.find(({ event }) => event === name));
  }

  async stop() {
    this.process.kill('SIGTERM');
    assert.equal(await this.ended, 0);
    assert.equal(this.lines.at(-1).event, 'stopped');
  }
}

it('bills each order once, and skips what cannot be billed', async () => {
  const program = new Program({ mode: 'store', attempts: 2, poison: 'skip',
    handler: { fail_always: 'bad', fail_times: { 3: 1 }, kill_connection: 'kill' } });
  await program.event('listening');
  await notify(sql, 'orders', 1, 2, 3, 'bad', 4);
  await until('all are billed', async () => (await sql.query('SELECT FROM bill')).rowCount === 4);
  const { rows } = await sql.query('SELECT order_id::int, by, handled FROM bill ORDER BY order_id');
  assert.deepEqual(rows.map((row) => Object.values(row)), [[1, 'state', 1], [2, 'handle', 1], [3, 'handle', 1], [4, 'handle', 1]]);
  assert.equal((await sql.query('SELECT payload FROM dead_letter')).rows[0].payload, 'bad');
  await program.stop();
  assert.ok(program.lines.every(({ at }) => Math.abs(at - Date.now() / 1000) < 600));
});

it('fails when the connection breaks always', async () => {
  const program = new Program({ attempts: 1, handler: { kill_connection: 'kill' } });
  await program.event('listening');
  await notify(sql, 'orders', 'kill');
  assert.equal(await program.ended, 1);
  assert.equal(program.lines.at(-1).type, 'HandlerError');
});

it('keeps its position in a file', async () => {
  const given = { mode: 'own', name: 'filing', store_file: path.join(folder, 'position') };
  for (const payload of ['a', 'b']) {
    const program = new Program(given);
    await program.event('listening');
    if (payload === 'a') await notify(sql, 'orders', 'a');
    assert.equal((await program.event('notification')).payload, payload);
    await program.event('handled');
    await program.stop();
    if (payload === 'a') await notify(sql, 'orders', 'b');
  }
});

it('shared', async () => {
  const program = new Program({ mode: 'shared', name: undefined });
  await program.event('listening');
  await notify(sql, 'orders', 'a');
  assert.equal((await program.event('notification')).payload, 'a');
  await program.stop();
});

it('the example in README.md bills what was ordered before and after its start', async () => {
  const text = fs.readFileSync(path.join(__dirname, '..', 'README.md'), 'utf8');
  const [, example] = /```js\n([^]*?)```/.exec(text);
  await sql.query('DROP TABLE herald_consumer, bill; CREATE TABLE bill (order_id bigint PRIMARY KEY)');
  const program = spawn(process.execPath, ['-e', example.replace('postgresql://localhost/shop', servers.uri())],
    { cwd: path.dirname(PROGRAM), stdio: 'ignore' });
  const billed = async (count) => (await sql.query('SELECT FROM bill')).rowCount === count;
  await until('what was ordered before', () => billed(1));
  await notify(sql, 'orders', 1, 2);
  await until('what was ordered after', () => billed(2));
  program.kill('SIGKILL');
  await once(program, 'exit');
});

it('says why it cannot begin', async () => {
  const program = new Program({ name: '' });
  assert.equal(await program.ended, 1);
  assert.deepEqual(program.lines.map(({ event, type }) => [event, type]), [['failed', 'ConfigurationError']]);
});
