'use strict';

const { ConfigurationError } = require('./errors.js');
const { serversOf } = require('./servers.js');

const NAME_BYTES_MAX = 63;
const HEARTBEAT_MIN = 100; // the server's limit
const TIME_MAX = 2 ** 31 - 1; // of a timer
const CONNECT_MIN = 2000;
const CONNECT_MAX = 10000;
const KEEP_ALIVE_MIN = 1000; // Node.js rounds down to seconds, and 0 leaves the system's two hours
const DEFAULTS = {
  heartbeat: 5000,
  batch: 1000,
  attempts: 5,
  backoff: { first: 100, max: 10000 },
  workTimeout: 60000,
  table: 'herald_consumer',
};
const NAMES = new Set([
  ...Object.keys(DEFAULTS), 'connection', 'workConnection', 'name', 'channels', 'handle', 'state', 'poison', 'store',
  'shared', 'require', 'logger',
]);

function check(condition, message) {
  if (!condition) throw new ConfigurationError(message);
}

function checkName(what, name) {
  check(typeof name === 'string' && name !== '', `${what} is missing or empty`);
  check(Buffer.byteLength(name) <= NAME_BYTES_MAX, `${what} is longer than ${NAME_BYTES_MAX} bytes: "${name}"`);
  check(!name.startsWith('herald_'), `${what} begins with "herald_", which is pg_herald's own: "${name}"`);
  check(!name.includes('\0'), `${what} has a character that PostgreSQL cannot store`);
}

function checkNumber(name, value, min, max) {
  check(typeof value === 'number' && value >= min && value <= max, `${name} is not a number from ${min} to ${max}`);
}

function checkFunction(name, value, required) {
  check(typeof value === 'function' || (!required && (value === undefined || value === null)), `${name} is not a function`);
}

/** The options with the defaults, and what follows from them; ConfigurationError if one is wrong. */
function complete(given) {
  check(given !== null && typeof given === 'object', 'the options are missing');
  for (const name of Object.keys(given)) check(NAMES.has(name), `there is no option "${name}"`);
  const options = { ...DEFAULTS };
  for (const [name, value] of Object.entries(given)) if (value !== undefined) options[name] = value;
  options.backoff = { ...DEFAULTS.backoff, ...options.backoff };

  check(Array.isArray(options.channels) && options.channels.length > 0, 'channels is not a list of channels');
  options.channels = [...new Set(options.channels)];
  for (const channel of options.channels) checkName('a channel', channel);
  checkFunction('handle', options.handle, true);
  checkFunction('state', options.state, false);
  checkFunction('poison', options.poison, false);
  checkNumber('heartbeat', options.heartbeat, HEARTBEAT_MIN, TIME_MAX / 2);
  checkNumber('batch', options.batch, 1, Number.MAX_SAFE_INTEGER);
  check(Number.isInteger(options.batch), 'batch is not a whole number');
  checkNumber('attempts', options.attempts, 1, Number.MAX_SAFE_INTEGER);
  check(Number.isInteger(options.attempts), 'attempts is not a whole number');
  checkNumber('workTimeout', options.workTimeout, 1, TIME_MAX);
  checkNumber('backoff.max', options.backoff.max, 0, TIME_MAX);
  checkNumber('backoff.first', options.backoff.first, 0, options.backoff.max);
  if (options.shared) {
    check(options.name === undefined, 'a shared consumer has no name: each process receives everything');
    check(options.store === undefined, 'a shared consumer has no store: its position is in memory');
    check(options.workConnection === undefined, 'a shared consumer has no work connection');
  } else {
    checkName('name', options.name);
  }
  if (options.store !== undefined) {
    check(typeof options.store?.load === 'function' && typeof options.store.save === 'function',
      'store does not have the functions load and save');
  }
  check(typeof options.table === 'string' && options.table !== '', 'table is not the name of a table');

  options.servers = serversOf(options.connection);
  options.workServers = options.workConnection === undefined ? options.servers : serversOf(options.workConnection);
  options.applicationName = options.shared ? 'pg_herald' : `pg_herald ${options.name}`;
  options.timing = timingOf(options);
  return options;
}

/** See Connection. */
function timingOf({ heartbeat, workTimeout }) {
  return {
    connect: Math.min(Math.max(2 * heartbeat, CONNECT_MIN), CONNECT_MAX),
    statement: workTimeout,
    keepAlive: Math.max(heartbeat, KEEP_ALIVE_MIN),
  };
}

module.exports = { DEFAULTS, complete, timingOf };
