'use strict';

const { Client } = require('pg');
const {
  AuthenticationError, ConfigurationError, DatabaseMissingError, ExtensionMissingError, HeraldError, StockServerError,
  StoreError, UnreachableError,
} = require('./errors.js');

const END_TIMEOUT = 1000;
const REFUSED = new Set(['28000', '28P01', '42501']);
const DATABASE_MISSING = '3D000';
const INVALID_POSITION = '22023';
// Of the errors of several servers, the first of these says most.
const TELLING = [AuthenticationError, DatabaseMissingError, ExtensionMissingError, StockServerError, StoreError, UnreachableError];

/** The text of an error; one that is made of several has none of its own. */
function textOf(error) {
  return error?.errors?.map(textOf).join(', ') || error?.message || error?.code || String(error);
}

/** One connection of node-postgres, which is left at once when it no longer answers. */
class Connection {
  /** Why it is of no use any more; null as long as it is. */
  broken = null;
  /** Called once, when it breaks. */
  onBroken = () => {};
  /** The status of the session's transaction, at the last answer: I (none), T, E (failed). */
  status = 'I';
  #timeout;

  /**
   * server   a configuration for node-postgres, with one host
   * timing   connect, statement, keepAlive: milliseconds
   */
  constructor(server, applicationName, timing) {
    this.#timeout = timing.statement;
    try {
      this.client = new Client({
        fallback_application_name: applicationName,
        keepAlive: true,
        keepAliveInitialDelayMillis: timing.keepAlive,
        connectionTimeoutMillis: timing.connect,
        ...server,
      });
    } catch (error) {
      throw new ConfigurationError(`the connection is wrong: ${textOf(error)}`, { cause: error });
    }
    if (!this.client.connection?.stream) throw new ConfigurationError('the native client of node-postgres cannot be used');
    // For its whole life: without a handler an error would end the process.
    this.client.on('error', (error) => this.#breaks(error));
    this.client.on('end', () => this.#breaks(new UnreachableError(`the connection to ${this.place} has ended`)));
    this.client.connection.on('readyForQuery', (message) => { this.status = message.status; });
  }

  /** host:port */
  get place() {
    return `${this.client.host}:${this.client.port}`;
  }

  async connect() {
    try {
      await this.client.connect();
    } catch (error) {
      this.leave(error);
      throw error;
    }
  }

  /** Executes a statement; if there is no answer in time, leaves the connection. */
  async query(text, values, timeout = this.#timeout) {
    if (this.broken) throw this.broken;
    const timer = setTimeout(() => {
      this.leave(new UnreachableError(`${this.place} has not answered within ${timeout} ms`));
    }, timeout);
    try {
      return await this.client.query(text, values);
    } catch (error) {
      throw this.broken ?? error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Gives the connection up, without waiting for the server: it may not be there any more. */
  leave(error) {
    this.#breaks(error);
    this.client.connection.stream.destroy();
  }

  /** Ends the session. Waits for that, but not for long. */
  async end() {
    if (!this.broken) {
      let timer;
      const late = new Promise((resolve) => { timer = setTimeout(resolve, END_TIMEOUT); });
      this.client.connection.stream.resume(); // a stream that is not read does not end
      await Promise.race([this.client.end().catch(() => {}), late]);
      clearTimeout(timer);
    }
    this.leave(new HeraldError('the connection is closed'));
  }

  #breaks(error) {
    if (this.broken) return;
    this.broken = error;
    this.onBroken();
  }
}

/** The error of this package for a server that cannot be used. */
function typed(error, place) {
  if (error instanceof HeraldError) return error;
  const options = { cause: error };
  const text = `${place}: ${textOf(error)}`;
  if (REFUSED.has(error.code) || /^SASL/.test(error.message)) return new AuthenticationError(text, options);
  if (error.code === DATABASE_MISSING) return new DatabaseMissingError(text, options);
  if (error.code === INVALID_POSITION) return new StoreError(`the stored position is none: ${text}`, options);
  return new UnreachableError(text, options);
}

/**
 * Connects to the first of the servers that answers, and that `accept` accepts: it throws an error otherwise.
 * The connection is left when the signal comes.
 */
async function connectToOne(servers, applicationName, timing, signal, accept) {
  const errors = [];
  for (const server of servers) {
    signal.throwIfAborted();
    const connection = new Connection(server, applicationName, timing);
    const leave = () => connection.leave(signal.reason);
    signal.addEventListener('abort', leave);
    try {
      await connection.connect();
      await accept(connection);
      return connection;
    } catch (error) {
      connection.end(); // not awaited
      signal.throwIfAborted();
      errors.push(typed(error, connection.place));
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }
  if (errors.length === 1) throw errors[0];
  const Kind = TELLING.find((each) => errors.some((error) => error instanceof each)) ?? HeraldError;
  throw new Kind(errors.map(textOf).join('; '), { cause: errors.find((error) => error instanceof Kind) });
}

module.exports = { Connection, connectToOne, textOf };
