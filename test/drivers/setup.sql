-- Run before each program: a table whose trigger notifies for each row.
SET client_min_messages = warning;
DROP TABLE IF EXISTS event;

CREATE TABLE event (writer integer NOT NULL, seq integer NOT NULL);

CREATE OR REPLACE FUNCTION event_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('events', NEW.writer || ' ' || NEW.seq);
	RETURN NULL;
END
$$;

CREATE TRIGGER event_notify AFTER INSERT ON event FOR EACH ROW EXECUTE FUNCTION event_notify();
