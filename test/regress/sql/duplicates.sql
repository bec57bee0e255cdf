-- Guards: of equal notifications in one transaction one is sent, in the place
-- of the first; with few as with many, and across subtransactions.

LISTEN a;
LISTEN b;

BEGIN;
NOTIFY a, 'x';
NOTIFY a, 'y';
NOTIFY a, 'x';
NOTIFY b, 'x';
NOTIFY a;
NOTIFY a, '';
SELECT pg_notify('a', NULL);
SELECT pg_notify('a', 'y');
COMMIT;

-- The next transaction begins anew.
NOTIFY a, 'x';
NOTIFY a, 'x';

-- Channel and payload do not run into each other.
LISTEN ab;
BEGIN;
SELECT pg_notify('a', 'bc') \; SELECT pg_notify('ab', 'c');
COMMIT;

-- Enough of them for a hash.
BEGIN;
SELECT count(pg_notify('a', (n % 20)::text)) FROM generate_series(0, 99) n;
SELECT count(pg_notify('b', (n % 3)::text)) FROM generate_series(0, 99) n;
COMMIT;

-- A subtransaction repeats what its parent has sent.
BEGIN;
NOTIFY a, 'parent';
SAVEPOINT s;
NOTIFY a, 'parent';
NOTIFY a, 'child';
RELEASE s;
NOTIFY a, 'child';
COMMIT;

-- What a rollback took away can be sent again.
BEGIN;
SAVEPOINT s;
NOTIFY a, 'x';
ROLLBACK TO s;
NOTIFY a, 'x';
COMMIT;

-- The same with a hash: 100 stay, 100 go, 50 of those come back, all repeated.
BEGIN;
SELECT count(pg_notify('c', n::text)) FROM generate_series(1, 100) n;
SAVEPOINT s;
SELECT count(pg_notify('c', n::text)) FROM generate_series(101, 200) n;
ROLLBACK TO s;
LISTEN c;
SELECT count(pg_notify('c', n::text)) FROM generate_series(151, 200) n;
SELECT count(pg_notify('c', n::text)) FROM generate_series(1, 100) n;
SELECT count(pg_notify('c', n::text)) FROM generate_series(151, 200) n;
COMMIT;
UNLISTEN *;
