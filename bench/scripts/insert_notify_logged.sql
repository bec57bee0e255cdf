INSERT INTO events (body) VALUES ('something happened')\;
NOTIFY logged_1;
