SELECT count(pg_notify('channel_1', n || repeat('x', 7000))) FROM generate_series(1, 100) n;
