"""Guards: a failing schedule is printed so that a person can replay it."""

from schedule import SYNC, Schedule, Statement, Step, script
from statements import plain


def test_script():
    """Guards: every step names its connection, and psql sends together what was sent together."""
    assert script([
        Step(2, "simple", (plain("BEGIN"), plain("NOTIFY a"))),
        Step(0, "extended", (Statement("SELECT pg_notify($1, $2)", ("a", "it's")),)),
        Step(1, "pipeline", (plain("NOTIFY a"), plain("NOTIFY b"), SYNC, plain("SELECT 1"))),
        Step(1, "herald", (plain("SET herald.enabled = off"),)),
        Step(3, "reconnect", ()),
    ], "-- first") == """\
-- first
-- step 1, connection 2
BEGIN \\; NOTIFY a;
-- step 2, connection 0, extended protocol
SELECT pg_notify('a', 'it''s');
-- step 3, connection 1, pipeline; up to each Sync, one transaction
NOTIFY a \\; NOTIFY b;
-- Sync
SELECT 1;
-- Sync
-- step 4, connection 1, only with pg_herald
SET herald.enabled = off;
-- step 5, connection 3: end it, and open another
"""


def test_arguments():
    """Guards: an argument replaces only the parameter of its own number, even if it looks like another."""
    assert Statement("SELECT $1, $2, $1", ("$2", None)).text() == "SELECT '$2', NULL, '$2'"


def test_replay_in_psql(player):
    """Guards: psql accepts a script, and sends the notifications in it."""
    steps = [Step(0, "simple", (plain("LISTEN a"),)),
             Step(0, "simple", (plain("BEGIN"), plain("NOTIFY a, 'one'"), plain("COMMIT"))),
             Step(0, "pipeline", (plain("NOTIFY a, 'two'"), SYNC, plain("NOTIFY a, 'three'")))]
    player.play(Schedule(tuple(steps)))
    heard = player.sides[1].cluster.psql(script(steps, "-- all"), "one")
    assert [line.split('"')[3] for line in heard.splitlines()] == ["one", "two", "three"]
