-- Guards: what NOTIFY and pg_notify() send, in which form and order, and that
-- it takes a commit to send it.

-- Nobody listens yet.
NOTIFY news;
NOTIFY news, 'unheard';

LISTEN news;
NOTIFY news;
NOTIFY news, 'payload';
NOTIFY news, '';
SELECT pg_notify('news', 'from a function');
SELECT pg_notify('news', NULL);
SELECT pg_notify('news', E'two\nlines, a "quote", é');

-- A statement folds the case of its channel, a function does not.
LISTEN "News";
NOTIFY News, 'folded';
NOTIFY "News", 'quoted';
SELECT pg_notify('News', 'as it is');
SELECT pg_notify('nEWS', 'nobody listens to this');

-- In the order of sending, whatever the channel, and only at the commit.
BEGIN;
NOTIFY news, '1';
NOTIFY "News", '2';
SELECT pg_notify('news', '3');
\echo not yet committed
COMMIT;

BEGIN;
NOTIFY news, 'rolled back';
ROLLBACK;

BEGIN;
NOTIFY news, 'first of a chain';
COMMIT AND CHAIN;
NOTIFY news, 'second of a chain';
COMMIT;

BEGIN;
NOTIFY news, 'rolled back';
ROLLBACK AND CHAIN;
NOTIFY news, 'after a rollback';
COMMIT;

-- A transaction that fails sends nothing.
BEGIN;
NOTIFY news, 'in a transaction that fails';
SELECT 1 / 0;
NOTIFY news, 'in a failed transaction';
COMMIT;

-- It is no write.
BEGIN READ ONLY;
NOTIFY news, 'read only';
SELECT pg_notify('news', 'read only, by a function');
COMMIT;

-- Many statements at once are one transaction.
NOTIFY news, 'a' \; NOTIFY news, 'b' \; SELECT 'between' AS word \; NOTIFY news, 'c';
NOTIFY news, 'a' \; SELECT 1 / 0 \; NOTIFY news, 'b';

-- From wherever a statement or a function can be.
CREATE TABLE event (id integer PRIMARY KEY, word text);
CREATE RULE event_rule AS ON DELETE TO event DO ALSO NOTIFY news, 'from a rule';
CREATE FUNCTION event_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('news', format('%s %s', TG_OP, coalesce(NEW.id, OLD.id)));
	RETURN NULL;
END $$;
CREATE TRIGGER at_once AFTER INSERT ON event
	FOR EACH ROW EXECUTE FUNCTION event_trigger();
CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON event DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION event_trigger();

INSERT INTO event VALUES (1, 'one'), (2, 'two');
BEGIN;
UPDATE event SET word = 'changed' WHERE id = 1;
NOTIFY news, 'before the deferred trigger';
COMMIT;
DELETE FROM event WHERE id = 2;

DO $$
BEGIN
	NOTIFY news, 'from plpgsql';
	EXECUTE 'NOTIFY news, ''dynamic''';
	PERFORM pg_notify('news', 'performed');
END $$;

CREATE PROCEDURE two_transactions() LANGUAGE plpgsql AS $$
BEGIN
	NOTIFY news, 'committed by the procedure';
	COMMIT;
	NOTIFY news, 'rolled back by the procedure';
	ROLLBACK;
	NOTIFY news, 'committed at its end';
END $$;
CALL two_transactions();

PREPARE send(text) AS SELECT pg_notify('news', $1);
EXECUTE send('prepared 1');
EXECUTE send('prepared 2');
BEGIN;
DECLARE sender CURSOR FOR SELECT pg_notify('news', 'row ' || n) FROM generate_series(1, 3) n;
FETCH 2 FROM sender;
COMMIT;
COPY (SELECT pg_notify('news', 'copied')) TO STDOUT;
CREATE TABLE made AS SELECT pg_notify('news', 'created as') IS NULL AS nothing;
DO $$ BEGIN EXECUTE 'EXPLAIN ANALYZE SELECT pg_notify(''news'', ''explained'')'; END $$;
DO $$ BEGIN EXECUTE 'EXPLAIN SELECT pg_notify(''news'', ''only explained'')'; END $$;

-- There is plenty of room.
SELECT pg_notification_queue_usage() BETWEEN 0 AND 0.1 AS plenty;

UNLISTEN *;
DROP TABLE event, made;
DROP FUNCTION event_trigger;
DROP PROCEDURE two_transactions;
