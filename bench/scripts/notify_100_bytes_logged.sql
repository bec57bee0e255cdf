SELECT pg_notify('logged_1', repeat('x', 100));
