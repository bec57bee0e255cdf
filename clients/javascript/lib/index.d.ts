import { EventEmitter } from 'node:events';
import { ClientBase, ClientConfig } from 'pg';

/** What node-postgres takes; a host, in a URI or an object, may be several with commas between them. */
export type Connection = string | ConnectionConfig | Array<string | ConnectionConfig>;
export interface ConnectionConfig extends Omit<ClientConfig, 'port'> {
  port?: number | string | undefined;
}

export interface Notification {
  channel: string;
  payload: string;
  /** Of the session that has sent it. */
  processId: number;
}

/** The work connection within a transaction, which the consumer begins and ends. */
export type Transaction = Pick<ClientBase, 'query' | 'escapeIdentifier' | 'escapeLiteral'>;

export interface Call {
  /** Aborted when `workTimeout` is over: the function's work does not count any more. */
  signal: AbortSignal;
}

/** Why something may be missing. */
export type Reason = 'first start' | 'gone' | 'stock';
export type Decision = 'skip' | 'stop';

/** A store of the user's own. */
export interface Store {
  /** The position that was saved last; null if none was. */
  load(): Promise<string | null | undefined> | string | null | undefined;
  save(position: string): unknown;
}

/** What is written for each event: console is one. */
export interface Logger {
  debug?(line: string): void;
  info?(line: string): void;
  warn?(line: string): void;
  error?(line: string): void;
}

interface CommonOptions {
  /** Of the listening connection. Default: PGHOST and so on. */
  connection?: Connection | undefined;
  channels: string[];
  /** Fail, instead of listening without positions, if the server has no pg_herald. */
  require?: boolean | undefined;
  /** Milliseconds; 5,000 by default. */
  heartbeat?: number | undefined;
  /** The most notifications in a call of `handle`; 1,000 by default. */
  batch?: number | undefined;
  /** Failures before a batch is handled one by one; 5 by default. */
  attempts?: number | undefined;
  /** Milliseconds; 100 and 10,000 by default. */
  backoff?: { first?: number | undefined; max?: number | undefined } | undefined;
  /** Milliseconds for each attempt at a batch, a state or a statement; 60,000 by default. */
  workTimeout?: number | undefined;
  /** Default: warnings and errors on stderr; null: none. */
  logger?: Logger | null | undefined;
}

interface NamedOptions extends CommonOptions {
  name: string;
  /** Of the work connection, to the primary. Default: the same. */
  workConnection?: Connection | undefined;
  shared?: false | undefined;
}

/** The position is in the table, and stored in the transaction in which the functions work. */
export interface TransactionalOptions extends NamedOptions {
  handle(batch: Notification[], transaction: Transaction, call: Call): unknown;
  state?(reason: Reason, transaction: Transaction, call: Call): unknown;
  poison?(notification: Notification, error: unknown, transaction: Transaction, call: Call): Promise<Decision>;
  /** `herald_consumer` by default; with a schema before a dot. */
  table?: string | undefined;
  store?: undefined;
}

interface FunctionsWithoutTransaction {
  handle(batch: Notification[], transaction: undefined, call: Call): unknown;
  state?(reason: Reason, transaction: undefined, call: Call): unknown;
  poison?(notification: Notification, error: unknown, transaction: undefined, call: Call): Promise<Decision>;
}

export interface OwnStoreOptions extends NamedOptions, FunctionsWithoutTransaction {
  store: Store;
}

/** Each process receives everything, from its own start on. */
export interface SharedOptions extends CommonOptions, FunctionsWithoutTransaction {
  shared: true;
  name?: undefined;
  store?: undefined;
  workConnection?: undefined;
}

export type Options = TransactionalOptions | OwnStoreOptions | SharedOptions;

interface Timed {
  time: Date;
}

export interface Events {
  waiting: [Timed];
  active: [Timed & { epoch: number | null }];
  state: [Timed & { reason: Reason }];
  listening: [Timed & { server: string; resumed: boolean; stock: boolean }];
  handled: [Timed & { count: number; position: string | null }];
  failing: [Timed & { error: unknown; attempt: number }];
  poison: [Timed & { channel: string; payload: string; error: unknown; decision: Decision }];
  disconnected: [Timed & { error: unknown; pause: number }];
  superseded: [Timed];
  stopped: [Timed & { error: HeraldError | undefined }];
  /** It has ended by itself, after start(). Without a listener this ends the process. */
  error: [HeraldError];
}

export class Consumer extends EventEmitter {
  constructor(options: TransactionalOptions);
  constructor(options: OwnStoreOptions);
  constructor(options: SharedOptions);
  constructor(options: Options);
  start(): Promise<void>;
  stop(): Promise<void>;

  on<E extends keyof Events>(event: E, listener: (...values: Events[E]) => void): this;
  once<E extends keyof Events>(event: E, listener: (...values: Events[E]) => void): this;
  off<E extends keyof Events>(event: E, listener: (...values: Events[E]) => void): this;
}

export function createStore(options?: {
  connection?: Connection | undefined;
  workConnection?: Connection | undefined;
  table?: string | undefined;
}): Promise<void>;

export class HeraldError extends Error {
  cause?: unknown;
}
export class ConfigurationError extends HeraldError {}
export class UnreachableError extends HeraldError {}
export class AuthenticationError extends HeraldError {}
export class DatabaseMissingError extends HeraldError {}
export class StoreError extends HeraldError {}
export class ExtensionMissingError extends HeraldError {}
export class StockServerError extends HeraldError {}
export class HandlerError extends HeraldError {
  notification: Notification | undefined;
}
