"""What counts as complete was written with pg_herald: clients are notified of runs of a server without it, and of nothing else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from faults import FUNCTIONS, Doing, Points
from following import ANCHOR_LOOKS, anchored, has_delivered, looks
from harness.cluster import Cluster, ClusterError
from harness.standby import Member, Standby
from resume import position, read, resume, why_not
from servers import SETTINGS, need_library, started
from support import hear, hear_until, housekeeper_pid, notify, one, outcome, stopped, until, wait_event
from wire import call, error

pytestmark = pytest.mark.seam

MISSED = "notifications were missed"
WITHOUT = "the server may have run without pg_herald"
OTHER_DATABASE = "The position belongs to another database or another cluster"
EVIDENCE = SETTINGS | {"wal_keep_size": "512MB", "wal_retrieve_retry_interval": "100ms", "max_prepared_transactions": 2,
                       "allow_in_place_tablespaces": True}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Standby]]:
    """A primary where c and what begins with log_ are logged, and its standby; each test leaves them with pg_herald."""
    for primary in started(preload=True, settings=EVIDENCE):
        primary.psql("SELECT herald.set_channel('c', true); SELECT herald.set_channel('log_*', true); CREATE TABLE t (i int)")
        with Standby(primary) as standby:
            primary.restart()  # so there is an anchor after that
            yield primary, standby
            assert not standby.damage(), standby.damage()


@pytest.fixture
def sender(pair, connect) -> psycopg.Connection:
    """A session on the primary, whose standby has followed."""
    primary, standby = pair
    session = connect(primary)
    notify(session, "c", "first")
    until(lambda: has_delivered(standby), "the standby has followed")
    return session


def listens(session: psycopg.Connection, *channels: str) -> psycopg.Connection:
    """The session, which listens from now on."""
    for channel in channels:
        session.execute(f"LISTEN {channel}")
    return session


def is_told(server: Cluster, listener: psycopg.Connection, other: psycopg.Connection) -> bool:
    """Whether the listener, on herald_reset, is notified that it has missed something, and the other one disconnected."""
    pid = other.info.backend_pid
    assert hear(listener, 1) == [MISSED]
    with pytest.raises(psycopg.OperationalError):
        until(lambda: hear(other, 1, 0.1) and False, "the session ends")
    return f"[{pid}] FATAL:  terminating connection because it has missed notifications" in server.log()


@contextmanager
def without_pg_herald(primary: Cluster):
    """Within the block, the primary runs without pg_herald; after it with pg_herald again."""
    primary.settings["shared_preload_libraries"] = ""
    primary.restart()
    try:
        yield
    finally:
        primary.settings["shared_preload_libraries"] = "pg_herald"
        primary.restart()


def are_gone(session: psycopg.Connection, tokens: list[str], why: str) -> None:
    """Neither a listener nor a reader can go on from any of the positions, and the reason is given."""
    for token in tokens:
        detail = why_not(session, "c", token)[0]
        assert why in detail
        assert outcome(session, "SELECT FROM herald.read('c', %s)", token).startswith("55000")
        session.execute("UNLISTEN *")


def are_good(session: psycopg.Connection, tokens: list[str], payloads: list[str]) -> None:
    """From each of the positions a reader and a listener get exactly these."""
    for token in tokens:
        assert read(session, "c", token)[0] == payloads
        assert resume(session, "c", token) is True
        assert hear(session, len(payloads)) == payloads
        session.execute("UNLISTEN *")


def begins_anew(pair, connect: Callable) -> None:
    """On both servers positions that are taken from now on are good, also after a restart of the primary."""
    primary, standby = pair
    sender, reader = connect(primary), connect(standby)
    until(lambda: has_delivered(standby), "the standby has followed")
    tokens = [position(sender), position(reader)]
    notify(sender, "c", "anew")
    until(lambda: has_delivered(standby), "the standby has followed")
    for session in (sender, reader):
        are_good(session, tokens, ["anew"])
    primary.restart()
    are_good(connect(primary), tokens, ["anew"])


# ---- a primary that runs without pg_herald for a while ----

@pytest.mark.parametrize("lost", ["notification", "row", "prepared transaction"])
def test_run_without_pg_herald(pair, sender, connect, lost):
    """Guards: after a run of the primary without pg_herald that has committed anything, positions from before are false on
    the primary and the standby, and a listener that the standby had all the time is notified; this, and the refusal of
    LISTEN, begin as soon as the standby replays the first such commit."""
    primary, standby = pair
    if lost == "prepared transaction":
        sender.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'p'")
    reader = connect(standby)
    tokens = [position(sender), position(reader)]
    listener, other = listens(connect(standby), "c", "herald_reset"), listens(connect(standby), "c")
    with without_pg_herald(primary):
        primary.psql({"notification": "NOTIFY c, 'lost'", "row": "INSERT INTO t VALUES (1)",
                      "prepared transaction": "COMMIT PREPARED 'p'"}[lost])
        assert is_told(standby, listener, other)
        if lost == "notification":
            serves_none(reader, tokens[0])
        primary.psql("NOTIFY c, 'lost as well'")
        until(lambda: has_replayed_all(primary, standby), "the standby has replayed that")
    goes_on(connect(primary), listener)
    for server in pair:
        are_gone(connect(server), tokens, WITHOUT)
    begins_anew(pair, connect)


def serves_none(reader: psycopg.Connection, token: str) -> None:
    """The standby refuses listeners, readers and positions; it may wait before, once in a transaction."""
    reader.execute("BEGIN")
    for statement, *parameters in (("LISTEN c",), ("SELECT herald.position()",), ("SELECT FROM herald.read('c', NULL)",),
                                   ("SELECT FROM herald.read('c', %s)", token), ("SELECT herald.listen('c', %s)", token)):
        reader.execute("SAVEPOINT s")
        assert outcome(reader, statement, *parameters) == "55000: this standby cannot relay notifications"
        reader.execute("ROLLBACK TO s")
    reader.execute("ROLLBACK")


def goes_on(sender: psycopg.Connection, listener: psycopg.Connection) -> None:
    """The listener is notified of the gap once more, and then receives what is sent; perhaps not what was sent before that."""
    notify(sender, "c", "perhaps")
    assert hear(listener, 1) == [MISSED]
    notify(sender, "c", "with")
    assert set(hear_until(listener, "with")) <= {"perhaps"}


def has_replayed_all(primary: Cluster, standby: Cluster) -> bool:
    """Whether the standby has replayed what the primary, which may be without pg_herald, has written."""
    return standby.psql(f"SELECT pg_last_wal_replay_lsn() >= '{primary.psql('SELECT pg_current_wal_flush_lsn()')}'") == "t"


def test_runs_that_lost_nothing(pair, sender, connect):
    """Guards: restarts and crashes of a server with pg_herald are no gap, whatever commits first; nor is a run without it
    without a commit: positions stay good everywhere, and no listener is notified of a gap."""
    primary, standby = pair
    sender.execute("BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'p'")
    tokens = [position(sender), position(connect(standby))]
    listener, other = listens(connect(standby), "c", "herald_reset"), listens(connect(standby), "c")
    gaps = standby.log().count("cannot relay logged notifications")

    def send(payload: str) -> str:
        notify(connect(primary), "c", payload)
        return payload

    payloads = [send("before")]
    with without_pg_herald(primary):
        assert primary.psql("SELECT count(*) >= 0 FROM t") == "t"
    payloads.append(send("after a run without a commit"))
    primary.restart()
    primary.psql("COMMIT PREPARED 'p'")
    payloads.append(send("after a prepared transaction"))
    primary.restart("immediate")
    primary.psql("INSERT INTO t VALUES (3)")
    payloads.append(send("after a crash"))
    for session in (listener, other):
        assert hear(session, len(payloads)) == payloads
    assert standby.log().count("cannot relay logged notifications") == gaps
    for server in pair:
        are_good(connect(server), tokens, payloads)


def test_extension_is_dropped_without_pg_herald(pair, sender, connect):
    """Guards: listeners on a standby do not stay connected for nothing, where the extension is dropped, and created again,
    while the primary runs without pg_herald."""
    primary, standby = pair
    tokens = [position(sender)]
    listener, other = listens(connect(standby), "c", "herald_reset"), listens(connect(standby), "c")
    settings = "SELECT herald.set_channel('c', true); SELECT herald.set_channel('log_*', true)"
    with without_pg_herald(primary):
        primary.psql("DROP EXTENSION pg_herald CASCADE")
        assert is_told(standby, listener, other)
        try:
            primary.create_herald()
        except ClusterError:
            pass  # it needs the library
    primary.psql(f"CREATE EXTENSION IF NOT EXISTS pg_herald; {settings}")
    listener.close()
    listener = connect(standby)
    until(lambda: outcome(listener, "LISTEN c") is None, "the standby has the extension")
    notify(connect(primary), "c", "with")
    assert hear(listener, 1) == ["with"]
    for server in pair:
        are_gone(connect(server), tokens, "")
    anchored(primary, connect(primary))
    begins_anew(pair, connect)


@pytest.mark.parametrize("is_busy", [True, False], ids=["busy", "idle"])
def test_standby_begins_in_a_run_without_pg_herald(pair, sender, connect, is_busy):
    """Guards: a standby that begins to read the WAL while the primary runs without pg_herald, busy or idle, promises nothing:
    listeners, readers and positions are refused; a listener that comes in the end waits for pg_herald, and misses nothing."""
    primary, standby = pair
    token = position(sender)
    with without_pg_herald(primary):
        primary.psql("NOTIFY c, 'lost'; CHECKPOINT")
        until(lambda: has_replayed_all(primary, standby), "the standby has replayed that")
        standby.psql("CHECKPOINT")
        standby.restart()
        reader, listener, watcher = connect(standby), connect(standby), connect(standby)
        if is_busy:
            primary.psql("NOTIFY c, 'lost 2'")
            until(lambda: has_replayed_all(primary, standby) and has_read_all(standby), "the relay has come to that")
        serves_none(reader, token)
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t")
        holding = Doing(reader, "SELECT herald.position()")
        primary.psql("INSERT INTO t VALUES (1); UPDATE t SET i = i + 1; VACUUM t")
        assert str(holding.end()).startswith("canceling wait for replay due to conflict with recovery")
        reader.execute("ROLLBACK")
        until(lambda: has_replayed_all(primary, standby), "replay does not wait any more")
        listener.pgconn.send_query(b"LISTEN c")
        until(lambda: wait_event(watcher, listener.info.backend_pid) in ("Extension", "HeraldRelay"), "it waits")
    notify(connect(primary), "c", "with")
    result = listener.pgconn.get_result()
    assert result is not None and result.status == psycopg.pq.ExecStatus.COMMAND_OK, result
    assert listener.pgconn.get_result() is None
    notify(connect(primary), "c", "with as well")
    assert hear_until(listener, "with as well") in ([], ["with"])
    for server in pair:
        are_gone(connect(server), [token], "")
    begins_anew(pair, connect)


def test_standby_begins_in_the_middle_of_a_run(pair, sender, connect):
    """Guards: a standby that begins to read in the middle of a run with pg_herald, on which nothing is notified, has listeners
    and positions as soon as the primary's housekeeper has looked, also if the primary is idle."""
    primary, standby = pair
    for work in ("INSERT INTO t VALUES (1); CHECKPOINT", "CHECKPOINT; CHECKPOINT"):
        primary.psql(work)
        until(lambda: has_replayed_all(primary, standby), "the standby has replayed that")
        standby.psql("CHECKPOINT")
        standby.restart()
        token, listener = position(connect(standby)), listens(connect(standby), "c")
        notify(sender, "c", "1")
        assert hear(listener, 1) == ["1"]
        are_good(connect(standby), [token], ["1"])
    begins_anew(pair, connect)


