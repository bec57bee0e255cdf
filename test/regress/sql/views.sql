-- Guards: what the views show, to whom; and that each object says what it is.

-- From 17 on the types of the views' rows are members as well.
CREATE TEMP VIEW member AS
	SELECT classid, objid FROM pg_depend
	WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e' AND classid <> 'pg_type'::regclass
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_herald');

-- Every object of the extension, and every column of its views, has a comment.
SELECT pg_describe_object(classid, objid, 0) AS without_comment
FROM member WHERE obj_description(objid, classid::regclass::name) IS NULL
UNION ALL
SELECT attrelid::regclass || '.' || attname
FROM member JOIN pg_attribute ON classid = 'pg_class'::regclass AND attrelid = objid
WHERE attnum > 0 AND col_description(attrelid, attnum) IS NULL;
SELECT obj_description(oid, 'pg_extension') IS NOT NULL AS extension_has_one
	FROM pg_extension WHERE extname = 'pg_herald';

-- The objects themselves.
SELECT pg_describe_object(classid, objid, 0) AS object FROM member ORDER BY 1;
\d herald.listeners
\d herald.channels
\d herald.queue
\d herald.stats

-- This session.
SELECT count(*) FROM herald.listeners;
LISTEN a;
LISTEN b;
SELECT pid = pg_backend_pid() AS me, datname = current_database() AS here, rolname = current_user AS i,
	state, channels, pending_bytes, pending_age, delivered FROM herald.listeners;
SELECT channel, listeners, sent, delivered, last_sent, stats_since <= now() AS counts FROM herald.channels ORDER BY channel;
NOTIFY a \; NOTIFY b \; NOTIFY c;
SELECT channels, delivered, wakeups > 0 AS woken FROM herald.listeners;
SELECT head = dispatched AS all_dispatched, needed <= head AS not_beyond, tail <= needed AS kept,
	head > 0 AS used_once, size, spilled, used, usage FROM herald.queue;
SELECT herald.watchdog_pid() > 0 AS watchdog_runs;
UNLISTEN a;
SELECT channels, delivered FROM herald.listeners;
SELECT channel, listeners, sent, delivered FROM herald.channels;
UNLISTEN *;
SELECT * FROM herald.listeners;
SELECT channel, listeners, sent, delivered FROM herald.channels;

-- The figures add up.
LISTEN a;
SELECT herald.reset_stats();
SELECT notifications, batches, duplicates_removed, delivered, segments_spilled,
	segments_dropped, overruns FROM herald.stats;
NOTIFY a \; NOTIFY a \; NOTIFY b;
BEGIN;
NOTIFY a, 'rolled back';
ROLLBACK;
SELECT notifications, batches, duplicates_removed, delivered, segments_spilled,
	segments_dropped, overruns FROM herald.stats;
SELECT stats_reset BETWEEN now() - interval '1 minute' AND now() AS just_now FROM herald.stats;

-- Everybody sees his own; pg_read_all_stats sees all.
CREATE ROLE regress_anyone;
CREATE ROLE regress_monitor IN ROLE pg_read_all_stats;
SET ROLE regress_anyone;
SELECT count(*) FROM herald.listeners;
SELECT count(*) FROM herald.channels;
SELECT count(*) FROM herald.queue;
SELECT count(*) FROM herald.stats;
SELECT herald.reset_stats();
SET ROLE regress_monitor;
SELECT count(*) FROM herald.listeners;
SELECT channel, listeners, sent, delivered FROM herald.channels;
SELECT herald.reset_stats();
RESET ROLE;
GRANT EXECUTE ON FUNCTION herald.reset_stats() TO regress_monitor;
SET ROLE regress_monitor;
SELECT herald.reset_stats();
RESET ROLE;
REVOKE EXECUTE ON FUNCTION herald.reset_stats() FROM regress_monitor;

-- A listener is the role that it was logged in as; its members see it too.
UNLISTEN *;
SET SESSION AUTHORIZATION regress_anyone;
LISTEN mine;
SELECT rolname, channels FROM herald.listeners;
SELECT channel, listeners, sent, delivered FROM herald.channels;
RESET SESSION AUTHORIZATION;
CREATE ROLE regress_other;
SET ROLE regress_other;
SELECT count(*) FROM herald.listeners;
RESET ROLE;
GRANT regress_anyone TO regress_other;
SET ROLE regress_other;
SELECT rolname FROM herald.listeners;
SELECT channel, listeners, sent, delivered FROM herald.channels;
RESET ROLE;
UNLISTEN *;

DROP ROLE regress_anyone, regress_monitor, regress_other;
