-- Guards: the SQL functions of caches, their arguments, errors, triggers, savepoints and roles.

CREATE EXTENSION pg_herald_cache;

CREATE TABLE item (id integer PRIMARY KEY, kind text, v text);
SELECT herald.cache_watch('item', 'item', 'id');
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
	$$SELECT herald.cache_through('item', 'SELECT v FROM item WHERE id = $1', key)$$;

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
SELECT herald.cache_through('t', 'SELECT 42');
SELECT herald.cache_through('t', 'SELECT $1 || $2::text || $3', 'a', 1, 'b'::text);
SELECT herald.cache_through('t', 'SELECT $1 + $2', 1.5, 2);
SELECT herald.cache_through('t', 'SELECT coalesce($1, -1) + $2', NULL::integer, 0);
SELECT herald.cache_through('t', 'SELECT $1 || $2', VARIADIC ARRAY['x', 'y']);
SELECT herald.cache_through('t', 'SELECT cardinality($1)', ARRAY[1, 2, 3]);
SELECT herald.cache_through('t', 'VALUES (date ''2026-02-03'')');
SELECT herald.cache_through('t', 'SELECT 1', VARIADIC ARRAY[]::integer[]);
SELECT herald.cache_through('t', 'SELECT 1', VARIADIC NULL::integer[]);
SELECT herald.cache_through('t', 'SELECT v FROM item WHERE false') IS NULL;
SELECT * FROM asked();
-- A value is of its cache, its query, and its arguments with their types; nothing else has it.
CREATE SEQUENCE computed;
CREATE FUNCTION counted(cache text, VARIADIC arguments integer[] DEFAULT '{}') RETURNS text LANGUAGE sql VOLATILE AS
	$$SELECT herald.cache_through(cache, 'SELECT nextval(''computed'')', VARIADIC arguments)$$;
SELECT counted('a', 1), counted('a', 1), counted('b', 1), counted('A', 1), counted('', 1), counted(' ', 1);
SELECT counted('a'), counted('a', 1, 2), counted('a', 12), counted('a', NULL, 1), counted('a', 1, NULL);
SELECT counted('a', 1), counted('b', 1), counted('A', 1), counted('', 1), counted(' ', 1), counted('a'),
	   counted('a', 1, 2), counted('a', 12), counted('a', NULL, 1), counted('a', 1, NULL);
SELECT herald.cache_through('t', 'SELECT $1', 'a,b', 'c'), herald.cache_through('t', 'SELECT $1', 'a', 'b,c'),
	   herald.cache_through('t', 'SELECT $1', 'a,b,c'), herald.cache_through('t', 'SELECT $1', 'a\,b', 'c'),
	   herald.cache_through('t', 'SELECT $1', '\N', 'c'), herald.cache_through('t', 'SELECT $1', NULL, 'c');
SELECT herald.cache_through('t', 'SELECT 7 / $1', 2), herald.cache_through('t', 'SELECT 7 / $1', 2::numeric),
	   herald.cache_through('t', 'SELECT  7 / $1', 2::float8), herald.cache_through('t', 'SELECT $1', 2),
	   herald.cache_through('t', 'SELECT $1', '2'::text);
-- Of one query two look-ups by different paths are two.
CREATE SCHEMA beside;
CREATE TABLE beside.here AS SELECT 'beside' AS v;
CREATE TABLE here AS SELECT 'public' AS v;
SELECT herald.cache_through('t', 'SELECT v FROM here');
SET search_path = beside;
SELECT herald.cache_through('t', 'SELECT v FROM here');
RESET search_path;
SELECT herald.cache_through('t', 'SELECT v FROM here');
DROP SCHEMA beside CASCADE;
DROP TABLE here;
-- With a null for the only argument nothing is cached.
SELECT herald.cache_clear();
SELECT counted('null', NULL) = counted('null', NULL);
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
SELECT outcome($$SELECT herald.cache_through(NULL, 'SELECT 1')$$);
SELECT outcome($$SELECT herald.cache_through('e', NULL)$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SELECT 1, 2')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SELECT')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SELECT generate_series(1, 2)')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'DELETE FROM item RETURNING v')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SELECT v FROM item FOR UPDATE')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SELECT 1 INTO made')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'CREATE TABLE made ()')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'COMMIT')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'COPY item TO STDOUT')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SHOW herald_cache.memory')$$);
SELECT outcome($$SELECT herald.cache_through('e', '')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SELECT nothing')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SELECT $1')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SELECT $2', 1)$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SELECT 1/0')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'TABLE item')$$);
SELECT outcome($$SELECT herald.cache_through('e', 'SELECT 1', '{pg_class}'::regclass[])$$);
\pset format aligned
\pset tuples_only off
-- None of that has kept anything.
SELECT entries FROM asked();

