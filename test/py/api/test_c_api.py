"""The interface for other modules: its header, caches, and notifications (test/modules/herald_client)."""

import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from c_api import (HEADERS, LOADED, TOP, build_folder, cached, get, include_folder, make,
                   opener, with_client)
from faults import FUNCTIONS, Doing, Points
from harness.standby import Standby
from servers import need_library
from support import hear, hear_until, one, outcome, until
from wal import Wal, pairs

pytestmark = pytest.mark.seam

NAME_TOO_LONG = "x" * 64


@pytest.fixture(scope="module")
def server(pg_config):
    """A server with stop points; each session loads herald_client when it first uses it."""
    for cluster in with_client(pg_config, LOADED["by the session"]):
        cluster.psql(FUNCTIONS)
        yield cluster


@pytest.fixture(scope="module", params=LOADED)
def loaded(pg_config, request):
    """Servers that load herald_client in every way: before pg_herald, after it, or in the session."""
    yield from with_client(pg_config, LOADED[request.param], max_prepared_transactions=4)


@pytest.fixture
def session(server, connect):
    """session() opens a connection to the server, with herald_client loaded."""
    connect(server).execute("TRUNCATE client.setting;"
                            "INSERT INTO client.setting VALUES ('k', 'old'), ('l', 'other')")
    return opener(connect, server)


@pytest.fixture
def points(session):
    """The server's stop points; afterwards they are released."""
    points = Points(session())
    yield points
    points.release()


def change(connection: psycopg.Connection, value: str = "new", key: str = "k") -> None:
    """Changes the value of a setting; the table's trigger invalidates it."""
    connection.execute("UPDATE client.setting SET value = %s WHERE key = %s", (value, key))


# ---- the header ----

def test_only_headers(pg_config):
    """Guards: make install installs one header for each library, that of its interface."""
    folder = include_folder(pg_config)
    for header, source in zip(HEADERS, ("api/pg_herald_api.h", "cache/pg_herald_cache_api.h")):
        assert (folder / header).read_bytes() == (TOP / "src" / source).read_bytes()
        assert [path.name for path in (folder / header).parent.iterdir()] == [Path(source).name]
    assert sorted(path.name for path in folder.rglob("*herald*") if path.is_file()) == ["pg_herald_api.h", "pg_herald_cache_api.h"]


@pytest.mark.parametrize("header, find", list(zip(HEADERS, ("herald_api_find", "herald_cache_api_find"))),
                         ids=["pg_herald", "pg_herald_cache"])
@pytest.mark.parametrize("compiler, language", [
    ("gcc", "c"), ("clang", "c"), ("g++", "c++"), ("clang++", "c++")])
def test_header_alone(pg_config, tmp_path, compiler, language, header, find):
    """Guards: the header needs only the server's headers, compiles without warnings, and is valid C++."""
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    folder = include_folder(pg_config)
    shutil.copy(folder / header, tmp_path)  # apart from the server's headers, whose warnings do not count
    source = tmp_path / "alone"
    source.write_text('extern "C" {\n' * (language == "c++") + f'#include "{Path(header).name}"\n' +
                      "}\n" * (language == "c++") + f"bool is_there() {{ return {find}() != NULL; }}\n")
    subprocess.run([compiler, "-x", language, "-c", "-o", tmp_path / "alone.o", "-Wall", "-Wextra", "-Werror",
                    "-D_GNU_SOURCE", "-isystem", folder, source], check=True)
    needs = subprocess.run(["nm", "-u", tmp_path / "alone.o"], check=True, capture_output=True, text=True)
    assert re.search(r"\bfind_rendezvous_variable\b", needs.stdout)


@pytest.mark.parametrize("header, major, function", [
    (HEADERS[0], "HERALD_API_MAJOR", "client_has_herald"), (HEADERS[1], "HERALD_CACHE_API_MAJOR", "client_has_caches")],
    ids=["pg_herald", "pg_herald_cache"])
def test_other_major(pg_config, server, connect, header, major, function):
    """Guards: a module built for another major version of an interface does not find that interface."""
    with build_folder() as folder:
        text = (include_folder(pg_config) / header).read_text(encoding="utf-8")
        other = re.sub(rf"(#define {major}\s+)\d+", r"\g<1>1000", text)
        assert other != text
        (folder / header).parent.mkdir(parents=True)
        (folder / header).write_text(other, encoding="utf-8")
        make(folder, pg_config)
        connection = connect(server)
        for name in ("client_has_herald", "client_has_caches"):
            connection.execute(f"CREATE FUNCTION pg_temp.{name}() RETURNS boolean LANGUAGE C AS '{folder / 'herald_client'}', '{name}'")
            assert one(connection, f"SELECT pg_temp.{name}()") is (name != function)


