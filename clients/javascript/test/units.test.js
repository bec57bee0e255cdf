'use strict';

const assert = require('node:assert/strict');
const { afterEach, describe, it } = require('node:test');
const { ConfigurationError, Consumer } = require('pg-herald');
const { Inbox } = require('../lib/inbox.js');
const { complete } = require('../lib/options.js');
const { serversOf } = require('../lib/servers.js');
const { SilenceWatch } = require('../lib/silence.js');
const { pauseBefore } = require('../lib/time.js');
const { until } = require('./helpers.js');

describe('Inbox', () => {
  const add = (inbox, text) => {
    for (const each of text) {
      if (each === each.toUpperCase()) inbox.addPosition(each);
      else inbox.addNotification(each);
    }
  };
  const taken = (inbox) => {
    const pieces = [];
    for (let piece = inbox.take(); piece; piece = inbox.take()) pieces.push(`${piece.notifications.join('')}${piece.position ?? '-'}`);
    return pieces.join(' ');
  };

  for (const [received, pieces, rest] of [
    ['abA', 'abA', ''],
    ['aAbB', 'abB', 'the last position stands for both'],
    ['aAb', 'aA', 'b waits for its position'],
    ['aAbBcCdD', 'abcC dD', 'up to a batch'],
    ['aAbcdBeE', 'aA bcdB eE', 'not in the middle of a transaction'],
    ['abcdeE', 'abc- deE', 'parts of a large one'],
    ['abcdeEfF', 'abc- defF', 'what follows joins the last part'],
    ['aAbcde', 'aA bcd-', 'a part is complete when a batch is there'],
    ['abc', '', 'its position may be the next that comes'],
    ['abcC', 'abcC', 'a full batch is no part'],
    ['AB', 'B', 'only positions'],
    ['aABC', 'aC', 'a later position'],
    ['', '', ''],
  ]) {
    it(`${received || 'nothing'} is handled as ${pieces || 'nothing'} ${rest && `(${rest})`}`, () => {
      const inbox = new Inbox(3, true);
      add(inbox, received);
      assert.equal(taken(inbox), pieces);
    });
  }

  it('continues with what comes later', () => {
    const inbox = new Inbox(3, true);
    add(inbox, 'abcd');
    assert.equal(taken(inbox), 'abc-');
    add(inbox, 'eE');
    assert.equal(taken(inbox), 'deE');
  });

  it('without positions each notification is complete', () => {
    const inbox = new Inbox(3, false);
    add(inbox, 'abcd');
    assert.equal(taken(inbox), 'abc- d-');
  });
});

describe('several hosts', () => {
  const env = { ...process.env };
  afterEach(() => { process.env = env; });

  for (const [text, ...uris] of [
    ['postgresql://u:p@h1:1,h2:2/db?ssl=true', 'postgresql://u:p@h1:1/db?ssl=true', 'postgresql://u:p@h2:2/db?ssl=true'],
    ['postgres://h1,h2/db', 'postgres://h1/db', 'postgres://h2/db'],
    ['postgres://[::1]:1,[::2]:2/db', 'postgres://[::1]:1/db', 'postgres://[::2]:2/db'],
    ['postgresql://u@/db?host=/a,/b&port=1,2', 'postgresql://u@/db?host=%2Fa&port=1', 'postgresql://u@/db?host=%2Fb&port=2'],
    ['postgresql://u@/db?host=h1,h2&port=5', 'postgresql://u@/db?host=h1&port=5', 'postgresql://u@/db?host=h2&port=5'],
    ['postgresql://', 'postgresql://'],
    ['/run/postgresql db', '/run/postgresql db'],
  ]) {
    it(text, () => assert.deepEqual(serversOf(text).map(({ connectionString }) => connectionString), uris));
  }

  it('in an object', () => {
    assert.deepEqual(serversOf({ host: 'a,b', port: '1,2', user: 'u' }),
      [{ host: 'a', port: 1, user: 'u' }, { host: 'b', port: 2, user: 'u' }]);
    assert.deepEqual(serversOf({ connectionString: 'postgres://a,b/', ssl: true }),
      [{ connectionString: 'postgres://a/', ssl: true }, { connectionString: 'postgres://b/', ssl: true }]);
    assert.throws(() => serversOf({ host: 'a,b,c', port: '1,2' }), ConfigurationError);
  });

  it('in a list, and in the environment', () => {
    assert.equal(serversOf(['postgres://a,b/', { host: 'c' }]).length, 3);
    process.env = { PGHOST: 'a,b' };
    assert.deepEqual(serversOf(undefined), [{ host: 'a' }, { host: 'b' }]);
  });
});

