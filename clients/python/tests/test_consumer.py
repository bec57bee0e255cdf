"""What a consumer does on real servers, with each driver."""

import threading

import pytest

from pg_herald import HandlerError, events

def state_is_noted(reason):
    """A state that leaves a trace."""
    return [("INSERT INTO done VALUES ('state', $1)", reason)]


def test_it_misses_nothing(database, subject):
    """Guards: the first start reads the state; what came while the consumer was away is handled once, in order."""
    first = subject(database.uri(), state=state_is_noted).listen()
    database.notify(1, 2)
    database.notify(3)
    database.until_done("state", 1, 2, 3)
    assert first.reasons() == ["first start"] and not first.events(events.Listening)[0].resumed
    first.stop()
    assert first.error is None and isinstance(first.seen[-1], events.Stopped)
    database.notify(4, 5)
    second = subject(database.uri(), state=state_is_noted).listen()
    assert second.events(events.Listening)[0].resumed and second.events(events.Active)[0].epoch == 2
    database.until_done("state", 1, 2, 3, 4, 5)
    database.terminate()
    database.notify(6)
    database.until_done("state", 1, 2, 3, 4, 5, 6)
    second.stop()
    assert not second.reasons()


def test_stock_server(stock, subject):
    """Guards: on a stock server the state is read at each connection, and silence is no reason to leave it."""
    consumer = subject(stock.uri(), state=state_is_noted, heartbeat=0.2).listen()
    stock.notify(1)
    stock.until_done("state", 1)
    queries = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s) AND query = 'SELECT 1'"
    stock.until(lambda: stock.one(queries, stock.others()), "it asks for a sign of life")
    stock.notify(2)
    stock.until_done("state", 1, 2)
    assert not consumer.events(events.Disconnected)
    stock.terminate()
    consumer.wait(events.Listening, consumer.mark() - 1 if consumer.events(events.Disconnected) else consumer.mark())
    consumer.stop()
    assert consumer.reasons() == ["stock", "stock"]
    assert stock.sql("SELECT position, epoch FROM herald_consumer") == [(None, 2)]


def test_position_is_gone(database, subject):
    """Guards: after a restart of the server the state is read once, and the position that is stored with it is good."""
    consumer = subject(database.uri(), state=state_is_noted).listen()
    database.notify(1)
    database.until_done("state", 1)
    since = consumer.mark()
    database.restart()
    consumer.wait(events.Listening, since, resumed=False)
    assert consumer.reasons() == ["first start", "gone"]
    since = consumer.mark()
    database.terminate()
    consumer.wait(events.Listening, since, resumed=True)
    database.notify(2)
    database.until_done("state", 1, "state", 2)
    consumer.stop()


def test_large_transaction(database, subject):
    """Guards: a transaction with more notifications than a batch is handled in parts, in one transaction."""
    sizes = []

    def work(batch):
        sizes.append(len(batch))
        return [("INSERT INTO done SELECT unnest($1::text[])", [each.payload for each in batch])]

    consumer = subject(database.uri(), work=work, batch=100).listen()
    database.notify(*range(1050))
    database.until_done(*range(1050))
    assert database.one("SELECT count(DISTINCT xmin::text) FROM done") == 1
    assert max(sizes) == 100 and consumer.wait(events.Handled).count == 1050
    consumer.stop()


def test_large_transaction_fails(database, subject):
    """Guards: what was handled in parts, and failed in the middle, comes again; the one that always fails is skipped."""
    seen = []

    def work(batch):
        seen.append(len(batch))
        yield from [("INSERT INTO done VALUES ($1, $2)", each.payload, each.channel) for each in batch]
        if any(each.payload == "77" for each in batch):
            yield ValueError("77")

    def poison(notification, error):
        return [("INSERT INTO done VALUES ('poison', $1)", notification.payload), "skip"]

    consumer = subject(database.uri(), work=work, poison=poison, batch=50, attempts=2).listen()
    database.notify(*range(120))
    consumer.wait(events.Handled)
    database.until_done(*range(77), "poison", *range(78, 120))
    assert len(consumer.events(events.Failing)) == len(consumer.events(events.Disconnected)) == 2
    assert seen[:4] == [50, 50, 50, 50] and seen[4:] == [1] * 120
    consumer.stop()


