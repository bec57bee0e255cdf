'use strict';

const { Consumer } = require('./consumer.js');
const errors = require('./errors.js');
const { createStore } = require('./store.js');

module.exports = { Consumer, createStore, ...errors };
