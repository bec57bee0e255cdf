"""Sessions that fall behind with invalidations: idle ones catch up one at a time, each waking the next; one that cannot
is left alone, and if the queue overflows meanwhile, only that one has to forget everything."""

import threading

import psycopg
import pytest

from caching import FLOOD
from servers import SETTINGS, started
from support import one, stopped, until

# As in src/core/inval_queue.h.
QUEUE_SIZE = 16384
FAR_BEHIND = QUEUE_SIZE // 2
WRITE_QUANTUM = 64
LOOK_QUANTUM = QUEUE_SIZE // 16

IDLE = 100

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def caching():
    """A server with a cached table."""
    for cluster in started(preload=True, caches=True, settings=SETTINGS):
        cluster.psql("""
            CREATE TABLE item (id integer PRIMARY KEY, v integer);
            INSERT INTO item VALUES (1, 0);
            SELECT herald.cache_watch('item', 'item', 'id');
            CREATE FUNCTION item() RETURNS text LANGUAGE sql STABLE AS
                $$ SELECT herald.cache_through('item', 'SELECT v FROM item WHERE id = $1', 1) $$""")
        cluster.psql(FLOOD)
        yield cluster


@pytest.fixture
def writer(caching, connect):
    """A session that does not cache, once those of the previous test are gone."""
    writer = connect(caching)
    until(lambda: one(writer, "SELECT count(*) FROM herald.caches") == 0, "the last test's sessions are gone")
    writer.execute("UPDATE item SET v = 0; SELECT herald.reset_cache_stats()")
    return writer


@pytest.fixture
def sessions(caching, connect, writer):
    """sessions(count) opens `count` sessions that have item 1 in their caches."""
    def open_some(count: int) -> list[psycopg.Connection]:
        some = [connect(caching) for _ in range(count)]
        for session in some:
            assert one(session, "SELECT item()") == "0"
        return some

    return open_some