def test_found(loaded, connect):
    """Guards: the interface is found whenever the module is loaded: before pg_herald, after it, or later."""
    connection = connect(loaded)
    assert connection.execute("SELECT client.has_herald(), client.has_caches()").fetchone() == (True, True)


def test_without_caches(pg_config, connect):
    """Guards: with pg_herald alone the module reads the table each time, and notifies; there is no object for caches."""
    for cluster in with_client(pg_config, "pg_herald"):
        connection, other = opener(connect, cluster)(), connect(cluster)
        assert connection.execute("SELECT client.has_herald(), client.has_caches()").fetchone() == (True, False)
        other.execute("LISTEN c; INSERT INTO client.setting VALUES ('k', 'old')")
        assert get(connection, "k") == ("old", False)
        change(other)
        assert get(connection, "k") == ("new", False)
        connection.execute("SELECT client.notify('c', 'x'), client.invalidate('k'), client.invalidate_all()")
        assert hear(other, 1) == ["x"]
        assert outcome(connection, "TABLE herald.caches") == '42P01: relation "herald.caches" does not exist'


@pytest.mark.parametrize("libraries", ["herald_client", ""], ids=["preloaded", "by the session"])
def test_without_herald(pg_config, connect, libraries):
    """Guards: without pg_herald the module loads, reads the table each time, and notifies natively."""
    for cluster in with_client(pg_config, libraries):
        connection, other = opener(connect, cluster)(), connect(cluster)
        assert one(connection, "SELECT client.has_herald()") is False
        other.execute("LISTEN c; INSERT INTO client.setting VALUES ('k', 'old')")
        assert get(connection, "k") == ("old", False)
        change(other)
        assert get(connection, "k") == ("new", False)
        connection.execute("SELECT client.notify('c', 'x'), client.invalidate('k'), client.invalidate_all()")
        assert hear(other, 1) == ["x"]
        assert outcome(connection, "SELECT client.send(1)") == "55000: herald_client: pg_herald is not loaded"


# ---- caches ----

def test_loaded_in_every_way(loaded, connect):
    """Guards: a session does not find values in its cache that another session has changed; in both directions."""
    sessions = [connect(loaded), connect(loaded)]
    sessions[0].execute("TRUNCATE client.setting; INSERT INTO client.setting VALUES ('k', '0')")
    for number in range(1, 5):
        writer, reader = sessions[number % 2], sessions[(number + 1) % 2]
        assert get(reader, "k")[0] == get(writer, "k")[0] == str(number - 1)
        assert get(reader, "k") == get(writer, "k") == (str(number - 1), True)
        change(writer, str(number))
        assert get(reader, "k") == get(writer, "k") == (str(number), False)


def test_invalidated_when_visible(session, points):
    """Guards: until a commit is visible readers get the old value, but do not keep it once the invalidation has begun;
    after the commit no session gets it."""
    readers, writer = [session(), session()], session()
    for reader in readers:
        get(reader, "k")
    points.arm("invalidate-announced", pid=writer.info.backend_pid)
    points.arm("invalidate-published", pid=writer.info.backend_pid)
    doing = Doing(writer, "UPDATE client.setting SET value = 'new' WHERE key = 'k'")
    points.waiter("invalidate-announced")
    assert [get(reader, "k") for reader in readers] == [("old", True)] * 2
    points.release("invalidate-announced")
    points.waiter("invalidate-published")
    for _ in range(3):
        assert [get(reader, "k") for reader in readers] == [("old", False)] * 2
        assert get(readers[0], "l")[0] == "other"
    assert [cached(reader, "not_kept") for reader in readers] == [3, 3]
    assert get(readers[0], "l") == ("other", True)
    points.release()
    assert doing.end() is None
    assert [get(reader, "k") for reader in readers] == [("new", False)] * 2
    assert [get(reader, "k") for reader in readers] == [("new", True)] * 2


