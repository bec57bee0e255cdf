'use strict';

const assert = require('node:assert/strict');
const { describe, it } = require('node:test');
const { HandlerError } = require('pg-herald');
const { complete } = require('../lib/options.js');
const { Runner } = require('../lib/runner.js');
const { openWork } = require('../lib/work.js');

const ATTEMPTS = 2;

// A consumer's part that calls the functions: that of a shared one, which needs no server. It is given notifications 1, 2, 3.
async function run(functions) {
  const events = [];
  const options = complete({ shared: true, channels: ['orders'], attempts: ATTEMPTS, ...functions });
  const runner = new Runner(options, (event, fields) => events.push({ event, ...fields }), async () => true);
  runner.use(await openWork(options, null));
  const notifications = ['1', '2', '3'].map((payload) => ({ channel: 'orders', payload, processId: 7 }));
  let error;
  await runner.handle({ notifications, position: 'P' }).catch((problem) => { error = problem; });
  return { error, events, all: (event) => events.filter((each) => each.event === event) };
}

const withCode = (code) => Object.assign(new Error(`SQLSTATE ${code}`), { code });

it('a handler that has taken from its batch, and changed it, is given all of it again', async () => {
  const received = [];
  const poisoned = [];
  const { error, all } = await run({
    handle(batch) {
      for (let notification = batch.shift(); notification; notification = batch.shift()) {
        received.push(notification.payload);
        notification.payload += ', handled';
        if (notification.payload.startsWith('2')) throw new Error('not 2');
      }
    },
    poison(notification) {
      poisoned.push(notification.payload);
      notification.payload += ', dead';
      return 'skip';
    },
  });
  assert.equal(error, undefined);
  assert.deepEqual(received, ['1', '2', '1', '2', '1', '2', '3']); // twice together, then one by one
  assert.deepEqual(poisoned, ['2']);
  assert.equal(all('poison')[0].payload, '2');
  assert.equal(all('handled')[0].count, 3);
});

describe('an error, when notifications are handled one by one,', () => {
  const failing = (code, times) => {
    const poisoned = [];
    return run({
      handle(batch) { if (batch.some(({ payload }) => payload === '2') && times-- > 0) throw withCode(code); },
      poison({ payload }) { poisoned.push(payload); return 'skip'; },
    }).then((result) => ({ poisoned, ...result }));
  };

  for (const code of ['08006', '25006', '40001', '40P01', '53300', '55P03', '57P01', '58030']) {
    it(`that passes is not the notification's: ${code}`, async () => {
      const { poisoned, error, all } = await failing(code, ATTEMPTS + 1);
      assert.equal(error, undefined);
      assert.deepEqual(poisoned, []);
      assert.deepEqual(all('failing').map((each) => each.attempt), [1, 2, 3]);
      assert.equal(all('handled').length, 1);
    });
  }

  it('that should pass, and does not, ends the consumer', async () => {
    const { poisoned, error, all } = await failing('40P01', Infinity);
    assert.ok(error instanceof HandlerError);
    assert.deepEqual([error.cause.code, error.notification.payload], ['40P01', '2']);
    assert.deepEqual(poisoned, []);
    assert.equal(all('failing').length, 2 * ATTEMPTS - 1);
  });

  for (const code of ['22P02', '23505', '25001', '55000', '57014', 'ECONNRESET', undefined]) {
    it(`else is: ${code}`, async () => {
      const { poisoned, error } = await failing(code, Infinity);
      assert.equal(error, undefined);
      assert.deepEqual(poisoned, ['2']);
    });
  }
});

describe('an error of poison', () => {
  const failing = (times) => run({
    handle(batch) { if (batch.some(({ payload }) => payload === '2')) throw new Error('not 2'); },
    poison() {
      if (times-- > 0) throw new Error('no room');
      return 'skip';
    },
  });

  it('is one of the attempt', async () => {
    const { error, all } = await failing(1);
    assert.equal(error, undefined);
    assert.deepEqual(all('failing').map((each) => each.error.message), ['not 2', 'not 2', 'no room']);
    assert.equal(all('poison').length, 1);
    assert.equal(all('handled').length, 1);
  });

  it('ends the consumer when it stays', async () => {
    const { error, all } = await failing(Infinity);
    assert.ok(error instanceof HandlerError);
    assert.match(error.message, /failed 4 times: no room/);
    assert.equal(error.notification.payload, '2');
    assert.equal(all('poison').length, 0);
  });
});
