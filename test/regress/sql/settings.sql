-- Guards: the settings, who may set them and to what.

SELECT name, setting, unit, context, vartype, min_val, boot_val, short_desc, extra_desc
	FROM pg_settings WHERE name ~ '^herald(_cache)?\.' ORDER BY name COLLATE "C" \gx

SET herald.enabled = off;
SHOW herald.enabled;
RESET herald.enabled;
SET herald.enabled = maybe;
SET herald.queue_memory = '1MB';
SET herald.channel_memory = '1MB';
SET herald.wakeup_concurrency = 1;
ALTER SYSTEM SET herald.wakeup_concurrency = 0;
-- From 17 on the message has units in the range.
\set VERBOSITY sqlstate
ALTER SYSTEM SET herald.queue_memory = '100kB';
\set VERBOSITY default
SET herald.no_such_setting = 1;
SET herald_cache.no_such_setting = 1;

-- Switched off, what this session sends goes the server's way, and arrives.
LISTEN c;
SELECT notifications AS before FROM herald.stats \gset
SET herald.enabled = off;
NOTIFY c, 'a statement';
DO $$ BEGIN PERFORM pg_notify('c', 'a function'); END $$;
SELECT notifications - :before AS taken FROM herald.stats;
RESET herald.enabled;
NOTIFY c, 'switched on again';
SELECT notifications - :before AS taken FROM herald.stats;

-- In the middle of a transaction: all arrives, once.
BEGIN;
NOTIFY c, 'on';
SET LOCAL herald.enabled = off;
NOTIFY c, 'off';
COMMIT;
SHOW herald.enabled;

-- For a role, a function.
CREATE FUNCTION sends() RETURNS void LANGUAGE sql SET herald.enabled = off AS
	'SELECT pg_notify(''c'', ''a function with a setting of its own'')';
SELECT notifications AS before FROM herald.stats \gset
DO $$ BEGIN PERFORM sends(); END $$;
SELECT notifications - :before AS taken FROM herald.stats;
DROP FUNCTION sends;
UNLISTEN *;
