INSERT INTO events (body) VALUES ('something happened')\;
NOTIFY channel_1;
