/* pg_herald_cache 1.0 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_herald_cache" to load this file. \quit

--
-- Session caches; changes made by any session invalidate their values
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
'return the result of a query: from this session''s cache if it is there, else by running the query';
COMMENT ON FUNCTION herald.cache_through(text, text, VARIADIC "any") IS
'return the result of a query with these arguments: from this session''s cache if it is there, else by running the query';

CREATE FUNCTION herald.cache_watch(cache text, watched regclass, VARIADIC columns name[] DEFAULT '{}')
RETURNS void
AS 'MODULE_PATHNAME', 'herald_cache_watch'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.cache_watch(text, regclass, VARIADIC name[]) IS
'create the triggers by which changes of a table invalidate a cache; the columns are those that hold the arguments of its queries';

CREATE FUNCTION herald.cache_invalidate(cache text, VARIADIC arguments "any")
RETURNS void
AS 'MODULE_PATHNAME', 'herald_cache_invalidate'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.cache_invalidate(text, VARIADIC "any") IS
'remove what is cached for these arguments in all sessions when this transaction commits';

CREATE FUNCTION herald.cache_clear(cache text)
RETURNS void
AS 'MODULE_PATHNAME', 'herald_cache_clear'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.cache_clear(text) IS
'empty the cache in all sessions when this transaction commits';

CREATE FUNCTION herald.cache_clear()
RETURNS void
AS 'MODULE_PATHNAME', 'herald_cache_clear'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.cache_clear() IS
'empty all caches in all sessions of this database when this transaction commits';

CREATE FUNCTION herald.cache_key(VARIADIC arguments "any")
RETURNS text
AS 'MODULE_PATHNAME', 'herald_cache_key'
LANGUAGE C STABLE PARALLEL SAFE;

COMMENT ON FUNCTION herald.cache_key(VARIADIC "any") IS
'return the key of these arguments, for modules in C that share a cache with SQL';

CREATE FUNCTION herald.invalidate_cache()
RETURNS trigger
AS 'MODULE_PATHNAME', 'herald_invalidate_cache'
LANGUAGE C;

COMMENT ON FUNCTION herald.invalidate_cache() IS
'trigger function: a change of the table invalidates a cache; its arguments are the name of the cache and the columns that hold the arguments of its queries';

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
'rows of the view herald.caches';

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
  LEFT JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) c.datid
  LEFT JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) c.role;

COMMENT ON VIEW herald.caches IS
'one row for each session that uses caches; members of pg_read_all_stats see all sessions, other users those of their own roles';
COMMENT ON COLUMN herald.caches.pid IS 'process ID of the session';
COMMENT ON COLUMN herald.caches.datname IS 'database that the session is connected to';
COMMENT ON COLUMN herald.caches.rolname IS 'session user when the session first used a cache';
COMMENT ON COLUMN herald.caches.entries IS 'number of values cached for cache_through()';
COMMENT ON COLUMN herald.caches.memory IS 'memory of these values in bytes, limited by herald_cache.memory';
COMMENT ON COLUMN herald.caches.hits IS 'number of lookups that found a value';
COMMENT ON COLUMN herald.caches.misses IS 'number of lookups that found none';
COMMENT ON COLUMN herald.caches.invalidations IS 'number of invalidations of its database that the session has read';
COMMENT ON COLUMN herald.caches.resets IS 'number of times the session was so far behind that it missed invalidations and emptied its caches';
COMMENT ON COLUMN herald.caches.lag IS
'number of invalidations, of all databases, that the session has not read; null if it has missed some and will empty its caches';

CREATE FUNCTION herald.get_cache_stats(
	OUT invalidations bigint,
	OUT cache_resets bigint,
	OUT catch_ups bigint,
	OUT turns_rescued bigint,
	OUT stats_reset timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'herald_view_cache_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_cache_stats() IS
'row of the view herald.cache_stats';

CREATE VIEW herald.cache_stats AS
SELECT s.invalidations, s.cache_resets, s.catch_ups, s.turns_rescued, s.stats_reset
  FROM herald.get_cache_stats() s;

COMMENT ON VIEW herald.cache_stats IS
'one row: counters of all databases since the server start or the last reset';
COMMENT ON COLUMN herald.cache_stats.invalidations IS 'number of cache invalidations sent, each for one key or for a whole cache';
COMMENT ON COLUMN herald.cache_stats.cache_resets IS 'number of times a session missed invalidations and emptied its caches';
COMMENT ON COLUMN herald.cache_stats.catch_ups IS 'number of times a session was signalled because it was far behind with invalidations';
COMMENT ON COLUMN herald.cache_stats.turns_rescued IS
'number of turns taken back from sessions that did not use them at once; a turn is the permission to catch up with invalidations';
COMMENT ON COLUMN herald.cache_stats.stats_reset IS 'time of the last reset';

CREATE FUNCTION herald.reset_cache_stats()
RETURNS void
AS 'MODULE_PATHNAME', 'herald_reset_cache_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.reset_cache_stats() IS
'set the counters of herald.cache_stats to zero; only superusers may execute it by default';

REVOKE ALL ON FUNCTION herald.reset_cache_stats() FROM PUBLIC;

-- All users may read the views; the rows that a user sees depend on the user's roles.
-- The grants are explicit because default privileges may have been revoked from PUBLIC.
GRANT EXECUTE ON FUNCTION
	herald.cache_through(text, text), herald.cache_through(text, text, VARIADIC "any"),
	herald.cache_watch(text, regclass, VARIADIC name[]),
	herald.cache_invalidate(text, VARIADIC "any"), herald.cache_clear(text), herald.cache_clear(),
	herald.cache_key(VARIADIC "any"), herald.invalidate_cache(),
	herald.get_caches(), herald.get_cache_stats() TO PUBLIC;
GRANT SELECT ON herald.caches, herald.cache_stats TO PUBLIC;

-- Values that were cached before an earlier DROP EXTENSION have not been invalidated since.
SELECT herald.cache_clear();
