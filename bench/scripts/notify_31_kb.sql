SELECT count(pg_notify('channel_1', n || repeat('x', 7600))) FROM generate_series(1, 4) n;
