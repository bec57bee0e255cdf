"""What readers of the WAL find of changes of settings: exactly what has changed in effect, in whatever way."""

import json
from collections.abc import Callable

import psycopg
import pytest

from following import ANCHOR_LOOKS, looks
from resume import position, resume, why_not
from servers import need_library
from settings import ALTER, CREATE, put, refused, rows

pytestmark = pytest.mark.seam


@pytest.fixture
def messages(open_one):
    """messages() returns the settings that were written to the WAL since the last call, each transaction's as a dict."""
    need_library("test_decoding")
    session = open_one()
    session.execute("SELECT pg_create_logical_replication_slot('settings', 'test_decoding')")

    def read() -> list[dict[str, bool]]:
        transactions: list[dict[str, bool]] = []
        for (line,) in session.execute("SELECT data FROM pg_logical_slot_get_changes('settings', NULL, NULL)"):
            if line.startswith("BEGIN"):
                transactions.append({})
            head, found, text = line.partition(" content:")
            if found and "prefix: pg_herald," in head:
                message = json.loads(text)
                if message["kind"] != "setting":
                    continue
                assert "transactional: 1" in head
                assert list(message) == ["version", "kind", "run", "channel", "logged"]
                assert (message["version"], len(message["run"])) == (1, 16)
                assert message["channel"] not in transactions[-1]
                transactions[-1][message["channel"]] = message["logged"]
        return [changes for changes in transactions if changes]

    yield read
    session.execute("SELECT pg_drop_replication_slot('settings')")


def test_messages(open_one, messages: Callable):
    """Guards: the WAL has a message for each change that is committed, in its transaction; none for what is rolled back
    or changes nothing; also for changes in subtransactions."""
    session = open_one()
    put(session, {"orders*": True, 'a "quoted" \\ name\n': True, "not logged": False})
    put(session, {"orders*": True})
    assert messages() == [{"orders*": True}, {'a "quoted" \\ name\n': True}]
    session.execute("BEGIN")
    put(session, a=True)
    session.execute("SAVEPOINT one")
    put(session, b=True)
    session.execute("ROLLBACK TO one")
    put(session, c=True)
    session.execute("SAVEPOINT two")
    put(session, d=True)
    session.execute("RELEASE two; RELEASE one; COMMIT")
    session.execute("BEGIN")
    put(session, e=True)
    session.execute("ROLLBACK")
    assert messages() == [{"a": True, "c": True, "d": True}]
    put(session, a=None, b=None, c=False)
    assert messages() == [{"a": False}, {"c": False}]
    session.execute("BEGIN")
    put(session, x=True, d=False)
    put(session, x=None, d=True)
    session.execute("COMMIT")
    assert messages() == []


# What each way changes in effect, from the settings of BEGIN.
WAYS = {
    "set": ([f"{ALTER} OPTIONS (SET logged '{{c,job_*}}')"], {"a": False, "c": True}),
    "drop of an option": ([f"{ALTER} OPTIONS (DROP unlogged)"], {"job_x": True}),
    "drop of the other": ([f"{ALTER} OPTIONS (DROP logged)"], {"a": False, "job_*": False}),
    "swapped": ([f"{ALTER} OPTIONS (SET logged '{{job_x,b}}', SET unlogged '{{a,job_*}}')"],
                {"a": False, "job_*": False, "job_x": True, "b": True}),
    "order": ([f"{ALTER} OPTIONS (SET logged '{{job_*,a}}', SET unlogged '{{b,job_x}}')"], {}),
    "all": ([f"{ALTER} OPTIONS (SET logged '{{*}}', DROP unlogged)"], {"*": True, "b": True, "job_x": True}),
    "other options": ([f"{ALTER} VERSION '2'", f"{ALTER} OWNER TO CURRENT_USER", "COMMENT ON SERVER pg_herald IS 'x'",
                       "GRANT USAGE ON FOREIGN SERVER pg_herald TO PUBLIC",
                       "CREATE USER MAPPING FOR PUBLIC SERVER pg_herald"], {}),
    "drop": (["DROP SERVER pg_herald"], {"a": False, "job_*": False}),
    "drop and create": (["DROP SERVER pg_herald", f"{CREATE} OPTIONS (logged '{{a,d}}')"], {"job_*": False, "d": True}),
    "rename": ([f"{ALTER} RENAME TO x", f"{ALTER[:-9]}x RENAME TO pg_herald"], {}),
    "rename and create": ([f"{ALTER} RENAME TO x", f"{CREATE} OPTIONS (logged '{{c}}')", "DROP SERVER x"],
                          {"a": False, "job_*": False, "c": True}),
    "rename of the wrapper": (["ALTER FOREIGN DATA WRAPPER pg_herald RENAME TO x"], {"a": False, "job_*": False}),
    "rename and back": (["ALTER FOREIGN DATA WRAPPER pg_herald RENAME TO x",
                         "ALTER FOREIGN DATA WRAPPER x RENAME TO pg_herald"], {}),
    "validator": (["ALTER FOREIGN DATA WRAPPER pg_herald NO VALIDATOR"], {}),
    "drop owned": ([f"{ALTER} OWNER TO of_settings", "DROP OWNED BY of_settings"], {"a": False, "job_*": False}),
    "reassign owned": ([f"{ALTER} OWNER TO of_settings", "REASSIGN OWNED BY of_settings TO CURRENT_USER"], {}),
    "extension": (["DROP EXTENSION pg_herald CASCADE"], {"a": False, "job_*": False}),
    "extension again": (["DROP EXTENSION pg_herald CASCADE", "CREATE EXTENSION pg_herald",
                         "SELECT herald.set_channel('a', true)"], {"job_*": False}),
    "another wrapper's": (["CREATE FOREIGN DATA WRAPPER o", "CREATE SERVER s FOREIGN DATA WRAPPER o OPTIONS (logged '{z}')",
                           "DROP SERVER s"], {}),
    "function": (["DO $$ BEGIN EXECUTE 'DROP SERVER pg_herald'; END $$"], {"a": False, "job_*": False}),
}
BEGIN = f"{CREATE} OPTIONS (logged '{{a,job_*}}', unlogged '{{job_x,b}}')"


