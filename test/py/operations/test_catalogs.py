"""How pg_herald appears in the server's statistics and consistency checks."""

import pytest

from support import notify, one, until

pytestmark = pytest.mark.seam

# The query of PostgreSQL's regression test opr_sanity, which ignores schemas.
SAME_NAME_AND_ARGUMENTS = """
    SELECT p1.oid::regprocedure::text FROM pg_proc p1, pg_proc p2
     WHERE p1.oid <> p2.oid AND p1.proname = p2.proname AND p1.proargtypes = p2.proargtypes ORDER BY 1"""


def test_statistics_of_the_servers_queue(cluster, stock, connect):
    """Guards: pg_stat_slru counts pages of the server's own queue, which pg_herald does not use."""
    counts = []
    for server in (cluster, stock):
        listener, sender = connect(server), connect(server)
        name = one(sender, "SELECT name FROM pg_stat_slru WHERE lower(name) = 'notify'")
        sender.execute(f"SELECT pg_stat_reset_slru('{name}')")
        listener.execute("LISTEN c")
        for _ in range(100):
            notify(sender, "c", "x" * 7000)
        listener.execute("UNLISTEN c")
        sender.execute("SELECT pg_sleep(1.1)")  # statistics are reported once a second
        notify(sender, "c", "reports")
        pages = "SELECT blks_zeroed FROM pg_stat_slru WHERE lower(name) = 'notify'"
        if server is stock:
            until(lambda: one(sender, pages) > 0, "the server has counted pages")
        counts.append(one(sender, pages))
    assert counts[0] == 0 < counts[1]


def test_names_of_built_in_functions(cluster, connect):
    """Guards: exactly one function has the name and the arguments of a built-in one."""
    found = [name for (name,) in connect(cluster).execute(SAME_NAME_AND_ARGUMENTS)]
    assert found == ["herald.pg_notify(text,text)", "pg_notify(text,text)"]