describe('options that are wrong', () => {
  const right = { connection: 'postgresql://nowhere.invalid/', name: 'billing', channels: ['orders'], handle() {} };

  for (const [what, options] of [
    ['no name', { name: undefined }],
    ['an empty name', { name: '' }],
    ['a long name', { name: 'ä'.repeat(32) }],
    ['a name of pg_herald', { name: 'herald_x' }],
    ['no channels', { channels: [] }],
    ['a channel alone', { channels: 'orders' }],
    ['an empty channel', { channels: [''] }],
    ['a long channel', { channels: ['x'.repeat(64)] }],
    ['a channel of pg_herald', { channels: ['herald_position'] }],
    ['a channel with a zero', { channels: ['a\0'] }],
    ['no handler', { handle: undefined }],
    ['a state that is no function', { state: 'x' }],
    ['an unknown option', { work_timeout: 1 }],
    ['a short heartbeat', { heartbeat: 5 }],
    ['a batch of 0', { batch: 0 }],
    ['attempts that are no number', { attempts: '5' }],
    ['a backoff that shrinks', { backoff: { first: 10, max: 1 } }],
    ['a store without save', { store: { load() {} } }],
    ['a shared consumer with a name', { shared: true }],
    ['a connection string of another kind', { connection: 'host=a dbname=b' }],
    ['no connection', { connection: [] }],
    ['a URI that is none', { connection: 'postgresql://u:secret@h:port:x/' }],
  ]) {
    it(what, async () => {
      const consumer = new Consumer({ ...right, ...options });
      await assert.rejects(consumer.start(), (error) => {
        assert.ok(error instanceof ConfigurationError, error.stack);
        assert.equal(error.name, 'ConfigurationError');
        assert.doesNotMatch(`${error.message} ${error.cause?.input}`, /secret/);
        return true;
      });
    });
  }

  it('stop without start has no effect', () => new Consumer(right).stop());
});

it('keepalives begin after a heartbeat, and after a second at least: Node.js rounds down to seconds, and 0 leaves two hours', () => {
  const keepAlive = (heartbeat) => complete({ shared: true, channels: ['orders'], handle() {}, heartbeat }).timing.keepAlive;
  assert.deepEqual([100, 999, 5000].map(keepAlive), [1000, 1000, 5000]);
});

describe('SilenceWatch', () => {
  it('notices silence, after the last that was heard', async () => {
    let silentAt;
    const watch = new SilenceWatch(() => { silentAt = Date.now(); });
    const began = Date.now();
    watch.start(200);
    let heardAt = began;
    const timer = setInterval(() => {
      watch.heard();
      heardAt = Date.now();
      if (heardAt - began > 500) clearInterval(timer);
    }, 50);
    await until('silence', () => silentAt);
    assert.ok(silentAt - began >= 700 && silentAt - heardAt >= 199, `after ${silentAt - heardAt} ms`);
  });

  it('does not take a process that is busy for silence', async () => {
    let silent = false;
    const watch = new SilenceWatch(() => { silent = true; });
    watch.start(100);
    const end = Date.now() + 400;
    while (Date.now() < end);
    await new Promise((resolve) => { setTimeout(resolve, 20); });
    assert.equal(silent, false);
    await until('silence', () => silent);
  });

  it('ends', async () => {
    let silent = false;
    const watch = new SilenceWatch(() => { silent = true; });
    watch.start(20);
    watch.stop();
    await new Promise((resolve) => { setTimeout(resolve, 100); });
    assert.equal(silent, false);
  });
});

it('pauses are at random, grow, and have a limit', () => {
  const longest = (n) => Math.max(...Array.from({ length: 1000 }, () => pauseBefore(n, { first: 100, max: 1000 })));
  for (const [n, most] of [[0, 100], [1, 200], [3, 800], [4, 1000], [5000, 1000]]) {
    assert.ok(longest(n) <= most && longest(n) > most / 2, `${n}: ${longest(n)}`);
  }
});