-- Invalidating: for arguments, whatever the query; a cache; all of them; nulls do nothing.
SELECT counted('p', 1) AS p1, counted('p', 2) AS p2, counted('p', 1, 2) AS p12, counted('q', 1) AS q1 \gset
CREATE FUNCTION kept(p1 text, p2 text, p12 text, q1 text) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', CASE WHEN counted('p', 1) = p1 THEN 'p1' END, CASE WHEN counted('p', 2) = p2 THEN 'p2' END,
					 CASE WHEN counted('p', 1, 2) = p12 THEN 'p12' END, CASE WHEN counted('q', 1) = q1 THEN 'q1' END)
$$;
SELECT kept(:'p1', :'p2', :'p12', :'q1');
SELECT herald.cache_invalidate(NULL, 1), herald.cache_invalidate('p', NULL), herald.cache_clear(NULL),
	   herald.cache_invalidate('p', VARIADIC NULL::integer[]);
SELECT kept(:'p1', :'p2', :'p12', :'q1');
SELECT herald.cache_invalidate('p', '1');
SELECT kept(:'p1', :'p2', :'p12', :'q1');
SELECT herald.cache_invalidate('p', VARIADIC ARRAY[1, 2]);
SELECT kept(:'p1', :'p2', :'p12', :'q1');
SELECT herald.cache_clear('p');
SELECT kept(:'p1', :'p2', :'p12', :'q1');
SELECT herald.cache_clear();
SELECT kept(:'p1', :'p2', :'p12', :'q1');
SELECT counted('none') = counted('none') AS kept, herald.cache_invalidate('none', VARIADIC ARRAY[]::integer[]);
SELECT counted('none') = currval('computed')::text AS computed;
SELECT outcome($$SELECT herald.cache_invalidate('p', '{pg_class}'::regclass[])$$);
SELECT * FROM asked() \g /dev/null

