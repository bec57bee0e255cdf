// Writes one bill for each order, also when the connection breaks. PGHOST, PGDATABASE, ... say where.
'use strict';

const { on } = require('events');
const { setTimeout: sleep } = require('timers/promises');
const { Client } = require('pg');

// This is the first start, or something is gone: do what is left to do.
async function readState(client) {
  await client.query('INSERT INTO bill SELECT id FROM orders ORDER BY id ON CONFLICT DO NOTHING');
}

// Do what one notification asks for.
async function handle(client, payload) {
  await client.query('INSERT INTO bill VALUES ($1) ON CONFLICT DO NOTHING', [payload]);
}

// Listen until the connection breaks.
async function consume() {
  const client = new Client();
  client.on('error', () => {}); // without this, one that comes after the loop ends the process
  const notifications = on(client, 'notification');
  try {
    await client.connect();
    const results = await client.query(`BEGIN; LISTEN herald_position;
      SELECT herald.listen('orders', after => (SELECT position FROM progress FOR UPDATE)) AS complete; COMMIT`);
    if (!results[2].rows[0].complete) await readState(client);
    let payloads = [];
    for await (const [{ channel, payload }] of notifications) { // ends with the client's error
      if (channel !== 'herald_position') {
        payloads.push(payload);
        continue;
      }
      await client.query('BEGIN'); // the work and its position: both are stored, or none
      for (const each of payloads) await handle(client, each);
      await client.query('UPDATE progress SET position = $1', [payload]);
      await client.query('COMMIT');
      payloads = [];
    }
  } finally {
    client.end();
  }
}

async function main() {
  for (;;) {
    await consume().catch((problem) => console.error(problem.message));
    await sleep(1000 * Math.random()); // so that not all consumers come back at once
  }
}

main();