def has_read_all(standby: Cluster) -> bool:
    """Whether the relay has read what the standby has replayed."""
    return standby.psql("SELECT read_position >= pg_last_wal_replay_lsn() FROM herald.relay") == "t"


def test_position_before_the_gaps(stop_points, connect):
    """Guards: a session that has not read the gaps of a run without pg_herald has no position from behind them, also while
    the relay has read on, and has noted that only in part."""
    for primary in started(preload=True, pg_config=stop_points, settings=EVIDENCE):
        primary.psql("SELECT herald.set_channel('c', true)")
        with Standby(primary) as standby:
            standby.psql("SELECT 1")
            primary.psql(FUNCTIONS)
            primary.restart()
            notify(connect(primary), "c", "first")
            until(lambda: has_delivered(standby), "the standby has followed")
            session, watcher = listens(connect(standby), "c", "herald_reset"), connect(standby)
            session.execute("BEGIN; SELECT 1")
            points, relay_pid = Points(watcher), one(watcher, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_herald relay'")
            points.arm("relay-setting", "wait", relay_pid)
            with stopped(relay_pid):
                with without_pg_herald(primary):
                    primary.psql("NOTIFY c, 'lost'")
                primary.psql("SELECT herald.set_channel('unrelated', true)")
                until(lambda: has_replayed_all(primary, standby), "the standby has replayed that")
            points.waiter("relay-setting")
            token = position(session)
            session.close()
            points.release()
            until(lambda: has_delivered(standby), "the relay has gone on")
            for server in (primary, standby):
                are_gone(connect(server), [token], WITHOUT)


# ---- failover ----

def test_failover_to_a_server_without_pg_herald(connect):
    """Guards: what a promoted server without pg_herald commits is missed, and said to be, on a standby that follows it, and
    after that standby's promotion; and by a former primary that is rewound."""
    settings = EVIDENCE | {"shared_preload_libraries": "pg_herald", "wal_log_hints": True}
    with Member("a", settings) as former:
        former.create_herald()
        former.psql("SELECT herald.set_channel('c', true)")
        bare = Member("b", settings | {"shared_preload_libraries": ""}, former)
        next_one = Member("c", settings, former)
        for member in (bare, next_one):
            member.create()
            member.follow(former)
        with bare, next_one:
            sender = connect(former)
            anchored(former, sender)
            until(lambda: has_delivered_of(former, next_one), "it follows")
            tokens = [position(sender), position(connect(next_one))]
            notify(sender, "c", "received")
            listener, other = listens(connect(next_one), "c", "herald_reset"), listens(connect(next_one), "c")
            notify(sender, "c", "before")
            for session in (listener, other):
                assert hear_until(session, "before") in ([], ["received"])
            former.stop()
            bare.promote()
            next_one.follow(bare)
            bare.psql("NOTIFY c, 'lost'")
            assert is_told(next_one, listener, other)
            serves_none(connect(next_one), tokens[0])
            bare.psql("NOTIFY c, 'lost as well'")
            former.rewind(bare)
            former.follow(bare)
            former.start()
            until(lambda: has_replayed_all(bare, next_one) and has_replayed_all(bare, former), "they follow")
            bare.stop()
            next_one.promote()
            former.follow(next_one)
            goes_on(connect(next_one), listener)
            until(lambda: has_delivered_of(next_one, former), "the former primary has followed")
            for member in (next_one, former):
                are_gone(connect(member), tokens, "")
            assert not any(member.damage() for member in (former, bare, next_one))


def has_delivered_of(primary: Cluster, standby: Cluster) -> bool:
    """Whether the standby has delivered all that the primary has flushed."""
    flushed = primary.psql("SELECT pg_current_wal_flush_lsn()")
    return standby.psql(f"SELECT read_position >= '{flushed}' FROM herald.relay") == "t"


def test_first_commit_after_a_promotion_is_of_a_prepared_transaction(connect):
    """Guards: a switchover with pg_herald everywhere is no gap, also if the first commit on the new primary is a COMMIT PREPARED
    of a session from before the promotion, in which nothing else has succeeded."""
    for primary in started(preload=True, settings=EVIDENCE):
        primary.psql("SELECT herald.set_channel('c', true); CREATE TABLE t (i int)")
        with Standby(primary) as standby, Standby(standby) as leaf:
            primary.restart()  # so there is an anchor after that
            sender = connect(primary)
            sender.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'p'")
            until(lambda: has_delivered(standby), "the standby has followed")
            until(lambda: has_delivered_of(primary, leaf), "so has its own")
            token = position(sender)
            listener, other = listens(connect(leaf), "c", "herald_reset"), listens(connect(leaf), "c")
            session, watcher = connect(standby), connect(standby)
            primary.stop()
            looks(standby, 1)
            with stopped(housekeeper_pid(standby)):  # else it may announce the run
                watcher.execute("SELECT pg_promote(wait => false)")
                until(lambda: outcome(session, "COMMIT PREPARED 'p'") is None, "it is a primary")
            notify(watcher, "c", "new")
            assert hear(listener, 1) == hear(other, 1) == ["new"]
            assert leaf.psql("SELECT gaps FROM herald.relay") == "0"
            for server in (standby, leaf):
                are_good(connect(server), [token], ["new"])
            assert not standby.damage() and not leaf.damage()


# ---- the caller pays ----

NOWHERE = "pg_notify('nobody', '')"
WAYS = {
    "EXECUTE": f"PREPARE x(boolean) AS SELECT 1; EXECUTE x({NOWHERE} IS NULL)",
    "CALL": f"CREATE PROCEDURE pg_temp.p(boolean) LANGUAGE sql AS ''; CALL pg_temp.p({NOWHERE} IS NULL)",
    "CHECK": f"CREATE TEMP TABLE x (i int CHECK ({NOWHERE} IS NOT NULL)); INSERT INTO x VALUES (1)",
    "COPY": f"CREATE TEMP TABLE d (i int, t text DEFAULT {NOWHERE}::text); COPY d (i) FROM PROGRAM 'echo 1'",
    "the fast path": None,
}


def undisturbed(pair, connect: Callable, *channels: str) -> Callable[[], None]:
    """Begins to listen on the standby; the result checks that no listener was notified of a gap, none was disconnected,
    and that positions of both servers, taken before, are good on both."""
    primary, standby = pair
    tokens = [position(connect(server)) for server in pair]
    sessions = [listens(connect(standby), "c", *channels), listens(connect(standby), "c", *channels, "herald_reset")]
    gaps = standby.log().count("cannot relay logged notifications")

    def check() -> None:
        sender = connect(primary)
        for channel in ("c", *channels):
            notify(sender, channel, channel)
            for session in sessions:
                assert hear(session, 1) == [channel]
        assert standby.log().count("cannot relay logged notifications") == gaps
        for server in pair:
            are_good(connect(server), tokens, ["c"])

    return check


@pytest.fixture
def stranger(pair, sender) -> Iterator[str]:
    """The name of a role without any privilege."""
    sender.execute("CREATE ROLE stranger LOGIN")
    yield "stranger"
    sender.execute("DROP OWNED BY stranger CASCADE; DROP ROLE stranger")


@pytest.mark.parametrize("way", WAYS)
def test_call_that_is_not_replaced(pair, sender, stranger, connect, wire, way):
    """Guards: pg_notify() where pg_herald cannot replace it fails at its caller, in a database with logged channels; it
    makes no position false, and no listener is notified of a gap."""
    primary, standby = pair
    check = undisturbed(pair, connect)
    if way == "COPY":
        sender.execute(f"GRANT pg_execute_server_program TO {stranger}")
    if way == "the fast path":
        client = wire(primary, user=stranger)
        client.send(call(one(sender, "SELECT 'pg_catalog.pg_notify'::regproc::oid"), "nobody", ""))
        assert error(client.until_ready()).startswith("0A000")
    else:
        client = connect(primary)
        client.execute(f"SET SESSION AUTHORIZATION {stranger}")
        for statement in WAYS[way].split("; ")[:-1]:
            client.execute(statement)
        with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
            client.execute(WAYS[way].split("; ")[-1])
        assert "herald.pg_notify()" in caught.value.diag.message_hint
        client.close()
    check()


def test_notifications_of_tcn(pair, sender, stranger, connect):
    """Guards: contrib/tcn, which any role with CREATE on the database can install, notifies through the server's own queue,
    on a channel that is logged, too; no listener is notified of a gap, and no position becomes false."""
    need_library("tcn")
    primary, standby = pair
    sender.execute(f"GRANT CREATE ON DATABASE postgres TO {stranger}")
    check = undisturbed(pair, connect, "log_tcn")
    listener, client = listens(connect(primary), "log_tcn"), connect(primary)
    client.execute(f"SET SESSION AUTHORIZATION {stranger}; CREATE SCHEMA theirs; SET search_path = theirs; CREATE EXTENSION tcn;"
                   "CREATE TABLE watched (id int PRIMARY KEY); CREATE TRIGGER t AFTER INSERT ON watched FOR EACH ROW"
                   " EXECUTE FUNCTION triggered_change_notification('log_tcn')")
    client.execute("INSERT INTO watched VALUES (1)")
    assert hear(listener, 1) == ["\"watched\",I,\"id\"='1'"]
    client.execute("BEGIN; INSERT INTO watched VALUES (2); NOTIFY nobody; COMMIT")
    assert hear(listener, 1) == ["\"watched\",I,\"id\"='2'"]
    client.close()
    check()


# ---- settings and anchors ----

def test_restore_with_disabled_triggers(primary, connect):
    """Guards: pg_restore --data-only --disable-triggers does not change settings without a word in the WAL."""
    dump, sender = str(primary.folder / "dump"), connect(primary)
    primary.client("pg_dump", "-Fc", "-f", dump)
    for pattern in ("c", "log_*"):
        sender.execute("SELECT herald.set_channel(%s, NULL)", (pattern,))
    looks(primary, ANCHOR_LOOKS)
    token = position(sender)
    notify(sender, "c", "not logged")
    try:
        primary.client("pg_restore", "--data-only", "--disable-triggers", "-d", "postgres", dump)
    except ClusterError:
        pass  # not all that the extension has had is new
    assert sender.execute("SELECT * FROM herald.channel_settings").fetchall() == []
    notify(sender, "c", "logged?")
    primary.restart()
    assert resume(connect(primary), "c", token) is False


def test_synchronous_standby_is_away(connect):
    """Guards: anchors are published where commits do not wait for the synchronous standby that is not there: so a position
    from after a change of the settings is good after a restart."""
    for server in started(preload=True, settings=EVIDENCE | {
            "synchronous_standby_names": "nobody", "synchronous_commit": "local"}):
        sender = connect(server)
        sender.execute("SELECT herald.set_channel('c', true)")
        sender.execute("SELECT pg_switch_wal()")
        notify(sender, "c", "in another segment")
        looks(server, ANCHOR_LOOKS)
        token = position(sender)
        notify(sender, "c", "1")
        server.restart()
        are_good(connect(server), [token], ["1"])


def test_prefix_that_said_the_same(pair, sender, connect):
    """Guards: a setting of a longer prefix that changes nothing for any channel, made or removed, makes no position false,
    and no listener is notified."""
    primary, standby = pair
    tokens = [position(sender), position(connect(standby))]
    listener = listens(connect(standby), "log_12", "c", "herald_reset")
    for logged in (True, None):
        sender.execute("SELECT herald.set_channel('log_1*', %s)", (logged,))
        notify(sender, "log_12", "x")
        notify(sender, "c", "y")
    assert hear(listener, 4) == ["x", "y"] * 2
    until(lambda: has_delivered(standby), "the standby has followed")
    for channel, payload in (("log_12", "x"), ("c", "y")):
        for server in pair:
            client = connect(server)
            for token in tokens:
                assert resume(client, channel, token)
                assert hear(client, 2) == [payload] * 2
                client.execute("UNLISTEN *")


# ---- positions of other databases ----

def position_beyond(lsn: int, session: psycopg.Connection) -> str:
    """A position that covers the WAL up to there, as it does when an anchor has been written after that."""
    return until(lambda: int((token := position(session)).split("-")[7], 16) >= lsn and token, "the position covers it")


CREATED = "CREATE DATABASE again OID 70000 TEMPLATE pattern STRATEGY {}"
LOG_C = "CREATE EXTENSION pg_herald; SELECT herald.set_channel('c', true)"


@pytest.mark.parametrize("strategy", ["wal_log", "file_copy"])
def test_database_is_created_again(pair, sender, connect, strategy):
    """Guards: in a database that has the OID of a dropped one, the positions of that one are false, on the same run of the
    primary, on a standby, and after a restart; others stay good."""
    primary, standby = pair
    primary.psql("DROP DATABASE IF EXISTS again; DROP DATABASE IF EXISTS pattern; CREATE DATABASE pattern")
    primary.psql(LOG_C, "pattern")
    primary.psql(CREATED.format(strategy))
    until(lambda: has_delivered(standby), "the standby has followed")
    anchored(primary, sender)
    dropped, its_reader = connect(primary, "again"), connect(standby, "again")
    theirs, ours = [position(dropped), position(its_reader)], [position(sender), position(connect(standby))]
    notify(dropped, "c", "of the dropped one")
    notify(sender, "c", "1")
    dropped.close()
    its_reader.close()
    until(lambda: has_delivered(standby), "the standby has followed")
    listener = listens(connect(standby), "c", "herald_reset")
    primary.psql(f"DROP DATABASE again WITH (FORCE); {CREATED.format(strategy)}")
    created = int(primary.psql("SELECT pg_current_wal_insert_lsn() - '0/0'"))
    primary.psql("CHECKPOINT")  # after which an anchor is due: it may have been before the database
    notify(sender, "c", "2")
    assert hear(listener, 1) == ["2"]
    until(lambda: has_delivered(standby), "the standby has followed")
    for server in pair:
        are_gone(connect(server, "again"), theirs, "")
        are_good(connect(server), ours, ["1", "2"])
    new = connect(primary, "again")
    fresh = [position_beyond(created, session) for session in (new, connect(standby, "again"))]
    notify(new, "c", "of the new one")
    until(lambda: has_delivered(standby), "the standby has followed")
    for server in pair:
        are_good(connect(server, "again"), fresh, ["of the new one"])
    primary.restart()
    are_gone(connect(primary, "again"), theirs, "")
    are_good(connect(primary), ours, ["1", "2"])
    are_good(connect(primary, "again"), fresh, ["of the new one"])


def test_database_is_moved(pair, sender, connect):
    """Guards: a database that is moved to another tablespace is the same one: its positions stay good everywhere."""
    primary, standby = pair
    primary.psql("CREATE DATABASE moved; CREATE TABLESPACE elsewhere LOCATION ''")
    primary.psql(LOG_C, "moved")
    anchored(primary, sender)
    until(lambda: has_delivered(standby), "the standby has followed")
    with connect(primary, "moved") as session, connect(standby, "moved") as reader:
        tokens = [position(session), position(reader)]
        notify(session, "c", "1")
    primary.psql("ALTER DATABASE moved SET TABLESPACE elsewhere")
    notify(connect(primary, "moved"), "c", "2")
    until(lambda: has_delivered(standby), "the standby has followed")
    for server in pair:
        are_good(connect(server, "moved"), tokens, ["1", "2"])
    primary.restart()
    are_good(connect(primary, "moved"), tokens, ["1", "2"])


class Another(Cluster):
    """A cluster made by an initdb of its own."""

    def _template(self) -> None:
        return None


def test_positions_from_elsewhere(pair, sender, connect):
    """Guards: a position of another database, of the database's original, or of another cluster is false, and no error for
    a client that listens; one that was cut or changed is an error."""
    primary, _ = pair
    token = position(sender)
    primary.psql("CREATE DATABASE copied")
    primary.psql(LOG_C, "copied")
    of_original = position(connect(primary, "copied"))
    primary.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'copied'")
    until(lambda: outcome(sender, "CREATE DATABASE copy TEMPLATE copied") is None, "the database is copied")
    are_gone(connect(primary, "copied"), [token], OTHER_DATABASE)
    are_gone(connect(primary, "copy"), [token, of_original], OTHER_DATABASE)
    are_good(connect(primary, "copied"), [of_original], [])
    for other in started(kind=Another, preload=True, settings=EVIDENCE):
        other.psql("SELECT herald.set_channel('c', true)")
        are_gone(connect(other), [token], OTHER_DATABASE)
        are_gone(sender, [position(connect(other))], OTHER_DATABASE)
    swapped = token[:-1] + ("1" if token[-1] != "1" else "2")
    are_gone(sender, [swapped], OTHER_DATABASE)
    for damaged in ("", token[:-1], token + "0", token[1:] + token[:1], "\u00e4" * len(token)):
        for call in ("SELECT herald.listen('c', %s)", "SELECT FROM herald.read('c', %s)"):
            assert outcome(sender, call, damaged).startswith("22023")


MANY = 130


def test_many_databases_without_the_extension(connect):
    """Guards: databases that have never asked for a position take nothing from later ones: what is sent there makes no
    position false.

    Their folders are one and the same: nothing is written into them.
    """
    for server in started(preload=True, settings=EVIDENCE | {"allow_system_table_mods": True}):
        server.psql("CREATE DATABASE many")
        oid = int(server.psql("SELECT oid FROM pg_database WHERE datname = 'many'"))
        columns = server.psql("SELECT string_agg(attname, ', ') FROM pg_attribute"
                              " WHERE attrelid = 'pg_database'::regclass AND attnum > 2")
        server.psql(f"INSERT INTO pg_database (oid, datname, {columns}) SELECT 80000 + n, 'many_' || n, {columns}"
                    f" FROM pg_database, generate_series(1, {MANY}) n WHERE datname = 'many'; CHECKPOINT")
        for number in range(1, MANY + 1):
            (server.data / "base" / str(80000 + number)).symlink_to(str(oid))
        for number in range(1, MANY + 1):
            with connect(server, f"many_{number}") as session:
                session.execute("NOTIFY x")
        server.psql("CREATE DATABASE later")
        server.create_herald("later")
        client = connect(server, "later")
        token = position(client)
        notify(client, "c", "1")
        connect(server, f"many_{MANY}").execute("NOTIFY c")
        are_good(client, [token], ["1"])
