'use strict';

const OVER = 'the transaction is over: no statement is executed in it any more';

/**
 * A client for the user's functions: the same as the given one, but only as long as its transaction. Without this, a function
 * that goes on after it has failed would write outside of any transaction, or into the next one.
 */
function limited(client) {
  let open = true;
  const query = (...parameters) => {
    if (open) return client.query(...parameters);
    const callback = parameters.at(-1);
    if (typeof callback === 'function') return void process.nextTick(callback, new Error(OVER));
    if (typeof parameters[0]?.submit === 'function') throw new Error(OVER);
    return Promise.reject(new Error(OVER));
  };
  const transaction = new Proxy(client, {
    get: (target, name) => (name === 'query' ? query : Reflect.get(target, name)),
  });
  return { transaction, close: () => { open = false; } };
}

module.exports = { limited };