@pytest.mark.parametrize("decision", ["stop", None])
def test_poison_stops(database, subject, decision):
    """Guards: the consumer ends with the error, and nothing of its batch is committed."""
    def work(batch):
        yield from [("INSERT INTO done VALUES ($1, $2)", each.payload, each.channel) for each in batch]
        if batch[-1].payload == "3":
            yield ValueError("not 3")

    poison = None if decision is None else lambda notification, error: [decision]
    consumer = subject(database.uri(), work=work, poison=poison, attempts=2).listen()
    position = "SELECT position FROM herald_consumer"
    before = database.one(position)
    database.notify(1, 2, 3)
    error = consumer.has_ended()
    assert isinstance(error, HandlerError) and isinstance(error.cause, ValueError) and error.notification.payload == "3"
    assert (database.done(), database.one(position)) == ([], before)
    poisoned, = consumer.events(events.Poison)
    assert (poisoned.payload, poisoned.decision) == ("3", "stop")
    assert consumer.seen[-1].error is error


def test_swallowed_error(database, subject):
    """Guards: a handler that hides an error of its transaction has not succeeded."""
    times = []

    def work(batch):
        times.append(1)
        if len(times) == 1:
            yield swallow
        yield ("INSERT INTO done VALUES ($1)", batch[0].payload)

    def swallow():
        database.terminate("query NOT LIKE '%LISTEN%' AND state = 'idle in transaction'")

    consumer = subject(database.uri(), work=work).listen()
    database.notify(1)
    database.until_done(1)
    consumer.stop()
    assert len(times) == 2 and len(consumer.events(events.Handled)) == 1


def test_handler_breaks_its_connection(database, subject):
    """Guards: a handler whose connection breaks each time ends the consumer, which names the notification."""
    def work(batch):
        for each in batch:
            if each.payload == "2":
                yield ("SELECT pg_terminate_backend(pg_backend_pid())",)
            yield ("INSERT INTO done VALUES ($1)", each.payload)

    consumer = subject(database.uri(), work=work, attempts=2, poison=lambda notification, error: ["skip"]).listen()
    database.notify(1, 2, 3)
    error = consumer.has_ended()
    assert isinstance(error, HandlerError) and error.notification.payload == "2"
    assert len(consumer.events(events.Disconnected)) == 3 and not consumer.events(events.Failing)
    assert database.done() == []


def test_state_fails(database, subject):
    """Guards: a state that fails is repeated, and ends the consumer after its attempts."""
    times = []

    def state(reason):
        times.append(reason)
        yield ("INSERT INTO done VALUES ('state')",)
        yield ValueError("no state")

    consumer = subject(database.uri(), state=state, attempts=3).start()
    assert isinstance(consumer.has_ended().cause, ValueError)
    assert times == ["first start"] * 3 and database.done() == []
    assert database.one("SELECT position FROM herald_consumer") is None


def test_work_takes_too_long(database, subject):
    """Guards: work that waits for ever is left after work_timeout, and done again."""
    consumer = subject(database.uri(), work_timeout=0.5).listen()
    with database.connect() as blocker:
        blocker.execute("BEGIN; LOCK TABLE done")
        database.notify(1)
        assert isinstance(consumer.wait(events.Disconnected).error, TimeoutError)
    database.until_done(1)
    consumer.stop()


