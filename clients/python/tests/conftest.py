"""Servers, databases, and consumers with each driver."""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from subject import DRIVERS, Subject

HERE = Path(__file__).resolve().parent
TABLES = """
    CREATE TABLE done (payload text, channel text);
    CREATE TABLE herald_consumer (
        name text PRIMARY KEY, position text, epoch bigint NOT NULL DEFAULT 0, changed_at timestamptz NOT NULL DEFAULT now())"""
DEADLINE_S = 60
STARTS_S = 180

numbers = itertools.count(1)


class Servers:
    """The process that runs them; see servers.py."""

    def __init__(self):
        # The project's harness needs Python 3.10; PYTHON_OF_HARNESS names one when the tests run with an older one.
        python = os.environ.get("PYTHON_OF_HARNESS", sys.executable)
        self._process = subprocess.Popen([python, str(HERE / "servers.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True)
        self.addresses = json.loads(self._process.stdout.readline())

    def restart(self, name):
        """Restarts a server, and waits until it runs."""
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "restarted\n"

    def end(self):
        """Ends them; an error if one was damaged."""
        self._process.stdin.close()
        status = self._process.wait(STARTS_S)
        self._process.stdout.close()
        assert status == 0


class Database:
    """A database of one test."""

    def __init__(self, servers, server):
        self.servers, self.server = servers, server
        self.address = servers.addresses[server]
        self.name = f"test{next(numbers)}"
        self._connection = None

    def create(self):
        """Makes it."""
        with self.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {self.name}")
        if self.server == "herald":
            self.sql("CREATE EXTENSION pg_herald")
        self.sql(TABLES)

    def drop(self):
        """Removes it."""
        if self._connection is not None:
            self._connection.close()
        with self.connect("postgres") as connection:
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")

    def connect(self, dbname=None):
        """A connection past all proxies."""
        return psycopg.connect(**self.address, dbname=dbname or self.name, autocommit=True, application_name="test")

    def uri(self, port=None, **others):
        """How a consumer connects."""
        parts = {**self.address, "dbname": self.name, "port": port or self.address["port"], **others}
        return "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parts)

    def sql(self, statement, *parameters):
        """The rows of a statement."""
        if self._connection is None or self._connection.closed:
            self._connection = self.connect()
        cursor = self._connection.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement, *parameters):
        """The value of a query."""
        (value,), = self.sql(statement, *parameters)
        return value

    def notify(self, *payloads, channel="orders"):
        """Sends these in one transaction."""
        self.sql("SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) WITH ORDINALITY AS t (payload, n) ORDER BY n",
                 channel, list(map(str, payloads)))

    def done(self):
        """What was handled, in order."""
        return [payload for payload, in self.sql("SELECT payload FROM done ORDER BY ctid")]

    def until(self, condition, what):
        """Waits for a condition."""
        end = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            assert time.monotonic() < end, f"not within deadline: {what}"
            time.sleep(0.02)
        return found

    def until_done(self, *payloads):
        """Waits until these, and only these, were handled."""
        wanted = list(map(str, payloads))
        self.until(lambda: len(self.done()) >= len(wanted), f"these are handled: {wanted}")
        assert self.done() == wanted

    def restart(self):
        """Restarts the server."""
        if self._connection is not None:
            self._connection.close()
        self.servers.restart(self.server)

    def others(self):
        """The server processes of the consumer."""
        return [pid for pid, in self.sql("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND"
                                         " application_name <> 'test' AND backend_type = 'client backend'")]

    def terminate(self, which="true"):
        """Ends those of them for which this is true."""
        self.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ANY (%s) AND {which}", self.others())


@pytest.fixture(scope="session")
def servers():
    """Both servers."""
    if not any((folder / "harness/tcp_cluster.py").exists() for folder in HERE.parents):
        pytest.skip("needs the source tree of pg_herald")
    running = Servers()
    yield running
    running.end()


@pytest.fixture
def database(servers):
    """A database on the server with pg_herald."""
    yield from _database(servers, "herald")


@pytest.fixture
def stock(servers):
    """A database on the stock server."""
    yield from _database(servers, "stock")


def _database(servers, server):
    database = Database(servers, server)
    database.create()
    yield database
    database.drop()


@pytest.fixture(params=DRIVERS)
def subject(request):
    """subject(uri, **options) makes a consumer with each driver."""
    made = []

    def make(connection, **options):
        made.append(Subject(request.param, connection, **options))
        return made[-1]

    make.driver = request.param
    yield make
    for each in made:
        each.end()
