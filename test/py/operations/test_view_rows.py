"""The rows of the views: their columns, which are named in C and in the extension script, and what an ordinary role sees."""

import pytest

from support import notify, one, outcome

pytestmark = pytest.mark.seam

QUEUE = ("head bigint, OUT dispatched bigint, OUT needed bigint, OUT tail bigint, OUT size bigint,"
         " OUT spilled bigint, OUT used bigint, OUT usage float8, OUT uncommitted bigint,"
         " OUT kept_bytes bigint, OUT kept_since timestamptz, OUT is_damaged boolean")
LISTENERS = ("pid integer, OUT datid oid, OUT role oid, OUT state text, OUT channels integer, OUT pending_bytes bigint,"
             " OUT pending_since timestamptz, OUT delivered bigint, OUT wakeups bigint")
ROW, ROWS = "RETURNS record", "RETURNS SETOF record"


@pytest.mark.parametrize("symbol, returns, right, wrong, error", [
    ("herald_view_queue", ROW, "OUT is_damaged boolean", "OUT is_damaged boolean, OUT files integer",
     'column "files" of a view is in SQL only'),
    ("herald_view_queue", ROW, ", OUT is_damaged boolean", "", 'column "is_damaged" of a view is in C only'),
    ("herald_view_queue", ROW, "OUT tail bigint", "OUT tale bigint",
     'column 4 of a view is "tale" of type 20 in SQL, and "tail" of type 20 in C'),
    ("herald_view_listeners", ROWS, "OUT channels integer", "OUT channels bigint",
     'column 5 of a view is "channels" of type 20 in SQL, and "channels" of type 23 in C'),
    ("herald_view_listeners", ROWS, ", OUT wakeups bigint", "", 'column "wakeups" of a view is in C only'),
    ("herald_view_listeners", ROWS, "OUT wakeups bigint", "OUT wakeups bigint, OUT naps bigint",
     'column "naps" of a view is in SQL only'),
])
def test_columns_that_differ(cluster, connect, symbol, returns, right, wrong, error):
    """Guards: an error for a column that only one of them has, or whose name or type differs."""
    session = connect(cluster)
    session.execute("LISTEN here")
    columns = "OUT " + (LISTENERS if returns == ROWS else QUEUE)
    assert right in columns
    for declared, expected in ((columns, None), (columns.replace(right, wrong), f"XX000: {error}")):
        session.execute("DROP FUNCTION IF EXISTS public.copy_of_view()")
        session.execute(f"CREATE FUNCTION public.copy_of_view({declared}) {returns}"
                        f" AS '$libdir/pg_herald', '{symbol}' LANGUAGE C STRICT")
        came = outcome(session, "SELECT * FROM public.copy_of_view()")
        assert came == expected if expected else isinstance(came, list)
    session.execute("DROP FUNCTION public.copy_of_view()")


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
