-- Guards: wherever a plan can call pg_notify(), pg_herald sends what it says;
-- where no plan is made, the server does, and it arrives as well.
--
-- After each statement taken() tells how many notifications pg_herald has
-- sent since it was asked last.

\pset tuples_only on
\pset format unaligned
\pset null -
SET client_min_messages = warning;
CREATE TABLE seen (notifications bigint);
INSERT INTO seen SELECT notifications FROM herald.stats;
CREATE FUNCTION taken() RETURNS text LANGUAGE sql AS $$
	UPDATE seen SET notifications = now.notifications
	FROM herald.stats now, seen before
	RETURNING 'taken: ' || now.notifications - before.notifications
$$;
CREATE TABLE item (id integer PRIMARY KEY, word text);
INSERT INTO item SELECT n, 'word ' || n FROM generate_series(1, 3) n;
LISTEN c;
SELECT taken();

-- SELECT
SELECT pg_notify('c', 'select list');
SELECT taken();
SELECT id FROM item WHERE id = 1 AND pg_notify('c', 'where') IS NOT NULL;
SELECT taken();
VALUES (pg_notify('c', 'values 1')), (pg_notify('c', 'values 2'));
SELECT taken();
SELECT v.* FROM (VALUES (pg_notify('c', 'values 3')), (pg_notify('c', 'values 4'))) v;
SELECT taken();
SELECT * FROM pg_notify('c', 'from');
SELECT taken();
SELECT n.* FROM item, LATERAL pg_notify('c', 'lateral ' || id) n;
SELECT taken();
SELECT * FROM ROWS FROM (pg_notify('c', 'rows from'), generate_series(1, 2));
SELECT taken();
SELECT id FROM item ORDER BY id LIMIT length(pg_notify('c', 'limit')::text) + 1;
SELECT taken();
SELECT id FROM item ORDER BY id OFFSET length(pg_notify('c', 'offset')::text) + 2;
SELECT taken();
SELECT id FROM item ORDER BY pg_notify('c', 'order by ' || id)::text, id;
SELECT taken();
SELECT count(*) FROM item GROUP BY pg_notify('c', 'group by')::text;
SELECT taken();
SELECT count(*) FROM item HAVING pg_notify('c', 'having') IS NOT NULL;
SELECT taken();
SELECT count(pg_notify('c', 'aggregate')) FROM item;
SELECT taken();
SELECT count(*) FILTER (WHERE pg_notify('c', 'filter') IS NOT NULL) FROM item;
SELECT taken();
SELECT count(*) FROM item a JOIN item b ON a.id < b.id AND pg_notify('c', 'join ' || a.id + b.id) IS NOT NULL;
SELECT taken();
SELECT a.id, b.id FROM item a LEFT JOIN item b ON a.id = b.id AND pg_notify('c', 'outer join') IS NOT NULL ORDER BY 1;
SELECT taken();
SELECT pg_notify('c', 'append 1') UNION ALL SELECT pg_notify('c', 'append 2');
SELECT taken();
SELECT generate_series(1, 2), pg_notify('c', 'with a set');
SELECT taken();
SELECT CASE WHEN true THEN coalesce(ARRAY[pg_notify('c', 'nested')::text], '{}') END;
SELECT taken();
SELECT count(*) > -1 FROM item TABLESAMPLE SYSTEM (length(pg_notify('c', 'sample')::text) + 100);
SELECT taken();

-- Windows
SELECT id, count(pg_notify('c', 'window ' || id)) OVER (ORDER BY id) FROM item;
SELECT taken();
SELECT id, count(*) OVER (ORDER BY id ROWS BETWEEN length(pg_notify('c', 'frame start')::text) + 1 PRECEDING
	AND length(pg_notify('c', 'frame end')::text) FOLLOWING) FROM item;
SELECT taken();

-- Subqueries
SELECT id, (SELECT pg_notify('c', 'correlated ' || id)) FROM item ORDER BY id;
SELECT taken();
SELECT id FROM item WHERE id = (SELECT length(pg_notify('c', 'init plan')::text) + 2);
SELECT taken();
SELECT count(*) FROM item WHERE EXISTS (SELECT pg_notify('c', 'exists ' || item.id) OFFSET 0);
SELECT taken();
SELECT ARRAY(SELECT pg_notify('c', 'array ' || id)::text FROM item ORDER BY id);
SELECT taken();
WITH sent AS MATERIALIZED (SELECT pg_notify('c', 'cte ' || id) FROM item WHERE id < 3) SELECT count(*) FROM sent;
SELECT taken();
WITH RECURSIVE n(i, sent) AS (
	SELECT 1, pg_notify('c', 'recursive 1')::text
	UNION ALL SELECT i + 1, pg_notify('c', 'recursive ' || i + 1)::text FROM n WHERE i < 3)
SELECT count(*) FROM n;
SELECT taken();
SELECT count(*) FROM (SELECT id, pg_notify('c', 'subquery scan') AS sent FROM item ORDER BY id LIMIT 1) s WHERE sent IS NOT NULL;
SELECT taken();

