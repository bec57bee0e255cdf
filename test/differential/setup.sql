-- The ways to notify that a schedule may use. Run in every database of both servers.

CREATE TABLE nothing (n integer);
CREATE TABLE immediate (channel text, payload text);
CREATE TABLE before_row (channel text, payload text);
CREATE TABLE deferred (channel text, payload text);
CREATE TABLE ruled (n integer);
CREATE TABLE defaulted (n integer, sent text DEFAULT pg_notify('a', 'default')::text);

CREATE FUNCTION notify_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify(NEW.channel, NEW.payload);
	RETURN NEW;
END $$;

CREATE TRIGGER notify AFTER INSERT ON immediate FOR EACH ROW EXECUTE FUNCTION notify_row();
CREATE TRIGGER notify BEFORE INSERT ON before_row FOR EACH ROW EXECUTE FUNCTION notify_row();
CREATE CONSTRAINT TRIGGER notify AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION notify_row();
CREATE RULE notify AS ON INSERT TO ruled DO ALSO NOTIFY b, 'rule';

CREATE FUNCTION inlined(text, text) RETURNS void LANGUAGE sql AS 'SELECT pg_notify($1, $2)';

CREATE FUNCTION not_inlined(text, text) RETURNS void LANGUAGE sql SECURITY DEFINER AS
	'SELECT pg_notify($1, $2)';

CREATE FUNCTION twice(text, text) RETURNS void LANGUAGE sql AS
	'SELECT pg_notify($1, ''first''); SELECT pg_notify($1, $2)';

CREATE FUNCTION performs(text, text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify($1, $2);
END $$;

CREATE FUNCTION assigns(text, text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	sent text;
BEGIN
	sent := pg_notify($1, $2);
	RETURN sent;
END $$;

CREATE FUNCTION executes(text, text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('NOTIFY %I, %L', $1, $2);
END $$;

-- Each block is a subtransaction; one that fails rolls its notifications back.
CREATE FUNCTION catches(text, text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM pg_notify($1, 'within');
		BEGIN
			PERFORM pg_notify($1, $2);
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		PERFORM pg_notify($1, 'caught');
	END;
END $$;

CREATE FUNCTION listens(text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('LISTEN %I', $1);
END $$;

CREATE PROCEDURE commits(text, text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify($1, $2);
	COMMIT;
	PERFORM pg_notify($1, $2);
	PERFORM pg_notify($1, 'after commit');
END $$;

CREATE PROCEDURE rolls_back(text, text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify($1, $2);
	ROLLBACK;
	PERFORM pg_notify($1, 'after rollback');
	COMMIT;
END $$;

GRANT ALL ON ALL TABLES IN SCHEMA public TO plain, denied;
REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_notify(text, text) TO plain;

CREATE PROCEDURE takes(text) LANGUAGE plpgsql AS $$
BEGIN
	NULL;
END $$;
