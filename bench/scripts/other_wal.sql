SET synchronous_commit = off\;
INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 100);
