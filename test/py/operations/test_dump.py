"""Dumps, restores and upgrades of databases with the extension; and servers without the module."""

import subprocess

import pytest

from harness.cluster import Cluster, ClusterError
from servers import SETTINGS, started
from support import hear, one, outcome

pytestmark = pytest.mark.seam

OBJECTS = """
    CREATE EXTENSION pg_herald;
    CREATE TABLE item (id integer PRIMARY KEY, told text DEFAULT 'yes');
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('c', 'item ' || NEW.id); RETURN NEW; END $$;
    CREATE TRIGGER tell AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION tell();
    CREATE FUNCTION sends(text) RETURNS void LANGUAGE sql SET herald.enabled = on AS
        $$ SELECT pg_notify('c', $1) $$;
    CREATE VIEW used AS SELECT used FROM herald.queue;
    CREATE RULE tell AS ON DELETE TO item DO ALSO SELECT pg_notify('c', 'deleted');
    INSERT INTO item VALUES (1), (2);
    GRANT EXECUTE ON FUNCTION herald.reset_stats() TO monitor;
    ALTER DATABASE source SET herald.enabled = on"""


@pytest.fixture(scope="module")
def full():
    """A cluster with a database `source` that has the extension, and objects that use it."""
    for cluster in started(preload=True, settings=SETTINGS):
        cluster.psql("CREATE ROLE monitor; CREATE DATABASE source")
        cluster.psql(OBJECTS, "source")
        yield cluster


def restore(cluster: Cluster, dump: str, dbname: str) -> str:
    """Runs a plain dump to its end; returns the error output."""
    return subprocess.run([cluster.installation.program("psql"), "-Xq", "-f", "-"], input=dump, text=True,
                          capture_output=True, env=cluster.environment(dbname)).stderr


def check(cluster: Cluster, dbname: str, connect, by_herald: bool = True) -> None:
    """The restored objects notify, through pg_herald or natively, and have their privileges."""
    listener, sender = connect(cluster, dbname), connect(cluster, dbname)
    listener.execute("LISTEN c")
    before = one(sender, "SELECT notifications FROM herald.stats") if by_herald else 0
    sender.execute("INSERT INTO item VALUES (3)")
    sender.execute("SELECT sends('by a function')")
    sender.execute("DELETE FROM item WHERE id = 3")
    assert hear(listener, 3) == ["item 3", "by a function", "deleted"]
    assert one(sender, "SELECT count(*) FROM item") == 2
    if by_herald:
        assert one(sender, "SELECT notifications FROM herald.stats") == before + 3
        assert one(sender, "SELECT used FROM used") is not None
        assert one(sender, "SELECT has_function_privilege('monitor', 'herald.reset_stats()', 'EXECUTE')")
        assert not one(sender, "SELECT has_function_privilege('public', 'herald.reset_stats()', 'EXECUTE')")


def test_plain_dump(full, connect):
    """Guards: a dump names the extension, but not its members; restored, it works, and its dump is the same."""
    dump = full.client("pg_dump", "source")
    assert "CREATE EXTENSION IF NOT EXISTS pg_herald" in dump
    assert "CREATE SCHEMA herald" not in dump and "FUNCTION herald.pg_notify" not in dump
    full.psql("CREATE DATABASE target")
    try:
        assert restore(full, dump, "target") == ""
        assert without_random_key(full.client("pg_dump", "target")) == without_random_key(dump)
        check(full, "target", connect)
    finally:
        full.psql("DROP DATABASE target WITH (FORCE)")


def without_random_key(dump: str) -> str:
    """The dump without the commands that contain a random key, which newer minor versions write."""
    return "\n".join(line for line in dump.split("\n") if not line.startswith(("\\restrict", "\\unrestrict")))


@pytest.mark.parametrize("options", [("-Fc",), ("-Fd", "-j2"), ("-Ft",)], ids=["custom", "directory", "tar"])
def test_archive(full, connect, tmp_path, options):
    """Guards: pg_restore of each kind of archive works as psql of a plain dump does, also in one transaction and with
    --clean."""
    archive = str(tmp_path / "archive")
    full.client("pg_dump", *options, "-f", archive, "source")
    full.psql("CREATE DATABASE target")
    try:
        full.client("pg_restore", "--exit-on-error", "--single-transaction", "-d", "target", archive)
        check(full, "target", connect)
        full.client("pg_restore", "--exit-on-error", "--clean", "--if-exists", "-d", "target", archive)
        check(full, "target", connect)
    finally:
        full.psql("DROP DATABASE target WITH (FORCE)")


def test_dump_of_all(full, connect):
    """Guards: the output of pg_dumpall, restored to a new server with the module, gives working databases."""
    dump = full.client("pg_dumpall", "--no-role-passwords")
    for cluster in started(preload=False, settings=SETTINGS | {"shared_preload_libraries": "pg_herald"}):
        errors = restore(cluster, dump, "postgres").splitlines()
        assert [line for line in errors if 'role "postgres" already exists' not in line] == []
        check(cluster, "source", connect)
        assert cluster.psql("SELECT setconfig FROM pg_db_role_setting") == "{herald.enabled=on}"


def test_restored_where_it_is_not_loaded(full, stock, connect):
    """Guards: without shared_preload_libraries the error says so, only objects that use our views are missing, and the
    others work natively."""
    stock.psql("CREATE ROLE monitor; CREATE DATABASE target")
    try:
        errors = [line.split("ERROR:  ")[1] for line in restore(
            stock, full.client("pg_dump", "source"), "target").splitlines() if "ERROR:" in line]
        assert errors[0] == "pg_herald must be loaded via shared_preload_libraries"
        assert all("herald" in error or '"public.used"' in error for error in errors), errors
        check(stock, "target", connect, by_herald=False)
    finally:
        stock.psql("DROP DATABASE target WITH (FORCE)")
        stock.psql("DROP ROLE monitor")