def test_late_joiner(session, points):
    """Guards: a session that first uses the cache during an invalidation, of which it has not been notified, does not
    keep the old value either."""
    writer = session()
    points.arm("invalidate-published", pid=writer.info.backend_pid)
    doing = Doing(writer, "UPDATE client.setting SET value = 'new' WHERE key = 'k'")
    points.waiter("invalidate-published")
    reader = session()
    assert get(reader, "k") == get(reader, "k") == ("old", False)
    points.release()
    assert doing.end() is None
    assert get(reader, "k") == ("new", False)
    assert get(reader, "k") == ("new", True)


def test_own_at_once(session):
    """Guards: a transaction does not find a value that it has itself invalidated; other sessions still do."""
    writer, reader = session(), session()
    for connection in (writer, reader):
        get(connection, "k")
    with writer.transaction():
        change(writer)
        assert get(writer, "k") == get(writer, "k") == ("new", False)
        assert get(reader, "k") == ("old", True)
    assert get(writer, "k") == get(reader, "k") == ("new", False)


@pytest.mark.parametrize("end", ["ROLLBACK", "ROLLBACK TO s; COMMIT", "RELEASE s; ROLLBACK TO r; COMMIT"])
def test_rolled_back(session, end):
    """Guards: an invalidation that is rolled back, with its transaction, its savepoint or an outer one, reaches no
    other session, and no value that was read meanwhile is kept."""
    writer, reader = session(), session()
    for connection in (writer, reader):
        get(connection, "k")
    before = one(reader, "SELECT invalidations FROM herald.cache_stats")
    writer.execute("BEGIN; SAVEPOINT r; SAVEPOINT s")
    change(writer, "rolled back")
    assert get(writer, "k") == ("rolled back", False)
    for statement in end.split("; "):
        writer.execute(statement)
    assert get(writer, "k") == ("old", False)
    assert get(reader, "k") == ("old", True)
    assert one(reader, "SELECT invalidations FROM herald.cache_stats") == before


def test_released_savepoint(session):
    """Guards: an invalidation in a savepoint that is released takes effect with the transaction."""
    writer, reader = session(), session()
    get(reader, "k")
    writer.execute("BEGIN; SAVEPOINT r; SAVEPOINT s")
    change(writer)
    writer.execute("RELEASE s; RELEASE r; COMMIT")
    assert get(reader, "k") == ("new", False)


def test_whole_cache(session):
    """Guards: invalidating a whole cache takes effect with the transaction, for all of its keys."""
    writer, reader = session(), session()
    for key in ("k", "l"):
        get(reader, key)
    with writer.transaction() as failing:
        writer.execute("SELECT client.invalidate_all()")
        raise psycopg.Rollback(failing)
    assert get(reader, "k") == ("old", True)
    resets = cached(reader, "resets")
    writer.execute("TRUNCATE client.setting")
    assert get(reader, "k") == get(reader, "l") == (None, False)
    assert cached(reader, "resets") == resets + 1
    assert get(reader, "k") == (None, True)


def test_other_cache(session):
    """Guards: invalidations for another cache or in another database do not affect an equal key."""
    writer, reader = session(), session()
    get(reader, "k")
    writer.execute("SELECT herald.cache_invalidate('another', 'k'), herald.cache_clear('another')")
    assert get(reader, "k") == ("old", True)
    with psycopg.connect(host=writer.info.host, port=writer.info.port, user="postgres", dbname="template1",
                         autocommit=True) as elsewhere:
        elsewhere.execute("CREATE EXTENSION pg_herald_cache CASCADE")
        elsewhere.execute("SELECT herald.cache_clear('herald_client')")
        elsewhere.execute("DROP EXTENSION pg_herald CASCADE")
    assert get(reader, "k") == ("old", True)


def test_from_sql(session):
    """Guards: the SQL functions invalidate a module's cache, by its name and the bytes of its keys."""
    writer, reader = session(), session()
    for key in ("k", "l"):
        get(reader, key)
    writer.execute("SELECT herald.cache_invalidate('herald_client', 'k')")
    assert get(reader, "k") == ("old", False)
    assert get(reader, "l") == ("other", True)
    writer.execute("SELECT herald.cache_clear('herald_client')")
    assert get(reader, "k") == ("old", False)
    assert get(reader, "l") == ("other", False)


def test_snapshot_from_before(session):
    """Guards: a value that an older snapshot sees, read after the change, is returned, but not kept."""
    writer, reader = session(), session()
    with reader.transaction():
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert get(reader, "l") == ("other", False)
        change(writer)
        assert get(reader, "k") == get(reader, "k") == ("old", False)
        assert get(reader, "l") == ("other", True)
    assert get(reader, "k") == ("new", False)
    assert get(reader, "k") == ("new", True)


