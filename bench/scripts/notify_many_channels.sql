SELECT count(pg_notify('channel_' || n % 400, n::text)) FROM generate_series(1, 2000) n;
