-- Guards: which channels a session hears, and from when to when.

SELECT pg_listening_channels();
UNLISTEN never_listened;
UNLISTEN *;

LISTEN a;
LISTEN a;
LISTEN B;
SELECT pg_listening_channels() AS channel ORDER BY 1;
NOTIFY a, 'once';
NOTIFY b, 'folded';
NOTIFY c, 'not heard';

UNLISTEN a;
NOTIFY a, 'not heard';
NOTIFY b, 'still heard';
UNLISTEN *;
NOTIFY b, 'not heard';
SELECT pg_listening_channels();

-- LISTEN takes effect at the commit, but hears its own transaction.
BEGIN;
LISTEN a;
NOTIFY a, 'after LISTEN';
SELECT pg_listening_channels();
COMMIT;
BEGIN;
NOTIFY b, 'before LISTEN';
LISTEN b;
COMMIT;

-- UNLISTEN too: its own transaction is not heard.
BEGIN;
NOTIFY a, 'before UNLISTEN: not heard';
UNLISTEN a;
NOTIFY a, 'after UNLISTEN: not heard';
NOTIFY b, 'another channel';
COMMIT;

-- The last word counts.
BEGIN;
LISTEN a;
UNLISTEN a;
NOTIFY a, 'not heard';
COMMIT;
BEGIN;
UNLISTEN b;
LISTEN b;
NOTIFY b, 'heard';
COMMIT;
BEGIN;
UNLISTEN *;
LISTEN c;
NOTIFY b, 'not heard';
NOTIFY c, 'heard';
COMMIT;
SELECT pg_listening_channels();

-- What is rolled back has never been.
BEGIN;
LISTEN a;
UNLISTEN c;
ROLLBACK;
NOTIFY a, 'not heard';
NOTIFY c, 'heard';
BEGIN;
UNLISTEN *;
SELECT 1 / 0;
COMMIT;
NOTIFY c, 'heard';

-- A multi-statement string is one transaction.
UNLISTEN c \; LISTEN c \; NOTIFY c, 'heard';
UNLISTEN c \; NOTIFY c, 'not heard';

-- As a pooler does between two clients.
LISTEN a;
DISCARD ALL;
SELECT pg_listening_channels();
NOTIFY a, 'not heard';
LISTEN a;
NOTIFY a, 'heard';
DISCARD PLANS;
DISCARD TEMP;
DISCARD SEQUENCES;
NOTIFY a, 'heard';
UNLISTEN *;

-- From plpgsql.
DO $$
BEGIN
	LISTEN a;
	NOTIFY a, 'heard';
END $$;
DO 'BEGIN EXECUTE ''UNLISTEN a''; END';
NOTIFY a, 'not heard';

-- A name of greatest length, and many of them.
LISTEN abcdefghijklmnopqrstuvwxyz_abcdefghijklmnopqrstuvwxyz_123456789;
NOTIFY abcdefghijklmnopqrstuvwxyz_abcdefghijklmnopqrstuvwxyz_123456789, 'heard';
UNLISTEN *;
DO $$ BEGIN FOR i IN 1..1000 LOOP EXECUTE 'LISTEN channel_' || i; END LOOP; END $$;
SELECT count(*) FROM pg_listening_channels();
SELECT pg_notify('channel_' || n, '') IS NULL AS sent FROM generate_series(998, 1002) n;
UNLISTEN *;
SELECT count(*) FROM pg_listening_channels();
