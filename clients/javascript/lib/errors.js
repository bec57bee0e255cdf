'use strict';

/** The base of all errors of this package. The error that is behind one is its `cause`. */
class HeraldError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = this.constructor.name;
  }
}

/** The options are wrong. */
class ConfigurationError extends HeraldError {}

/** No server answers, or, for the work connection, none of those that do is a primary. */
class UnreachableError extends HeraldError {}

/** The server refuses the user or the password. */
class AuthenticationError extends HeraldError {}

/** The database does not exist. */
class DatabaseMissingError extends HeraldError {}

/** The table of positions is missing or not permitted, or the user's own store has failed. */
class StoreError extends HeraldError {}

/** The server has pg_herald, and the database does not have the extension. */
class ExtensionMissingError extends HeraldError {}

/** The server has no pg_herald, and option `require` is set. */
class StockServerError extends HeraldError {}

/** The consumer ends: `poison` has decided so, or a function of the user fails too often. */
class HandlerError extends HeraldError {
  constructor(message, { cause, notification } = {}) {
    super(message, { cause });
    this.notification = notification;
  }
}

module.exports = {
  HeraldError,
  ConfigurationError,
  UnreachableError,
  AuthenticationError,
  DatabaseMissingError,
  StoreError,
  ExtensionMissingError,
  StockServerError,
  HandlerError,
};
