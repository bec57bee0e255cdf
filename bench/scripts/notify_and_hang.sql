SET synchronous_commit = on;
BEGIN;
INSERT INTO written VALUES (1);
NOTIFY channel_1;
COMMIT;
