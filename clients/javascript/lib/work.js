'use strict';

const { escapeIdentifier } = require('pg');
const { connectToOne, textOf } = require('./connection.js');
const { HeraldError, StoreError, UnreachableError } = require('./errors.js');
const { limited } = require('./transaction.js');

const UNLOCK_TIMEOUT = 1000;
const FAILED_TRANSACTION = '25P02';
const HIDDEN = 'the function has returned although a statement in its transaction has failed';
const CONFLICTS = new Set(['40001', '40P01']); // of the transaction: not the store's fault
const SESSION_ENDED = /^57P/; // the server's last words: the connection's end comes later

// So that the server ends the session, and frees the lock, soon after the client has gone, also within a statement. What an
// administrator or the user has set remains.
const NOTICE_ABSENCE = `SELECT set_config(name, value, false)
  FROM (VALUES ('tcp_keepalives_idle', $1), ('tcp_keepalives_interval', $1), ('tcp_keepalives_count', '3'),
               ('tcp_user_timeout', $2), ('client_connection_check_interval', $3)) AS wanted (name, value)
  JOIN pg_settings USING (name)
 WHERE source = 'default'`;
const ABSENCES = 4; // three keepalives after the first interval

const LOCK = `hashtextextended('herald_consumer:' || $1, 0)`;

/** Another consumer of the name has become active. */
class Superseded extends Error {}

/** schema.table, or table, in quotes */
const quoteTable = (table) => table.split('.').map(escapeIdentifier).join('.');

function connectToPrimary(options, signal) {
  return connectToOne(options.workServers, options.applicationName, options.timing, signal, async (connection) => {
    const { rows } = await connection.query('SELECT pg_is_in_recovery()::text AS standby');
    if (rows[0].standby === 'true') throw new UnreachableError(`${connection.place} is a standby, not a primary`);
  });
}

/** A work without a connection: that of a shared consumer, whose position is in memory. */
class SharedWork {
  #position;

  constructor(position) {
    this.#position = position;
  }

  /** Why its connection is of no use any more. */
  get broken() { return null; }

  async lock() { return true; }

