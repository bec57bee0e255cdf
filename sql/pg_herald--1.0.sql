/* pg_herald 1.0 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_herald" to load this file. \quit

-- Made here, not by CREATE EXTENSION: so it goes with the extension, and one that
-- someone else has made is an error instead of a home for superusers' functions.
CREATE SCHEMA herald;

COMMENT ON SCHEMA herald IS 'pg_herald: LISTEN and NOTIFY that scale';

--
-- Functions that stand in for built-in ones.  Calls of pg_notify() and
-- pg_notification_queue_usage() in plans are turned into calls of these.
--

CREATE FUNCTION herald.pg_notify(channel text, payload text)
RETURNS void
AS 'MODULE_PATHNAME', 'herald_pg_notify'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.pg_notify(text, text) IS
'send a notification event; plans call it in place of pg_catalog.pg_notify()';

CREATE FUNCTION herald.pg_notification_queue_usage()
RETURNS float8
AS 'MODULE_PATHNAME', 'herald_pg_notification_queue_usage'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.pg_notification_queue_usage() IS
'fraction in use of the fuller notification queue, pg_herald''s or the server''s; plans call it in place of the pg_catalog function';

--
-- Views
--

CREATE FUNCTION herald.get_listeners(
	OUT pid integer,
	OUT datid oid,
	OUT role oid,
	OUT state text,
	OUT channels integer,
	OUT pending_bytes bigint,
	OUT pending_since timestamptz,
	OUT lagging_since timestamptz,
	OUT delivered bigint,
	OUT wakeups bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'herald_view_listeners'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_listeners() IS
'the rows of view listeners';

CREATE VIEW herald.listeners AS
SELECT l.pid,
	   d.datname,
	   r.rolname,
	   l.state,
	   l.channels,
	   l.pending_bytes,
	   pg_catalog.clock_timestamp() - l.pending_since AS pending_age,
	   l.lagging_since,
	   l.delivered,
	   l.wakeups
  FROM herald.get_listeners() l
  LEFT JOIN pg_catalog.pg_database d ON d.oid = l.datid
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = l.role;

COMMENT ON VIEW herald.listeners IS
'one row per listening backend: those of your own roles, or all for pg_read_all_stats';
COMMENT ON COLUMN herald.listeners.pid IS 'process id of the backend';
COMMENT ON COLUMN herald.listeners.datname IS 'database that it is connected to';
COMMENT ON COLUMN herald.listeners.rolname IS 'role that it was logged in as when it began to listen';
COMMENT ON COLUMN herald.listeners.state IS
'idle; pending: waits for its turn to be woken; signalled: has been woken; processing: reads; busy: in a transaction, and reads when that ends';
COMMENT ON COLUMN herald.listeners.channels IS 'number of channels that it listens to';
COMMENT ON COLUMN herald.listeners.pending_bytes IS
'length in bytes of the stretch of the queue that it has yet to read, with the files of large transactions; 0 if there is nothing for it';
COMMENT ON COLUMN herald.listeners.pending_age IS
'time since the first notification that it has yet to read was committed';
COMMENT ON COLUMN herald.listeners.lagging_since IS
'while it is further behind than herald.log_min_lag: commit time of the first notification that it had yet to read when that was found; null again once it is less than half of that behind';
COMMENT ON COLUMN herald.listeners.delivered IS 'notifications sent to its client since it began to listen';
COMMENT ON COLUMN herald.listeners.wakeups IS 'times that it read the queue since it began to listen';

CREATE FUNCTION herald.get_channels(
	OUT channel text,
	OUT listeners bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'herald_view_channels'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_channels() IS
'the rows of view channels';

CREATE VIEW herald.channels AS
SELECT c.channel, c.listeners
  FROM herald.get_channels() c;

COMMENT ON VIEW herald.channels IS
'one row per channel of this database that is listened to: counting listeners of your own roles, or all for pg_read_all_stats';
COMMENT ON COLUMN herald.channels.channel IS 'name of the channel';
COMMENT ON COLUMN herald.channels.listeners IS 'number of backends that listen to it';

CREATE FUNCTION herald.get_queue(
	OUT head bigint,
	OUT dispatched bigint,
	OUT needed bigint,
	OUT tail bigint,
	OUT size bigint,
	OUT spilled bigint,
	OUT used bigint,
	OUT usage float8,
	OUT uncommitted bigint,
	OUT is_damaged boolean)
RETURNS record
AS 'MODULE_PATHNAME', 'herald_view_queue'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_queue() IS
'the row of view queue';

CREATE VIEW herald.queue AS
SELECT q.head, q.dispatched, q.needed, q.tail, q.size, q.spilled, q.used, q.usage, q.uncommitted, q.is_damaged
  FROM herald.get_queue() q;

COMMENT ON VIEW herald.queue IS
'one row: the queue of notifications, of all databases; positions and sizes in bytes';
COMMENT ON COLUMN herald.queue.head IS 'position at which the next transaction''s notifications will be written';
COMMENT ON COLUMN herald.queue.dispatched IS 'position up to which listeners may read';
COMMENT ON COLUMN herald.queue.needed IS 'position from which on some listener has yet to read';
COMMENT ON COLUMN herald.queue.tail IS 'position from which on the memory has not been reused';
COMMENT ON COLUMN herald.queue.size IS 'memory for notifications: herald.queue_memory, rounded down to a power of two';
COMMENT ON COLUMN herald.queue.spilled IS 'bytes of the queue in temporary files';
COMMENT ON COLUMN herald.queue.used IS
'bytes that some listener has yet to read, or whose transaction is committing; with the files of large transactions, from when they are begun until they are deleted';
COMMENT ON COLUMN herald.queue.usage IS 'used as a fraction of herald.max_queue_size, or of the memory if that is larger';
COMMENT ON COLUMN herald.queue.uncommitted IS 'bytes in temporary files of transactions that have not begun to commit';
COMMENT ON COLUMN herald.queue.is_damaged IS
'shared memory was overwritten: the queue is switched off, and notifications go the server''s own way until it is restarted';

CREATE FUNCTION herald.get_stats(
	OUT notifications bigint,
	OUT batches bigint,
	OUT duplicates_removed bigint,
	OUT delivered bigint,
	OUT wakeups bigint,
	OUT signals_sent bigint,
	OUT signals_saved bigint,
	OUT turns_rescued bigint,
	OUT segments_spilled bigint,
	OUT segments_dropped bigint,
	OUT overruns bigint,
	OUT invalidations bigint,
	OUT cache_resets bigint,
	OUT catch_ups bigint,
	OUT stats_reset timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'herald_view_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_stats() IS
'the row of view stats';

CREATE VIEW herald.stats AS
SELECT s.notifications, s.batches, s.duplicates_removed, s.delivered, s.wakeups,
	   s.signals_sent, s.signals_saved, s.turns_rescued, s.segments_spilled,
	   s.segments_dropped, s.overruns, s.invalidations, s.cache_resets, s.catch_ups,
	   s.stats_reset
  FROM herald.get_stats() s;

COMMENT ON VIEW herald.stats IS
'one row: what pg_herald has counted, in all databases, since the server''s start or the last reset';
COMMENT ON COLUMN herald.stats.notifications IS 'notifications issued, without duplicates; those rolled back are among them';
COMMENT ON COLUMN herald.stats.batches IS 'transactions that put notifications into the queue';
COMMENT ON COLUMN herald.stats.duplicates_removed IS 'notifications that repeated one of the same transaction';
COMMENT ON COLUMN herald.stats.delivered IS 'notifications sent to clients';
COMMENT ON COLUMN herald.stats.wakeups IS 'times that a listener read the queue';
COMMENT ON COLUMN herald.stats.signals_sent IS 'signals sent, to listeners and to those who are to catch up';
COMMENT ON COLUMN herald.stats.signals_saved IS
'times that a notification found a listener concerned that needed no signal of its own';
COMMENT ON COLUMN herald.stats.turns_rescued IS 'turns taken back from sessions that did not use them: to read notifications, or to catch up with invalidations';
COMMENT ON COLUMN herald.stats.segments_spilled IS 'segments of the queue written to temporary files, for listeners that had not read them';
COMMENT ON COLUMN herald.stats.segments_dropped IS
'segments of the queue, and files of large transactions, given up although listeners had not read them: past herald.max_queue_size, or for want of disk space';
COMMENT ON COLUMN herald.stats.overruns IS 'times that a listener missed notifications by that';
COMMENT ON COLUMN herald.stats.invalidations IS 'invalidations of cached values that were sent: one for a key, or for a whole cache';
COMMENT ON COLUMN herald.stats.cache_resets IS 'times that a backend missed invalidations, and forgot all that it cached';
COMMENT ON COLUMN herald.stats.catch_ups IS 'times that a backend was signalled because it was far behind with invalidations';
COMMENT ON COLUMN herald.stats.stats_reset IS 'time of the last reset';

CREATE FUNCTION herald.reset_stats()
RETURNS void
AS 'MODULE_PATHNAME', 'herald_reset_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.reset_stats() IS
'set the counters of view stats to zero; for superusers and whom they grant it to';

REVOKE ALL ON FUNCTION herald.reset_stats() FROM PUBLIC;

CREATE FUNCTION herald.watchdog_pid()
RETURNS integer
AS 'MODULE_PATHNAME', 'herald_watchdog_process'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.watchdog_pid() IS
'process id of the background worker "pg_herald watchdog", which pg_stat_activity does not show; null if it does not run';

--
-- Caches of each session, which the changes of all sessions keep fresh
--

CREATE FUNCTION herald.cache_through(cache text, query text)
RETURNS text
AS 'MODULE_PATHNAME', 'herald_cache_through'
LANGUAGE C STABLE PARALLEL RESTRICTED;

CREATE FUNCTION herald.cache_through(cache text, query text, VARIADIC arguments "any")
RETURNS text
AS 'MODULE_PATHNAME', 'herald_cache_through'
LANGUAGE C STABLE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.cache_through(text, text) IS
'result of a query, from this session''s cache if it is there';
COMMENT ON FUNCTION herald.cache_through(text, text, VARIADIC "any") IS
'result of a query with these arguments, from this session''s cache if it is there';

CREATE FUNCTION herald.cache_watch(cache text, watched regclass, VARIADIC columns name[] DEFAULT '{}')
RETURNS void
AS 'MODULE_PATHNAME', 'herald_cache_watch'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.cache_watch(text, regclass, VARIADIC name[]) IS
'create the triggers by which changes of a table invalidate a cache; columns: those that hold the arguments of its queries';

CREATE FUNCTION herald.cache_invalidate(cache text, VARIADIC arguments "any")
RETURNS void
AS 'MODULE_PATHNAME', 'herald_cache_invalidate'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.cache_invalidate(text, VARIADIC "any") IS
'make all sessions forget what they have cached for these arguments, when this transaction commits';

CREATE FUNCTION herald.cache_clear(cache text)
RETURNS void
AS 'MODULE_PATHNAME', 'herald_cache_clear'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.cache_clear(text) IS
'make all sessions forget all of the cache, when this transaction commits';

CREATE FUNCTION herald.cache_clear()
RETURNS void
AS 'MODULE_PATHNAME', 'herald_cache_clear'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.cache_clear() IS
'make all sessions of this database forget all that they have cached, when this transaction commits';

CREATE FUNCTION herald.cache_key(VARIADIC arguments "any")
RETURNS text
AS 'MODULE_PATHNAME', 'herald_cache_key'
LANGUAGE C STABLE PARALLEL SAFE;

COMMENT ON FUNCTION herald.cache_key(VARIADIC "any") IS
'the key of these arguments, for modules in C that share a cache with SQL';

CREATE FUNCTION herald.invalidate_cache()
RETURNS trigger
AS 'MODULE_PATHNAME', 'herald_invalidate_cache'
LANGUAGE C;

COMMENT ON FUNCTION herald.invalidate_cache() IS
'trigger function: changes of the table invalidate a cache; arguments: the cache, and the columns that hold the arguments of its queries';

CREATE FUNCTION herald.get_caches(
	OUT pid integer,
	OUT datid oid,
	OUT role oid,
	OUT entries integer,
	OUT memory bigint,
	OUT hits bigint,
	OUT misses bigint,
	OUT invalidations bigint,
	OUT resets bigint,
	OUT lag bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'herald_view_caches'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_caches() IS
'the rows of view caches';

CREATE VIEW herald.caches AS
SELECT c.pid,
	   d.datname,
	   r.rolname,
	   c.entries,
	   c.memory,
	   c.hits,
	   c.misses,
	   c.invalidations,
	   c.resets,
	   c.lag
  FROM herald.get_caches() c
  LEFT JOIN pg_catalog.pg_database d ON d.oid = c.datid
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = c.role;

COMMENT ON VIEW herald.caches IS
'one row per backend that uses caches: those of your own roles, or all for pg_read_all_stats';
COMMENT ON COLUMN herald.caches.pid IS 'process id of the backend';
COMMENT ON COLUMN herald.caches.datname IS 'database that it is connected to';
COMMENT ON COLUMN herald.caches.rolname IS 'role that it was logged in as when it first used a cache';
COMMENT ON COLUMN herald.caches.entries IS 'number of values that it keeps for cache_through()';
COMMENT ON COLUMN herald.caches.memory IS 'bytes of memory that these take, bounded by herald.cache_memory';
COMMENT ON COLUMN herald.caches.hits IS 'times that a value was found';
COMMENT ON COLUMN herald.caches.misses IS 'times that none was';
COMMENT ON COLUMN herald.caches.invalidations IS 'invalidations that it has read, of its database';
COMMENT ON COLUMN herald.caches.resets IS 'times that it was so far behind that it missed invalidations, and forgot everything';
COMMENT ON COLUMN herald.caches.lag IS
'invalidations, of all databases, that it has yet to read; null if it has missed some, and will forget everything';

-- The views are for everybody; what each shows depends on who looks.
-- Explicitly, lest default privileges have been taken away from PUBLIC.  (Who
-- may not execute the built-in pg_notify() may not execute ours either; it asks.)
GRANT USAGE ON SCHEMA herald TO PUBLIC;
GRANT EXECUTE ON FUNCTION
	herald.pg_notify(text, text), herald.pg_notification_queue_usage(),
	herald.get_listeners(), herald.get_channels(),
	herald.get_queue(), herald.get_stats(), herald.watchdog_pid(),
	herald.cache_through(text, text), herald.cache_through(text, text, VARIADIC "any"),
	herald.cache_watch(text, regclass, VARIADIC name[]),
	herald.cache_invalidate(text, VARIADIC "any"), herald.cache_clear(text), herald.cache_clear(),
	herald.cache_key(VARIADIC "any"), herald.invalidate_cache(),
	herald.get_caches() TO PUBLIC;
GRANT SELECT ON herald.listeners, herald.channels, herald.queue,
	herald.stats, herald.caches TO PUBLIC;

-- What sessions have cached while the extension was here before was not kept fresh since.
SELECT herald.cache_clear();
