/* pg_herald 1.0 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_herald" to load this file. \quit

-- The script creates the schema, not CREATE EXTENSION: so DROP EXTENSION drops it, and an
-- existing schema of that name, which another user may own, is an error.
CREATE SCHEMA herald;

COMMENT ON SCHEMA herald IS 'pg_herald: LISTEN and NOTIFY that scale';

--
-- Replacements of built-in functions.  In plans, calls of pg_notify() and
-- pg_notification_queue_usage() become calls of these functions.  They are in pg_catalog, as
-- contrib/adminpack's were, so that a call needs no privilege that the built-in function does not,
-- and no ordinary role can replace them, even one that comes to own them.  They belong to the
-- bootstrap superuser: the role that creates the extension may be an ordinary one later.
--

CREATE FUNCTION pg_catalog.pg_herald_notify(channel text, payload text)
RETURNS void
AS 'MODULE_PATHNAME', 'herald_pg_notify'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION pg_catalog.pg_herald_notify(text, text) IS
'send a notification; plans call this function instead of pg_notify()';

CREATE FUNCTION pg_catalog.pg_herald_notification_queue_usage()
RETURNS float8
AS 'MODULE_PATHNAME', 'herald_pg_notification_queue_usage'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION pg_catalog.pg_herald_notification_queue_usage() IS
'fraction of the notification queue in use, pg_herald''s or the server''s, whichever is fuller; plans call this function instead of pg_notification_queue_usage()';

DO $$
DECLARE
	bootstrap name := (SELECT rolname FROM pg_catalog.pg_roles WHERE oid OPERATOR(pg_catalog.=) 10);
BEGIN
	EXECUTE pg_catalog.format('ALTER FUNCTION pg_catalog.pg_herald_notify(text, text) OWNER TO %I', bootstrap);
	EXECUTE pg_catalog.format('ALTER FUNCTION pg_catalog.pg_herald_notification_queue_usage() OWNER TO %I', bootstrap);
END $$;

CREATE FUNCTION herald.pg_notify(channel text, payload text)
RETURNS void
AS 'MODULE_PATHNAME', 'herald_pg_notify'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.pg_notify(text, text) IS
'send a notification, like pg_notify(); for places where a database with logged channels refuses that: CHECK constraints, and arguments of EXECUTE and CALL';

--
-- Positions, from which a client can resume without missing notifications
--

CREATE FUNCTION herald.position()
RETURNS text
AS 'MODULE_PATHNAME', 'herald_position'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.position() IS
'return a position: everything before it has been sent to this session''s client; if the session does not listen, what was committed before the call is before it, but for what follows a transaction that is still committing';

CREATE FUNCTION herald.listen(channel text, after text DEFAULT NULL)
RETURNS boolean
AS 'MODULE_PATHNAME', 'herald_listen'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.listen(text, text) IS
'LISTEN, and first receive what was sent on the channel after a position; false if some of that is not kept any more, null without a position';

CREATE FUNCTION herald.read(
	channel text,
	after text DEFAULT NULL,
	max_rows integer DEFAULT 1000,
	wait interval DEFAULT '0',
	OUT "position" text,
	OUT channel text,
	OUT payload text,
	OUT pid integer,
	OUT committed_at timestamptz,
	OUT xid xid8,
	OUT sender name)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'herald_read'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.read(text, text, integer, interval) IS
'return what was sent on a channel after a position, up to the end of the transaction that has row max_rows, or, if there is nothing, what comes within some time; a row with a position alone if nothing comes';

CREATE FUNCTION herald.read(
	channels text[],
	after text DEFAULT NULL,
	max_rows integer DEFAULT 1000,
	wait interval DEFAULT '0',
	OUT "position" text,
	OUT channel text,
	OUT payload text,
	OUT pid integer,
	OUT committed_at timestamptz,
	OUT xid xid8,
	OUT sender name)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'herald_read_channels'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.read(text[], text, integer, interval) IS
'the same for several channels: one position is good for all';

--
-- Logged channels
--

-- The settings are the options of a foreign server: so PostgreSQL itself dumps, copies, guards and
-- announces them.  There is no handler: nothing can be read through it.
CREATE FUNCTION herald.channel_options(options text[], catalog oid)
RETURNS void
AS 'MODULE_PATHNAME', 'herald_channel_options'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.channel_options(text[], oid) IS
'validator of the foreign-data wrapper pg_herald: checks names of channels';

CREATE FOREIGN DATA WRAPPER pg_herald VALIDATOR herald.channel_options;

COMMENT ON FOREIGN DATA WRAPPER pg_herald IS
'has one server, pg_herald, whose options are the settings of channels; USAGE allows to create it';

CREATE FUNCTION herald.set_channel(channel text, logged boolean)
RETURNS void
AS 'MODULE_PATHNAME', 'herald_set_channel'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION herald.set_channel(text, boolean) IS
'set whether notifications on a channel, or on all channels with a prefix if * follows it, are written to the WAL; null removes the setting; for the owner of the foreign server pg_herald, or, if there is none, for roles with USAGE on the foreign-data wrapper pg_herald';

CREATE VIEW herald.channel_settings AS
SELECT c.channel, o.option_name OPERATOR(pg_catalog.=) 'logged' AS logged
  FROM pg_catalog.pg_foreign_server s
  JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid OPERATOR(pg_catalog.=) s.srvfdw,
	   pg_catalog.pg_options_to_table(
		   CASE WHEN w.fdwname OPERATOR(pg_catalog.=) 'pg_herald' THEN s.srvoptions END) o,
	   pg_catalog.unnest(o.option_value::pg_catalog.text[]) c(channel)
 WHERE s.srvname OPERATOR(pg_catalog.=) 'pg_herald';

COMMENT ON VIEW herald.channel_settings IS
'one row for each setting made by herald.set_channel() in this database; for a channel that several rows match, its own counts, else the one with the longest prefix; without any, a channel is not logged';
COMMENT ON COLUMN herald.channel_settings.channel IS 'name of a channel, or a prefix followed by *: all channels whose names begin with it';
COMMENT ON COLUMN herald.channel_settings.logged IS 'whether notifications on these channels are written to the WAL';

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
	OUT delivered bigint,
	OUT wakeups bigint,
	OUT heartbeat interval)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'herald_view_listeners'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_listeners() IS
'rows of the view herald.listeners';

CREATE VIEW herald.listeners AS
SELECT l.pid,
	   d.datname,
	   r.rolname,
	   l.state,
	   l.channels,
	   l.pending_bytes,
	   pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) l.pending_since AS pending_age,
	   l.delivered,
	   l.wakeups,
	   l.heartbeat
  FROM herald.get_listeners() l
  LEFT JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) l.datid
  LEFT JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) l.role;

COMMENT ON VIEW herald.listeners IS
'one row for each listening session; members of pg_read_all_stats see all sessions, other users those of their own roles, with pending_bytes in multiples of an eighth of the queue''s memory, and times in whole seconds';
COMMENT ON COLUMN herald.listeners.pid IS 'process ID of the session';
COMMENT ON COLUMN herald.listeners.datname IS 'database that the session is connected to';
COMMENT ON COLUMN herald.listeners.rolname IS 'session user when the session began to listen';
COMMENT ON COLUMN herald.listeners.state IS
'idle: waits for notifications; pending: waits for its turn to be woken; signalled: has been woken; processing: reads the queue; busy: is in a transaction, and reads the queue when the transaction ends; missed: has missed notifications, and is notified of that when it next reads';
COMMENT ON COLUMN herald.listeners.channels IS 'number of channels that the session listens to';
COMMENT ON COLUMN herald.listeners.pending_bytes IS
'size in bytes of the part of the queue that the session has not read, including the files of large transactions; 0 if nothing waits for the session';
COMMENT ON COLUMN herald.listeners.pending_age IS
'time since the commit of the oldest notification in the part of the queue that the session has not read';
COMMENT ON COLUMN herald.listeners.delivered IS 'number of notifications sent to the client since the session began to listen';
COMMENT ON COLUMN herald.listeners.wakeups IS 'number of times the session read the queue since it began to listen';
COMMENT ON COLUMN herald.listeners.heartbeat IS
'value of herald.heartbeat in the session, 0 if there is none; null if the session does not listen to channel herald_position';

CREATE FUNCTION herald.get_channels(
	OUT channel text,
	OUT listeners bigint,
	OUT sent bigint,
	OUT delivered bigint,
	OUT last_sent timestamptz,
	OUT stats_since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'herald_view_channels'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_channels() IS
'rows of the view herald.channels';

CREATE VIEW herald.channels AS
SELECT c.channel, c.listeners, c.sent, c.delivered, c.last_sent, c.stats_since
  FROM herald.get_channels() c;

COMMENT ON VIEW herald.channels IS
'one row for each channel of this database that has listeners; members of pg_read_all_stats see all listeners, other users those of their own roles';
COMMENT ON COLUMN herald.channels.channel IS 'name of the channel';
COMMENT ON COLUMN herald.channels.listeners IS 'number of sessions that listen to the channel';
COMMENT ON COLUMN herald.channels.sent IS 'number of notifications sent on the channel';
COMMENT ON COLUMN herald.channels.delivered IS
'number of notifications sent to clients, one for each listener; null if the user does not see all listeners';
COMMENT ON COLUMN herald.channels.last_sent IS 'commit time of the last notification';
COMMENT ON COLUMN herald.channels.stats_since IS
'time since which these are counted: of the first LISTEN of the present listeners, or of the last reset';

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
	OUT kept_bytes bigint,
	OUT kept_since timestamptz,
	OUT anchor_distance bigint,
	OUT is_damaged boolean)
RETURNS record
AS 'MODULE_PATHNAME', 'herald_view_queue'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_queue() IS
'row of the view herald.queue';

CREATE VIEW herald.queue AS
SELECT q.head, q.dispatched, q.needed, q.tail, q.size, q.spilled, q.used, q.usage, q.uncommitted,
	   q.kept_bytes, q.kept_since, q.anchor_distance, q.is_damaged
  FROM herald.get_queue() q;

COMMENT ON VIEW herald.queue IS
'one row: the notification queue, which all databases share; positions and sizes are in bytes, for users other than members of pg_read_all_stats in multiples of an eighth of size, and the time in whole seconds';
COMMENT ON COLUMN herald.queue.head IS 'position where the next transaction will write its notifications';
COMMENT ON COLUMN herald.queue.dispatched IS 'position up to which listeners may read';
COMMENT ON COLUMN herald.queue.needed IS 'position of the first byte that some listener has not read';
COMMENT ON COLUMN herald.queue.tail IS 'position of the first byte whose memory has not been reused';
COMMENT ON COLUMN herald.queue.size IS 'memory for notifications: herald.queue_memory, rounded down to a power of two';
COMMENT ON COLUMN herald.queue.spilled IS 'size of the queue''s temporary files';
COMMENT ON COLUMN herald.queue.used IS
'size of what some listener has not read and of what is not committed yet, including the files of large transactions';
COMMENT ON COLUMN herald.queue.usage IS 'used as a fraction of herald.max_queue_size, or of size if that is larger';
COMMENT ON COLUMN herald.queue.uncommitted IS 'size of the temporary files of large transactions that have not begun to commit';
COMMENT ON COLUMN herald.queue.kept_bytes IS
'size of the part of the queue that can be read again after a reconnect, in memory and in temporary files';
COMMENT ON COLUMN herald.queue.kept_since IS 'time of the first commit in that part';
COMMENT ON COLUMN herald.queue.anchor_distance IS
'size in bytes of the WAL since the last anchor, from which positions are found again after a restart; all of the WAL if this run of the server has no anchor; null on a standby';
COMMENT ON COLUMN herald.queue.is_damaged IS
'true if shared memory was overwritten: the queue is switched off, and notifications go through the server''s own queue until the server is restarted';

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
	OUT stats_reset timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'herald_view_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_stats() IS
'row of the view herald.stats';

CREATE VIEW herald.stats AS
SELECT s.notifications, s.batches, s.duplicates_removed, s.delivered, s.wakeups,
	   s.signals_sent, s.signals_saved, s.turns_rescued, s.segments_spilled,
	   s.segments_dropped, s.overruns, s.stats_reset
  FROM herald.get_stats() s;

COMMENT ON VIEW herald.stats IS
'one row: counters of all databases since the server start or the last reset';
COMMENT ON COLUMN herald.stats.notifications IS 'number of notifications sent, without duplicates, including those of transactions that were rolled back';
COMMENT ON COLUMN herald.stats.batches IS 'number of transactions that put notifications into the queue';
COMMENT ON COLUMN herald.stats.duplicates_removed IS 'number of notifications that repeated another one of the same transaction';
COMMENT ON COLUMN herald.stats.delivered IS 'number of notifications sent to clients';
COMMENT ON COLUMN herald.stats.wakeups IS 'number of times a listener read the queue';
COMMENT ON COLUMN herald.stats.signals_sent IS 'number of signals sent to sessions, to read notifications or for another module';
COMMENT ON COLUMN herald.stats.signals_saved IS
'number of times a notification needed no signal, because its listener was going to read the queue anyway';
COMMENT ON COLUMN herald.stats.turns_rescued IS 'number of turns taken back from sessions that did not use them; a turn is the permission to read notifications';
COMMENT ON COLUMN herald.stats.segments_spilled IS 'number of queue segments written to temporary files for laggards';
COMMENT ON COLUMN herald.stats.segments_dropped IS
'number of queue segments and files of large transactions that were deleted before all listeners had read them, because herald.max_queue_size was reached or the disk was full';
COMMENT ON COLUMN herald.stats.overruns IS 'number of times a listener missed notifications';
COMMENT ON COLUMN herald.stats.stats_reset IS 'time of the last reset';

CREATE FUNCTION herald.reset_stats()
RETURNS void
AS 'MODULE_PATHNAME', 'herald_reset_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.reset_stats() IS
'set the counters of herald.stats and of herald.channels to zero; only superusers may execute it by default';

REVOKE ALL ON FUNCTION herald.reset_stats() FROM PUBLIC;

CREATE FUNCTION herald.watchdog_pid()
RETURNS integer
AS 'MODULE_PATHNAME', 'herald_watchdog_process'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.watchdog_pid() IS
'process ID of the background worker "pg_herald watchdog", which pg_stat_activity does not show; null if it is not running';

CREATE FUNCTION herald.get_relay(
	OUT read_position pg_lsn,
	OUT replay_position pg_lsn,
	OUT bytes_behind bigint,
	OUT seconds_behind float8,
	OUT batches bigint,
	OUT forged bigint,
	OUT newer bigint,
	OUT gaps bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'herald_view_relay'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION herald.get_relay() IS
'row of the view herald.relay';

CREATE VIEW herald.relay AS
SELECT r.read_position, r.replay_position, r.bytes_behind, r.seconds_behind, r.batches, r.forged, r.newer, r.gaps
  FROM herald.get_relay() r;

COMMENT ON VIEW herald.relay IS
'on a standby one row about the background worker that reads logged notifications in the WAL; on a primary no row';
COMMENT ON COLUMN herald.relay.read_position IS 'position in the WAL up to which it has read';
COMMENT ON COLUMN herald.relay.replay_position IS 'position up to which the standby has replayed the WAL';
COMMENT ON COLUMN herald.relay.bytes_behind IS 'size of the WAL that was replayed and that it has not read';
COMMENT ON COLUMN herald.relay.seconds_behind IS
'time between the last commit that it has read and the last commit that was replayed; 0 if it has read everything; null if not known';
COMMENT ON COLUMN herald.relay.batches IS 'number of transactions whose notifications it has put into the queue of this server';
COMMENT ON COLUMN herald.relay.forged IS
'number of messages in the WAL with the prefix of pg_herald that another program has written; they are ignored';
COMMENT ON COLUMN herald.relay.newer IS
'number of messages of a later version of pg_herald; listeners are notified that they have missed something';
COMMENT ON COLUMN herald.relay.gaps IS
'number of times it could not read or send notifications; listeners are notified that they have missed something';

-- All users may read the views; the rows that a user sees depend on the user's roles.
-- The grants are explicit because default privileges may have been revoked from PUBLIC.
-- (Our pg_notify() checks that the user may execute the built-in one.)
GRANT USAGE ON SCHEMA herald TO PUBLIC;
GRANT EXECUTE ON FUNCTION
	pg_catalog.pg_herald_notify(text, text), pg_catalog.pg_herald_notification_queue_usage(),
	herald.pg_notify(text, text), herald.set_channel(text, boolean),
	herald.position(), herald.listen(text, text), herald.read(text, text, integer, interval),
	herald.read(text[], text, integer, interval), herald.get_listeners(), herald.get_channels(),
	herald.get_queue(), herald.get_stats(), herald.watchdog_pid(), herald.get_relay() TO PUBLIC;
GRANT SELECT ON herald.listeners, herald.channels, herald.queue,
	herald.stats, herald.relay, herald.channel_settings TO PUBLIC;
