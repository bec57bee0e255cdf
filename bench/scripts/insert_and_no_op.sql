INSERT INTO events (body) VALUES ('something happened')\;
DISCARD SEQUENCES;
