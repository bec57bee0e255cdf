'use strict';

const { EventEmitter } = require('node:events');

const { textOf } = require('./connection.js');
const { ConfigurationError, HandlerError, HeraldError, UnreachableError } = require('./errors.js');
const { Listening } = require('./listening.js');
const { log } = require('./log.js');
const { complete } = require('./options.js');
const { ReceiveAgain, Runner } = require('./runner.js');
const { Bell, now, pauseBefore } = require('./time.js');
const { Superseded, openWork } = require('./work.js');

const LOCK_PAUSE_FIRST = 100; // the session that held the lock may just be ending: perhaps this consumer's own, before
const LOCK_PAUSE = 1000;
const STORE_PAUSE = 60000; // between positions that stand for nothing new

/** A consumer of notifications that misses nothing. README.md describes its options, events and errors. */
class Consumer extends EventEmitter {
  #given;
  #options;
  #runner;
  #running = null; // the promise of its life; never rejected
  #stop; // an AbortController
  #bell;
  #established; // called once there is no error any more that is the caller's
  #isEstablished;
  #reconnects;
  #storedAt;
  #position; // of a shared consumer
  #work = null;
  #listening = null;

  constructor(options) {
    super();
    this.#given = options;
  }

  /** Resolves once it listens, or waits since another instance is active; fails if it cannot begin. */
  async start() {
    if (this.#running) throw new ConfigurationError('the consumer has been started already');
    this.#stop = new AbortController();
    this.#bell = new Bell();
    this.#isEstablished = false;
    this.#reconnects = 0;
    this.#storedAt = -Infinity;
    this.#position = null;
    await new Promise((resolve, reject) => {
      this.#established = () => {
        this.#isEstablished = true;
        resolve();
      };
      this.#running = this.#live(resolve, reject);
    });
  }

  /** Lets the batch in work end, and closes the connections. */
  async stop() {
    this.#stop?.abort(new HeraldError('the consumer is stopped'));
    this.#bell?.ring();
    await this.#running;
  }

  // ---- life ----

  async #live(resolve, reject) {
    let pending = true;
    let failure;
    const established = this.#established;
    this.#established = () => {
      pending = false;
      established();
    };
    try {
      await null; // so that start() has this promise before it ends
      this.#options = complete(this.#given);
      this.#runner = new Runner(this.#options, (event, fields) => this.#emit(event, fields), (time) => this.#pause(time));
      await this.#reconnect();
    } catch (error) {
      failure = error;
    }
    this.#running = null;
    if (this.#isEstablished || !failure) this.#emit('stopped', { error: failure });
    if (!failure) resolve();
    else if (pending) reject(failure);
    else process.nextTick(() => this.emit('error', failure)); // a handler for it, or the end of the process
  }

  async #reconnect() {
    const { signal } = this.#stop;
    for (;;) {
      let problem;
      try {
        await this.#connect(signal);
        return;
      } catch (error) {
        problem = error;
      }
      if (problem instanceof HandlerError) throw problem;
      if (signal.aborted) return;
      if (!this.#isEstablished) throw atStart(problem);
      const pause = pauseBefore(Math.max(this.#reconnects, this.#runner.failures - 1), this.#options.backoff);
      this.#reconnects++;
      if (problem instanceof Superseded) this.#emit('superseded', {});
      else this.#emit('disconnected', { error: problem instanceof ReceiveAgain ? problem.cause : problem, pause });
      await this.#pause(pause);
    }
  }

  // Returns when it is stopped.
  async #connect(signal) {
    // What takes time until it listens need not end: nothing is in work.
    const leave = () => {
      this.#work?.leave(signal.reason);
      this.#listening?.leave(signal.reason);
    };
    signal.addEventListener('abort', leave);
    try {
      if (!await this.#activate(signal)) return;
      const reason = await this.#listen(signal);
      const { place: server, resumed, stock } = this.#listening;
      const first = resumed || stock ? undefined : await this.#listening.firstPosition();
      signal.removeEventListener('abort', leave);
      if (signal.aborted) return;
      if (!resumed && !await this.#readState(reason, first)) {
        if (this.#broken) throw this.#broken;
        return; // it is stopped
      }
      this.#emit('listening', { server, resumed, stock });
      this.#established();
      await this.#serve(signal);
    } finally {
      signal.removeEventListener('abort', leave);
      await Promise.all([this.#listening?.close(), this.#work?.close()]);
      if (this.#options.shared) this.#position = this.#work?.position ?? this.#position;
      this.#work = this.#listening = null;
    }
  }

  // Connects to the primary, and waits for the lock. False: it is stopped.
  async #activate(signal) {
    this.#work = await openWork(this.#options, this.#position, signal, () => this.#bell.ring());
    if (this.#options.shared) return true;
    if (!this.#isEstablished) await Listening.check(this.#options, signal);
    for (let tries = 0; !await this.#work.lock(); tries++) {
      if (tries === 1) {
        this.#emit('waiting', {});
        this.#established();
      }
      const pause = tries === 0 ? LOCK_PAUSE_FIRST : LOCK_PAUSE;
      if (!await this.#pause(Math.min(this.#options.heartbeat, pause))) {
        if (this.#work.broken) throw this.#work.broken;
        return false;
      }
    }
    return true;
  }

  // Returns why something is missing, if it is.
  async #listen(signal) {
    const { position, epoch } = await this.#work.activate();
    if (!this.#options.shared) this.#emit('active', { epoch });
    this.#runner.use(this.#work);
    this.#listening = await Listening.open(this.#options, signal, () => this.#bell.ring(), position);
    if (this.#listening.stock) return 'stock';
    return position === null ? 'first start' : 'gone';
  }

  // False: it was given up.
  async #readState(reason, position) {
    this.#isEstablished = true; // what fails now is tried again, and start() waits for it
    this.#emit('state', { reason });
    if (!await this.#runner.state(reason, position)) return false;
    if (position !== undefined) this.#storedAt = now();
    return true;
  }

  async #serve(signal) {
    while (!signal.aborted) {
      const broken = this.#broken;
      if (broken) throw broken;
      if (this.#listening.beats) this.#reconnects = 0;
      const piece = this.#listening.take();
      if (piece === null) {
        await this.#bell.wait();
      } else if (piece.notifications.length > 0 || this.#runner.isPartial) {
        if (!await this.#runner.handle(piece)) continue;
        if (piece.position === undefined) continue;
        this.#reconnects = 0;
        this.#storedAt = now();
      } else if (this.#options.shared || now() - this.#storedAt >= STORE_PAUSE) {
        await this.#runner.storeOnly(piece.position);
        this.#storedAt = now();
      }
    }
    await this.#runner.abandon();
  }

  get #broken() {
    return this.#listening?.broken ?? this.#work?.broken;
  }

  // False, and before the time is over, if it is stopped or a connection breaks.
  async #pause(time) {
    const end = now() + time;
    for (;;) {
      if (this.#stop.signal.aborted || this.#broken) return false;
      if (now() >= end) return true;
      await this.#bell.wait(end - now());
    }
  }

  // A listener that fails must not look like a failure of what it is informed of.
  #emit(event, fields) {
    try {
      log(this.#options.logger, this.#options.name ?? '(shared)', event, fields);
      this.emit(event, { time: new Date(), ...fields });
    } catch (error) {
      process.nextTick(() => { throw error; });
    }
  }
}

/** The error that start() fails with. One of the driver's is of a connection that has broken just after it was made. */
const atStart = (error) => (error instanceof HeraldError ? error : new UnreachableError(textOf(error), { cause: error }));

module.exports = { Consumer };
