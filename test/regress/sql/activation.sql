-- Guards: pg_herald takes over exactly as long as its extension is there, its
-- functions are the extension's own, and the caller may call the server's.

\pset tuples_only on
\pset format unaligned
\set taken 'SELECT CASE WHEN notifications > :before THEN ''pg_herald'' ELSE ''the server'' END FROM herald.stats;'
\set mark 'SELECT notifications AS before FROM herald.stats \\gset'
SET client_min_messages = warning;
LISTEN c;
SET plan_cache_mode = force_generic_plan;
PREPARE send(text) AS SELECT pg_notify('c', $1);
PREPARE usage AS SELECT pg_notification_queue_usage() >= 0;
CREATE FUNCTION sends(text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('c', $1);
END $$;

:mark
EXECUTE send('a plan that is kept');
:taken
SELECT sends('a plan of a function');
EXECUTE usage;

-- The plan in the cache must not outlive the extension.
DROP EXTENSION pg_herald;
EXECUTE send('without the extension');
SELECT sends('without the extension');
EXECUTE usage;
NOTIFY c, 'a statement without the extension';

-- And is made anew when the extension comes back.
CREATE EXTENSION pg_herald;
:mark
EXECUTE send('with the extension again');
:taken
:mark
SELECT sends('with the extension again');
:taken
:mark
NOTIFY c, 'a statement with the extension';
:taken
EXECUTE usage;

-- In one transaction: what was sent before still counts.
BEGIN;
NOTIFY c, 'before DROP EXTENSION';
DROP EXTENSION pg_herald;
NOTIFY c, 'after DROP EXTENSION';
ROLLBACK;
:mark
NOTIFY c, 'after the rollback';
:taken
BEGIN;
SAVEPOINT s;
DROP EXTENSION pg_herald;
ROLLBACK TO s;
NOTIFY c, 'after the rollback of a subtransaction';
COMMIT;
:taken

-- Whoever may not call the server's function may not call ours either.
CREATE ROLE regress_nobody;
REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC;
SET ROLE regress_nobody;
SELECT pg_notify('c', 'not allowed');
\echo :LAST_ERROR_SQLSTATE
SELECT herald.pg_notify('c', 'not allowed');
\echo :LAST_ERROR_SQLSTATE
EXECUTE send('not allowed');
NOTIFY c, 'the statement is allowed';
RESET ROLE;
GRANT EXECUTE ON FUNCTION pg_notify(text, text) TO regress_nobody;
SET ROLE regress_nobody;
SELECT pg_notify('c', 'allowed');
EXECUTE send('allowed');
RESET ROLE;
GRANT EXECUTE ON FUNCTION pg_notify(text, text) TO PUBLIC;

-- A schema of the same name is not the extension.
DROP EXTENSION pg_herald;
SELECT current_database() AS database \gset
GRANT CREATE ON DATABASE :"database" TO regress_nobody;
SET ROLE regress_nobody;
CREATE SCHEMA herald;
CREATE FUNCTION herald.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
	'BEGIN RAISE EXCEPTION ''run as %'', current_user; END';
CREATE FUNCTION herald.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql AS 'SELECT 2.0::float8';
GRANT USAGE ON SCHEMA herald TO PUBLIC;
RESET ROLE;
SELECT pg_notify('c', 'not by the impostor');
EXECUTE send('not by the impostor');
EXECUTE usage;
SELECT pg_notification_queue_usage() < 1;
-- From 18 on the error says where in the extension's script.
\set SHOW_CONTEXT never
CREATE EXTENSION pg_herald;
\set SHOW_CONTEXT errors
SELECT pg_notify('c', 'not by the impostor');
DROP SCHEMA herald CASCADE;
DROP OWNED BY regress_nobody;
DROP ROLE regress_nobody;
CREATE EXTENSION pg_herald;

-- Nor is a function that has taken the place of the extension's own.
ALTER EXTENSION pg_herald DROP FUNCTION herald.pg_notify(text, text);
CREATE OR REPLACE FUNCTION herald.pg_notify(channel text, payload text) RETURNS void LANGUAGE plpgsql AS
	'BEGIN RAISE EXCEPTION ''run as %'', current_user; END';
SELECT pg_notify('c', 'not by the impostor');
DROP EXTENSION pg_herald CASCADE;
CREATE EXTENSION pg_herald;
:mark
SELECT pg_notify('c', 'by the extension again');
:taken

-- It has its own schema, and takes it along.
DROP EXTENSION pg_herald;
SELECT count(*) FROM pg_namespace WHERE nspname = 'herald';
CREATE EXTENSION pg_herald;

UNLISTEN *;
DROP FUNCTION sends;
