"""Clients and databases with other encodings than UTF-8; each on a stock server as well."""

import pytest

from support import hear, notify
from wire import fatal, payloads


@pytest.fixture(params=["cluster", "stock"])
def either(request):
    """The cluster with pg_herald, and the one without."""
    return request.getfixturevalue(request.param)


def test_client_in_latin1(either, connect):
    """Guards: payloads and channels are converted to the client's encoding, both ways."""
    listener, sender = connect(either, client_encoding="latin1"), connect(either)
    listener.execute('LISTEN "größe"')
    notify(sender, "größe", "schön", "äöüß", "plain")
    assert hear(listener, 3) == ["schön", "äöüß", "plain"]
    listener.execute("NOTIFY \"größe\", 'über'")
    sender.execute('LISTEN "größe"')
    notify(listener, "größe", "é")
    assert hear(sender, 1) == ["é"]
    assert hear(listener, 2) == ["über", "é"]


def test_payload_that_cannot_be_converted(either, connect, wire):
    """Guards: it ends that client's connection with FATAL, after what came before; others hear on."""
    latin1, listener, sender = wire(either, client_encoding="LATIN1"), connect(either), connect(either)
    latin1.query("LISTEN c")
    listener.execute("LISTEN c")
    notify(sender, "c", "before")
    assert payloads([latin1.receive()]) == ["before"]
    notify(sender, "c", "日本", "after")
    messages = latin1.until_ready()
    assert payloads(messages) == []
    assert fatal(messages) == 'character with byte sequence 0xe6 0x97 0xa5 in encoding "UTF8"' \
                              ' has no equivalent in encoding "LATIN1"'
    assert hear(listener, 3) == ["before", "日本", "after"]


def test_client_without_encoding(either, connect, wire):
    """Guards: a client with SQL_ASCII gets the bytes as they are."""
    ascii_client, sender = wire(either, client_encoding="SQL_ASCII"), connect(either)
    ascii_client.query("LISTEN c")
    notify(sender, "c", "日本 é")
    assert payloads([ascii_client.receive()]) == ["日本 é"]


def test_database_in_latin1(either, connect):
    """Guards: in a database of another encoding what is stored is in that, and converted for the client."""
    either.psql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        if either.settings.get("shared_preload_libraries"):
            either.create_herald("latin")
        listener, sender = connect(either, "latin"), connect(either, "latin")
        listener.execute('LISTEN "größe"')
        notify(sender, "größe", "schön", "x" * 7998 + "é")
        assert hear(listener, 2) == ["schön", "x" * 7998 + "é"]
        if either.settings.get("shared_preload_libraries"):
            assert sender.execute("SELECT channel FROM herald.channels").fetchall() == [("größe",)]
    finally:
        either.psql("DROP DATABASE latin WITH (FORCE)")


def test_encoding_changed_midway(either, connect):
    """Guards: SET client_encoding counts for what is delivered from then on."""
    listener, sender = connect(either), connect(either)
    listener.execute("LISTEN c")
    for encoding in ("latin1", "utf8", "latin1", "utf8"):
        listener.execute(f"SET client_encoding = {encoding}")
        notify(sender, "c", f"é {encoding}")
        assert hear(listener, 1) == [f"é {encoding}"]
