'use strict';

const { escapeIdentifier } = require('pg');
const { connectToOne, textOf } = require('./connection.js');
const { ConfigurationError, ExtensionMissingError, StockServerError, UnreachableError } = require('./errors.js');
const { Inbox } = require('./inbox.js');
const { SilenceWatch } = require('./silence.js');

const POSITION_CHANNEL = 'herald_position';
const CONFLICT = '40001'; // a standby cannot replay what the session waits for: the same once more
const CONFLICTS_MAX = 3;
const REFUSED = new Set(['42501', '0A000']); // no privilege on herald.listen(); a server that cannot resume
const NO_LIMIT = 2 ** 31 - 1; // instead of the user's query_timeout

/**
 * The listening connection. Nothing is asked on it once it listens, except on a stock server, where an answer shows that the
 * server is still there.
 */
class Listening {
  /** true: the server has no pg_herald */
  stock = false;
  /** true: all that came after the position comes; always false without a position, and on a stock server */
  resumed = false;
  /** What has been received. */
  inbox = null;
  /** Has anything come since it began to listen that shows that the connection lasts? */
  beats = false;
  #options;
  #connection;
  #ring;
  #onArrival = () => {};
  #committed = false; // the answer to LISTEN has come
  #positions = 0;
  #paused = false;
  #silence = new SilenceWatch((time) => {
    this.leave(new UnreachableError(`nothing has come from ${this.place} for ${time} ms: `
      + 'the connection is mute, or a pooler keeps the notifications to itself'));
  });
  #pings = null; // the timer
  #pinging = false;

  /**
   * Connects to the first server that can be listened to, and listens there: see #listen. On a standby that may be refused.
   * ring: called when something has come, and when the connection breaks.
   */
  static open(options, signal, ring, position) {
    return Listening.#open(options, signal, ring, (listening) => listening.#listen(position));
  }

  /** Fails if open() would fail, as far as that is known without listening. */
  static async check(options, signal) {
    await (await Listening.#open(options, signal, () => {}, async () => {})).close();
  }

  static async #open(options, signal, ring, listen) {
    let listening;
    await connectToOne(options.servers, options.applicationName, options.timing, signal, async (connection) => {
      listening = new Listening(options, connection, ring);
      await listening.#look();
      await listen(listening);
    });
    return listening;
  }

  constructor(options, connection, ring) {
    this.#options = options;
    this.#connection = connection;
    this.#ring = ring;
  }

  get broken() {
    return this.#connection.broken;
  }

  get place() {
    return this.#connection.place;
  }

  /** Placeholders for settings of a module that is not loaded are not in pg_settings. */
  async #look() {
    const { rows } = await this.#connection.query(`SELECT
      EXISTS (SELECT FROM pg_settings WHERE name = 'herald.queue_memory')::text AS module,
      EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_herald')::text AS extension`);
    this.stock = rows[0].module !== 'true';
    if (this.stock) {
      if (this.#options.require) throw new StockServerError(`${this.place} has no pg_herald`);
    } else if (rows[0].extension !== 'true') {
      const database = this.#connection.client.database;
      throw new ExtensionMissingError(`${this.place} has pg_herald, and database "${database}" does not have its extension: `
        + 'execute CREATE EXTENSION pg_herald there');
    }
  }

  // Listens, and first of all receives what came after the position.
  async #listen(position) {
    const { client } = this.#connection;
    this.inbox = new Inbox(this.#options.batch, !this.stock);
    client.connection.stream.on('data', () => this.#silence.heard());
    this.#connection.onBroken = () => {
      this.#stopTimers();
      this.#onArrival();
      this.#ring();
    };
    this.resumed = this.stock ? await this.#listenStock() : await this.#listenHerald(position);
    if (this.broken) throw this.broken;
  }

  /** Begins to receive. What came before was not for this client: a pooler lends sessions in which others have listened. */
  #hear() {
    this.#connection.client.removeAllListeners('notification').on('notification', (message) => this.#receive(message));
  }

  async #listenStock() {
    this.#hear();
    await this.#connection.query(this.#options.channels.map((name) => `LISTEN ${escapeIdentifier(name)}`).join('; '));
    this.#committed = true;
    this.#watch();
    this.#pings = setInterval(() => this.#ping(), this.#options.heartbeat);
    return false;
  }

  async #listenHerald(position) {
    for (let conflicts = 0; ; conflicts++) {
      try {
        return await this.#resume(position);
      } catch (error) {
        if (REFUSED.has(error.code)) throw new ConfigurationError(`${this.place}: ${textOf(error)}`, { cause: error });
        if (error.code !== CONFLICT || conflicts === CONFLICTS_MAX || this.broken) throw error;
        await this.#connection.query('ROLLBACK');
      }
    }
  }

  async #resume(position) {
    const heartbeat = Math.round(this.#options.heartbeat);
    await this.#connection.query(`BEGIN; SET herald.heartbeat = ${heartbeat}; LISTEN ${POSITION_CHANNEL}`);
    const { rows } = await this.#connection.query(
      'SELECT herald.listen(channel, after => $2)::text AS complete FROM unnest($1::text[]) AS channel',
      [this.#options.channels, position]);
    await this.#commit();
    return rows.every(({ complete }) => complete === 'true');
  }

  // The server sends all that was missed before it answers the COMMIT, and the client may stop reading in the middle of
  // that: so the first that comes is an answer, too. Before that, the server may have to read for long.
  async #commit() {
    const arrival = new Promise((resolve) => { this.#onArrival = resolve; });
    this.#hear();
    this.#watch();
    const commit = this.#connection.client.query({ text: 'COMMIT', query_timeout: NO_LIMIT }).then(() => {
      this.#committed = true;
      this.#watch();
    });
    await Promise.race([arrival, commit]);
    commit.catch((error) => this.#connection.leave(error));
  }

  #receive({ channel, payload, processId }) {
    if (channel === POSITION_CHANNEL && !this.stock) {
      this.inbox.addPosition(payload);
      this.beats ||= ++this.#positions > 1; // the first one comes at once
    } else {
      this.inbox.addNotification({ channel, payload, processId });
    }
    if (this.inbox.isFull && !this.#paused) {
      this.#paused = true;
      this.#silence.stop();
      this.#connection.client.connection.stream.pause();
    }
    this.#onArrival();
    this.#ring();
  }

  /** As Inbox.take(), and reads on if there is room. */
  take() {
    const piece = this.inbox.take();
    if (this.#paused && !this.inbox.isFull) {
      this.#paused = false;
      this.#watch();
      this.#connection.client.connection.stream.resume();
    }
    return piece;
  }

  /**
   * Waits until the first position has come, or a notification before it; not for longer than a heartbeat. Returns the position
   * in the first case.
   */
  async firstPosition() {
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#onArrival();
    }, this.#options.heartbeat);
    while (!this.broken && this.inbox.isEmpty && !isLate) {
      await new Promise((resolve) => { this.#onArrival = resolve; });
    }
    clearTimeout(timer);
    if (this.broken) throw this.broken;
    return this.inbox.takeFirstPosition();
  }

  // ---- silence ----

  /** From now on something has to come in time, unless nothing is read. */
  #watch() {
    if (!this.#paused && !this.broken) this.#silence.start(this.#committed ? 2 * this.#options.heartbeat : this.#options.workTimeout);
  }

  #stopTimers() {
    this.#silence.stop();
    clearInterval(this.#pings);
  }

  async #ping() {
    if (this.#paused || this.#pinging) return;
    this.#pinging = true;
    try {
      await this.#connection.client.query('SELECT 1');
      this.beats = true;
    } catch (error) {
      this.#connection.leave(error);
    } finally {
      this.#pinging = false;
    }
  }

  // ---- end ----

  /** Ends the session; what is received meanwhile is dropped. */
  async close() {
    this.#stopTimers();
    this.#connection.client.removeAllListeners('notification');
    await this.#connection.end();
  }

  leave(error) {
    this.#connection.leave(error);
  }
}

module.exports = { Listening };
