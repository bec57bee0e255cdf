SELECT pg_logical_emit_message(true, 'x', repeat('x', 100));
