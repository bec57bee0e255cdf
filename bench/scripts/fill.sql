\set first :number + 1
\set number :number + 50
SELECT count(pg_notify('channel_1', ':sender.' || n || repeat(' ', 7900))) FROM generate_series(:first, :number) n;
