'use strict';

const { spawn } = require('node:child_process');
const { once } = require('node:events');
const net = require('node:net');
const path = require('node:path');
const readline = require('node:readline');
const { Client } = require('pg');
const { Consumer, createStore } = require('pg-herald');

const DEADLINE = 60000;

/** Waits until a function returns something true, or fails. */
async function until(what, condition, deadline = DEADLINE) {
  const end = Date.now() + deadline;
  for (;;) {
    const result = await condition();
    if (result) return result;
    if (Date.now() > end) throw new Error(`not within ${deadline} ms: ${what}`);
    await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
}

/** Private servers: primary, standby, stock. They end with close(), and with this process. */
class Servers {
  static async start(...names) {
    const servers = new Servers();
    servers.process = spawn('python3', [path.join(__dirname, 'servers.py'), ...names], { stdio: ['pipe', 'pipe', 'inherit'] });
    servers.ended = new Promise((resolve) => { servers.process.once('exit', resolve); });
    servers.lines = readline.createInterface({ input: servers.process.stdout })[Symbol.asyncIterator]();
    servers.places = JSON.parse((await servers.lines.next()).value);
    return servers;
  }

  async close() {
    this.process.stdin.end();
    await this.ended;
  }

  /** For instance `kill primary`. */
  async obey(line) {
    this.process.stdin.write(`${line}\n`);
    const { value } = await this.lines.next();
    if (value !== 'done') throw new Error(value);
  }

  uri(name = 'primary', { database = 'postgres', port = this.places[name].port, password = this.places[name].password } = {}) {
    return `postgresql://postgres:${password}@${this.places[name].host}:${port}/${database}`;
  }

  /** One connection with the same user, password and database to several ports. */
  uriOfPorts(...ports) {
    const { host, password } = this.places.primary;
    return `postgresql://postgres:${password}@${ports.map((port) => `${host}:${port}`).join(',')}/postgres`;
  }

  /** A connection by the socket. It does not count as one of a consumer: its application_name is empty. */
  async connect(name = 'primary', database = 'postgres') {
    const { socket, port } = this.places[name];
    const client = new Client({ host: socket, port, user: 'postgres', database });
    client.on('error', () => {});
    await client.connect();
    return client;
  }
}

/** A consumer, and its events. */
class Trial {
  events = [];

  constructor(options) {
    this.consumer = new Consumer({ logger: null, heartbeat: 1000, backoff: { first: 20, max: 200 }, ...options });
    for (const event of ['waiting', 'active', 'state', 'listening', 'handled', 'failing', 'poison', 'disconnected', 'superseded',
      'stopped']) {
      this.consumer.on(event, (fields) => this.events.push({ event, ...fields }));
    }
    this.consumer.on('error', (error) => { this.error = error; });
  }

  all(event) {
    return this.events.filter((each) => each.event === event);
  }

  /** Waits for an event, the first or a later one. */
  async event(name, number = 1) {
    await until(`event ${name}, ${number} times; there are ${this.events.map(({ event }) => event).join(', ')}`,
      () => {
        if (this.error && name !== 'stopped') throw this.error;
        return this.all(name).length >= number;
      });
    return this.all(name)[number - 1];
  }
}

/** Passes connections on to a port, until it is silent or breaks them; counts what it passes to clients. */
class Proxy {
  bytes = 0;
  #clients = new Set();
  #servers = new Set();

  static async start(port) {
    const proxy = new Proxy();
    proxy.listener = net.createServer((client) => proxy.#pass(client, port)).listen(0, '127.0.0.1');
    await once(proxy.listener, 'listening');
    proxy.port = proxy.listener.address().port;
    return proxy;
  }

  #pass(client, port) {
    const server = net.connect(port, '127.0.0.1');
    for (const [socket, other, all] of [[client, server, this.#clients], [server, client, this.#servers]]) {
      all.add(socket);
      socket.pipe(other);
      socket.on('error', () => {});
      socket.on('close', () => {
        all.delete(socket);
        if (!socket.isSilent) other.destroy();
      });
    }
    server.on('data', (data) => { this.bytes += data.length; });
  }

  /** From now on nothing is passed on in the present connections, also not that one side has gone. */
  silence() {
    for (const socket of [...this.#clients, ...this.#servers]) {
      socket.isSilent = true;
      socket.unpipe();
      socket.resume();
    }
  }

  reset() {
    for (const socket of [...this.#clients, ...this.#servers]) socket.resetAndDestroy();
  }

  /** The number of clients. */
  get connections() {
    return this.#clients.size;
  }

  async close() {
    this.reset();
    this.listener.close();
    await once(this.listener, 'close');
  }
}

const SETUP = `
  DROP TABLE IF EXISTS done, dead, herald_consumer;
  CREATE TABLE done (id bigint GENERATED ALWAYS AS IDENTITY, payload text);
  CREATE TABLE dead (payload text, error text)`;

/** A server with empty tables; sql is a connection to it. */
async function prepare(servers, name = 'primary') {
  const sql = await servers.connect(name);
  await sql.query('SET client_min_messages = error');
  await sql.query(SETUP);
  await createStore({ connection: servers.uri(name) });
  return sql;
}

/** Writes each payload into table done. */
async function writeDone(batch, transaction) {
  for (const { payload } of batch) await transaction.query('INSERT INTO done (payload) VALUES ($1)', [payload]);
}

/** What was written, in order. */
async function done(sql) {
  const { rows } = await sql.query('SELECT payload FROM done ORDER BY id');
  return rows.map(({ payload }) => payload);
}

async function notify(sql, channel, ...payloads) {
  for (const payload of payloads) await sql.query('SELECT pg_notify($1, $2)', [channel, String(payload)]);
}

const range = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => String(from + i));

module.exports = { Proxy, Servers, Trial, done, notify, prepare, range, until, writeDone };
