"""Every setting of pg_herald: set in each way that the server allows, reloaded, and refused."""

import os
from contextlib import ExitStack

import psycopg
import pytest

from harness.cluster import Cluster
from servers import SETTINGS, started
from support import hear, notify, one, outcome, stopped, until, watchdog_pid

# For each its context, a valid value as SHOW prints it, and invalid values with a part of their error message.
OUTSIDE = "is outside the valid range for parameter"
INVALID = "invalid value for parameter"
ALL = {
    "herald.enabled": ("user", "off", {"maybe": 'parameter "herald.enabled" requires a Boolean value'}),
    "herald.queue_memory": ("postmaster", "32MB", {"100kB": OUTSIDE, "9GB": OUTSIDE, "much": INVALID}),
    "herald.channel_memory": ("postmaster", "8MB", {"1kB": OUTSIDE, "9GB": OUTSIDE, "": INVALID}),
    "herald_cache.memory": ("user", "1MB", {"-1": OUTSIDE, "3TB": INVALID, "lots": INVALID}),
    "herald.max_channel_memory_per_role": ("superuser", "1GB", {"-2": OUTSIDE, "3TB": INVALID, "all": INVALID}),
    "herald.max_uncommitted_per_role": ("superuser", "1GB", {"-2": OUTSIDE, "3TB": INVALID, "all": INVALID}),
    "herald.max_payload": ("superuser", "1MB", {"-1": OUTSIDE, "257MB": OUTSIDE, "long": INVALID}),
    "herald.heartbeat": ("user", "10s", {"-1": OUTSIDE, "99ms": INVALID, "2GB": INVALID, "often": INVALID}),
    "herald.max_read_wait": ("superuser", "5s", {"-1": OUTSIDE, "2GB": INVALID, "long": INVALID}),
    "herald.max_queue_size": ("sighup", "1GB", {"-1": OUTSIDE, "3TB": INVALID, "endless": INVALID}),
    "herald.resume_wal_size": ("sighup", "2GB", {"-1": OUTSIDE, "3PB": INVALID, "much": INVALID}),
    "herald.retain_size": ("sighup", "1GB", {"-1": OUTSIDE, "3TB": INVALID, "much": INVALID}),
    "herald.wakeup_concurrency": ("sighup", "3", {"0": INVALID, "-2": OUTSIDE, "65537": OUTSIDE,
                                                  "few": INVALID}),
}


@pytest.fixture(scope="module")
def settable():
    """A cluster whose configuration file sets none of our settings."""
    yield from started(preload=True, caches=True, settings=SETTINGS)


@pytest.fixture
def session(settable, connect):
    """A superuser's session; ALTER SYSTEM is reset at the end."""
    yield connect(settable)
    settable.psql("ALTER SYSTEM RESET ALL; SELECT pg_reload_conf()")


def shown(cluster: Cluster, setting: str) -> str:
    """The value in a new session."""
    return cluster.psql(f"SHOW {setting}")


def taken(connection: psycopg.Connection, sql: str, watcher: psycopg.Connection) -> int:
    """The number of notifications that the statement sends through pg_herald."""
    before = one(watcher, "SELECT notifications FROM herald.stats")
    connection.execute(sql)
    return one(watcher, "SELECT notifications FROM herald.stats") - before


def test_all_settings_are_here(session):
    """Guards: a new setting is added to ALL."""
    found = session.execute("SELECT name, context FROM pg_settings WHERE name ~ '^herald(_cache)?[.]'").fetchall()
    assert dict(found) == {name: context for name, (context, _, _) in ALL.items()}


@pytest.mark.parametrize("setting", ALL)
def test_alter_system_and_reload(settable, session, setting):
    """Guards: a setting takes effect at reload, or the server reports that it needs a restart, which then sets it."""
    context, value, _ = ALL[setting]
    before = shown(settable, setting)
    assert before != value
    session.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
    session.execute("SELECT pg_reload_conf()")
    if context != "postmaster":
        until(lambda: shown(settable, setting) == value, f"{setting} is {value}")
        return
    until(lambda: one(session, "SELECT pending_restart FROM pg_settings WHERE name = %s", setting),
          "the server knows that it must be restarted")
    assert shown(settable, setting) == before
    assert f'parameter "{setting}" cannot be changed without restarting the server' in settable.log()
    settable.restart()
    assert shown(settable, setting) == value
    if setting == "herald.queue_memory":
        assert settable.psql("SELECT pg_size_pretty(size) FROM herald.queue") == "32 MB"
    settable.psql("ALTER SYSTEM RESET ALL")
    settable.restart()
    assert shown(settable, setting) == before


