"""A table whose rows sessions cache, and a way to fill the queue of invalidations."""

ITEM = """
    CREATE TABLE item (id integer PRIMARY KEY, v integer);
    INSERT INTO item VALUES (1, 0), (2, 0);
    SELECT herald.cache_watch('item', 'item', 'id');
"""
LOOK = "SELECT herald.cache_through('item', 'SELECT v FROM item WHERE id = $1', 1)"

# Runs `transactions` transactions, each of which invalidates `keys` keys that no session caches.
FLOOD = """
    CREATE PROCEDURE flood(transactions integer, keys integer) LANGUAGE plpgsql AS $$
        BEGIN
            FOR i IN 1..transactions LOOP
                PERFORM herald.cache_invalidate('flood', n) FROM generate_series(1, keys) n;
                COMMIT;
            END LOOP;
        END $$;
"""
