"""The server in single-user mode, as used for repairs; on a stock server as well."""

import pytest

from servers import SETTINGS, started
from support import hear, notify

pytestmark = pytest.mark.seam

STATEMENTS = ["CREATE TABLE done AS SELECT 1 AS i", "NOTIFY c, 'x'", "SELECT pg_notify('c', 'y')", "LISTEN c",
              "UNLISTEN *", "DISCARD ALL", "INSERT INTO done VALUES (2)", "VACUUM done"]


@pytest.mark.parametrize("preload", [True, False], ids=["pg_herald", "stock"])
def test_single_user(preload, connect):
    """Guards: the statements work as on stock, LISTEN is refused, and the server starts afterwards."""
    for cluster in started(preload=preload, settings=SETTINGS):
        cluster.stop()
        script = "\n".join(STATEMENTS) + "\n"
        output = cluster.run_as_server_user(
            "/bin/sh", "-c", 'printf %s "$0" | "$@"', script, cluster.installation.program("postgres"),
            "--single", "-D", str(cluster.data), "postgres").stderr
        assert [line.split("ERROR:  ")[1] for line in output.splitlines() if "ERROR: " in line] == \
            ["cannot execute LISTEN within a background process"]
        cluster.start()
        session = connect(cluster)
        assert session.execute("SELECT i FROM done").fetchall() == [(1,), (2,)]
        session.execute("LISTEN c")
        notify(session, "c", "after it")
        assert hear(session, 1) == ["after it"]
