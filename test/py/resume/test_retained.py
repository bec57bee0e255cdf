"""What is kept for clients that reconnect: herald.retain_size, and the columns of the views."""

import pytest

from laggards import SMALLEST, files
from resume import position, read, resume
from servers import SETTINGS, started
from support import hear, notify, one, outcome, until

KILOBYTES_7 = "x" * 7000
RING = 512 * 1024
RETAINED = 1024 * 1024


@pytest.fixture
def retaining():
    """A server with the smallest queue memory, which retains a megabyte of files."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST | {
        "herald.retain_size": "1MB", "herald.max_queue_size": "4MB"})


def fill(sender, count: int) -> None:
    """Sends `count` notifications of 7 kB each."""
    sender.execute("DO $$ BEGIN FOR n IN 1 .. %s LOOP PERFORM pg_notify('c', n || '%s'); COMMIT; END LOOP; END $$"
                   % (count, KILOBYTES_7))


def queue(client, column: str) -> object:
    """A column of herald.queue."""
    return one(client, f"SELECT {column} FROM herald.queue")


def test_size(retaining, connect):
    """Guards: as much is kept as the memory and herald.retain_size hold, and no more; the views show it; retained
    notifications that no listener needs do not count as usage."""
    sender = connect(retaining)
    began = one(sender, "SELECT clock_timestamp()")
    tokens = []
    for _ in range(40):
        tokens.append(position(sender))
        fill(sender, 10)
        assert queue(sender, "spilled") <= RETAINED
    kept = queue(sender, "kept_bytes")
    assert RETAINED - RING / 8 < kept < RETAINED + RING
    assert queue(sender, "usage") < 0.01
    assert began < queue(sender, "kept_since") < one(sender, "SELECT clock_timestamp()")
    answers = [resume(connect(retaining), "c", token) for token in tokens]
    assert answers == sorted(answers) and 70 * 7000 * 2 < answers.count(True) * 70000 < kept + 70000

    # The housekeeper makes room for one more segment, which is smaller than what comes between two tokens.
    second = answers.index(True) + 1
    assert len(read(sender, "c", tokens[second])[0]) == (40 - second) * 10


def test_retaining_is_switched_off(retaining, connect):
    """Guards: after a reload with herald.retain_size = 0 no file remains."""
    sender = connect(retaining)
    token = position(sender)
    fill(sender, 100)
    assert resume(connect(retaining), "c", token)
    sender.execute("ALTER SYSTEM SET herald.retain_size = 0")
    sender.execute("SELECT pg_reload_conf()")
    until(lambda: not files(retaining.data), "the files are deleted")
    assert resume(connect(retaining), "c", token) is False


def test_backlog_comes_first(retaining, connect):
    """Guards: retained notifications are deleted before any that a laggard has not read."""
    sender, laggard = connect(retaining), connect(retaining)
    fill(sender, 300)
    for statement in ("LISTEN c", "BEGIN", "SELECT 1"):
        laggard.execute(statement)
    fill(sender, 480)  # 3.4 MB, with the ring less than the limit
    assert one(sender, "SELECT segments_dropped + overruns FROM herald.stats") == 0
    laggard.execute("COMMIT")
    assert len(hear(laggard, 480)) == 480


def test_large_transactions_are_retained(retaining, connect):
    """Guards: the file of a large transaction is retained like others, and counts towards the limit."""
    sender, listener = connect(retaining), connect(retaining)
    token = position(sender)
    sender.execute(f"SELECT count(pg_notify('c', n || '{KILOBYTES_7}')) FROM generate_series(1, 50) n")
    assert resume(listener, "c", token)
    assert [payload.rstrip("x") for payload in hear(listener, 50)] == [str(n) for n in range(1, 51)]
    listener.close()
    for _ in range(4):
        sender.execute(f"SELECT count(pg_notify('d', n || '{KILOBYTES_7}')) FROM generate_series(1, 50) n")
    until(lambda: queue(sender, "spilled") <= RETAINED, "the oldest are deleted")
    assert resume(connect(retaining), "c", token) is False


def test_shown_at_once(retaining, connect):
    """Guards: the views show what is kept even if that is little, or nothing."""
    sender = connect(retaining)
    assert queue(sender, "kept_bytes") == 0 and queue(sender, "kept_since") is None
    began = one(sender, "SELECT clock_timestamp()")
    notify(sender, "c", "1")
    assert queue(sender, "kept_bytes") > 0
    assert began < queue(sender, "kept_since") < one(sender, "SELECT clock_timestamp()")


def test_large_and_rolled_back(retaining, connect):
    """Guards: the files of large transactions that were rolled back are deleted."""
    sender = connect(retaining)
    large = "SELECT count(pg_notify('c', n || repeat('x', 2000))) FROM generate_series(1, 400) n"
    sender.execute(large)
    assert queue(sender, "spilled") > 0
    kept = queue(sender, "spilled")
    for _ in range(5):
        sender.execute("BEGIN")
        sender.execute(large)
        sender.execute("ROLLBACK")
    until(lambda: queue(sender, "spilled") <= kept, "those that were rolled back are deleted")


@pytest.fixture
def plain():
    """A server with the smallest queue memory, which retains no files."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST)


