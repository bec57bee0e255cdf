"""herald.channels counts the notifications sent on each channel, and those that its listeners receive, each once."""

from random import Random

import pytest

from support import hear, load, notify, one, until

# The number of channels that a dispatcher remembers at a time.
REMEMBERED = 64


def counted(watcher, channel: str) -> tuple:
    """The channel's row, without the times."""
    return watcher.execute("SELECT listeners, sent, delivered FROM herald.channels WHERE channel = %s",
                           (channel,)).fetchone()


def test_sent_and_delivered(cluster, connect):
    """Guards: a notification counts once as sent, and once for each listener; duplicates and rollbacks do not count."""
    first, second, sender = connect(cluster), connect(cluster), connect(cluster)
    first.execute("LISTEN c")
    notify(sender, "c", "1", "2")
    assert hear(first, 2) == ["1", "2"]
    second.execute("LISTEN c")
    with sender.transaction():
        notify(sender, "c", "3", "3", "4", "5")
        notify(sender, "elsewhere", "6")
    sender.execute("BEGIN")
    notify(sender, "c", "7")
    sender.execute("ROLLBACK")
    for listener in (first, second):
        assert hear(listener, 3) == ["3", "4", "5"]
    until(lambda: counted(sender, "c") == (2, 5, 8), "8 are delivered")
    assert counted(sender, "elsewhere") is None


def test_since_the_first_listener(cluster, connect):
    """Guards: a channel's counters end with its last listener, not with an earlier one."""
    first, second, sender = connect(cluster), connect(cluster), connect(cluster)
    notify(sender, "c", "unheard")
    before = one(sender, "SELECT clock_timestamp()")
    for listener in (first, second):
        listener.execute("LISTEN c")
    notify(sender, "c", "1")
    sent_by = one(sender, "SELECT clock_timestamp()")
    first.execute("UNLISTEN c")
    until(lambda: counted(sender, "c") == (1, 1, 2), "both have it")
    assert sender.execute("SELECT %s < stats_since, stats_since < last_sent, last_sent < %s FROM herald.channels",
                          (before, sent_by)).fetchall() == [(True, True, True)]
    second.execute("UNLISTEN c")
    assert counted(sender, "c") is None
    second.execute("LISTEN c")
    assert sender.execute("SELECT sent, delivered, last_sent FROM herald.channels").fetchall() == [(0, 0, None)]


def test_reset(cluster, connect):
    """Guards: herald.reset_stats() resets the channels too, of all databases, and counting goes on."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    notify(sender, "c", "1")
    until(lambda: counted(sender, "c") == (1, 1, 1), "it is counted")
    sender.execute("SELECT herald.reset_stats()")
    assert sender.execute("SELECT c.sent, c.delivered, c.last_sent, c.stats_since = s.stats_reset"
                          " FROM herald.channels c, herald.stats s").fetchall() == [(0, 0, None, True)]
    notify(sender, "c", "2", "3")
    until(lambda: counted(sender, "c") == (1, 2, 2), "it counts on")


@pytest.mark.parametrize("channels", [3, 3 * REMEMBERED])
def test_many_in_one_transaction(cluster, connect, channels):
    """Guards: a channel that occurs again is counted, also if the dispatcher has forgotten it in between."""
    random = Random(channels)
    listener, sender = connect(cluster), connect(cluster)
    names = [f"c{number}" for number in range(channels)]
    listener.execute(" ; ".join(f"LISTEN {name}" for name in names))
    sent = [random.choice(names) for _ in range(20 * channels)]
    with sender.transaction():
        for number, name in enumerate(sent):
            notify(sender, name, str(number))
    assert hear(listener, len(sent)) == [str(number) for number in range(len(sent))]
    expected = {(name, sent.count(name), sent.count(name)) for name in names}
    until(lambda: set(sender.execute("SELECT channel, sent, delivered FROM herald.channels")) == expected,
          "each is counted")


def test_counters_of_a_large_transaction(cluster, connect):
    """Guards: notifications in the file of a large transaction are counted by channel, too."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute("LISTEN a; LISTEN b")
    count = 3000
    sender.execute("SELECT pg_notify(CASE WHEN i %% 3 = 0 THEN 'a' ELSE 'b' END, i || repeat('x', 2000))"
                   " FROM generate_series(1, %s) i", (count,))
    assert len(hear(listener, count)) == count
    until(lambda: [counted(sender, channel) for channel in "ab"] ==
          [(1, count // 3, count // 3), (1, count * 2 // 3, count * 2 // 3)], "each is counted")
    assert one(sender, "SELECT size / 8 FROM herald.queue") < count * 2000, "a segment does not hold it"


def test_counters_of_many_senders(cluster, connect):
    """Guards: no count is lost when many sessions dispatch for each other, while channels are added and removed."""
    listeners, sender, passing = [connect(cluster) for _ in range(3)], connect(cluster), connect(cluster)
    for listener in listeners:
        listener.execute("LISTEN c")
    sender.execute("SELECT herald.reset_stats()")
    heard = [0, 0, 0]
    with load(cluster, "BEGIN; NOTIFY c; NOTIFY d; NOTIFY c, 'again'; COMMIT;", 8):
        rounds = 0
        while rounds < 100 or one(sender, "SELECT batches FROM herald.stats") < 500:
            passing.execute("LISTEN d; UNLISTEN d")
            heard = [so_far + len(hear(listener, 1000, 0.001)) for so_far, listener in zip(heard, listeners)]
            rounds += 1
    until(lambda: not one(sender, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'"), "all end")
    sent = 2 * one(sender, "SELECT batches FROM herald.stats")
    # A listener that is more than some 280 transactions behind has a full socket, and delivers only while it is read.
    rest = [hear(listener, sent - so_far) for so_far, listener in zip(heard, listeners)]
    assert [so_far + len(last) for so_far, last in zip(heard, rest)] == [sent] * 3
    until(lambda: counted(sender, "c") == (3, sent, 3 * sent), f"{sent} are delivered to each")


def test_databases(cluster, connect, database):
    """Guards: channels of the same name in two databases are separate."""
    here, there, sender = connect(cluster), connect(cluster, database), connect(cluster)
    there.execute("CREATE EXTENSION pg_herald")
    for listener in (here, there):
        listener.execute("LISTEN c")
    notify(sender, "c", "1")
    until(lambda: counted(sender, "c") == (1, 1, 1), "it is counted here")
    assert counted(there, "c") == (1, 0, 0)


def test_who_sees_what(cluster, connect):
    """Guards: a role does not see the counters of sessions that it may not see."""
    admin, listener = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    notify(admin, "c", "1")
    until(lambda: counted(admin, "c") == (1, 1, 1), "it is counted")
    admin.execute("CREATE ROLE visitor LOGIN")
    visitor = connect(cluster)
    visitor.execute("SET SESSION AUTHORIZATION visitor")
    try:
        assert counted(visitor, "c") is None
        visitor.execute("LISTEN c")
        assert counted(visitor, "c") == (1, 1, None)
        assert counted(admin, "c") == (2, 1, 1)
    finally:
        visitor.close()
        admin.execute("DROP ROLE visitor")