def test_change_while_reading(session):
    """Guards: a value whose change commits between reading and keeping it is not kept."""
    writer, reader, keeper = session(), session(), session()
    keeper.execute("SELECT pg_advisory_lock(1)")
    doing = Doing(reader, "SELECT client.get('k', 1)")
    until(lambda: one(keeper, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"),
          "the reader stands still")
    change(writer)
    keeper.execute("SELECT pg_advisory_unlock(1)")
    assert doing.end() is None
    assert (cached(reader, "kept"), cached(reader, "not_kept")) == (0, 1)
    assert get(reader, "k") == ("new", False)


def test_after_writing(session):
    """Guards: a transaction that has written keeps no value; a later transaction that only reads does."""
    reader = session()
    with reader.transaction():
        reader.execute("CREATE TEMP TABLE written (i integer)")
        assert get(reader, "k") == get(reader, "k") == ("old", False)
    assert get(reader, "k") == ("old", False)
    assert get(reader, "k") == ("old", True)


def test_overrun(session):
    """Guards: a backend that reads nothing while the invalidation queue wraps discards its cache; no other one does."""
    still, moving, writer = session(), session(), session()
    for reader in (still, moving):
        get(reader, "k")
        get(reader, "l")
    resets = {reader: cached(reader, "resets") for reader in (still, moving)}
    total = one(writer, "SELECT cache_resets FROM herald.cache_stats")
    still.execute("BEGIN; SELECT 1")
    change(writer)
    for step in range(18):
        writer.execute("SELECT herald.cache_invalidate('cache ' || i, 'x') FROM generate_series(1, 1000) i")
        assert get(moving, "l") == ("other", True)
    assert cached(still, "resets") == resets[still] + 1  # it has processed the overrun with this statement
    assert get(still, "k") == ("new", False)
    assert get(still, "l") == ("other", False)
    assert get(still, "l") == ("other", True)
    assert cached(moving, "resets") == resets[moving]
    assert one(writer, "SELECT cache_resets FROM herald.cache_stats") == total + 1


def test_names_of_caches(session):
    """Guards: invalid names, and too many caches, are refused with an error that names the limit."""
    connection = session()
    wrong = "42602: name of a cache must have 1 to 63 bytes"
    for name in ("", NAME_TOO_LONG, "ä" * 32):
        assert outcome(connection, "SELECT client.register_cache(%s)", name) == wrong
    assert outcome(connection, "SELECT client.register_cache(%s)", NAME_TOO_LONG[1:]) == [("",)]
    ends = [outcome(connection, "SELECT client.register_cache(%s)", f"cache {i}") for i in range(40)]
    assert ends[0] == [("",)] and ends[-1] == "54000: too many modules have caches"
    get(connection, "k")
    assert get(connection, "k") == ("old", True)


# ---- notifications ----

def test_notify_by_the_api(session):
    """Guards: a module's notifications go through pg_herald, without duplicates, with their transaction or savepoint; a
    NULL payload is sent as an empty one."""
    sender, listener = session(), session()
    listener.execute("LISTEN c")
    before = one(sender, "SELECT notifications FROM herald.stats")
    with sender.transaction():
        sender.execute("SELECT client.notify('c', '1'), client.notify('c', '1'), client.notify('c', NULL)")
        with sender.transaction() as failing:
            sender.execute("SELECT client.notify('c', 'of a savepoint')")
            raise psycopg.Rollback(failing)
    with sender.transaction() as failing:
        sender.execute("SELECT client.notify('c', 'rolled back')")
        raise psycopg.Rollback(failing)
    sender.execute("SELECT client.notify('c', 'end')")
    assert hear_until(listener, "end") == ["1", ""]
    assert one(sender, "SELECT notifications FROM herald.stats") == before + 5


@pytest.mark.parametrize("channel, payload", [
    ("", "x"), (None, "x"), (NAME_TOO_LONG, "x"), ("c", "x" * 8000)])
def test_notify_refused(session, channel, payload):
    """Guards: what NOTIFY refuses is refused here, with the same message."""
    connection = session()
    refused = outcome(connection, "SELECT pg_notify(%s, %s)", channel, payload)
    assert refused.startswith("22023: ")
    assert outcome(connection, "SELECT client.notify(%s, %s)", channel, payload) == refused


@pytest.mark.parametrize("before", ["", "NOTIFY c, 'before'; "], ids=["alone", "after another"])
@pytest.mark.parametrize("what", ["notify", "statement"])
def test_notify_before_the_commit(loaded, connect, what, before):
    """Guards: a notification from another module's callback before the commit arrives, by the interface or by a
    statement, whether that callback runs before pg_herald's or after it."""
    sender, listener = connect(loaded), connect(loaded)
    sender.execute("LOAD 'herald_client'")
    for session in (sender, listener):
        session.execute("LISTEN c")
    for number in range(2):
        sender.execute(f"BEGIN; {before}SELECT client.at_commit('{what}', '{number}')")
        sender.execute("COMMIT")
        sender.execute(f"BEGIN; {before}SELECT client.at_commit('{what}', 'rolled back')")
        sender.execute("ROLLBACK")
    expected = sorted(["0", "1"] + ["before"] * 2 * bool(before))
    assert sorted(hear(listener, len(expected))) == sorted(hear(sender, len(expected))) == expected
    sender.execute("NOTIFY c, 'end'")
    assert hear_until(listener, "end") == hear_until(sender, "end") == []


@pytest.mark.parametrize("what", ["notify", "statement"])
def test_logged_before_the_commit(loaded, connect, what):
    """Guards: such a notification is written into the WAL if its channel is logged, or it fails: where the module's callback
    runs after pg_herald's, it is too late for that."""
    need_library("pg_walinspect")
    sender, watcher = connect(loaded), connect(loaded)
    watcher.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect; SELECT herald.set_channel('c', true)")
    wal = Wal(watcher)
    sender.execute("LOAD 'herald_client'")
    sender.execute(f"BEGIN; SELECT client.at_commit('{what}', 'rolled back')")
    sender.execute("ROLLBACK")
    sender.execute(f"BEGIN; SELECT client.at_commit('{what}', 'alone')")
    ended = [outcome(sender, "COMMIT")]
    sender.execute(f"BEGIN; NOTIFY c, 'before'; SELECT client.at_commit('{what}', 'after')")
    ended.append(outcome(sender, "COMMIT"))
    watcher.execute("SELECT herald.set_channel('c', NULL)")
    if ended[0]:
        assert ended == ['0A000: cannot log a notification on channel "c"'] * 2
        return
    logged = wal.logged()
    assert [pair for content in logged for pair in pairs(content)] == [("c", "alone"), ("c", "before"), ("c", "after")]
    assert all(content["last"] and content["part"] == 1 for content in logged)


def test_notify_in_an_empty_transaction(loaded, connect):
    """Guards: an idle session receives its notifications even if another module notifies in the empty transaction in
    which they are read; listeners receive the module's notification, too."""
    listener, other, sender = connect(loaded), connect(loaded), connect(loaded)
    other.execute("LISTEN next")
    listener.execute("LISTEN c; LOAD 'herald_client'")
    for number in range(3):
        listener.execute("SELECT client.at_commit('next', 'notify')")
        sender.execute(f"NOTIFY c, '{number}'")
        assert hear(listener, 1) == [str(number)]
        assert hear(other, 1) == ["x"]


def transactions_that_invalidate(cluster, connect, first: str):
    """Yields three open transactions in turn, each with a change that another module will invalidate before the commit,
    as (writer, reader, value before, value after); the reader has the old value in its cache."""
    writer, reader = connect(cluster), connect(cluster)
    writer.execute("TRUNCATE client.setting; INSERT INTO client.setting VALUES ('k', '0')")
    writer.execute("SET session_replication_role = replica")  # disables the trigger
    for number in range(1, 4):
        get(reader, "k")
        assert get(reader, "k") == (str(number - 1), True)
        writer.execute(f"BEGIN; {first}SELECT client.at_commit('invalidate', 'k')")
        change(writer, str(number))
        yield writer, reader, str(number - 1), str(number)


@pytest.mark.parametrize("first", ["", "SELECT client.invalidate('other'); "], ids=["alone", "after another"])
def test_invalidate_before_the_commit(loaded, connect, first):
    """Guards: an invalidation from another module's callback before the commit takes effect, whether that callback runs
    before pg_herald's or after it."""
    for writer, reader, before, after in transactions_that_invalidate(loaded, connect, first):
        assert get(reader, "k") == (before, True)
        writer.execute("COMMIT")
        assert get(reader, "k") == (after, False)


@pytest.mark.parametrize("what", ["notify", "statement"])
def test_before_a_prepare(loaded, connect, what):
    """Guards: PREPARE TRANSACTION is refused, so that nothing is lost, if another module notifies in its callback
    before it, whether that callback runs before pg_herald's or after it."""
    sender = connect(loaded)
    sender.execute("LOAD 'herald_client'")
    sender.execute(f"BEGIN; SELECT client.at_commit('{what}', 'c')")
    ended = outcome(sender, "PREPARE TRANSACTION 'p'")
    prepared = sender.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
    for gid, in prepared:
        sender.execute(f"ROLLBACK PREPARED '{gid}'")
    assert prepared == []
    assert ended.startswith("0A000: cannot PREPARE a transaction that has ")


@pytest.mark.parametrize("first", ["", "SELECT client.invalidate('l'); "], ids=["alone", "after others"])
def test_invalidated_before_a_prepare(loaded, connect, first):
    """Guards: an invalidation from another module's callback before PREPARE TRANSACTION takes effect when the
    transaction is committed, whether that callback runs before pg_herald's or after it."""
    for writer, reader, before, after in transactions_that_invalidate(loaded, connect, first):
        writer.execute("PREPARE TRANSACTION 'p'")
        for _ in range(2):
            assert get(reader, "k") == (before, False)
        reader.execute("COMMIT PREPARED 'p'")
        assert get(reader, "k") == (after, False)


# ---- elsewhere ----

def test_api_on_a_standby(pg_config, connect):
    """Guards: on a standby everything can be called: nothing is kept, writing is refused, signals work. After promotion
    values are kept, but not while a prepared transaction is about to change them."""
    for primary in with_client(pg_config, LOADED["preloaded last"], max_prepared_transactions=4):
        primary.psql("INSERT INTO client.setting VALUES ('k', 'old')")
        standby = Standby(primary)
        standby.create()  # uses programs that the copy of the installation at pg_config does not have
        standby.installation = primary.installation
        with standby:
            reader, other = connect(standby), connect(standby)
            assert get(reader, "k") == get(reader, "k") == ("old", False)
            assert cached(reader, "not_kept") == 2
            for call in ("invalidate('k')", "invalidate_all()"):
                assert outcome(reader, f"SELECT client.{call}") == \
                    "25006: cannot execute invalidating a cache during recovery"
            assert outcome(reader, "SELECT client.notify('c', 'x')") == \
                "25006: cannot execute NOTIFY during recovery"
            assert one(other, "SELECT client.send(%s)", reader.info.backend_pid) is True
            assert one(reader, "SELECT client.handled()") == 1
            primary.psql("BEGIN; UPDATE client.setting SET value = 'new'; PREPARE TRANSACTION 'p'")
            position = primary.psql("SELECT pg_current_wal_flush_lsn()")
            until(lambda: one(other, f"SELECT pg_last_wal_replay_lsn() >= '{position}'"), "it is prepared here, too")
            assert one(other, "SELECT pg_promote()")
            until(lambda: not one(other, "SELECT pg_is_in_recovery()"), "it is promoted")
            assert [get(reader, "k") for _ in range(3)] == [("old", False)] * 3
            other.execute("COMMIT PREPARED 'p'")
            assert get(reader, "k") == ("new", False)
            until(lambda: get(reader, "k") == ("new", True), "it keeps what it reads")
            change(other)
            assert get(reader, "k") == ("new", False)


@pytest.fixture
def parallel(session):
    """A session whose queries of table `big` use workers; creates the table."""
    connection = session()
    setting = "debug_parallel_query" if connection.info.server_version >= 160000 else "force_parallel_mode"
    connection.execute("CREATE TABLE big AS SELECT i FROM generate_series(1, 20000) i; ANALYZE big;"
                       f"SET {setting} = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;"
                       "SET min_parallel_table_scan_size = 0")
    yield connection
    connection.execute("DROP TABLE big")


def test_api_in_a_parallel_query(session, parallel):
    """Guards: the leader of a parallel query reads its cache, keeps values, and notifies; an invalidation is refused
    with an error."""
    listener = session()
    listener.execute("LISTEN c")
    query = "SELECT {} FROM big WHERE i % 1000 = 0"
    plan = parallel.execute("EXPLAIN " + query.format("client.get('k')")).fetchall()
    assert any("Gather" in line for line, in plan)
    assert parallel.execute(query.format("client.get('k')")).fetchall() == [("old",)] * 20
    assert (cached(parallel, "kept"), cached(parallel, "hits")) == (1, 19)
    parallel.execute(query.format("client.notify('c', i::text)"))
    assert len(hear(listener, 20)) == 20
    assert outcome(parallel, query.format("client.invalidate('k')")) == \
        "25000: cannot execute invalidating a cache during a parallel operation"


def test_parallel_workers(session, parallel):
    """Guards: in the workers of a parallel query the cache works as well, and is never stale."""
    writer = session()
    parallel.execute("CREATE FUNCTION worker_get(text, bigint) RETURNS text LANGUAGE C PARALLEL SAFE"
                     " AS '$libdir/herald_client', 'client_get'; SET parallel_leader_participation = off")
    query = "SELECT worker_get('k', NULL), count(*) FROM big WHERE worker_get('l', NULL) = 'other' GROUP BY 1"
    before = cached(parallel, "hits"), cached(parallel, "not_kept")
    for value in ("old", "1", "2"):
        change(writer, value)
        plan = "\n".join(line for line, in parallel.execute(f"EXPLAIN (ANALYZE) {query}"))
        assert re.search(r"Workers Launched: [1-9]", plan), plan
        assert parallel.execute(query).fetchall() == [(value, 20000)]
    assert (cached(parallel, "hits"), cached(parallel, "not_kept")) == before
    parallel.execute("DROP FUNCTION worker_get")


# ---- docs/c-api.md ----

PAGE = (TOP / "docs/c-api.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The page's code blocks in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_documented_code(pg_config, tmp_path):
    """Guards: every C block of the page compiles without a warning, with the installed header."""
    assert len(blocks("c")) == 3
    for code in blocks("c"):
        (tmp_path / "block.c").write_text(code, encoding="utf-8")
        subprocess.run(["gcc", "-c", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wmissing-prototypes",
                        "-Werror", "-D_GNU_SOURCE", "-isystem", include_folder(pg_config), "block.c"],
                       cwd=tmp_path, check=True)


def test_documented_cache(pg_config, server, connect):
    """Guards: the page's module, built by its Makefile and created by its SQL, caches values that are never stale."""
    with build_folder() as folder:
        for path in folder.iterdir():
            path.unlink()
        (folder / "Makefile").write_text(blocks("make")[0], encoding="utf-8")
        (folder / "rates.c").write_text(blocks("c")[1], encoding="utf-8")
        make(folder, pg_config)
        reader, writer = connect(server), connect(server)
        for session in (reader, writer):
            session.execute(f"SET dynamic_library_path = '$libdir:{folder}'")
        writer.execute(blocks("sql")[0])
        writer.execute("INSERT INTO rates VALUES ('EUR', 1.08), ('JPY', 0.0064)")
        for value in (1.08, 1.09, 1.1):
            writer.execute("UPDATE rates SET rate = %s WHERE currency = 'EUR'", (value,))
            assert one(reader, "SELECT rate('EUR')") == one(reader, "SELECT rate('EUR')") == value
        writer.execute('ALTER TABLE rates DISABLE TRIGGER "herald rate(currency)"; UPDATE rates SET rate = 2')
        assert one(reader, "SELECT rate('EUR')") == 1.1  # the value was cached
        writer.execute("SELECT herald.cache_clear('rate')")
        assert one(reader, "SELECT rate('EUR')") == 2
        writer.execute("TRUNCATE rates")
        assert outcome(reader, "SELECT rate('EUR')") == 'XX000: there is no rate for "EUR"'
        writer.execute("DROP TABLE rates; DROP FUNCTION rate")


def test_documented_rules(pg_config, server, connect):
    """Guards: the page's module with a reason can send it, and returns false if there is no such process."""
    with build_folder() as folder:
        (folder / "Makefile").write_text(blocks("make")[0].replace("rates", "rules"), encoding="utf-8")
        (folder / "rules.c").write_text(blocks("c")[2], encoding="utf-8")
        make(folder, pg_config)
        session = connect(server)
        session.execute(f"CREATE FUNCTION pg_temp.ask_to_reload(integer) RETURNS boolean LANGUAGE C"
                        f" AS '{folder / 'rules'}'")
        assert one(session, "SELECT pg_temp.ask_to_reload(pg_backend_pid())") is True
        assert one(session, "SELECT pg_temp.ask_to_reload(1)") is False
