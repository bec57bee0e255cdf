"""Networks that go silent."""

import time

import pytest
from wire import Wire

from pg_herald import events

WORK_TIMEOUT_S = 1


@pytest.fixture
def wires(servers):
    """wires(database) makes a proxy before its server."""
    made = []

    def make(database):
        made.append(Wire(database.address))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("server", ["database", "stock"])
def test_listening_connection_is_silent(request, subject, wires, server):
    """Guards: the consumer leaves it by itself, and goes on with another one."""
    database = request.getfixturevalue(server)
    wire = wires(database)
    consumer = subject(database.uri(wire.port), work_connection=database.uri()).listen()
    database.notify(1)
    database.until_done(1)
    since = consumer.mark()
    wire.mute()
    event = consumer.wait(events.Disconnected, since)
    assert isinstance(event.error, TimeoutError), event
    consumer.wait(events.Listening, since, stock=server == "stock")
    database.notify(2)
    database.until_done(1, 2)
    consumer.stop()


def test_work_connection_is_silent(database, subject, wires):
    """Guards: the consumer leaves it after work_timeout, and waits for its lock until the server has ended the session."""
    wire = wires(database)
    consumer = subject(database.uri(), work_connection=database.uri(wire.port), work_timeout=WORK_TIMEOUT_S).listen()
    since = consumer.mark()
    wire.mute()
    database.notify(1)
    assert isinstance(consumer.wait(events.Disconnected, since).error, TimeoutError)
    consumer.wait(events.Waiting, since)
    wire.unmute()
    consumer.wait(events.Listening, since)
    database.until_done(1)
    consumer.stop()


def test_work_connection_is_silent_with_own_store(database, subject, wires):
    """Guards: the connection that has the lock is asked before each batch, and left if it does not answer."""
    class Store:
        """In memory."""

        position = None

        def load(self):
            """The position."""
            return self.position

        def save(self, position):
            """Keeps it."""
            self.position = position

    seen = []
    wire = wires(database)
    consumer = subject(database.uri(), work_connection=database.uri(wire.port), work_timeout=WORK_TIMEOUT_S, store=Store(),
                       work=lambda batch: seen.extend(each.payload for each in batch)).listen()
    since = consumer.mark()
    wire.mute()
    database.notify(1)
    assert isinstance(consumer.wait(events.Disconnected, since).error, TimeoutError)
    wire.unmute()
    consumer.wait(events.Handled, since)
    assert seen == ["1"] and not consumer.events(events.Failing)
    consumer.stop()


def test_slow_is_not_silent(database, subject):
    """Guards: while a handler works, and while nothing is sent, no connection is left."""
    def work(batch):
        time.sleep(1)
        return [("INSERT INTO done VALUES ($1)", each.payload) for each in batch]

    consumer = subject(database.uri(), work=work, heartbeat=0.3).listen()
    for number in range(3):
        database.notify(number)
        database.until_done(*range(number + 1))
    time.sleep(1.5)  # nothing is sent, and nothing may happen
    assert not consumer.events(events.Disconnected)
    consumer.stop()


def test_client_is_gone(database, subject, wires):
    """Guards: the server ends a session whose client has gone in the middle of a long statement, and frees its lock."""
    def work(batch):
        return [("SELECT pg_sleep(1000)",)]

    wire = wires(database)
    first = subject(database.uri(), work_connection=database.uri(wire.port), work=work).listen()
    database.notify(1)
    database.until(lambda: database.one("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), "it sleeps")
    second = subject(database.uri()).start()
    second.wait(events.Waiting)
    first.consumer.stop()
    wire.close()
    second.wait(events.Listening)
    database.until_done(1)
    second.stop()
    first.stop()
