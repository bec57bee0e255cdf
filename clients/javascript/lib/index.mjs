import herald from './index.js';

export const {
  Consumer,
  createStore,
  HeraldError,
  ConfigurationError,
  UnreachableError,
  AuthenticationError,
  DatabaseMissingError,
  StoreError,
  ExtensionMissingError,
  StockServerError,
  HandlerError,
} = herald;
