BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1;
\sleep 1 ms
SELECT count(nextval('stale_answers')) FROM answers WHERE cached IS DISTINCT FROM computed;
COMMIT;
SELECT count(nextval('stale_answers')) FROM answers WHERE cached IS DISTINCT FROM computed;
