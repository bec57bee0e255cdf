'use strict';

/**
 * What has been received and is not in work yet, in order: notifications, and the positions that stand for them.
 * With positions, what comes up to one belongs together. Without (a stock server), each notification is by itself.
 */
class Inbox {
  #batch;
  #withPositions;
  #notifications = [];
  #ends = []; // { count, position }: the position stands for the first `count` notifications

  constructor(batch, withPositions) {
    this.#batch = batch;
    this.#withPositions = withPositions;
  }

  addNotification(notification) {
    this.#notifications.push(notification);
  }

  addPosition(position) {
    const count = this.#notifications.length;
    const last = this.#ends.at(-1);
    if (last?.count === count) last.position = position;
    else this.#ends.push({ count, position });
  }

  /**
   * Is there as much as is handled at once? Then no more should be read. With positions, one notification more: the position
   * of the others may be the very next that comes.
   */
  get isFull() {
    return this.#notifications.length >= this.#batch + (this.#withPositions ? 1 : 0);
  }

  get isEmpty() {
    return this.#notifications.length === 0 && this.#ends.length === 0;
  }

  /** The position that was received before any notification, which is taken; undefined if there is none. */
  takeFirstPosition() {
    return this.#ends[0]?.count === 0 ? this.#ends.shift().position : undefined;
  }

  /**
   * As much as is handled at once: { notifications, position }; null if nothing is complete yet. The position is undefined
   * if these notifications are only a part of what it will stand for, and null if the server has no positions.
   */
  take() {
    if (!this.#withPositions) {
      return this.#notifications.length === 0 ? null : { notifications: this.#notifications.splice(0, this.#batch), position: null };
    }
    let ends = 0;
    while (this.#ends[ends]?.count <= this.#batch) ends++;
    if (ends === 0 && !this.isFull) return null;
    const last = this.#ends.splice(0, ends).at(-1) ?? { count: this.#batch, position: undefined };
    for (const end of this.#ends) end.count -= last.count;
    return { notifications: this.#notifications.splice(0, last.count), position: last.position };
  }
}

module.exports = { Inbox };
