-- Guards: a transaction that has notified or listened cannot be prepared, and
-- nothing is left of it; others can.

\set show '\\echo :LAST_ERROR_SQLSTATE :LAST_ERROR_MESSAGE'
LISTEN a;
CREATE TABLE prepared (id integer);

BEGIN;
INSERT INTO prepared VALUES (1);
NOTIFY a, 'lost';
PREPARE TRANSACTION 'notified';
:show
NOTIFY a, 'heard';

BEGIN;
SELECT pg_notify('a', 'lost');
PREPARE TRANSACTION 'notified by a function';
:show

BEGIN;
LISTEN b;
PREPARE TRANSACTION 'listened';
:show
BEGIN;
UNLISTEN a;
PREPARE TRANSACTION 'unlistened';
:show
SELECT pg_listening_channels();

-- What a rollback took away is no obstacle.
BEGIN;
INSERT INTO prepared VALUES (2);
SAVEPOINT s;
NOTIFY a, 'lost';
ROLLBACK TO s;
PREPARE TRANSACTION 'notified nothing';
NOTIFY a, 'heard while it is prepared';
COMMIT PREPARED 'notified nothing';

BEGIN;
INSERT INTO prepared VALUES (3);
PREPARE TRANSACTION 'rolled back';
ROLLBACK PREPARED 'rolled back';
NOTIFY a, 'heard';
SELECT * FROM prepared;
SELECT count(*) FROM pg_prepared_xacts;

UNLISTEN *;
DROP TABLE prepared;
