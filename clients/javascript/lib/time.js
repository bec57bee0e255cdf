'use strict';

const { performance } = require('node:perf_hooks');

/** Milliseconds by a clock that is never set. */
const now = () => performance.now();

/** A pause at random, so that not all consumers come back at once: at most first × 2ⁿ, and at most max. */
const pauseBefore = (n, { first, max }) => Math.random() * Math.min(max, first * 2 ** n);

/** What a loop waits for: any of several things may ring it. A ring before the wait counts. */
class Bell {
  #rung = false;
  #wake = null;

  ring() {
    this.#rung = true;
    this.#wake?.();
  }

  /** Waits until it is rung, or until the time is over; false then. */
  async wait(timeout) {
    let timer;
    if (!this.#rung) {
      await new Promise((resolve) => {
        this.#wake = resolve;
        if (timeout !== undefined) timer = setTimeout(resolve, timeout);
      });
      clearTimeout(timer);
      this.#wake = null;
    }
    const rung = this.#rung;
    this.#rung = false;
    return rung;
  }
}

module.exports = { Bell, now, pauseBefore };
