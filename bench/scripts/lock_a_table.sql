BEGIN;
LOCK TABLE locked;
\sleep 600 s
COMMIT;