@pytest.mark.parametrize("setting", ALL)
def test_values_that_are_refused(settable, session, setting):
    """Guards: ALTER SYSTEM refuses an invalid value, with a message that names the setting, and changes nothing."""
    for value, message in ALL[setting][2].items():
        with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
            session.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
        said = caught.value.diag.message_primary
        assert message in said and f'"{setting}"' in said
        assert one(session, "SELECT count(*) FROM pg_file_settings WHERE name = %s", setting) == 0


def test_bad_value_in_the_file(settable, session, connect):
    """Guards: an invalid value in the file is logged at reload, and the old value is kept."""
    auto = settable.data / "postgresql.auto.conf"
    before, text = shown(settable, "herald.wakeup_concurrency"), auto.read_text(encoding="utf-8")
    auto.write_text(text + "herald.wakeup_concurrency = 0\n", encoding="utf-8")
    log_before = len(settable.log())
    try:
        session.execute("SELECT pg_reload_conf()")
        until(lambda: "contains errors; unaffected changes were applied" in settable.log()[log_before:],
              "it is logged")
        logged = settable.log()[log_before:]
        assert 'LOG:  invalid value for parameter "herald.wakeup_concurrency": 0' in logged
        assert "DETAIL:  At least one listener must be woken at a time." in logged
        assert shown(settable, "herald.wakeup_concurrency") == before
    finally:
        auto.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("setting", ALL)
def test_set_by_a_session(session, setting):
    """Guards: a setting that sessions cannot change is refused, with a message that says how it can be changed."""
    context, value, _ = ALL[setting]
    expected = {
        "user": None,
        "superuser": None,  # this session is a superuser's
        "sighup": f'55P02: parameter "{setting}" cannot be changed now',
        "postmaster": f'55P02: parameter "{setting}" cannot be changed without restarting the server',
    }[context]
    for sql in (f"SET {setting} = '{value}'", f"ALTER ROLE postgres SET {setting} = '{value}'",
                f"ALTER DATABASE postgres SET {setting} = '{value}'"):
        assert outcome(session, sql) == expected
    session.execute("ALTER ROLE postgres RESET ALL; ALTER DATABASE postgres RESET ALL")


def test_wakeup_concurrency_takes_effect(settable, session, connect):
    """Guards: once it is reloaded, this number of four listeners is signalled at a time; all of them receive."""
    listeners, sender = [connect(settable) for _ in range(4)], connect(settable)
    for number, listener in enumerate(listeners):
        listener.execute(f"LISTEN c{number}")
    sent = []

    def signalled() -> int:
        with ExitStack() as held:
            # The watchdog is stopped, too, since it would take the turns back.
            for pid in [watchdog_pid(settable), *(listener.info.backend_pid for listener in listeners)]:
                held.enter_context(stopped(pid))
            sent.append(f"{len(sent)}")
            for number in range(len(listeners)):  # each commit signals one
                notify(sender, f"c{number}", sent[-1])
            count = one(sender, "SELECT count(*) FROM herald.listeners WHERE state = 'signalled'")
        for listener in listeners:
            assert hear(listener, 1) == [sent[-1]]
        return count

    for turns, expected in ((1, 1), (3, 3), (64, 4), (2, 2), (-1, min(4, os.cpu_count()))):
        session.execute(f"ALTER SYSTEM SET herald.wakeup_concurrency = {turns}")
        session.execute("SELECT pg_reload_conf()")
        until(lambda: signalled() == expected, f"{expected} are signalled at a time")


# ---- herald.enabled, which every user may set ----

@pytest.fixture
def user(settable, session):
    """An ordinary user."""
    session.execute("CREATE ROLE ordinary LOGIN")
    yield "ordinary"
    session.execute("ALTER DATABASE postgres RESET herald.enabled; ALTER ROLE ALL RESET herald.enabled")
    session.execute("DROP OWNED BY ordinary; DROP ROLE ordinary")


def as_user(connect, settable: Cluster, user: str) -> psycopg.Connection:
    """A new session of that user."""
    connection = connect(settable)
    connection.execute(f"SET SESSION AUTHORIZATION {user}")
    return connection


