-- Guards: the SQL functions of caches, their arguments, errors, triggers, savepoints and roles.

CREATE TABLE item (id integer PRIMARY KEY, kind text, v text);
CREATE TRIGGER item AFTER INSERT OR UPDATE OR DELETE ON item
	FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('item', 'id');
INSERT INTO item VALUES (1, 'a', 'one'), (2, 'a', 'two'), (3, 'b', NULL);

-- What this session's caches have been asked since the last time that this was asked.
CREATE TABLE seen AS SELECT 0::bigint AS hits, 0::bigint AS misses;
CREATE FUNCTION asked() RETURNS TABLE (hits bigint, misses bigint, entries integer) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY
		SELECT c.hits - s.hits, c.misses - s.misses, c.entries
		  FROM herald.caches c, seen s WHERE pid = pg_backend_pid();
	UPDATE seen SET (hits, misses) =
		(SELECT c.hits, c.misses FROM herald.caches c WHERE pid = pg_backend_pid());
END $$;
CREATE FUNCTION item(key integer) RETURNS text LANGUAGE sql STABLE AS
	$$SELECT herald.cache_through('item', key::text, 'SELECT v FROM item WHERE id = $1', key)$$;

-- Get, or compute and keep.
SELECT count(*) FROM herald.caches;
SELECT item(1), item(2), item(3), item(4);
SELECT item(1), item(2), item(3), item(4);
SELECT * FROM asked();
UPDATE item SET v = 'uno' WHERE id = 1;
DELETE FROM item WHERE id = 2;
INSERT INTO item VALUES (4, 'b', 'four');
SELECT item(1), item(2), item(3), item(4);
SELECT * FROM asked();
UPDATE item SET id = 5 WHERE id = 4;
SELECT item(4), item(5);

-- Arguments of any type, and how they are given.
SELECT herald.cache_through('t', '1', 'SELECT 42');
SELECT herald.cache_through('t', '2', 'SELECT $1 || $2::text || $3', 'a', 1, 'b'::text);
SELECT herald.cache_through('t', '3', 'SELECT $1 + $2', 1.5, 2);
SELECT herald.cache_through('t', '4', 'SELECT coalesce($1, -1)', NULL::integer);
SELECT herald.cache_through('t', '5', 'SELECT $1 || $2', VARIADIC ARRAY['x', 'y']);
SELECT herald.cache_through('t', '6', 'SELECT cardinality($1)', ARRAY[1, 2, 3]);
SELECT herald.cache_through('t', '7', 'VALUES (date ''2026-02-03'')');
SELECT herald.cache_through('t', '8', 'SELECT 1', VARIADIC ARRAY[]::integer[]);
SELECT herald.cache_through('t', '9', 'SELECT 1', VARIADIC NULL::integer[]);
SELECT herald.cache_through('t', '10', 'SELECT v FROM item WHERE false') IS NULL;
-- What the key stands for is cached, whatever the query.
SELECT herald.cache_through('t', '1', 'SELECT 43');
-- Caches and keys are told apart byte by byte, and may be empty.
SELECT herald.cache_through('', '', 'SELECT ''nameless''');
SELECT herald.cache_through('', '', 'SELECT ''other'''), herald.cache_through('', ' ', 'SELECT ''blank'''),
	   herald.cache_through('T', '1', 'SELECT ''capital''');
-- With a null for the key nothing is cached.
SELECT * FROM asked();
SELECT herald.cache_through('t', NULL, 'SELECT 1'), herald.cache_through('t', NULL, 'SELECT 2');
SELECT * FROM asked();

-- What a query must be.
CREATE FUNCTION outcome(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
\pset format unaligned
\pset tuples_only on
SELECT outcome($$SELECT herald.cache_through(NULL, 'k', 'SELECT 1')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', NULL)$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'SELECT 1, 2')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'SELECT')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'SELECT generate_series(1, 2)')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'DELETE FROM item RETURNING v')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'SELECT v FROM item FOR UPDATE')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'SELECT 1 INTO made')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'CREATE TABLE made ()')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'COMMIT')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'COPY item TO STDOUT')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'SHOW herald.cache_memory')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', '')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'SELECT nothing')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'SELECT $1')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'SELECT $2', 1)$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'SELECT 1/0')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'k', 'TABLE item')$$);
\pset format aligned
\pset tuples_only off
-- None of that has kept anything.
SELECT herald.cache_get('e', 'k');

