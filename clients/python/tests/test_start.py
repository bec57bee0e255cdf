"""Errors at the start are the caller's; the same causes later are events."""

import asyncio
import socket

import pytest

import pg_herald.asyncpg
from pg_herald import (
    AsyncConsumer,
    AuthenticationError,
    ConfigurationError,
    Consumer,
    DatabaseMissingError,
    ExtensionMissingError,
    HandlerError,
    StockServerError,
    StoreError,
    UnreachableError,
    events,
)

SQL = "INSERT INTO done VALUES ('by handle')"


@pytest.fixture
def closed_port():
    """A port of which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        return door.getsockname()[1]


def test_refused(database, subject, closed_port):
    """Guards: each cause has its error; nothing is tried again."""
    database.sql("DROP ROLE IF EXISTS ordinary; CREATE ROLE ordinary LOGIN PASSWORD 'ordinary'")
    ordinary = database.uri(user="ordinary", password="ordinary")
    for kind, uri, options in (
            (UnreachableError, database.uri(port=closed_port), {}),
            (UnreachableError, database.uri(), {"work_connection": database.uri(port=closed_port)}),
            (AuthenticationError, database.uri(password="wrong"), {}),
            (AuthenticationError, database.uri(user="nobody_at_all"), {}),
            (DatabaseMissingError, database.uri(dbname="no_such_database"), {}),
            (StoreError, database.uri(), {"table": "no_such_table"}),
            (StoreError, database.uri(), {"table": "no_such_schema.no_such_table"}),
            (StoreError, ordinary, {})):
        consumer = subject(uri, **options).start()
        error = consumer.has_ended()
        assert type(error) is kind and str(error) and "wrong" not in str(error), error
        assert not consumer.events(events.Disconnected) and not consumer.events(events.Stopped)
    database.sql("DROP ROLE ordinary; DROP EXTENSION pg_herald")
    assert type(subject(database.uri()).start().has_ended()) is ExtensionMissingError


def test_refused_while_another_is_active(database, subject):
    """Guards: one that will have to wait learns at its start what is wrong."""
    active = subject(database.uri()).listen()
    assert type(subject(database.uri(), table="no_such_table").start().has_ended()) is StoreError
    wrong = subject(database.uri(password="wrong"), work_connection=database.uri()).start()
    assert type(wrong.has_ended()) is AuthenticationError
    active.stop()


def test_stock_server_is_refused(stock, subject):
    """Guards: `require`."""
    assert type(subject(stock.uri(), require=True).start().has_ended()) is StockServerError


def test_later_causes_are_events(database, subject):
    """Guards: what is an error at the start is tried again later."""
    consumer = subject(database.uri()).listen()
    for cause, cure, kind in (("ALTER TABLE herald_consumer RENAME TO away", "ALTER TABLE away RENAME TO herald_consumer",
                               StoreError),
                              ("DROP EXTENSION pg_herald", "CREATE EXTENSION pg_herald", ExtensionMissingError)):
        since = consumer.mark()
        database.sql(cause)
        database.terminate()
        database.until(lambda kind=kind, since=since: any(
            type(event.error) is kind for event in consumer.events(events.Disconnected, since)), "it says why")
        database.sql(cure)
        consumer.wait(events.Listening, since)
    database.notify(1)
    database.until_done(1)
    consumer.stop()


def test_several_hosts(database, subject, closed_port):
    """Guards: hosts are tried in turn."""
    host = database.address["host"]
    uri = database.uri().replace(f"{host}:", f"{host}:{closed_port},{host}:")
    consumer = subject(uri).listen()
    assert consumer.wait(events.Listening).server == f"{host}:{database.address['port']}"
    consumer.stop()


def test_options_of_the_driver(database, subject):
    """Guards: a connection may be a dict of the driver's own arguments."""
    address = dict(database.address)
    if subject.driver == "asyncpg":
        connection = {**address, "database": database.name, "server_settings": {"application_name": "mine"}}
    else:
        connection = {**address, "dbname": database.name, "application_name": "mine"}
    consumer = subject(connection).listen()
    assert database.one("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                        " AND application_name = 'mine'") == 2
    consumer.stop()


def test_create_store(database, subject):
    """Guards: it makes the table, also a second time, and where it is to be."""
    database.sql("DROP TABLE herald_consumer; CREATE SCHEMA app")
    consumer = subject(database.uri(), table="app.progress")
    for _ in range(2):
        made = consumer.consumer.create_store()
        if made is not None:
            asyncio.run(made)
    consumer.listen().stop()
    assert database.one("SELECT epoch FROM app.progress") == 1


def test_create_store_without_privilege(database, subject):
    """Guards: where the table is, it needs no privilege to create one."""
    database.sql("DROP ROLE IF EXISTS ordinary; CREATE ROLE ordinary LOGIN PASSWORD 'ordinary';"
                 " REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    consumer = subject(database.uri(user="ordinary", password="ordinary")).consumer

    def create():
        made = consumer.create_store()
        if made is not None:
            asyncio.run(made)

    create()
    database.sql("DROP TABLE herald_consumer")
    with pytest.raises(StoreError):
        create()
    database.sql("DROP ROLE ordinary")


def test_with_in_a_thread(database):
    """Guards: `with` runs it in the background; its start raises, and its end."""
    def handle(batch, transaction):
        transaction.execute(SQL)

    def fail(batch, transaction):
        raise ValueError("no")

    options = {"name": "billing", "channels": ["orders"], "heartbeat": 1}
    with Consumer(database.uri(), handle=handle, **options) as consumer:
        database.notify(1)
        database.until_done("by handle")
    with consumer:  # a second time
        database.notify(2)
        database.until_done("by handle", "by handle")
    with pytest.raises(StoreError):
        with Consumer(database.uri(), handle=handle, table="no_such_table", **options):
            raise AssertionError
    ended = []
    with pytest.raises(HandlerError):
        with Consumer(database.uri(), handle=fail, attempts=1, on_event=ended.append, **options):
            database.notify(3)
            database.until(lambda: isinstance(ended[-1], events.Stopped), "it ends")
    with pytest.raises(KeyError):
        with Consumer(database.uri(), handle=handle, **options):
            raise KeyError


@pytest.mark.parametrize("kind", [AsyncConsumer, pg_herald.asyncpg.AsyncConsumer])
def test_with_in_a_task(database, kind):
    """Guards: `async with` does the same."""
    async def handle(batch, transaction):
        await transaction.execute(SQL)

    async def fail(batch, transaction):
        raise ValueError("no")

    async def main():
        options = {"name": "billing", "channels": ["orders"], "heartbeat": 1}
        async with kind(database.uri(), handle=handle, **options) as consumer:
            database.notify(1)
            await asyncio.to_thread(database.until_done, "by handle")
        async with consumer:  # a second time
            database.notify(2)
            await asyncio.to_thread(database.until_done, "by handle", "by handle")
        with pytest.raises(StoreError):
            async with kind(database.uri(), handle=handle, table="no_such_table", **options):
                raise AssertionError
        ended = []
        with pytest.raises(HandlerError):
            async with kind(database.uri(), handle=fail, attempts=1, on_event=ended.append, **options):
                database.notify(3)
                await asyncio.to_thread(database.until, lambda: isinstance(ended[-1], events.Stopped), "it ends")
        with pytest.raises(KeyError):
            async with kind(database.uri(), handle=handle, **options):
                raise KeyError
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_wrong_hosts_of_asyncpg(database):
    """Guards: a port that is no number, and ports that are not those of the hosts, are a wrong configuration: none is left out."""
    for connection in ("postgresql://a:x/shop", "postgresql:///shop?host=a,b,c&port=1,2"):
        consumer = pg_herald.asyncpg.AsyncConsumer(connection, name="billing", channels=["orders"], handle=handle_nothing)
        with pytest.raises(ConfigurationError, match="x|3 hosts and 2 ports"):
            asyncio.run(consumer.run())


def test_store_that_does_not_answer(database):
    """Guards: load() of an asynchronous store has a time, as other functions of the user's have."""
    class Silent:
        """A store."""

        async def load(self):
            """Never answers."""
            await asyncio.Event().wait()

        async def save(self, position):
            """Is not called."""

    async def handle(batch):
        """Is not called."""

    consumer = AsyncConsumer(database.uri(), name="billing", channels=["orders"], handle=handle, store=Silent(), work_timeout=0.5)
    with pytest.raises(StoreError, match="longer than 0.5 s"):
        asyncio.run(consumer.run())


async def handle_nothing(batch, connection):
    """Is not called."""
