-- Guards: pg_herald sends what a table function calls pg_notify() for, as retarget has it for all else; on a server that was
-- built without libxml, which has no such function, nothing is sent.

\pset tuples_only on
\pset format unaligned
SET client_min_messages = warning;
LISTEN c;
SELECT notifications AS before FROM herald.stats \gset
SELECT x.* FROM XMLTABLE('/r' PASSING (('<r>' || pg_notify('c', 'table function') || '</r>')::xml) COLUMNS r text PATH '.') x;
SELECT notifications - :before FROM herald.stats;