-- cache_put() wants a cache_get() before, that has found nothing.
SELECT herald.cache_put('p', '1', 'not asked for');
SELECT herald.cache_get('p', '1');
SELECT herald.cache_put('p', '1', 'put'), herald.cache_put('p', '1', 'put twice');
SELECT herald.cache_get('p', '1');
SELECT herald.cache_get('p', 'null');
SELECT herald.cache_put('p', 'null', NULL);
SELECT herald.cache_get('p', 'null') IS NULL, herald.cache_put('p', 'null', 'is kept, as a null');
SELECT herald.cache_get(NULL, '1'), herald.cache_get('p', NULL);
SELECT herald.cache_put(NULL, '1', 'x'), herald.cache_put('p', NULL, 'x');
-- The other functions see it as well.
SELECT herald.cache_through('p', '1', 'SELECT ''computed''');

-- Invalidating: a key, a cache; nulls do nothing.
SELECT herald.cache_get('p', '2'), herald.cache_put('p', '2', 'two');
SELECT herald.cache_invalidate('p', '1');
SELECT herald.cache_get('p', '1'), herald.cache_get('p', '2');
SELECT herald.cache_put('p', '1', 'put anew');
SELECT herald.cache_invalidate(NULL, '1'), herald.cache_invalidate('p', NULL), herald.cache_clear(NULL);
SELECT herald.cache_get('p', '1'), herald.cache_get('p', '2');
SELECT herald.cache_clear('p');
SELECT herald.cache_get('p', '1'), herald.cache_get('p', '2'), herald.cache_get('t', '1');
-- An invalidation between the two is not overtaken.
SELECT herald.cache_get('p', '3');
SELECT herald.cache_invalidate('p', '3');
SELECT herald.cache_put('p', '3', 'stale');
SELECT herald.cache_get('p', '3');

-- In a transaction that has invalidated a key nothing is kept under it.
BEGIN;
UPDATE item SET v = 'eins' WHERE id = 1;
SELECT item(1);
SELECT herald.cache_get('item', '1'), herald.cache_put('item', '1', 'x'), herald.cache_get('item', '1');
COMMIT;
SELECT item(1), item(1);
BEGIN;
SELECT herald.cache_clear('item');
SELECT item(3), herald.cache_put('item', '3', 'x');
ROLLBACK;

-- Savepoints: own changes at once, and taken back.
BEGIN;
SELECT item(1), item(5);
SAVEPOINT a;
UPDATE item SET v = 'within a' WHERE id = 1;
SELECT item(1), item(5);
SAVEPOINT b;
UPDATE item SET v = 'within b' WHERE id = 5;
SELECT item(1), item(5);
ROLLBACK TO b;
SELECT item(1), item(5);
RELEASE a;
SELECT item(1), item(5);
SAVEPOINT c;
UPDATE item SET v = 'within c';
SELECT item(1), item(5);
ROLLBACK TO c;
SELECT item(1), item(5);
ROLLBACK;
SELECT item(1), item(5);
DO $$
BEGIN
	UPDATE item SET v = 'undone' WHERE id = 1;
	RAISE NOTICE '%', item(1);
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
	RAISE NOTICE '%', item(1);
END $$;
SELECT item(1);

