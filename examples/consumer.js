// Writes one bill for each order, also when the connection breaks. PGHOST, PGDATABASE, ... say where.
'use strict';

const { Consumer, createStore } = require('pg-herald');

// Do what these notifications ask for.
async function handle(batch, transaction) {
  for (const { payload } of batch) {
    await transaction.query('INSERT INTO bill VALUES ($1) ON CONFLICT DO NOTHING', [payload]);
  }
}

// This is the first start, or something is gone: do what is left to do.
async function state(reason, transaction) {
  await transaction.query('INSERT INTO bill SELECT id FROM orders ORDER BY id ON CONFLICT DO NOTHING');
}

const consumer = new Consumer({ name: 'billing', channels: ['orders'], handle, state });
createStore().then(() => consumer.start());
