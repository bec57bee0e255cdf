-- Guards: what a subtransaction notifies and listens to counts if it, and all
-- that it is part of, commits; in the order of sending.

LISTEN a;

BEGIN;
NOTIFY a, '1';
SAVEPOINT one;
NOTIFY a, '2';
SAVEPOINT two;
NOTIFY a, '3';
RELEASE two;
NOTIFY a, '4';
RELEASE one;
NOTIFY a, '5';
COMMIT;

BEGIN;
NOTIFY a, '1';
SAVEPOINT one;
NOTIFY a, 'gone 2';
SAVEPOINT two;
NOTIFY a, 'gone 3';
RELEASE two;
ROLLBACK TO one;
NOTIFY a, '4';
SAVEPOINT two;
NOTIFY a, '5';
COMMIT;

-- An error takes away only what its subtransaction had sent.
BEGIN;
NOTIFY a, 'before';
SAVEPOINT one;
NOTIFY a, 'gone';
SELECT 1 / 0;
ROLLBACK TO one;
NOTIFY a, 'after';
COMMIT;

DO $$
BEGIN
	NOTIFY a, 'before the block';
	BEGIN
		NOTIFY a, 'gone';
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		NOTIFY a, 'in the handler';
	END;
	BEGIN
		NOTIFY a, 'in a block that succeeds';
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
END $$;

-- Subtransactions that notify nothing, and very deep ones.
BEGIN;
SAVEPOINT one;
SAVEPOINT two;
SAVEPOINT three;
NOTIFY a, 'third level';
RELEASE two;
SAVEPOINT two;
SAVEPOINT three;
ROLLBACK TO two;
COMMIT;

CREATE FUNCTION nest(level integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF level > 60 THEN
		RETURN;
	END IF;
	PERFORM pg_notify('a', 'level ' || level) WHERE level % 10 = 0;
	PERFORM nest(level + 1);
	IF level = 45 THEN
		RAISE division_by_zero;
	END IF;
EXCEPTION WHEN division_by_zero THEN
	PERFORM pg_notify('a', 'caught at ' || level);
END $$;
SELECT nest(1);
DROP FUNCTION nest;

-- LISTEN and UNLISTEN.
BEGIN;
SAVEPOINT one;
LISTEN b;
ROLLBACK TO one;
SAVEPOINT two;
LISTEN c;
RELEASE two;
SAVEPOINT three;
UNLISTEN a;
ROLLBACK TO three;
NOTIFY a, 'heard';
NOTIFY b, 'not heard';
NOTIFY c, 'heard';
COMMIT;
SELECT pg_listening_channels() AS channel ORDER BY 1;

BEGIN;
SAVEPOINT one;
UNLISTEN *;
SAVEPOINT two;
LISTEN d;
RELEASE two;
ROLLBACK TO one;
COMMIT;
NOTIFY c, 'heard';
NOTIFY d, 'not heard';

BEGIN;
SAVEPOINT one;
UNLISTEN c;
RELEASE one;
COMMIT;
NOTIFY c, 'not heard';

-- All is lost with the outermost.
BEGIN;
SAVEPOINT one;
NOTIFY a, 'not heard';
LISTEN b;
RELEASE one;
ROLLBACK;
NOTIFY b, 'not heard';
UNLISTEN *;
