LISTEN channel_1;
BEGIN;
SELECT 1;
\sleep 600 s
COMMIT;
