'use strict';

const { debuglog } = require('node:util');

const { textOf } = require('./connection.js');

// The level and the text of each event.
const LINES = {
  waiting: () => ['info', 'waits: another instance is active'],
  active: ({ epoch }) => ['info', `is active${epoch === null ? '' : `, for the ${ordinal(epoch)} time`}`],
  state: ({ reason }) => [reason === 'gone' ? 'warn' : 'info', `may have missed something (${reason}), and reads the state`],
  listening: ({ server, resumed, stock }) => ['info',
    `listens to ${server}${stock ? ', which has no pg_herald' : resumed ? ', and has missed nothing' : ''}`],
  handled: ({ count }) => ['debug', `has handled ${count}`],
  failing: ({ error, attempt }) => ['warn', `has failed in attempt ${attempt}: ${textOf(error)}`],
  poison: ({ channel, error, decision }) => ['warn',
    `cannot handle a notification on channel "${channel}" (decision: ${decision}): ${textOf(error)}`],
  disconnected: ({ error, pause }) => ['warn', `is disconnected, and connects again in ${Math.round(pause)} ms: ${textOf(error)}`],
  superseded: () => ['warn', 'is not active any more: another instance is'],
  stopped: ({ error }) => (error ? ['error', `has ended: ${textOf(error)}`] : ['info', 'has stopped']),
};

// Without a logger: warnings and errors on stderr, the rest there with NODE_DEBUG=pg-herald.
const debug = debuglog('pg-herald');
const printed = (print) => (line) => print(`${new Date().toISOString()} ${line}`);
const DEFAULT = { debug: printed(debug), info: printed(debug), warn: printed(console.warn), error: printed(console.error) };

const ordinal = (n) => `${n}${n % 100 >= 11 && n % 100 <= 13 ? 'th' : ['th', 'st', 'nd', 'rd'][n % 10] ?? 'th'}`;

/** Writes a line for an event. logger: an object with the functions debug, info, warn, error; null: none; undefined: the default. */
function log(logger, consumer, event, fields) {
  if (logger === null) return;
  const [level, text] = LINES[event](fields);
  (logger ?? DEFAULT)[level]?.(`pg_herald: consumer ${consumer} ${text}`);
}

module.exports = { log };
