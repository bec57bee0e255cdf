SELECT listen_to_all();
BEGIN;
SELECT 1;
\sleep 600 s
COMMIT;
