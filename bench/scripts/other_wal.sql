SET synchronous_commit = off\;
INSERT INTO other SELECT repeat('x', :row_bytes) FROM generate_series(1, :rows);