def flood(writer: psycopg.Connection, messages: int) -> None:
    """Sends this number of invalidations, of keys that no session caches, WRITE_QUANTUM at a time."""
    assert messages % WRITE_QUANTUM == 0
    writer.execute("CALL flood(%s, %s)", (messages // WRITE_QUANTUM, WRITE_QUANTUM))


def behind(writer: psycopg.Connection) -> dict[int, int | None]:
    """How far each session is behind, by its pid; None for one that has missed something."""
    return dict(writer.execute("SELECT pid, lag FROM herald.caches").fetchall())


def resets(writer: psycopg.Connection, session: psycopg.Connection) -> int:
    """How often this session had to forget everything."""
    return one(writer, "SELECT resets FROM herald.caches WHERE pid = %s", session.info.backend_pid)


def catch_ups(writer: psycopg.Connection) -> int:
    """The number of sessions that were signalled."""
    return one(writer, "SELECT catch_ups FROM herald.cache_stats")


def none_far_behind(writer: psycopg.Connection, *but: psycopg.Connection) -> bool:
    """Whether the chain has ended: no session, except these, is far behind."""
    left_out = {session.info.backend_pid for session in but}
    return all(lag is not None and lag < FAR_BEHIND
               for pid, lag in behind(writer).items() if pid not in left_out)


def still_cached(sessions: list[psycopg.Connection]) -> bool:
    """Whether they find what they have cached before, and none was reset."""
    for session in sessions:
        hits = "SELECT hits, resets FROM herald.caches WHERE pid = pg_backend_pid()"
        before, was_reset = session.execute(hits).fetchone()
        assert one(session, "SELECT item()") == "0"
        if session.execute(hits).fetchone() != (before + 1, 0) or was_reset:
            return False
    return True


def test_all_are_brought_up(sessions, writer):
    """Guards: a hundred idle sessions keep their cached values through invalidations of several times the queue's size,
    if the writer lets each chain come to its end; none is signalled twice for the same."""
    idle = sessions(IDLE)
    rounds = 3 * QUEUE_SIZE // LOOK_QUANTUM
    for _ in range(rounds):
        flood(writer, LOOK_QUANTUM)
        until(lambda: none_far_behind(writer), "all have caught up")
    brought_up = catch_ups(writer)
    assert 3 * IDLE <= brought_up <= 6 * IDLE, "each about once in half the queue's size"
    assert one(writer, "SELECT cache_resets FROM herald.cache_stats") == 0
    assert still_cached(idle)


def all_behind(writer: psycopg.Connection, first: psycopg.Connection, others: list[psycopg.Connection]) -> None:
    """Makes all fall far behind, the first one furthest, so that it is signalled; up to a check, not up to the next."""
    flood(writer, WRITE_QUANTUM)
    for session in others:
        session.execute("SELECT item()")
    flood(writer, FAR_BEHIND)
    assert min(behind(writer).values()) >= FAR_BEHIND
    assert behind(writer)[first.info.backend_pid] == FAR_BEHIND + WRITE_QUANTUM


def test_one_at_a_time(sessions, writer):
    """Guards: while one session has the turn no other is signalled; each hands it on, by itself; if one does not move, the
    next check gives the turn to another one."""
    first, *others = idle = sessions(20)
    with stopped(first.info.backend_pid):
        all_behind(writer, first, others)
        assert catch_ups(writer) == 1
        flood(writer, LOOK_QUANTUM)
        until(lambda: none_far_behind(writer, first), "the others have caught up")
        assert catch_ups(writer) == len(idle)
        assert one(writer, "SELECT turns_rescued FROM herald.cache_stats") == 1
    until(lambda: none_far_behind(writer), "all have caught up")
    assert catch_ups(writer) == len(idle)
    assert still_cached(idle)


def test_busy_ones_hold_up_none(sessions, writer):
    """Guards: sessions in transactions, more than there are checks until the queue overflows, are signalled without being
    waited for: a single check reaches the idle ones behind them."""
    busy, idle = sessions(20), sessions(5)
    for session in busy:
        stand_in_transaction(session)
    all_behind(writer, busy[0], busy[1:] + idle)
    assert catch_ups(writer) == 1  # the others were not far behind yet
    flood(writer, LOOK_QUANTUM)
    until(lambda: none_far_behind(writer, *busy), "the idle ones have caught up")
    assert catch_ups(writer) == len(busy) + len(idle)
    for session in busy:
        session.execute("COMMIT")
    until(lambda: none_far_behind(writer), "all have caught up")
    assert catch_ups(writer) == len(busy) + len(idle)
    assert still_cached(busy + idle)


def stand_in_transaction(session: psycopg.Connection) -> None:
    session.execute("BEGIN")
    session.execute("SELECT item()")


def stand_in_failed_block(session: psycopg.Connection) -> None:
    session.execute("BEGIN")
    with pytest.raises(psycopg.errors.DivisionByZero):
        session.execute("SELECT 1 / 0")


@pytest.mark.parametrize("how", [stand_in_transaction, stand_in_failed_block], ids=["in a transaction", "in a failed block"])
def test_stuck_one_is_reset_alone(sessions, writer, how):
    """Guards: a session that cannot read does not block the others, and when the queue overflows only that one forgets
    everything; it goes on with correct values."""
    stuck, *idle = sessions(20)
    how(stuck)
    flood(writer, LOOK_QUANTUM)
    for session in idle:
        session.execute("SELECT item()")
    for _ in range(2 * QUEUE_SIZE // LOOK_QUANTUM):
        flood(writer, LOOK_QUANTUM)
        until(lambda: none_far_behind(writer, stuck), "the others have caught up")
    assert behind(writer)[stuck.info.backend_pid] is None
    assert still_cached(idle)
    writer.execute("UPDATE item SET v = 1")
    if how == stand_in_failed_block:
        stuck.execute("ROLLBACK")
    assert one(stuck, "SELECT item()") == "1"
    assert resets(writer, stuck) == 1
    assert [resets(writer, session) for session in idle] == [0] * len(idle)
    assert one(writer, "SELECT cache_resets FROM herald.cache_stats") == 1


def test_flood_of_another_database(caching, connect, sessions, writer):
    """Guards: what is invalidated in another database makes no session forget anything, however much it is."""
    caching.psql("CREATE DATABASE flooding")
    caching.create_herald("flooding")
    caching.psql(FLOOD, "flooding")
    other = connect(caching, "flooding")
    others = "SELECT count(herald.cache_invalidate('c' || n % 60, n::text)) FROM generate_series(1, 40000) n"
    [stuck] = sessions(1)
    stand_in_transaction(stuck)
    for _ in range(3):
        for _ in range(8):
            other.execute(others)
        flood(other, QUEUE_SIZE)
    stuck.execute("COMMIT")
    assert still_cached([stuck])
    assert resets(writer, stuck) == 0

    # An invalidation of its own database, among those of the other.
    stand_in_transaction(stuck)
    writer.execute("UPDATE item SET v = 1")
    flood(other, QUEUE_SIZE)
    stuck.execute("COMMIT")
    assert one(stuck, "SELECT item()") == "1"
    assert resets(writer, stuck) == 1
    other.close()
    until(lambda: one(writer, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'flooding'") == 0, "it is closed")
    caching.psql("DROP DATABASE flooding")


def test_holder_of_the_turn_exits(sessions, writer):
    """Guards: a session that has the turn hands it on when its client closes the connection, without another message."""
    first, *idle = sessions(10)
    with stopped(first.info.backend_pid):
        all_behind(writer, first, idle)
        assert catch_ups(writer) == 1
        first.close()
    until(lambda: none_far_behind(writer), "the others have caught up")
    until(lambda: len(behind(writer)) == len(idle), "the first has left")
    assert still_cached(idle)


def test_queue_holds_what_it_says(sessions, writer):
    """Guards: a session that is behind by the queue's length has missed nothing; with one more transaction it has."""
    edge, over = sessions(2)
    for session in (edge, over):
        stand_in_transaction(session)
    flood(writer, QUEUE_SIZE)
    assert one(edge, "SELECT item()") == "0"
    flood(writer, WRITE_QUANTUM)
    assert one(over, "SELECT item()") == "0"
    assert (resets(writer, edge), resets(writer, over)) == (0, 1)


def test_end_of_transaction_catches_up(sessions, writer):
    """Guards: a session that was signalled within a transaction reads when that ends, without any statement."""
    session, = sessions(1)
    for end in ("COMMIT", "ROLLBACK"):
        stand_in_transaction(session)
        flood(writer, FAR_BEHIND + LOOK_QUANTUM)
        session.execute(end)
        until(lambda: none_far_behind(writer), f"it has caught up after {end}")
    assert still_cached([session])


def test_keeps_up_under_load(sessions, writer):
    """Guards: a session that looks up before it is behind by the queue's length is never reset, although one that does
    not read is reset every time."""
    busy, stuck = sessions(2)
    for _ in range(8):
        stand_in_transaction(stuck)
        flood(writer, QUEUE_SIZE // 2)
        assert one(busy, "SELECT item()") == "0"
        flood(writer, QUEUE_SIZE // 2 + WRITE_QUANTUM)
        assert one(busy, "SELECT item()") == "0"
        stuck.execute("SELECT item(); COMMIT")
    assert resets(writer, busy) == 0
    assert resets(writer, stuck) == 8


def test_several_writers(caching, connect, sessions, writer):
    """Guards: concurrent floods from several sessions lose no invalidation for a reader, reset or not."""
    readers = sessions(3)
    floods = [threading.Thread(target=flood, args=(connect(caching), 2 * QUEUE_SIZE)) for _ in range(3)]
    for thread in floods:
        thread.start()
    version = 0
    while any(thread.is_alive() for thread in floods):
        version += 1
        writer.execute("UPDATE item SET v = %s", (version,))
        for reader in readers[:1 + version % 3]:
            assert one(reader, "SELECT item()") == str(version)
    for thread in floods:
        thread.join()
    assert [one(reader, "SELECT item()") for reader in readers] == [str(version)] * 3
    assert version > 1


def test_slots_are_used_again(sessions, writer):
    """Guards: a session in the slot of one that has exited starts afresh, whatever was left to read there."""
    for number in range(30):
        gone, = sessions(1)
        stand_in_transaction(gone)
        flood(writer, QUEUE_SIZE + WRITE_QUANTUM if number % 3 == 0 else WRITE_QUANTUM)
        gone.close()
    until(lambda: behind(writer) == {}, "all are gone")
    session, = sessions(1)
    assert writer.execute("SELECT entries, hits, misses, invalidations, resets, lag FROM herald.caches"
                          ).fetchall() == [(1, 0, 1, 0, 0, 0)]
    flood(writer, FAR_BEHIND + 2 * LOOK_QUANTUM)
    until(lambda: none_far_behind(writer), "it has caught up")
    assert still_cached([session])