-- In a transaction that has invalidated a key nothing is kept under it.
BEGIN;
UPDATE item SET v = 'eins' WHERE id = 1;
SELECT item(1), item(1);
SELECT hits, misses FROM asked();
COMMIT;
SELECT item(1), item(1);
SELECT hits, misses FROM asked();
BEGIN;
SELECT herald.cache_clear('item');
SELECT item(3), item(3);
SELECT hits, misses FROM asked();
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
	$$SELECT herald.cache_through('pair',
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
SELECT herald.cache_through('total', 'SELECT count(*) FROM pair');
INSERT INTO pair VALUES ('z', 1, 1);
SELECT herald.cache_through('total', 'SELECT count(*) FROM pair');

-- Partitions whose columns are elsewhere, and rows that move between them.
CREATE TABLE part (id integer, region text, v text) PARTITION BY LIST (region);
CREATE TABLE part_n (v text, gone integer, region text, id integer);
ALTER TABLE part_n DROP COLUMN gone;
ALTER TABLE part ATTACH PARTITION part_n FOR VALUES IN ('n');
CREATE TABLE part_s PARTITION OF part FOR VALUES IN ('s');
SELECT herald.cache_watch('part', 'part', 'id');
CREATE FUNCTION part(integer) RETURNS text LANGUAGE sql STABLE AS
	$$SELECT herald.cache_through('part', 'SELECT region || v FROM part WHERE id = $1', $1)$$;
INSERT INTO part VALUES (1, 'n', 'a'), (2, 's', 'a');
SELECT part(1), part(2);
UPDATE part SET region = 's' WHERE id = 1;
UPDATE part_s SET v = 'b' WHERE id = 2;
SELECT part(1), part(2);
TRUNCATE part_s;
SELECT part(1), part(2);

-- What a table needs to be watched, in one call: \d tells; and again, which clears the cache.
CREATE TABLE watched (id integer PRIMARY KEY, "B b" text, money money, v integer);
SELECT herald.cache_watch('watched', 'watched', 'id'), herald.cache_watch('Its "sum"', 'watched'),
	   herald.cache_watch(repeat('long', 12), 'watched', 'B b', 'id', 'money'),
	   herald.cache_watch(repeat('long', 12), 'watched', 'B b', 'id', 'v');
\d watched
CREATE FUNCTION watched(integer) RETURNS text LANGUAGE sql STABLE AS
	$$SELECT herald.cache_through('watched', 'SELECT v FROM watched WHERE id = $1', $1)$$;
INSERT INTO watched VALUES (1, 'b', 12.34, 10);
SELECT watched(1), herald.cache_through('Its "sum"', 'SELECT sum(v) FROM watched');
ALTER TABLE watched DISABLE TRIGGER ALL;
UPDATE watched SET v = 11;
SELECT watched(1), herald.cache_through('Its "sum"', 'SELECT sum(v) FROM watched');
SELECT herald.cache_watch('watched', 'watched', 'id'), herald.cache_watch('Its "sum"', 'watched');
SELECT watched(1), herald.cache_through('Its "sum"', 'SELECT sum(v) FROM watched');
UPDATE watched SET v = 12;
SELECT watched(1), herald.cache_through('Its "sum"', 'SELECT sum(v) FROM watched');
TRUNCATE watched;
SELECT watched(1), herald.cache_through('Its "sum"', 'SELECT sum(v) FROM watched');
-- In one transaction with the rows, and taken back with it.
BEGIN;
CREATE TABLE short_lived (id integer);
SELECT herald.cache_watch('short-lived', 'short_lived', 'id');
INSERT INTO short_lived VALUES (1);
ROLLBACK;

-- Triggers are always fired, also for what is replicated; actions of foreign keys are changes like others.
CREATE TABLE owner (id integer PRIMARY KEY);
CREATE TABLE owned (id integer PRIMARY KEY, owner integer REFERENCES owner ON UPDATE CASCADE ON DELETE CASCADE);
SELECT herald.cache_watch('owned', 'owned', 'owner');
CREATE FUNCTION owned(integer) RETURNS text LANGUAGE sql STABLE AS
	$$SELECT herald.cache_through('owned', 'SELECT array_agg(id ORDER BY id) FROM owned WHERE owner = $1', $1)$$;
INSERT INTO owner VALUES (1), (2);
INSERT INTO owned VALUES (11, 1), (12, 1), (21, 2);
SELECT owned(1), owned(2), owned(3);
UPDATE owner SET id = 3 WHERE id = 1;
SELECT owned(1), owned(2), owned(3);
DELETE FROM owner WHERE id = 2;
SELECT owned(1), owned(2), owned(3);
SET session_replication_role = replica;
UPDATE owned SET owner = 1 WHERE id = 12;
RESET session_replication_role;
SELECT owned(1), owned(2), owned(3);
TRUNCATE owner CASCADE;
SELECT owned(1), owned(2), owned(3);

-- Tables that inherit, and partitions of partitions, are watched with their parent.
CREATE TABLE parent (id integer, v text);
CREATE TABLE child (w text) INHERITS (parent);
SELECT herald.cache_watch('parent', 'parent', 'id');
CREATE FUNCTION parent(integer) RETURNS text LANGUAGE sql STABLE AS
	$$SELECT herald.cache_through('parent', 'SELECT v FROM parent WHERE id = $1', $1)$$;
SELECT parent(1);
INSERT INTO child VALUES (1, 'of child');
SELECT parent(1);
TRUNCATE child;
SELECT parent(1);
CREATE TABLE tree (id integer, v text) PARTITION BY RANGE (id);
CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
CREATE TABLE tree_11 PARTITION OF tree_1 FOR VALUES FROM (0) TO (5);
SELECT herald.cache_watch('tree', 'tree', 'id');
CREATE FUNCTION tree(integer) RETURNS text LANGUAGE sql STABLE AS
	$$SELECT herald.cache_through('tree', 'SELECT v FROM tree WHERE id = $1', $1)$$;
CREATE TABLE tree_12 PARTITION OF tree_1 FOR VALUES FROM (5) TO (10);
SELECT tgrelid::regclass, tgname, tgenabled FROM pg_trigger WHERE tgname LIKE 'herald tree%' ORDER BY 1, 2;
SET session_replication_role = replica;
INSERT INTO tree VALUES (1, 'one'), (6, 'six');
SELECT tree(1), tree(6);
UPDATE tree SET v = v || '!';
SELECT tree(1), tree(6);
RESET session_replication_role;
TRUNCATE tree_11;
SELECT tree(1), tree(6);
-- A partition that came later needs the call again.
SELECT herald.cache_watch('tree', 'tree', 'id');
TRUNCATE tree_12;
SELECT tree(1), tree(6);
-- One may be watched alone, unless it is with its parent already.
SELECT herald.cache_watch('tree alone', 'tree_11', 'id');
\pset format unaligned
\pset tuples_only on
SELECT outcome($$SELECT herald.cache_watch('tree', 'tree_11', 'id')$$);

-- What cannot be watched.
CREATE VIEW view AS SELECT 1 AS id;
CREATE FOREIGN DATA WRAPPER regress_wrapper;
CREATE SERVER regress_server FOREIGN DATA WRAPPER regress_wrapper;
CREATE FOREIGN TABLE elsewhere (id integer) SERVER regress_server;
CREATE ROLE regress_eve;
GRANT ALL ON watched TO regress_eve;
SELECT outcome($$SELECT herald.cache_watch('w', 'view', 'id')$$);
SELECT outcome($$SELECT herald.cache_watch('w', 'elsewhere', 'id')$$);
SELECT outcome($$SELECT herald.cache_watch('w', 'item_pkey', 'id')$$);
SELECT outcome($$SELECT herald.cache_watch('w', 'pg_class', 'oid')$$);
SELECT outcome($$SELECT herald.cache_watch('w', 'nothing', 'id')$$);
SELECT outcome($$SELECT herald.cache_watch('w', 0, 'id')$$);
SELECT outcome($$SELECT herald.cache_watch('w', 'watched', 'ID')$$);
SELECT outcome($$SELECT herald.cache_watch('w', 'watched', 'ctid')$$);
SELECT outcome($$SELECT herald.cache_watch('w', 'watched', 'id', NULL)$$);
SELECT outcome($$SELECT herald.cache_watch(NULL, 'watched', 'id')$$);
SELECT outcome($$SELECT herald.cache_watch('w', NULL, 'id')$$);
SELECT outcome($$SELECT herald.cache_watch('w', 'watched', VARIADIC NULL)$$);
SET ROLE regress_eve;
SELECT outcome($$SELECT herald.cache_watch('w', 'watched', 'id')$$);
RESET ROLE;
ALTER TABLE watched ADD rights aclitem, ADD names regclass[];
SELECT outcome($$SELECT herald.cache_watch('w', 'watched', 'rights')$$);
SELECT outcome($$SELECT herald.cache_watch('w', 'watched', 'id', 'names')$$);
SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'herald w(%' OR tgname = 'herald w truncate';
\pset format aligned
\pset tuples_only off
DROP VIEW view;
DROP FOREIGN DATA WRAPPER regress_wrapper CASCADE;
DROP TABLE watched, owner, owned, parent, child, tree;
DROP FUNCTION watched, owned, parent, tree;
DROP ROLE regress_eve;

-- Values that are equal make one key, also of several types.
CREATE TABLE amount (amount numeric(6, 2), code char(4), factor float8);
SELECT herald.cache_watch('amount', 'amount', 'amount'), herald.cache_watch('code', 'amount', 'code'),
	   herald.cache_watch('factor', 'amount', 'factor');
SELECT herald.cache_through('amount', 'SELECT count(*) FROM amount WHERE amount = $1', n)
  FROM (VALUES (7::numeric), (7.0)) _(n);
SELECT herald.cache_through('amount', 'SELECT count(*) FROM amount WHERE amount = $1', 7),
	   herald.cache_through('code', 'SELECT count(*) FROM amount WHERE code = $1', 'ab'),
	   herald.cache_through('code', 'SELECT count(*) FROM amount WHERE code = $1', 'ab'::char(9)),
	   herald.cache_through('factor', 'SELECT count(*) FROM amount WHERE factor = $1', 0::float8);
INSERT INTO amount VALUES (7, 'ab', '-0');
SELECT herald.cache_through('amount', 'SELECT count(*) FROM amount WHERE amount = $1', n)
  FROM (VALUES (7::numeric), (7.0)) _(n);
SELECT herald.cache_through('amount', 'SELECT count(*) FROM amount WHERE amount = $1', 7),
	   herald.cache_through('code', 'SELECT count(*) FROM amount WHERE code = $1', 'ab'),
	   herald.cache_through('code', 'SELECT count(*) FROM amount WHERE code = $1', 'ab'::char(9)),
	   herald.cache_through('factor', 'SELECT count(*) FROM amount WHERE factor = $1', 0::float8);
DROP TABLE amount;

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
SELECT counted('t', 1) = counted('t', 1);
BEGIN;
SELECT herald.cache_invalidate('t', 1);
PREPARE TRANSACTION 'invalidates';
SELECT counted('t', 1) AS first \gset
-- (With the same snapshot it would be found.)
SELECT pg_current_xact_id() IS NOT NULL;
SELECT counted('t', 1) <> :'first' AS computed;
COMMIT PREPARED 'invalidates';
BEGIN;
UPDATE seen SET hits = 0, misses = 0;
SELECT item(1);
PREPARE TRANSACTION 'reads';
ROLLBACK PREPARED 'reads';
SELECT counted('t', 1) AS first \gset
SELECT counted('t', 1) = :'first' AS kept;

-- Not within a serializable transaction, which has to know what it depends on.
SELECT item(1);
SELECT * FROM asked() \g /dev/null
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT item(1), counted('s') = counted('s') AS kept;
COMMIT;
SELECT * FROM asked();

-- A transaction that only reads takes no id; one that invalidates needs one, and may be READ ONLY.
BEGIN READ ONLY;
SELECT item(1), item(99), pg_current_xact_id_if_assigned() IS NULL AS no_xid;
SELECT herald.cache_invalidate('item', '1'), pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;

-- Memory.
SET herald_cache.memory = '8kB';
CREATE FUNCTION long(i integer) RETURNS text LANGUAGE sql AS
	$$SELECT herald.cache_through('m', 'SELECT repeat(''x'', 100 + 0 * $1)', i)$$;
SELECT count(long(i)) FROM generate_series(1, 1000) i;
SELECT entries BETWEEN 10 AND 100, memory BETWEEN 4096 AND 8192 FROM herald.caches WHERE pid = pg_backend_pid();
-- What was used last is kept.
SELECT * FROM asked() \g /dev/null
SELECT length(long(1000)), length(long(999)), length(long(1));
SELECT hits, misses FROM asked();
SELECT length(herald.cache_through('m', 'SELECT repeat(''x'', 10000)'));
SELECT hits, misses FROM asked();
SELECT length(herald.cache_through('m', 'SELECT repeat(''x'', 10000)'));
SELECT hits, misses FROM asked();
SELECT length(herald.cache_through('m', $$SELECT '$$ || repeat('x', 10000) || $$'$$));
SELECT hits, misses FROM asked();
SELECT length(herald.cache_through('m', $$SELECT '$$ || repeat('x', 10000) || $$'$$));
SELECT hits, misses FROM asked();
SELECT entries > 0, memory <= 8192 FROM herald.caches WHERE pid = pg_backend_pid();
SET herald_cache.memory = 0;
SELECT entries, memory FROM herald.caches WHERE pid = pg_backend_pid();
SELECT item(1), counted('m') = counted('m') AS kept;
SELECT entries, memory FROM herald.caches WHERE pid = pg_backend_pid();
RESET herald_cache.memory;
SHOW herald_cache.memory;
SELECT * FROM asked() \g /dev/null
SELECT length(herald.cache_through('m', 'SELECT repeat(''x'', 1000000)')) FROM generate_series(1, 2);
SELECT * FROM asked();
SELECT entries, memory > 1000000 FROM herald.caches WHERE pid = pg_backend_pid();

-- The views; every object of the extension, and every column, has a comment.
CREATE TEMP VIEW member AS
	SELECT classid, objid FROM pg_depend
	WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e' AND classid <> 'pg_type'::regclass
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_herald_cache');
SELECT pg_describe_object(classid, objid, 0) AS without_comment
FROM member WHERE obj_description(objid, classid::regclass::name) IS NULL
UNION ALL
SELECT attrelid::regclass || '.' || attname
FROM member JOIN pg_attribute ON classid = 'pg_class'::regclass AND attrelid = objid
WHERE attnum > 0 AND col_description(attrelid, attnum) IS NULL;
SELECT pg_describe_object(classid, objid, 0) AS object FROM member ORDER BY 1;
\d herald.caches
\d herald.cache_stats
SELECT herald.cache_clear('m');
SELECT datname, rolname = current_user, entries, hits > 0, misses > 0, invalidations > 0, resets, lag
  FROM herald.caches WHERE pid = pg_backend_pid();
SELECT herald.reset_cache_stats();
SELECT stats_reset BETWEEN now() - interval '1 minute' AND now() AS just_now FROM herald.cache_stats;
SELECT herald.cache_invalidate('v', 1), herald.cache_invalidate('v', '1'), herald.cache_invalidate('v', 2);
SELECT invalidations, cache_resets, catch_ups, turns_rescued FROM herald.cache_stats;
BEGIN;
SELECT herald.cache_invalidate('v', '1');
ROLLBACK;
SELECT invalidations FROM herald.cache_stats;
-- Whoever invalidates more than 1024 keys of a cache invalidates all of it.
SELECT count(herald.cache_invalidate('v', i)) FROM generate_series(1, 1025) i;
SELECT invalidations FROM herald.cache_stats;

-- A role never gets a value that was computed for another.
CREATE ROLE regress_ann;
CREATE ROLE regress_bob;
CREATE TABLE secret (owner text, v text);
INSERT INTO secret VALUES ('regress_ann', 'ann''s'), ('regress_bob', 'bob''s');
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON secret USING (owner = current_user);
GRANT SELECT ON secret TO regress_ann, regress_bob;
CREATE FUNCTION secret() RETURNS text LANGUAGE sql STABLE AS
	$$SELECT herald.cache_through('secret', 'SELECT string_agg(v, '' '' ORDER BY v) FROM secret')$$;
CREATE FUNCTION secret_of_owner() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER AS
	$$SELECT herald.cache_through('secret', 'SELECT string_agg(v, '' '' ORDER BY v) FROM secret')$$;
SELECT secret();
SET ROLE regress_ann;
SELECT secret(), secret();
SELECT secret_of_owner(), secret();
SET ROLE regress_bob;
SELECT secret(), secret();
SET ROLE regress_ann;
SELECT secret(), secret();
-- The query runs with the rights of the current role.
SELECT herald.cache_through('seen', 'SELECT hits FROM seen');
-- Anybody may invalidate, which costs others a computation.
SELECT herald.cache_clear('secret');
-- Rows of one's own sessions only.
SELECT count(*) FROM herald.caches;
SELECT count(*) FROM herald.cache_stats;
SELECT herald.reset_cache_stats();
RESET ROLE;
SELECT count(*) FROM herald.caches;

DROP TABLE item, seen, pair, part, wrong, secret;
DROP FUNCTION asked, outcome, item, pair, part, secret, secret_of_owner, counted, kept, long;
DROP SEQUENCE computed;
DROP ROLE regress_ann, regress_bob;

-- The extension needs pg_herald's, and can be created with it.
DROP EXTENSION pg_herald;
BEGIN;
SET client_min_messages = warning;
DROP EXTENSION pg_herald CASCADE;
CREATE EXTENSION pg_herald_cache CASCADE;
SELECT extname FROM pg_extension WHERE extname LIKE 'pg_herald%' ORDER BY extname;
ROLLBACK;
DROP EXTENSION pg_herald_cache;
