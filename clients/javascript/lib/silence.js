'use strict';

const { now } = require('./time.js');

const LATE_PART = 4; // a timer that is late by more than this part of the limit: the process itself was busy

/** Calls a function when nothing has been heard for some time. */
class SilenceWatch {
  #onSilence;
  #limit = 0;
  #heardAt = 0;
  #timer = null;

  constructor(onSilence) {
    this.#onSilence = onSilence;
  }

  /** Begins now, also if it has begun before. */
  start(limit) {
    this.#limit = limit;
    this.heard();
    this.#wait();
  }

  heard() {
    this.#heardAt = now();
  }

  stop() {
    clearTimeout(this.#timer);
  }

  #wait() {
    this.stop();
    const dueAt = this.#heardAt + this.#limit;
    this.#timer = setTimeout(() => this.#look(dueAt), dueAt - now());
  }

  #look(dueAt) {
    const late = now() - dueAt;
    if (late > this.#limit / LATE_PART) this.heard(); // it could not read meanwhile
    if (now() < this.#heardAt + this.#limit) this.#wait();
    else this.#onSilence(this.#limit);
  }
}

module.exports = { SilenceWatch };
