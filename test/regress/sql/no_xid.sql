-- Guards: a transaction that only notifies takes no transaction id and writes
-- no WAL.

\pset tuples_only on
\pset format unaligned

-- Nothing may be left over that a mere look at a page would tidy up; and a server that has just started may
-- write its first anchor a second later.
VACUUM;
SELECT FROM pg_sleep(3);
LISTEN c;
NOTIFY c, 'the first';
SELECT pg_notify('c', 'the first of the function');

SELECT pg_snapshot_xmax(pg_current_snapshot()) AS before_xid \gset
SELECT pg_current_wal_insert_lsn() AS before_lsn \gset

BEGIN;
NOTIFY c, 'a statement';
SELECT pg_notify('c', 'a function');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
SAVEPOINT s;
NOTIFY c, 'in a subtransaction';
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT count(pg_notify('c', 'one of many')) FROM generate_series(1, 10000);
BEGIN;
NOTIFY c, 'rolled back';
ROLLBACK;
UNLISTEN c;
LISTEN d;
DISCARD ALL;

SELECT pg_current_wal_insert_lsn() - :'before_lsn' AS wal_bytes;
SELECT pg_snapshot_xmax(pg_current_snapshot()) = :'before_xid'::xid8 AS no_xid_taken;