-- Changes
INSERT INTO item VALUES (4, pg_notify('c', 'insert')::text);
SELECT taken();
INSERT INTO item VALUES (5, 'five'), (6, 'six') RETURNING pg_notify('c', 'returning ' || id);
SELECT taken();
UPDATE item SET word = word || pg_notify('c', 'update') WHERE id = 1;
SELECT taken();
DELETE FROM item WHERE id = 6 AND pg_notify('c', 'delete') IS NOT NULL RETURNING pg_notify('c', 'deleted');
SELECT taken();
INSERT INTO item VALUES (1, 'one') ON CONFLICT (id) DO UPDATE SET word = excluded.word || pg_notify('c', 'on conflict set');
SELECT taken();
INSERT INTO item VALUES (1, 'one') ON CONFLICT (id) DO UPDATE SET word = excluded.word
	WHERE pg_notify('c', 'on conflict where') IS NOT NULL;
SELECT taken();
MERGE INTO item USING (VALUES (1), (7)) AS v(id) ON item.id = v.id
	WHEN MATCHED AND pg_notify('c', 'merge condition') IS NOT NULL
		THEN UPDATE SET word = 'merged' || pg_notify('c', 'merge update')
	WHEN NOT MATCHED THEN INSERT VALUES (v.id, pg_notify('c', 'merge insert')::text);
SELECT taken();
WITH moved AS (DELETE FROM item WHERE id > 4 RETURNING id, pg_notify('c', 'moved ' || id)) SELECT count(*) FROM moved;
SELECT taken();
CREATE VIEW checked AS SELECT * FROM item WHERE pg_notify('c', 'check option ' || id) IS NOT NULL WITH CHECK OPTION;
INSERT INTO checked VALUES (8, 'eight');
SELECT taken();
CREATE TABLE with_default (id integer, word text DEFAULT pg_notify('c', 'default')::text);
INSERT INTO with_default VALUES (1);
SELECT taken();

-- Functions and statements that are kept
CREATE FUNCTION inlined(text) RETURNS void LANGUAGE sql AS 'SELECT pg_notify(''c'', ''inlined '' || $1)';
SELECT inlined('here');
SELECT taken();
CREATE FUNCTION inlined_set() RETURNS SETOF text LANGUAGE sql STABLE AS
	'SELECT word || s.n FROM item, (SELECT pg_notify(''c'', ''inlined set'') AS n) s WHERE id = 1';
SELECT * FROM inlined_set();
SELECT taken();
CREATE FUNCTION not_inlined() RETURNS void LANGUAGE sql AS 'SELECT pg_notify(''c'', ''1 of 2''); SELECT pg_notify(''c'', ''2 of 2'')';
SELECT not_inlined();
SELECT taken();
CREATE FUNCTION standard() RETURNS void LANGUAGE sql BEGIN ATOMIC SELECT pg_notify('c', 'standard body'); END;
SELECT standard();
SELECT taken();
CREATE FUNCTION assigns() RETURNS text LANGUAGE plpgsql AS $$
DECLARE nothing text := pg_notify('c', 'declared');
BEGIN
	nothing := pg_notify('c', 'assigned');
	PERFORM pg_notify('c', 'performed');
	IF pg_notify('c', 'in a condition') IS NULL THEN
		RETURN 'null';
	END IF;
	RETURN pg_notify('c', 'returned');
END $$;
SELECT assigns();
SELECT assigns();
SELECT taken();
DO $$ BEGIN PERFORM pg_notify('c', 'do'); END $$;
SELECT taken();
SET plan_cache_mode = force_generic_plan;
PREPARE send(text) AS SELECT pg_notify('c', 'prepared ' || $1);
EXECUTE send('once');
EXECUTE send('twice');
SELECT taken();
RESET plan_cache_mode;
BEGIN;
DECLARE sender CURSOR FOR SELECT pg_notify('c', 'cursor ' || id) FROM item WHERE id = 1;
FETCH ALL FROM sender;
COMMIT;
SELECT taken();
CREATE TABLE made AS SELECT pg_notify('c', 'create table as')::text AS nothing;
SELECT taken();

-- By name
SELECT pg_catalog.pg_notify('c', 'qualified');
SELECT herald.pg_notify('c', 'by its own name');
SELECT taken();

-- Where no plan is made, the server itself is called.
COPY with_default (id) FROM STDIN;
2
\.
SELECT taken();
CREATE TABLE with_check (word text CHECK (pg_notify('c', 'check') IS NOT NULL));
INSERT INTO with_check VALUES ('checked');
SELECT taken();
CREATE DOMAIN notifying AS text CHECK (pg_notify('c', 'domain ' || value) IS NOT NULL);
CREATE TABLE with_domain (word notifying);
COPY with_domain FROM STDIN;
copied
\.
SELECT taken();
CREATE PROCEDURE nothing(text) LANGUAGE plpgsql AS 'BEGIN END';
CALL nothing(pg_notify('c', 'argument of call')::text);
SELECT taken();
EXECUTE send(pg_notify('c', 'argument of execute')::text);
SELECT taken();

-- How full the queue is, is asked of pg_herald too.
SELECT pg_notification_queue_usage() >= 0;

UNLISTEN *;
DROP TABLE seen, item, with_default, with_check, with_domain, made CASCADE;
DROP DOMAIN notifying;
DROP FUNCTION taken, inlined, inlined_set, not_inlined, standard, assigns;
DROP PROCEDURE nothing;