-- Keys of several columns.
SELECT herald.cache_key(1), herald.cache_key('a,b\'), herald.cache_key(NULL::text);
SELECT herald.cache_key('a', 'b'), herald.cache_key('a,b', 'c'), herald.cache_key('a', 'b,c'),
	   herald.cache_key('a\', ',b'), herald.cache_key('a', NULL::text), herald.cache_key('a', '\N'),
	   herald.cache_key('', ''), herald.cache_key(1, 1.50);
SELECT herald.cache_key(VARIADIC ARRAY['x', 'y']), herald.cache_key(VARIADIC ARRAY['x']),
	   herald.cache_key(VARIADIC ARRAY[]::text[]), herald.cache_key(VARIADIC NULL::text[]),
	   herald.cache_key(ARRAY[1, 2]);
CREATE TABLE pair (a text, "B b" integer, v integer);
CREATE TRIGGER pair AFTER INSERT OR UPDATE OR DELETE ON pair
	FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('pair', 'a', 'B b');
CREATE FUNCTION pair(text, integer) RETURNS text LANGUAGE sql STABLE AS
	$$SELECT herald.cache_through('pair', herald.cache_key($1, $2),
		'SELECT sum(v) FROM pair WHERE a IS NOT DISTINCT FROM $1 AND "B b" IS NOT DISTINCT FROM $2', $1, $2)$$;
INSERT INTO pair VALUES ('x', 1, 1), ('x,', 1, 2), (NULL, 1, 3), (NULL, NULL, 4);
SELECT pair('x', 1), pair('x,', 1), pair(NULL, 1), pair(NULL, NULL), pair('y', 1);
UPDATE pair SET v = v + 10;
SELECT pair('x', 1), pair('x,', 1), pair(NULL, 1), pair(NULL, NULL), pair('y', 1);
UPDATE pair SET a = 'y' WHERE a = 'x';
SELECT pair('x', 1), pair('x,', 1), pair(NULL, 1), pair(NULL, NULL), pair('y', 1);
DELETE FROM pair WHERE a IS NULL;
SELECT pair('x', 1), pair('x,', 1), pair(NULL, 1), pair(NULL, NULL), pair('y', 1);

-- The whole cache: without columns, and for each statement.
CREATE TRIGGER pair_all AFTER TRUNCATE ON pair
	FOR EACH STATEMENT EXECUTE FUNCTION herald.invalidate_cache('pair', 'a', 'B b');
TRUNCATE pair;
SELECT pair('x,', 1), pair('y', 1);
CREATE TRIGGER total AFTER INSERT OR UPDATE OR DELETE ON pair
	FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('total');
SELECT herald.cache_through('total', '', 'SELECT count(*) FROM pair');
INSERT INTO pair VALUES ('z', 1, 1);
SELECT herald.cache_through('total', '', 'SELECT count(*) FROM pair');

-- Partitions whose columns are elsewhere, and rows that move between them.
CREATE TABLE part (id integer, region text, v text) PARTITION BY LIST (region);
CREATE TABLE part_n (v text, gone integer, region text, id integer);
ALTER TABLE part_n DROP COLUMN gone;
ALTER TABLE part ATTACH PARTITION part_n FOR VALUES IN ('n');
CREATE TABLE part_s PARTITION OF part FOR VALUES IN ('s');
CREATE TRIGGER part AFTER INSERT OR UPDATE OR DELETE ON part
	FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('part', 'id');
CREATE FUNCTION part(integer) RETURNS text LANGUAGE sql STABLE AS
	$$SELECT herald.cache_through('part', $1::text, 'SELECT region || v FROM part WHERE id = $1', $1)$$;
INSERT INTO part VALUES (1, 'n', 'a'), (2, 's', 'a');
SELECT part(1), part(2);
UPDATE part SET region = 's' WHERE id = 1;
UPDATE part_s SET v = 'b' WHERE id = 2;
SELECT part(1), part(2);

-- What a trigger must be.
\pset format unaligned
\pset tuples_only on
SELECT outcome($$SELECT herald.invalidate_cache()$$);
CREATE TABLE wrong (id integer);
CREATE TRIGGER wrong BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('wrong');
SELECT outcome($$INSERT INTO wrong VALUES (1)$$);
DROP TRIGGER wrong ON wrong;
CREATE TRIGGER wrong AFTER INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache();
SELECT outcome($$INSERT INTO wrong VALUES (1)$$);
DROP TRIGGER wrong ON wrong;
CREATE CONSTRAINT TRIGGER wrong AFTER INSERT ON wrong DEFERRABLE FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('wrong', 'id');
SELECT outcome($$INSERT INTO wrong VALUES (1)$$);
DROP TRIGGER wrong ON wrong;
CREATE TRIGGER wrong AFTER INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('wrong', 'ID');
SELECT outcome($$INSERT INTO wrong VALUES (1)$$);
DROP TRIGGER wrong ON wrong;
CREATE TRIGGER wrong AFTER INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('wrong', 'id');
ALTER TABLE wrong RENAME id TO number;
SELECT outcome($$INSERT INTO wrong VALUES (1)$$);
\pset format aligned
\pset tuples_only off

-- What a prepared transaction has invalidated is found until it is committed, and not kept.
SELECT herald.cache_through('t', '1', 'SELECT 41');
BEGIN;
SELECT herald.cache_invalidate('t', '1');
PREPARE TRANSACTION 'invalidates';
SELECT herald.cache_through('t', '1', 'SELECT 41') FROM generate_series(1, 2);
SELECT herald.cache_get('t', '1'), herald.cache_put('t', '1', '41');
COMMIT PREPARED 'invalidates';
BEGIN;
UPDATE seen SET hits = 0, misses = 0;
SELECT item(1);
PREPARE TRANSACTION 'reads';
ROLLBACK PREPARED 'reads';
SELECT herald.cache_through('t', '1', 'SELECT 42');

-- Not within a serializable transaction, which has to know what it depends on.
SELECT item(1);
SELECT * FROM asked() \g /dev/null
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT item(1), herald.cache_get('item', '1'), herald.cache_put('item', '1', 'x');
COMMIT;
SELECT * FROM asked();

-- A transaction that only reads takes no id; one that invalidates needs one, and may be READ ONLY.
BEGIN READ ONLY;
SELECT item(1), item(99), pg_current_xact_id_if_assigned() IS NULL AS no_xid;
SELECT herald.cache_invalidate('item', '1'), pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;

-- Memory.
SET herald.cache_memory = '8kB';
SELECT count(herald.cache_through('m', i::text, 'SELECT repeat(''x'', 100)')) FROM generate_series(1, 1000) i;
SELECT entries BETWEEN 10 AND 100, memory BETWEEN 4096 AND 8192 FROM herald.caches WHERE pid = pg_backend_pid();
-- What was used last is kept.
SELECT herald.cache_get('m', '1') IS NULL, herald.cache_get('m', '1000') IS NULL;
SELECT length(herald.cache_through('m', 'large', 'SELECT repeat(''x'', 10000)'));
SELECT herald.cache_get('m', 'large') IS NULL, herald.cache_put('m', 'large', repeat('x', 10000));
SET herald.cache_memory = 0;
SELECT entries, memory FROM herald.caches WHERE pid = pg_backend_pid();
SELECT item(1), herald.cache_get('item', '1') IS NULL, herald.cache_put('item', '1', 'x');
SELECT entries, memory FROM herald.caches WHERE pid = pg_backend_pid();
RESET herald.cache_memory;
SHOW herald.cache_memory;
SELECT length(herald.cache_through('m', 'large', 'SELECT repeat(''x'', 1000000)')),
	   length(herald.cache_get('m', 'large'));
SELECT entries, memory > 1000000 FROM herald.caches WHERE pid = pg_backend_pid();

-- The views.
\d herald.caches
SELECT herald.cache_clear('m');
SELECT datname, rolname = current_user, entries, hits > 0, misses > 0, invalidations > 0, resets, lag
  FROM herald.caches WHERE pid = pg_backend_pid();
SELECT herald.reset_stats();
SELECT herald.cache_invalidate('v', '1'), herald.cache_invalidate('v', '1'), herald.cache_invalidate('v', '2');
SELECT invalidations, cache_resets, catch_ups FROM herald.stats;
BEGIN;
SELECT herald.cache_invalidate('v', '1');
ROLLBACK;
SELECT invalidations FROM herald.stats;
-- Whoever invalidates more than 1024 keys of a cache invalidates all of it.
SELECT count(herald.cache_invalidate('v', i::text)) FROM generate_series(1, 1025) i;
SELECT invalidations FROM herald.stats;

-- A role never gets a value that was computed for another.
CREATE ROLE regress_ann;
CREATE ROLE regress_bob;
CREATE TABLE secret (owner text, v text);
INSERT INTO secret VALUES ('regress_ann', 'ann''s'), ('regress_bob', 'bob''s');
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON secret USING (owner = current_user);
GRANT SELECT ON secret TO regress_ann, regress_bob;
CREATE FUNCTION secret() RETURNS text LANGUAGE sql STABLE AS
	$$SELECT herald.cache_through('secret', '', 'SELECT string_agg(v, '' '' ORDER BY v) FROM secret')$$;
CREATE FUNCTION secret_of_owner() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS
	$$SELECT herald.cache_through('secret', '', 'SELECT string_agg(v, '' '' ORDER BY v) FROM secret')$$;
SELECT secret();
SET ROLE regress_ann;
SELECT secret(), secret();
SELECT secret_of_owner(), secret();
SET ROLE regress_bob;
SELECT secret(), herald.cache_get('secret', '');
SET ROLE regress_ann;
SELECT secret(), herald.cache_get('secret', '');
-- Nor can one be put for another.
SELECT herald.cache_get('secret', 'promise');
SET ROLE regress_bob;
SELECT herald.cache_put('secret', 'promise', 'of ann''s');
SELECT herald.cache_get('secret', 'promise');
-- The query runs with the rights of the current role.
SELECT herald.cache_through('seen', '', 'SELECT hits FROM seen');
-- Anybody may invalidate, which costs others a computation.
SELECT herald.cache_clear('secret');
-- Rows of one's own sessions only.
SELECT count(*) FROM herald.caches;
RESET ROLE;
SELECT count(*) FROM herald.caches;

DROP TABLE item, seen, pair, part, wrong, secret;
DROP FUNCTION asked, outcome, item, pair, part, secret, secret_of_owner;
DROP ROLE regress_ann, regress_bob;
