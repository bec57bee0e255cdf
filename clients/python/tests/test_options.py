"""Wrong arguments, which need no server to be found."""

import pytest

from pg_herald import AsyncConsumer, ConfigurationError, Consumer
from pg_herald._options import quote
from pg_herald.asyncpg import _each_host, _each_target

LONGEST = "ä" * 31 + "x"  # 63 bytes


def handle(batch, transaction):
    """Does nothing."""


def handle_alone(batch):
    """Does nothing."""


class NoStore:
    """A store that is never used."""

    def load(self):
        """Nothing."""

    def save(self, position):
        """Nothing."""


GOOD = {"name": "billing", "channels": ["orders"], "handle": handle}
WRONG = {
    "no name": {"name": None}, "empty name": {"name": ""}, "long name": {"name": LONGEST + "x"}, "our name": {"name": "herald_x"},
    "no channels": {"channels": []}, "one text": {"channels": "orders"}, "empty channel": {"channels": ["orders", ""]},
    "long channel": {"channels": ["ä" * 32]}, "our channel": {"channels": ["herald_position"]}, "null": {"channels": ["a\0"]},
    "no handler": {"handle": None}, "handler without transaction": {"handle": handle_alone},
    "handler with transaction": {"handle": handle, "store": NoStore()}, "state": {"state": lambda: None},
    "poison": {"poison": lambda notification: "skip"}, "shared with name": {"shared": True, "handle": handle_alone},
    "shared with store": {"shared": True, "name": None, "store": NoStore(), "handle": handle_alone},
    "heartbeat": {"heartbeat": 0.09}, "work_timeout": {"work_timeout": -1}, "backoff": {"backoff": (0, 10)}, "batch": {"batch": 0},
    "attempts": {"attempts": 0}, "table": {"table": "a.b.c"}, "empty table": {"table": ""},
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments(what):
    with pytest.raises(ConfigurationError):
        Consumer(**{**GOOD, **WRONG[what]})


@pytest.mark.parametrize("what", ["handle", "state", "poison", "load", "save"])
def test_coroutine_functions(what):
    async def function(*arguments):
        """Would never run."""

    options = {**GOOD, what: function}
    if what in ("load", "save"):
        store = NoStore()
        setattr(store, what, options.pop(what))
        options.update(store=store, handle=handle_alone)
    AsyncConsumer(**options)
    with pytest.raises(ConfigurationError, match="AsyncConsumer"):
        Consumer(**options)


def test_right_arguments():
    Consumer(**GOOD)
    Consumer(**{**GOOD, "name": LONGEST, "channels": [LONGEST], "table": "app.progress"})
    Consumer(**{**GOOD, "store": NoStore(), "handle": handle_alone, "state": lambda reason: None})
    Consumer(shared=True, channels=["orders"], handle=handle_alone, poison=lambda notification, error: "skip")


def test_quoting():
    assert quote('a "b"') == '"a ""b"""'
    assert Consumer(**{**GOOD, "table": 'app.pro"gress'})._options.table == '"app"."pro""gress"'


HOSTS = {
    "postgresql://user:word@one:1,two:2/base": [("one", 1), ("two", 2)],
    "postgresql://one,two:2/base": [("one", 5432), ("two", 2)],
    "postgresql://u:p%40q@[::1]:3,%2Ftmp%2Fsockets/base": [("::1", 3), ("/tmp/sockets", 5432)],
    "postgresql:///base?host=one,two&port=1,2": [("one", 1), ("two", 2)],
    "postgresql:///base?host=/tmp&port=7": [("/tmp", 7)],
    "postgresql:///base": [],
}


@pytest.mark.parametrize("dsn", HOSTS)
def test_hosts_of_asyncpg(dsn, monkeypatch):
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.delenv("PGPORT", raising=False)
    found = _each_host({"dsn": dsn})
    assert found == ([{"host": host, "port": port} for host, port in HOSTS[dsn]] or [{}])


def test_hosts_of_asyncpg_as_arguments(monkeypatch):
    monkeypatch.setenv("PGPORT", "9")
    assert _each_host({"host": "one", "port": 1}) == [{"host": "one", "port": 1}]
    assert _each_host({"host": ["one", "two"], "port": [1, 2]}) == [{"host": "one", "port": 1}, {"host": "two", "port": 2}]
    assert _each_host({"host": ["one", "two"]}) == [{"host": "one", "port": 9}, {"host": "two", "port": 9}]


def test_targets_of_asyncpg():
    prefer = [{"target_session_attrs": "standby"}, {"target_session_attrs": "any"}]
    assert _each_target({"target_session_attrs": "prefer-standby"}) == prefer
    assert _each_target({"dsn": "postgresql://a/b?target_session_attrs=prefer-standby"}) == prefer
    assert _each_target({"dsn": "postgresql://a/b"}) == [{}]
