"""What must not happen when the user's functions do what they should not, with each driver."""

import pytest

from pg_herald import ConfigurationError, HeraldError, _engine, events

PASSING = ("08006", "25006", "40001", "40P01", "53100", "55P03", "58030")
POSITION = "SELECT position FROM herald_consumer"


def insert(batch):
    """The work, as statements."""
    return [("INSERT INTO done VALUES ($1)", each.payload) for each in batch]


def test_batch_is_used_up(database, subject):
    """Guards: a handler that empties its list, and fails on the way, gets all of it at the next attempt."""
    failed = []

    def work(batch):
        while batch:
            notification = batch.pop(0)
            if notification.payload == "3" and not failed:
                failed.append(notification)
                yield ValueError("not yet")
            yield ("INSERT INTO done VALUES ($1)", notification.payload)

    consumer = subject(database.uri(), work=work).listen()
    database.notify(1, 2, 3, 4, 5)
    consumer.wait(events.Handled, count=5)
    assert failed and database.done() == ["1", "2", "3", "4", "5"]
    consumer.stop()


@pytest.mark.parametrize("subject", ["psycopg"], indirect=True)
@pytest.mark.parametrize("what", ["state", "handle", "poison"])
def test_function_that_must_be_awaited(database, subject, what):
    """Guards: the work of such a function is not done, so that no position may be stored; another attempt would not help."""
    async def never():
        raise AssertionError

    def work(batch):
        yield never if what == "handle" else ValueError("no")

    options = {"state": lambda reason: [never] if what == "state" else [], "poison": lambda notification, error: [never]}
    consumer = subject(database.uri(), work=work, attempts=1, **options).start()
    before = None
    if what != "state":
        consumer.wait(events.Listening)
        before = database.one(POSITION)
        database.notify(1)
    error = consumer.has_ended()
    assert type(error) is ConfigurationError and consumer.seen[-1].error is error
    assert database.one(POSITION) == before and not consumer.events(events.Handled)


@pytest.mark.parametrize("what", ["handle", "state"])
@pytest.mark.parametrize("statement", ["ROLLBACK", "COMMIT"])
def test_transaction_is_ended(database, subject, statement, what):
    """Guards: what was undone is not taken for done, together and one by one; and poison is not asked."""
    calls = []

    def end_at_first():
        calls.append(1)
        return [(statement,)] if len(calls) <= 3 else []

    def state(reason):
        return end_at_first() if what == "state" else []

    def work(batch):
        return insert(batch) + (end_at_first() if what == "handle" else [])

    consumer = subject(database.uri(), work=work, state=state, poison=lambda notification, error: ["skip"],
                       attempts=4 if what == "state" else 2).listen()
    database.notify(1)
    consumer.wait(events.Handled)
    assert database.done() == ["1"] * (4 if (statement, what) == ("COMMIT", "handle") else 1)
    assert type(consumer.events(events.Failing)[0].error) is HeraldError and len(calls) == 4
    assert not consumer.events(events.Poison)
    consumer.stop()


def test_passing_errors_are_no_poison(database, subject):
    """Guards: the attempt fails, and is made again; what is the notification's fault goes to poison."""
    calls = []

    def work(batch):
        calls.extend(each.payload for each in batch)
        for each in batch:
            if each.payload not in PASSING or calls.count(each.payload) <= 3:
                yield (f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{each.payload}'; END $$",)
        yield from insert(batch)

    consumer = subject(database.uri(), work=work, attempts=2, poison=lambda notification, error: ["skip"]).listen()
    for count, code in enumerate(PASSING, 1):
        database.notify(code)
        database.until_done(*PASSING[:count])
        assert not consumer.events(events.Poison)
    database.notify("57014")
    assert consumer.wait(events.Poison).payload == "57014"
    consumer.stop()
    assert len(consumer.events(events.Failing)) == 3 * len(PASSING) + 2


def test_work_connection_listens_as_well(database, subject):
    """Guards: what arrives on the work connection is not the consumer's, and does not stand for silence on the other one."""
    def work(batch):
        return [("LISTEN another",), *insert(batch)]

    consumer = subject(database.uri(), work=work).listen()
    for number in range(1, 6):
        database.notify("no", channel="another")
        database.notify(number)
        database.until_done(*range(1, number + 1))
    assert not consumer.events(events.Disconnected)
    consumer.stop()


def test_session_has_listened_before(database, subject, monkeypatch):
    """Guards: what a pooler's session still sends for an earlier client is not taken for what was asked for."""
    database.sql("""CREATE FUNCTION earlier() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        LISTEN another;
        PERFORM pg_notify('another', 'no');
        RETURN true;
    END $$""")
    listen = _engine.Engine._listen

    async def listen_after_that(engine, session):
        await session.fetch("SELECT earlier()")
        return await listen(engine, session)

    monkeypatch.setattr(_engine.Engine, "_listen", listen_after_that)
    consumer = subject(database.uri(), work=insert).listen()
    database.notify(1)
    database.until_done(1)
    consumer.stop()