@pytest.mark.parametrize("payload", [0, 100, 1000])
def test_formula(retaining, connect, payload):
    """Guards: a position is good for as many notifications as the formula of docs/resume.md gives, each in its own
    transaction, but for a segment (an eighth of the memory) there and in the files; and not for more than there is
    room for."""
    sender = connect(retaining)
    expected = (RING * 3 / 4 + RETAINED) / (64 + payload)
    step = int(expected / 50)
    tokens = []
    for _ in range(75):
        tokens.append(position(sender))
        sender.execute("DO $$ BEGIN FOR n IN 1 .. %s LOOP PERFORM pg_notify('c', repeat('x', %s)); COMMIT; END LOOP; END $$"
                       % (step, payload))
    good = sum("55000" not in str(outcome(sender, f"SELECT FROM herald.read('c', '{token}', 1)")) for token in tokens)
    assert good * step * (64 + payload) > RING * 3 / 4 + RETAINED - RING / 4 - 2 * step * (64 + payload)
    assert (good - 2) * step * (56 + payload) < RING + RETAINED  # what they take before it is rounded up


def test_memory_alone(plain, connect):
    """Guards: three quarters of the memory are kept at any time, also just after a segment was overwritten."""
    sender = connect(plain)
    fill(sender, RING // 7000)
    kept = []
    for _ in range(100):
        fill(sender, 2)
        kept.append(queue(sender, "kept_bytes"))
    assert min(kept) >= RING * 3 / 4 and max(kept) <= RING
    assert queue(sender, "spilled") == 0


def test_by_default(cluster, connect):
    """Guards: with the default settings a large transaction invalidates no earlier position, for any channel, and a
    waiting client can read it page by page."""
    sender, reader = connect(cluster), connect(cluster)
    token = position(sender)
    sender.execute(f"SELECT count(pg_notify('night', n || '{KILOBYTES_7}')) FROM generate_series(1, 1500) n")
    notify(sender, "c", "1")
    assert read(reader, "c", token, 10, "20s")[0] == ["1"]
    assert resume(connect(cluster), "c", token) is True
    seen = 0
    while seen < 1500:
        payloads, token = read(reader, "night", token, 1000, "20s")
        seen += len(payloads)
        assert payloads[-1] == f"{seen}{KILOBYTES_7}"


def test_large_transaction_of_others(plain, connect):
    """Guards: if nothing is retained, a large transaction whose file is deleted invalidates earlier positions for its
    own channels, and for few others."""
    sender = connect(plain)
    token = position(sender)
    notify(sender, "before", "1")
    sender.execute(f"SELECT count(pg_notify('night', n || '{KILOBYTES_7}')) FROM generate_series(1, 30) n")
    until(lambda: not files(plain.data), "its file is gone")
    for number in range(40):
        notify(sender, f"c{number}", str(number))
    listeners = [connect(plain) for _ in range(42)]
    channels = ["before", *(f"c{number}" for number in range(40)), "night"]
    answers = [resume(listener, channel, token) for listener, channel in zip(listeners, channels)]
    assert answers[-1] is False and answers.count(True) > 30
    for listener, channel, answer in zip(listeners, channels, answers):
        assert hear(listener, 1, 20 if answer else 0.1) == ([channel.replace("before", "c1")[1:]] if answer else [])
        if channel != "night":
            assert len(read(sender, channel, token)[0]) == 1
    assert outcome(sender, "SELECT herald.read('night', %s)", token).startswith("55000: ")
