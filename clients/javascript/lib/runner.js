'use strict';

const { textOf } = require('./connection.js');
const { HandlerError, StoreError } = require('./errors.js');
const { pauseBefore } = require('./time.js');
const { Superseded } = require('./work.js');

const STATE = 'state';
const BATCH = 'batch';
// SQLSTATEs of what passes: connections, conflicts of transactions, resources, interventions, the system; read only; locks.
const PASSES = /^((08|40|53|58)[0-9A-Z]{3}|57P[0-9A-Z]{2}|25006|55P03)$/;

/** For a function of the user, which may do with it what it likes: another attempt is given the same. */
const copy = (notification) => ({ ...notification });

/** A part of a transaction has failed whose earlier parts have been forgotten: all of it has to be received again. */
class ReceiveAgain extends Error {}

/**
 * Calls the user's functions, together with the storing of the position, and again when that has failed. Its counts
 * outlive the connections.
 */
class Runner {
  /** Called with an event's name and fields. */
  #emit;
  #options;
  /** Waits for some milliseconds; ends early, with false, if there is a reason not to try again. */
  #pause;
  #failures = { [STATE]: 0, [BATCH]: 0 }; // errors since the last success
  #breaks = 0; // of the connection during the work, since the last success
  #work;
  #scope = null; // of the open transaction
  #count = 0; // of the notifications that were handled in it
  #late = false; // the last call of a function has taken too long
  #current; // the notification that is in work, if it is only one

  constructor(options, emit, pause) {
    this.#options = options;
    this.#emit = emit;
    this.#pause = pause;
  }

  /** A new connection; what was done on the one before is over. */
  use(work) {
    this.#work = work;
    this.#scope = null;
    this.#count = 0;
  }

  /** Is a transaction only handled in part? */
  get isPartial() {
    return this.#scope !== null;
  }

  /** How often a batch has failed since the last success. */
  get failures() {
    return this.#failures[BATCH];
  }

  /** Calls `state`, and stores the position; undefined: none. False if it was given up, as in handle(). */
  async state(reason, position) {
    this.#current = undefined;
    return this.#untilDone(STATE, async () => {
      await this.#begin();
      if (this.#options.state) await this.#call(this.#options.state, reason);
      await this.#commit(position ?? null);
    });
  }

  /** Handles what Inbox.take() has returned. False if it was given up, because there is a reason not to try again. */
  async handle({ notifications, position }) {
    return this.#untilDone(BATCH, async () => {
      if (this.#scope === null) await this.#begin();
      if (this.failures >= this.#options.attempts) await this.#handleEach(notifications);
      else if (notifications.length > 0) await this.#handleAll(notifications);
      const count = this.#count + notifications.length;
      if (position !== undefined) {
        await this.#commit(position);
        this.#count = 0;
        this.#emit('handled', { count, position });
      } else {
        this.#count = count;
      }
    }, position !== undefined);
  }

  /** Stores a position that stands for nothing new. */
  async storeOnly(position) {
    await this.#begin();
    await this.#commit(position);
  }

  /** Gives up what is handled in part. */
  async abandon() {
    if (this.#scope === null) return;
    this.#close();
    this.#count = 0;
    await this.#work.rollback();
  }

  // ---- again, if it fails ----

  async #untilDone(kind, attempt, isWhole = true) {
    for (;;) {
      const inPart = this.#count > 0;
      this.#late = false;
      try {
        await attempt();
        if (isWhole) {
          this.#failures[kind] = 0;
          this.#breaks = 0;
        }
        return true;
      } catch (error) {
        await this.#fail(kind, error);
        if (inPart && this.#work.isTransactional) throw new ReceiveAgain(textOf(error), { cause: error });
        if (!await this.#pause(pauseBefore(this.#failures[kind] - 1, this.#options.backoff))) return false;
      }
    }
  }

  // Returns if there shall be one more attempt on the same connection.
  async #fail(kind, error) {
    const { attempts } = this.#options;
    this.#close();
    await this.#work.rollback().catch(() => {}); // fails if the connection is broken
    if (error instanceof HandlerError || error instanceof Superseded) throw error;
    const { broken } = this.#work;
    if (!broken && error instanceof StoreError) throw error;

    if (broken) this.#breaks++;
    if (!broken || this.#late) this.#failures[kind]++;
    const failures = this.#failures[kind];
    if (this.#breaks >= 2 * attempts) {
      throw this.#end(`the connection has broken during ${this.#breaks} attempts`, error);
    }
    if (failures >= (kind === STATE ? attempts : 2 * attempts)) {
      throw this.#end(`${kind === STATE ? 'state' : 'handle'} has failed ${failures} times`, error);
    }
    if (!broken || this.#late) this.#emit('failing', { error, attempt: failures });
    if (broken) throw broken;
  }

  #end(what, error) {
    return new HandlerError(`${what}: ${textOf(error)}`, { cause: error, notification: this.#current });
  }

  // ---- the user's functions ----

  async #handleAll(notifications) {
    this.#current = notifications.length === 1 ? notifications[0] : undefined;
    await this.#call(this.#options.handle, notifications.map(copy));
  }

  async #handleEach(notifications) {
    for (const notification of notifications) {
      this.#current = notification;
      await this.#work.savepoint();
      try {
        await this.#call(this.#options.handle, [copy(notification)]);
        await this.#work.releaseSavepoint();
      } catch (error) {
        if (this.#work.broken || PASSES.test(error?.code)) throw error; // nothing is wrong with the notification
        await this.#work.rollbackToSavepoint();
        await this.#poison(notification, error);
      }
    }
    this.#current = undefined;
  }

  async #poison(notification, error) {
    const { poison } = this.#options;
    const decision = poison ? await this.#call(poison, copy(notification), error) : 'stop';
    const { channel, payload } = notification;
    if (decision !== 'skip' && decision !== 'stop') {
      throw this.#end('poison has returned neither "skip" nor "stop"', error);
    }
    this.#emit('poison', { channel, payload, error, decision });
    if (decision === 'stop') throw this.#end(`a notification on channel "${channel}" cannot be handled`, error);
  }

  // When the time is over, the connection is left: so whatever the function has done in the transaction is rolled back.
  async #call(userFunction, ...values) {
    const { workTimeout } = this.#options;
    const controller = new AbortController();
    let timer;
    const late = new Promise((_resolve, reject) => {
      timer = setTimeout(() => {
        const error = new Error(`${userFunction.name || 'the function'} has taken longer than ${workTimeout} ms`);
        this.#late = true;
        this.#scope.close();
        this.#work.leave(error);
        controller.abort(error);
        reject(error);
      }, workTimeout);
    });
    const call = (async () => userFunction(...values, this.#scope.transaction, { signal: controller.signal }))();
    try {
      return await Promise.race([call, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  // ---- the transaction ----

  async #begin() {
    this.#scope = await this.#work.begin();
  }

  async #commit(position) {
    this.#scope.close();
    await this.#work.commit(position);
    this.#close();
  }

  #close() {
    this.#scope?.close();
    this.#scope = null;
  }
}

module.exports = { ReceiveAgain, Runner };