def test_enabled_by_an_ordinary_user(settable, session, connect, user):
    """Guards: any user may switch pg_herald off and on, for a session, a transaction or a function."""
    listener, ordinary = connect(settable), as_user(connect, settable, user)
    listener.execute("LISTEN c")
    send = "SELECT pg_notify('c', 'x')"
    assert taken(ordinary, send, session) == 1
    ordinary.execute("SET herald.enabled = off")
    assert taken(ordinary, send, session) == 0
    ordinary.execute("RESET herald.enabled")
    assert taken(ordinary, "NOTIFY c, 'x'", session) == 1
    ordinary.execute("BEGIN; SET LOCAL herald.enabled = off")
    assert taken(ordinary, "NOTIFY c, 'x'", session) == 0
    ordinary.execute("COMMIT")
    assert taken(ordinary, "NOTIFY c, 'x'", session) == 1
    ordinary.execute("SELECT set_config('herald.enabled', 'off', false)")
    assert taken(ordinary, send, session) == 0
    ordinary.execute("DISCARD ALL")
    ordinary.execute(f"SET SESSION AUTHORIZATION {user}")
    assert taken(ordinary, send, session) == 1
    assert hear(listener, 7) == ["x"] * 7


@pytest.mark.parametrize("language, body", [
    ("plpgsql", "BEGIN PERFORM pg_notify('c', 'within'); END"),
    ("plpgsql", "BEGIN NOTIFY c, 'within'; END"),
    ("sql", "SELECT pg_notify('c', 'within')"),
])
def test_enabled_in_a_function(settable, session, connect, user, language, body):
    """Guards: a SET clause applies within the function only; but later notifications of the same transaction go through
    the same queue, so that the server removes duplicates."""
    listener, ordinary = connect(settable), as_user(connect, settable, user)
    listener.execute("LISTEN c")
    ordinary.execute(f"CREATE FUNCTION pg_temp.off() RETURNS void LANGUAGE {language}"
                     f" SET herald.enabled = off AS $$ {body} $$")
    assert taken(ordinary, "SELECT pg_temp.off()", session) == 0
    assert taken(ordinary, "NOTIFY c, 'after'", session) == 1
    assert taken(ordinary, "SELECT pg_temp.off(); NOTIFY c, 'within'; NOTIFY c, 'after'", session) == 0
    ordinary.execute("SET herald.enabled = off")
    ordinary.execute("ALTER FUNCTION pg_temp.off() SET herald.enabled = on")
    assert taken(ordinary, "SELECT pg_temp.off()", session) == 1
    assert taken(ordinary, "NOTIFY c, 'after'", session) == 0
    assert sorted(hear(listener, 6)) == ["after"] * 3 + ["within"] * 3


def test_enabled_for_a_role_and_a_database(settable, session, connect, user):
    """Guards: ALTER ROLE and ALTER DATABASE apply to new sessions; the role has precedence over the database."""
    listener = connect(settable)
    listener.execute("LISTEN c")

    def new_session_takes(role: str = "postgres") -> int:
        before = one(session, "SELECT notifications FROM herald.stats")
        settable.client("psql", "-Xq", "-U", role, "-c", "NOTIFY c, 'x'")
        return one(session, "SELECT notifications FROM herald.stats") - before

    assert new_session_takes(user) == 1
    session.execute(f"ALTER ROLE {user} SET herald.enabled = off")
    assert (new_session_takes(user), new_session_takes()) == (0, 1)
    session.execute("ALTER DATABASE postgres SET herald.enabled = off")
    assert (new_session_takes(user), new_session_takes()) == (0, 0)
    session.execute(f"ALTER ROLE {user} SET herald.enabled = on")
    assert (new_session_takes(user), new_session_takes()) == (1, 0)
    assert hear(listener, 7) == ["x"] * 7


def test_enabled_for_the_server(settable, session, connect):
    """Guards: if it is switched off for the server, open sessions follow, except those that have set it themselves."""
    sender, own = connect(settable), connect(settable)
    sender.execute("LISTEN c")
    own.execute("SET herald.enabled = on")
    session.execute("ALTER SYSTEM SET herald.enabled = off")
    session.execute("SELECT pg_reload_conf()")
    until(lambda: one(sender, "SHOW herald.enabled") == "off", "it is reloaded")
    assert taken(sender, "SELECT pg_notify('c', '1')", session) == 0
    assert taken(own, "SELECT pg_notify('c', '2')", session) == 1
    session.execute("ALTER SYSTEM RESET herald.enabled")
    session.execute("SELECT pg_reload_conf()")
    until(lambda: one(sender, "SHOW herald.enabled") == "on", "it is reloaded")
    assert taken(sender, "SELECT pg_notify('c', '3')", session) == 1
    assert hear(sender, 3) == ["1", "2", "3"]