OF_CACHES = ("INSERT INTO watched VALUES (1)", "SELECT herald.cache_through('watched', 'SELECT 1')",
             "SELECT * FROM herald.caches", "SELECT * FROM herald.cache_stats")


@pytest.mark.parametrize("libraries", ["pg_herald_cache", "pg_herald_cache, pg_herald"])
def test_wrong_order(libraries):
    """Guards: a server that loads pg_herald_cache without pg_herald before it does not start, and says why."""
    with pytest.raises(ClusterError, match="FATAL:  pg_herald_cache must be loaded after pg_herald(.|\n)*HINT:  Put pg_herald before"), \
            Cluster(settings=SETTINGS | {"shared_preload_libraries": libraries}):
        pass


def test_module_taken_away(connect):
    """Guards: with the extensions created, but the modules no longer loaded, the server works natively; our views and
    functions, and tables with a cache trigger, report the reason. The extensions can be dropped; if they are not, they work
    again once the modules are loaded, also pg_herald alone."""
    for cluster in started(preload=True, caches=True, settings=SETTINGS):
        cluster.psql("""
            ALTER DATABASE postgres SET herald.enabled = on;
            CREATE TABLE watched (id int);
            SELECT herald.cache_watch('watched', 'watched', 'id')""")
        cluster.settings["shared_preload_libraries"] = ""
        cluster.restart()
        for session in (connect(cluster), connect(cluster)):
            session.execute("LISTEN c")
            session.execute("SELECT pg_notify('c', 'function')")
            session.execute("NOTIFY c, 'statement'")
            assert hear(session, 2) == ["function", "statement"]
            for sql in ("SELECT * FROM herald.stats", "SELECT herald.pg_notify('c', 'x')"):
                assert outcome(session, sql) == "55000: pg_herald must be loaded via shared_preload_libraries"
            for sql in OF_CACHES:
                assert outcome(session, sql) == "55000: pg_herald_cache must be loaded via shared_preload_libraries"
            session.execute("UNLISTEN *")

        cluster.settings["shared_preload_libraries"] = "pg_herald"
        cluster.restart()
        session = connect(cluster)
        session.execute("LISTEN c; NOTIFY c, 'x'")
        assert one(session, "SELECT notifications FROM herald.stats") == 1
        for sql in OF_CACHES:
            assert outcome(session, sql) == "55000: pg_herald_cache must be loaded via shared_preload_libraries"
        session.close()

        cluster.settings["shared_preload_libraries"] = ""
        cluster.restart()
        session = connect(cluster)
        session.execute("DROP TABLE watched")
        session.execute("DROP EXTENSION pg_herald CASCADE")
        assert one(session, "SELECT to_regnamespace('herald')") is None


# ---- pg_upgrade, to a cluster of the same version: its steps are those of an upgrade ----

class Upgraded(Cluster):
    """A cluster to which another one is upgraded."""

    def upgrade_from(self, old: Cluster, *options: str) -> str:
        """Stops both, and runs pg_upgrade; returns its error output, whether it failed or not."""
        old.stop()
        self.stop()
        command = [self.installation.program("pg_upgrade"), "--link", "--no-sync", "--username", "postgres",
                   "-b", self.installation.bindir, "-B", self.installation.bindir, "-d", old.data,
                   "-D", self.data, "-p", old.port, "-P", self.port, "-s", self.socket_folder, *options]
        result = self.run_as_server_user("/bin/sh", "-c", 'cd "$0" && exec "$@"', str(self.folder),
                                         *map(str, command))
        reports = [path.read_text(encoding="utf-8") for path in self.data.rglob("loadable_libraries.txt")]
        return "\n".join([result.stderr, *reports])


@pytest.fixture
def to_upgrade():
    """to_upgrade(libraries, *options): runs pg_upgrade to a new cluster; returns that, and the output."""
    old, clusters = Cluster(preload=True, settings=SETTINGS), []
    clusters.append(old)
    old.start()
    old.psql("CREATE ROLE monitor; CREATE DATABASE source")
    old.psql(OBJECTS, "source")
    old.psql("SELECT herald.set_channel('before', true)", "source")

    def upgrade(libraries: str, *options: str) -> tuple[Cluster, str]:
        new = Upgraded(settings=SETTINGS | {"shared_preload_libraries": libraries})
        clusters.append(new)
        new.start()
        return new, new.upgrade_from(old, *options)

    yield upgrade
    for cluster in clusters:
        cluster.remove()


def test_upgrade(to_upgrade, connect):
    """Guards: pg_upgrade reports that the new cluster has to load the module as well; once it does, the upgrade
    succeeds, and the upgraded objects work; settings of channels are there."""
    _, said = to_upgrade("", "--check")
    assert "ERROR:  pg_herald must be loaded via shared_preload_libraries" in said
    assert "Clusters are compatible" not in said
    new, said = to_upgrade("pg_herald")
    assert "Upgrade Complete" in said, said
    new.start()
    check(new, "source", connect)
    new.psql("SELECT herald.set_channel('after', false)", "source")
    assert new.psql("SELECT * FROM herald.channel_settings ORDER BY 1", "source") == "after|f\nbefore|t"