def test_one_is_active(database, subject):
    """Guards: the second instance waits, and takes over."""
    first = subject(database.uri()).listen()
    second = subject(database.uri()).start()
    second.wait(events.Waiting)
    first.stop()
    second.wait(events.Listening)
    assert [event.epoch for each in (first, second) for event in each.events(events.Active)] == [1, 2]
    database.notify(1)
    database.until_done(1)
    third = subject(database.uri()).start()
    third.wait(events.Waiting)
    third.stop()
    assert not third.events(events.Active)
    second.stop()


def test_superseded(database, subject):
    """Guards: one that has lost its place without noticing undoes its batch, and becomes active again by the lock."""
    consumer = subject(database.uri()).listen()
    database.sql("UPDATE herald_consumer SET epoch = epoch + 1")
    database.notify(1)
    consumer.wait(events.Superseded)
    consumer.wait(events.Active, epoch=3)
    database.until_done(1)
    consumer.stop()


class Memory:
    """A store of the user's own."""

    def __init__(self, position=None):
        self.position, self.saved, self.fail = position, threading.Event(), False

    def load(self):
        """The position."""
        return self.position

    def save(self, position):
        """Keeps it."""
        if self.fail:
            raise OSError("the disk is full")
        self.position = position
        self.saved.set()


def test_own_store(database, subject):
    """Guards: with a store of the user's own the table is not needed; a save that fails is tried again."""
    database.sql("DROP TABLE herald_consumer")
    store, seen = Memory(), []

    def work(batch):
        seen.extend(each.payload for each in batch)
        return []

    consumer = subject(database.uri(), work=work, store=store).listen()
    assert store.position and consumer.reasons() == ["first start"]
    store.fail = True
    database.notify(1)
    consumer.wait(events.Disconnected)
    store.fail = False
    since = consumer.mark()
    consumer.wait(events.Handled, since)
    consumer.stop()
    database.notify(2)
    second = subject(database.uri(), work=work, store=store).listen()
    database.until(lambda: seen[-1] == "2", "it resumes")
    second.stop()
    assert not second.reasons() and set(seen) == {"1", "2"}


def test_shared(database, subject):
    """Guards: each process receives everything from its start on, over breaks of its connection; it needs no table."""
    database.sql("DROP TABLE herald_consumer")
    seen = {}

    def note(name):
        return lambda batch: seen.setdefault(name, []).extend(each.payload for each in batch) or []

    both = [subject(database.uri(), work=note(name), shared=True).listen() for name in "ab"]
    for number in range(3):
        since = [each.mark() for each in both]
        database.notify(3 * number)
        database.terminate()
        database.notify(3 * number + 1)
        for each, mark in zip(both, since):
            each.wait(events.Listening, mark, resumed=True)
        database.notify(3 * number + 2)
    for name in "ab":
        database.until(lambda name=name: len(set(seen.get(name, []))) == 9, "everything has come")
    for each in both:
        each.stop()
        assert each.reasons() == ["first start"]
    assert [list(dict.fromkeys(seen[name])) for name in "ab"] == [[str(number) for number in range(9)]] * 2


def test_several_channels(database, subject):
    """Guards: odd names of channels, and a payload in another script."""
    odd = 'Ä "b" \\ \' %s $1'
    consumer = subject(database.uri(), channels=["orders", odd]).listen()
    database.notify("größe", channel=odd)
    database.notify("no", channel="Orders")
    database.notify(2)
    database.until_done("größe", 2)
    assert database.sql("SELECT channel FROM done") == [(odd,), ("orders",)]
    consumer.stop()


def test_position_without_notifications(database, subject, monkeypatch):
    """Guards: it is stored now and then, so that it does not age."""
    monkeypatch.setattr("pg_herald._engine.POSITION_INTERVAL_S", 0)
    consumer = subject(database.uri(), heartbeat=0.2).listen()
    position = "SELECT position FROM herald_consumer"
    first = database.one(position)
    database.notify("something else", channel="another")
    database.until(lambda: database.one(position) != first, "another position is stored")
    consumer.stop()
    assert not consumer.events(events.Handled)
