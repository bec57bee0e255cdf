"""The columns of the views' functions are named in C and in the extension script: a difference is an error."""

import pytest

from support import outcome

pytestmark = pytest.mark.seam

QUEUE = ("head bigint, OUT dispatched bigint, OUT needed bigint, OUT tail bigint, OUT size bigint,"
         " OUT spilled bigint, OUT used bigint, OUT usage float8, OUT uncommitted bigint,"
         " OUT kept_bytes bigint, OUT kept_since timestamptz, OUT is_damaged boolean")
LISTENERS = ("pid integer, OUT datid oid, OUT role oid, OUT state text, OUT channels integer, OUT pending_bytes bigint,"
             " OUT pending_since timestamptz, OUT lagging_since timestamptz, OUT delivered bigint, OUT wakeups bigint")
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
