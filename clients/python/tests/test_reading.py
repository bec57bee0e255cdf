"""A handler that is slower than what comes: memory stays bounded."""

import threading

import pytest

from pg_herald import events

BATCH = 100
MANY = 30_000
PAYLOAD = 500  # bytes; together more than what sockets buffer
CHUNK = 256 * 1024  # asyncio reads so much at once
DEADLINE_S = 60


def send(database):
    """Sends many notifications, 100 in a transaction."""
    database.sql(f"""DO $$ BEGIN
        FOR part IN 0..{MANY // 100 - 1} LOOP
            PERFORM pg_notify('orders', rpad((100 * part + n)::text || ' ', {PAYLOAD}, 'x')) FROM generate_series(0, 99) n;
            COMMIT;
        END LOOP;
    END $$""")


def insert(batch):
    """The work: the number of each notification."""
    return ("INSERT INTO done SELECT unnest($1::text[])", [each.payload.split()[0] for each in batch])


def waiting(consumer):
    """The number of notifications that it has received and not handled."""
    return consumer.consumer._runtime.collector.waiting


def until_all_done(database):
    """Waits until all of them were handled, once and in order."""
    database.until(lambda: database.one("SELECT count(*) FROM done") >= MANY, "everything is handled")
    assert database.done() == list(map(str, range(MANY)))


def test_slow_handler(database, subject):
    """Guards: while a handler works, the server keeps what comes."""
    go_on, sizes = threading.Event(), []

    def work(batch):
        sizes.append(len(batch))
        yield lambda: go_on.wait(DEADLINE_S) and None
        yield insert(batch)

    consumer = subject(database.uri(), work=work, batch=BATCH).listen()
    send(database)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s) AND wait_event = 'ClientWrite'"
    database.until(lambda: database.one(waits, database.others()), "the server cannot send more")
    assert waiting(consumer) <= BATCH + CHUNK // PAYLOAD
    go_on.set()
    until_all_done(database)
    consumer.stop()
    assert not consumer.events(events.Disconnected)
    assert max(sizes) == BATCH


def test_many_are_resumed(database, subject):
    """Guards: what was sent while the consumer was away is not all taken into memory, although it comes before the answer to
    the COMMIT that begins to listen."""
    most = []

    def work(batch):
        most.append(waiting(consumer))
        return [insert(batch)]

    subject(database.uri()).listen().stop()
    send(database)
    consumer = subject(database.uri(), work=work, batch=BATCH).start()
    until_all_done(database)
    consumer.stop()
    assert max(most) <= BATCH + CHUNK // PAYLOAD
    assert not consumer.reasons() and not consumer.events(events.Disconnected)


@pytest.mark.parametrize("subject", ["asyncpg"], indirect=True)
def test_driver_that_cannot_stop_reading(database, subject, monkeypatch):
    """Guards: then the connection is given up, what is complete is handled, and the rest is resumed."""
    monkeypatch.setattr("pg_herald.asyncpg._can_pause", lambda transport: False)
    most = []

    def work(batch):
        most.append(waiting(consumer))
        return [("SELECT pg_sleep(0.005)",), insert(batch)]

    consumer = subject(database.uri(), work=work, batch=BATCH).listen()
    send(database)
    until_all_done(database)
    consumer.stop()
    assert max(most) <= 1000 + 2 * BATCH + CHUNK // PAYLOAD  # a position comes after 1,000
    assert consumer.events(events.Disconnected) and consumer.reasons() == ["first start"]
