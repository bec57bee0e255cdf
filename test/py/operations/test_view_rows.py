"""The rows of the views: their columns, which are named in C and in the extension script, and what an ordinary role sees."""

import pytest

from support import notify, one, outcome

pytestmark = pytest.mark.seam

LISTENERS = ("pid integer, OUT datid oid, OUT role oid, OUT state text, OUT channels integer, OUT pending_bytes bigint,"
             " OUT pending_since timestamptz, OUT delivered bigint, OUT wakeups bigint")
# The views' functions, with the names and types of their columns.
VIEWS = """
    SELECT p.proname, p.prosrc, p.probin, p.proretset,
           array(SELECT format('%I %s', a.name, format_type(a.type, NULL))
                   FROM unnest(p.proargnames, p.proallargtypes) WITH ORDINALITY AS a(name, type, place) ORDER BY a.place)
      FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
      JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
     WHERE e.extname IN ('pg_herald', 'pg_herald_cache') AND d.deptype = 'e' AND p.proname LIKE 'get%' AND p.proargnames IS NOT NULL
     ORDER BY p.proname"""


@pytest.mark.parametrize("right, wrong, error", [
    ("OUT wakeups bigint", "OUT wakeups bigint, OUT naps bigint",
     '55000: the loaded library of pg_herald has no column "naps"'),
    ("OUT channels integer", "OUT lanes integer", '55000: the loaded library of pg_herald has no column "lanes"'),
    ("OUT channels integer", "OUT channels bigint", 'XX000: column "channels" of a view has type 20 in SQL, and type 23 in C'),
])
def test_columns_that_differ(cluster, connect, right, wrong, error):
    """Guards: an error for a column that the library does not have, or that has another type there."""
    session = connect(cluster)
    session.execute("LISTEN here")
    assert right in LISTENERS
    for declared, expected in ((LISTENERS, None), (LISTENERS.replace(right, wrong), error)):
        session.execute("DROP FUNCTION IF EXISTS public.copy_of_view()")
        session.execute(f"CREATE FUNCTION public.copy_of_view(OUT {declared}) RETURNS SETOF record"
                        " AS '$libdir/pg_herald', 'herald_view_listeners' LANGUAGE C STRICT")
        came = outcome(session, "SELECT * FROM public.copy_of_view()")
        assert came == expected if expected else isinstance(came, list)
    session.execute("DROP FUNCTION public.copy_of_view()")


def test_a_library_serves_earlier_objects(caching, connect):
    """Guards: views that an earlier version of the extensions created, with fewer columns and in another order, go on with
    a library that has more."""
    session = connect(caching)
    session.execute("LISTEN here")
    views = session.execute(VIEWS).fetchall()
    assert {name for name, *_ in views} >= {"get_stats", "get_queue", "get_listeners", "get_channels", "get_relay",
                                            "get_caches", "get_cache_stats"}
    for name, symbol, library, is_set, columns in views:
        earlier = columns[len(columns) // 2:][::-1] + columns[:1]
        returns = ("RETURNS SETOF " if is_set else "RETURNS ") + ("record" if len(earlier) > 1 else earlier[0].split(" ", 1)[1])
        session.execute(f"CREATE FUNCTION pg_temp.earlier_{name}({', '.join(f'OUT {column}' for column in earlier)}) {returns}"
                        f" AS '{library}', '{symbol}' LANGUAGE C STRICT")
        names = ", ".join(column.split()[0] for column in earlier)
        assert len(session.execute(f"SELECT {names} FROM pg_temp.earlier_{name}()").fetchall()) == \
            len(session.execute(f"SELECT * FROM herald.{name}()").fetchall()), name


def test_what_an_ordinary_role_sees(small, connect):
    """Guards: a role that is no member of pg_read_all_stats sees the sizes of the queue in whole segments, and times in
    whole seconds, so not how long payloads in other databases are; a member sees them as they are."""
    admin, ordinary, laggard, sender = (connect(small) for _ in range(4))
    admin.execute("CREATE ROLE ordinary; CREATE ROLE member; GRANT pg_read_all_stats TO member")
    for session in (ordinary, laggard):
        session.execute("SET SESSION AUTHORIZATION ordinary")
    laggard.execute("LISTEN c")
    laggard.execute("BEGIN; SELECT 1")
    columns = "head, dispatched, needed, tail, spilled, used, uncommitted, kept_bytes"
    segment = one(admin, "SELECT size / 8 FROM herald.queue")
    try:
        for length in (1, 1000, 7000, segment):
            for payload in range(length // 7000 + 1):
                notify(sender, "c", f"{payload} {'x' * min(length, 7000)}")
            exact = admin.execute(f"SELECT {columns} FROM herald.queue").fetchone()
            seen = ordinary.execute(f"SELECT {columns} FROM herald.queue").fetchone()
            assert all(size % segment == 0 and abs(size - real) < segment for size, real in zip(seen, exact))
            assert exact[5] % segment and seen[5] > exact[5]
            assert one(ordinary, "SELECT usage = used / (8 * 1024.0 ^ 3) AND usage = pg_notification_queue_usage() FROM herald.queue")
            assert one(ordinary, "SELECT pending_bytes FROM herald.listeners") == seen[5]
            assert one(admin, "SELECT pending_bytes FROM herald.listeners") == exact[5]
        times = [("kept_since", "queue"), ("pending_since", "get_listeners()")]
        ordinary.execute("SET SESSION AUTHORIZATION DEFAULT; SET ROLE member")
        real = [one(ordinary, f"SELECT {column} FROM herald.{view}") for column, view in times]
        assert ordinary.execute(f"SELECT {columns} FROM herald.queue").fetchone() == exact
        ordinary.execute("SET ROLE ordinary")
        assert [one(ordinary, f"SELECT {column} FROM herald.{view}") for column, view in times] == [
            time.replace(microsecond=0) for time in real]
    finally:
        for session in (ordinary, laggard):
            session.close()
        admin.execute("DROP ROLE ordinary, member")