  async activate() { return { position: this.#position, epoch: null }; }

  async begin() { return { transaction: undefined, close() {} }; }

  async savepoint() {}

  async releaseSavepoint() {}

  async rollbackToSavepoint() {}

  /** Stores a position with what was done in the transaction; null: without a position. */
  async commit(position) {
    if (position !== null) this.#position = position;
  }

  async rollback() {}

  get position() { return this.#position; }

  /** Can what was done in the transaction be undone? */
  get isTransactional() { return false; }

  leave() {}

  async close() {}
}

/** The work connection, whose session holds the lock. */
class LockedWork extends SharedWork {
  static async open(options, signal, ring) {
    const connection = await connectToPrimary(options, signal);
    connection.onBroken = ring;
    const work = new this(connection, options);
    try {
      await work.prepare();
    } catch (error) {
      await work.close();
      throw error;
    }
    return work;
  }

  constructor(connection, options) {
    super();
    this.connection = connection;
    this.options = options;
  }

  get broken() { return this.connection.broken; }

  async prepare() {
    const interval = Math.ceil(this.options.heartbeat / 1000);
    const values = [String(interval), String(ABSENCES * interval * 1000), String(interval * 1000)];
    await this.connection.query(NOTICE_ABSENCE, values).catch((error) => {
      if (this.broken) throw error; // otherwise a setting that the server's system does not have
    });
  }

  /** Is this consumer the active one now? */
  async lock() {
    const { rows } = await this.connection.query(`SELECT pg_try_advisory_lock(${LOCK})::text AS locked`, [this.options.name]);
    return rows[0].locked === 'true';
  }

  leave(error) {
    this.connection.leave(error);
  }

  /** Gives the lock up, and ends the session. */
  async close() {
    if (!this.broken) {
      await this.connection.query(`SELECT pg_advisory_unlock_all()`, [], UNLOCK_TIMEOUT).catch(() => {});
    }
    await this.connection.end();
  }
}

/** With a store of the user's own. */
class OwnWork extends LockedWork {
  async activate() {
    return { position: await this.#call('load', []) ?? null, epoch: null };
  }

  async begin() {
    await this.connection.query('SELECT 1'); // the lock is lost if there is no answer
    return super.begin();
  }

  async commit(position) {
    if (this.broken) throw this.broken; // the lock is lost, and another consumer may have stored a later position
    if (position !== null) await this.#call('save', [position]);
  }

  // When the time is over the connection is left, and with it the lock: a later answer counts for nothing.
  async #call(name, values) {
    const { store, workTimeout } = this.options;
    let timer;
    const late = new Promise((_resolve, reject) => {
      timer = setTimeout(() => {
        const error = new Error(`it has taken longer than ${workTimeout} ms`);
        this.leave(error);
        reject(error);
      }, workTimeout);
    });
    try {
      return await Promise.race([(async () => store[name](...values))(), late]);
    } catch (error) {
      throw new StoreError(`${name} of the store has failed: ${textOf(error)}`, { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }
}

/** With the table, in whose transactions the user's functions work. */
class TableWork extends LockedWork {
  #epoch;

  constructor(connection, options) {
    super(connection, options);
    this.table = quoteTable(options.table);
  }

  get isTransactional() { return true; }

  /** Checks that the table is there, and that everything is permitted, before anything depends on it. */
  async prepare() {
    await super.prepare();
    await this.#store(`UPDATE ${this.table} SET position = position, epoch = epoch, changed_at = now() WHERE name = NULL`);
    await this.#store(`INSERT INTO ${this.table} (name, epoch) SELECT name, epoch FROM ${this.table} WHERE name = NULL`);
  }

  async activate() {
    const { rows } = await this.#store(`INSERT INTO ${this.table} AS consumer (name, epoch) VALUES ($1, 1)
      ON CONFLICT (name) DO UPDATE SET epoch = consumer.epoch + 1, changed_at = now()
      RETURNING position, epoch::text`, [this.options.name]);
    this.#epoch = rows[0].epoch;
    return { position: rows[0].position, epoch: Number(this.#epoch) };
  }

  async begin() {
    await this.connection.query('BEGIN');
    return limited(this.connection.client);
  }

  async savepoint() {
    await this.connection.query('SAVEPOINT herald_one');
  }

  /** Also checks deferred constraints, so that what violates one is found at its notification, and not at the COMMIT. */
  async releaseSavepoint() {
    await this.connection.query('SAVEPOINT herald_check; SET CONSTRAINTS ALL IMMEDIATE; '
      + 'ROLLBACK TO SAVEPOINT herald_check; RELEASE SAVEPOINT herald_one');
  }

  async rollbackToSavepoint() {
    await this.connection.query('ROLLBACK TO SAVEPOINT herald_one; RELEASE SAVEPOINT herald_one');
  }

  async commit(position) {
    if (this.broken) throw this.broken;
    if (this.connection.status !== 'T') {
      throw new HeraldError(this.connection.status === 'E'
        ? HIDDEN
        : 'the function has ended its transaction, which it must not');
    }
    const { rowCount } = await this.#store(
      `UPDATE ${this.table} SET position = coalesce($1, position), changed_at = now() WHERE name = $2 AND epoch = $3`,
      [position, this.options.name, this.#epoch]);
    if (rowCount === 0) throw new Superseded();
    await this.connection.query('COMMIT');
  }

  async rollback() {
    await this.connection.query('ROLLBACK');
  }

  async #store(text, values) {
    try {
      return await this.connection.query(text, values);
    } catch (error) {
      // The statement's error may have come before the transaction's status.
      if (error.code === FAILED_TRANSACTION) throw new HeraldError(HIDDEN, { cause: error });
      if (this.broken || SESSION_ENDED.test(error.code) || CONFLICTS.has(error.code)) throw error;
      throw new StoreError(`the table ${this.table} of the positions cannot be used: ${textOf(error)}`, { cause: error });
    }
  }
}

/** Opens what the options ask for. position: the last one of a shared consumer. */
async function openWork(options, position, signal, ring) {
  if (options.shared) return new SharedWork(position);
  return (options.store ? OwnWork : TableWork).open(options, signal, ring);
}

/** Creates the table of positions, if it is not there. The privilege to create one is needed only then. */
async function createTable(options) {
  const table = quoteTable(options.table);
  const connection = await connectToPrimary(options, new AbortController().signal);
  const isThere = async () => {
    const { rows } = await connection.query('SELECT (to_regclass($1) IS NOT NULL)::text AS there', [table]);
    return rows[0].there === 'true';
  };
  try {
    if (await isThere()) return;
    await connection.query(`CREATE TABLE IF NOT EXISTS ${table} (
      name text PRIMARY KEY,
      position text,
      epoch bigint NOT NULL DEFAULT 0,
      changed_at timestamptz NOT NULL DEFAULT now())`);
  } catch (error) {
    if (connection.broken) throw error;
    if (await isThere()) return; // another session has created it at the same moment
    throw new StoreError(`the table ${table} cannot be created: ${textOf(error)}`, { cause: error });
  } finally {
    await connection.end();
  }
}

module.exports = { Superseded, createTable, openWork };
