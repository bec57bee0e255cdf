'use strict';

const { DEFAULTS, timingOf } = require('./options.js');
const { serversOf } = require('./servers.js');
const { createTable } = require('./work.js');

/** Creates the table in which consumers store their positions, if it is not there; with the same options as a consumer. */
async function createStore({ connection, workConnection = connection, table = DEFAULTS.table } = {}) {
  await createTable({
    workServers: serversOf(workConnection),
    table,
    applicationName: 'pg_herald',
    timing: timingOf(DEFAULTS),
  });
}

module.exports = { createStore };
