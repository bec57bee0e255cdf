SELECT pg_notify('channel_1', repeat('x', 100));
