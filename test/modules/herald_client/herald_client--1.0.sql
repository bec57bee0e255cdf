/* herald_client 1.0 */

\echo Use "CREATE EXTENSION herald_client" to load this file. \quit

CREATE FUNCTION has_herald() RETURNS boolean
AS 'MODULE_PATHNAME', 'client_has_herald' LANGUAGE C;

CREATE FUNCTION has_caches() RETURNS boolean
AS 'MODULE_PATHNAME', 'client_has_caches' LANGUAGE C;

--
-- A table whose values each session caches
--

CREATE TABLE setting (key text PRIMARY KEY, value text);

CREATE FUNCTION setting_changed() RETURNS trigger
AS 'MODULE_PATHNAME', 'client_setting_changed' LANGUAGE C;

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON setting
FOR EACH ROW EXECUTE FUNCTION setting_changed();
CREATE TRIGGER emptied AFTER TRUNCATE ON setting
FOR EACH STATEMENT EXECUTE FUNCTION setting_changed();

CREATE FUNCTION get(key text, await bigint DEFAULT NULL) RETURNS text
AS 'MODULE_PATHNAME', 'client_get' LANGUAGE C STABLE PARALLEL RESTRICTED;

COMMENT ON FUNCTION get(text, bigint) IS
'the setting; if await is given, what was just read is kept only once nobody holds that advisory lock';

CREATE FUNCTION invalidate(key text) RETURNS void
AS 'MODULE_PATHNAME', 'client_invalidate' LANGUAGE C STRICT PARALLEL RESTRICTED;

CREATE FUNCTION invalidate_all() RETURNS void
AS 'MODULE_PATHNAME', 'client_invalidate_all' LANGUAGE C PARALLEL RESTRICTED;

CREATE FUNCTION cached(OUT entries integer, OUT hits bigint, OUT kept bigint, OUT not_kept bigint, OUT resets bigint)
AS 'MODULE_PATHNAME', 'client_cached' LANGUAGE C;

CREATE FUNCTION register_cache(name text) RETURNS void
AS 'MODULE_PATHNAME', 'client_register_cache' LANGUAGE C STRICT;

--
-- Notifications
--

CREATE FUNCTION notify(channel text, payload text) RETURNS void
AS 'MODULE_PATHNAME', 'client_notify' LANGUAGE C PARALLEL RESTRICTED;

CREATE FUNCTION at_commit(what text, argument text) RETURNS void
AS 'MODULE_PATHNAME', 'client_at_commit' LANGUAGE C STRICT;

COMMENT ON FUNCTION at_commit(text, text) IS
'have the module do this before the commit: notify (channel c), statement (the same by NOTIFY), invalidate; next: before the next one, notify (channel next) or fail';

--
-- Signal reasons
--

CREATE FUNCTION register_reason(name text) RETURNS void
AS 'MODULE_PATHNAME', 'client_register_reason' LANGUAGE C STRICT;

CREATE FUNCTION send(pid integer, name text DEFAULT 'herald_client') RETURNS boolean
AS 'MODULE_PATHNAME', 'client_send' LANGUAGE C STRICT;

CREATE FUNCTION handled(name text DEFAULT 'herald_client') RETURNS integer
AS 'MODULE_PATHNAME', 'client_handled' LANGUAGE C STRICT;

CREATE FUNCTION launch_sender(pid integer, connects boolean) RETURNS void
AS 'MODULE_PATHNAME', 'client_launch_sender' LANGUAGE C STRICT;

COMMENT ON FUNCTION launch_sender(integer, boolean) IS
'have a background worker, connected to this database or to none, send reason herald_client';