@pytest.fixture
def role(decoding):
    """A role that may own the server."""
    decoding.psql("CREATE ROLE of_settings")
    decoding.psql("GRANT USAGE ON FOREIGN DATA WRAPPER pg_herald TO of_settings", "of_settings")
    yield
    decoding.psql("DROP OWNED BY of_settings CASCADE", "of_settings")
    decoding.psql("DROP ROLE of_settings")


def begin_again(session: psycopg.Connection) -> None:
    """Makes the extension and the settings again, whatever is there."""
    session.execute("DROP FOREIGN DATA WRAPPER IF EXISTS o CASCADE; DROP EXTENSION IF EXISTS pg_herald CASCADE;"
                    "CREATE EXTENSION pg_herald; GRANT USAGE ON FOREIGN DATA WRAPPER pg_herald TO of_settings")
    session.execute(BEGIN)


@pytest.mark.parametrize("way", WAYS)
def test_ways(open_one, messages: Callable, role, way):
    """Guards: in each way in which settings can change, the WAL has what has changed in effect, and nothing else; nothing
    if it is rolled back."""
    session = open_one()
    statements, changes = WAYS[way]
    for begin, end, is_kept in (("BEGIN; SAVEPOINT s", "ROLLBACK TO s; COMMIT", False), ("BEGIN", "ROLLBACK", False),
                                ("BEGIN; SAVEPOINT s", "RELEASE s; COMMIT", True), ("BEGIN", "COMMIT", True)):
        begin_again(session)
        messages()
        session.execute(begin)
        for statement in statements:
            session.execute(statement)
        session.execute(end)
        assert messages() == ([changes] if changes and is_kept else [])
        if not is_kept:
            assert rows(session) == {"a": True, "job_*": True, "job_x": False, "b": False}


def test_ways_one_by_one(open_one, messages: Callable):
    """Guards: the same in transactions that follow each other: what is gone and comes back is written both times."""
    session = open_one()
    session.execute(BEGIN)
    for statement in ("ALTER FOREIGN DATA WRAPPER pg_herald RENAME TO x", "ALTER FOREIGN DATA WRAPPER x RENAME TO pg_herald",
                      "DROP SERVER pg_herald", BEGIN):
        session.execute(statement)
    both = {"a": True, "job_*": True}
    assert messages() == [both, dict.fromkeys(both, False)] * 2 + [both]
    assert refused(session, f"{ALTER} RENAME TO x").startswith("42710")
    assert messages() == []


def test_while_it_commits(open_one, messages: Callable):
    """Guards: a deferred trigger's change is written as well."""
    session = open_one()
    session.execute("""
        CREATE TABLE t (name text);
        CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM herald.set_channel(NEW.name, true); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER change AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION change()""")
    session.execute("INSERT INTO t VALUES ('late'), ('later')")
    assert messages() == [{"late": True, "later": True}]


# ---- a setting that says what another one says already ----

@pytest.mark.parametrize("settings, more, channel", [
    ({"job_*": True}, {"job_1*": True}, "job_12"),
    ({"job_*": True}, {"job_12": True}, "job_12"),
    ({"*": True}, {"job_*": True, "job_12": True}, "job_12"),
    ({"*": True, "job_*": False}, {"job_1*": False, "x": True}, "y"),
    ({"a": True}, {"b": False, "c*": False}, "a"),
])
def test_without_effect(open_one, messages: Callable, decoding, connect, settings, more, channel):
    """Guards: a setting that says what a shorter prefix says already writes nothing, neither when it comes nor when it
    goes; positions stay good, also after a restart."""
    session = open_one()
    put(session, settings)
    assert messages()
    looks(decoding, ANCHOR_LOOKS)
    token = position(session)
    put(session, more)
    put(session, dict.fromkeys(more))
    assert messages() == []
    session.execute("SELECT pg_notify(%s, 'x')", (channel,))
    with session.transaction():
        assert resume(session, channel, token)
    session.execute("UNLISTEN *")


def test_positions_outlive_what_has_no_effect(primary, connect):
    """Guards: the same for positions that are read from the WAL; a setting with an effect ends them."""
    session = connect(primary)
    token = position(session)
    put(session, {"log_1*": True, "log_12": True, "d": False})
    session.execute("NOTIFY log_12, 'x'")
    put(session, {"log_1*": None, "log_12": None})
    session.execute("NOTIFY log_12, 'y'")
    primary.restart()
    reader = connect(primary)
    assert reader.execute("SELECT payload FROM herald.read('log_12', %s) WHERE payload IS NOT NULL",
                          (token,)).fetchall() == [("x",), ("y",)]
    put(reader, {"log_12": False})
    put(reader, {"log_12": None})
    assert why_not(reader, "log_12", token)[0].startswith("Since the position the channel was not logged all the time")
    assert resume(reader, "log_3", token)
