-- Guards: what is refused, with the server's own words and codes; and that
-- nothing is left of what was refused.

\set show '\\echo :LAST_ERROR_SQLSTATE :LAST_ERROR_MESSAGE'
\set VERBOSITY terse
\pset tuples_only on
LISTEN a;

SELECT pg_notify('', 'empty');
:show
SELECT pg_notify(NULL, 'null');
:show
SELECT pg_notify(repeat('c', 63), '63 bytes are a name');
SELECT pg_notify(repeat('c', 64), '64 are not');
:show
SELECT pg_notify(repeat('é', 32), '64 bytes');
:show
NOTIFY "";
:show

-- A statement cuts the name, as any identifier.
LISTEN ccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc;
NOTIFY ccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc, 'cut';

SELECT length(pg_notify('b', repeat('x', 7999))::text);
SELECT pg_notify('a', repeat('x', 8000));
:show
SELECT pg_notify('a', repeat('é', 4000));
:show
DO $$ BEGIN EXECUTE format('NOTIFY a, %L', repeat('x', 8000)); END $$;
:show

NOTIFY a, 1;
NOTIFY a, NULL;
SELECT pg_notify('a');
SELECT pg_notify('a', 1);

-- An error after the first notification takes all away.
SELECT pg_notify('a', CASE n WHEN 3 THEN repeat('x', 8000) ELSE 'lost' END)
	FROM generate_series(1, 3) n;
BEGIN;
NOTIFY a, 'kept';
SAVEPOINT s;
NOTIFY a, 'lost';
SELECT pg_notify('', '');
ROLLBACK TO s;
COMMIT;

-- In a block, DISCARD ALL is refused and the channels stay.
BEGIN;
DISCARD ALL;
:show
ROLLBACK;
NOTIFY a, 'still heard';

-- LISTEN is not for functions that run with somebody else's rights.
CREATE FUNCTION listen_within() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
	LISTEN within;
	RETURN 1;
END $$;
CREATE FUNCTION notify_within() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
	NOTIFY a, 'from a materialized view';
	RETURN 1;
END $$;
CREATE MATERIALIZED VIEW listens AS SELECT listen_within() WITH NO DATA;
REFRESH MATERIALIZED VIEW listens;
:show
CREATE MATERIALIZED VIEW notifies AS SELECT notify_within() WITH NO DATA;
REFRESH MATERIALIZED VIEW notifies;
SELECT count(*) FROM pg_listening_channels() c WHERE c = 'within';

-- A deferred trigger may still refuse the commit.
CREATE TABLE refused (id integer);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'refused';
END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON refused DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION refuse();
BEGIN;
LISTEN b;
NOTIFY a, 'lost';
INSERT INTO refused VALUES (1);
COMMIT;
NOTIFY b, 'not heard';
NOTIFY a, 'still heard';

UNLISTEN *;
DROP MATERIALIZED VIEW listens, notifies;
DROP TABLE refused;
DROP FUNCTION listen_within, notify_within, refuse;
