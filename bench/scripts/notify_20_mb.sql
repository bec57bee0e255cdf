SELECT count(pg_notify('channel_1', n || repeat('x', 1000))) FROM generate_series(1, 20000) n;
