"""Clients and databases in encodings other than UTF-8; each on a stock server as well."""

import psycopg
import pytest

from servers import has_herald
from support import hear, notify
from wire import fatal, kinds, payloads

pytestmark = pytest.mark.seam

OTHER_WORDS = (160002,)  # stock servers that end such a connection differently, which later minor versions fixed


@pytest.fixture
def ends_at_once(server):
    """Skips stock servers that do not at once end a connection, with the reason, for an unconvertible notification."""
    if not has_herald(server) and int(server.psql("SHOW server_version_num")) in OTHER_WORDS:
        pytest.skip("this minor version of the stock server ends the connection later, without the reason")


def test_client_in_latin1(server, connect):
    """Guards: payloads and channels are converted to the client's encoding, both ways."""
    listener, sender = connect(server, client_encoding="latin1"), connect(server)
    listener.execute('LISTEN "größe"')
    notify(sender, "größe", "schön", "äöüß", "plain")
    assert hear(listener, 3) == ["schön", "äöüß", "plain"]
    listener.execute("NOTIFY \"größe\", 'über'")
    sender.execute('LISTEN "größe"')
    notify(listener, "größe", "é")
    assert hear(sender, 1) == ["é"]
    assert hear(listener, 2) == ["über", "é"]


@pytest.mark.usefixtures("ends_at_once")
def test_payload_that_cannot_be_converted(server, connect, wire):
    """Guards: it ends that client's connection with FATAL, after earlier notifications; other listeners receive all."""
    latin1, listener, sender = wire(server, client_encoding="LATIN1"), connect(server), connect(server)
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


def test_client_without_encoding(server, connect, wire):
    """Guards: a client with SQL_ASCII receives the bytes unchanged."""
    ascii_client, sender = wire(server, client_encoding="SQL_ASCII"), connect(server)
    ascii_client.query("LISTEN c")
    notify(sender, "c", "日本 é")
    assert payloads([ascii_client.receive()]) == ["日本 é"]


@pytest.fixture
def database_in(server):
    """database_in(encoding): creates a database in that encoding; with the extension if the server has pg_herald."""
    def create(encoding: str) -> str:
        server.psql(f"CREATE DATABASE encoded ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        if has_herald(server):
            server.create_herald("encoded")
        return "encoded"

    yield create
    server.psql("DROP DATABASE IF EXISTS encoded WITH (FORCE)")


@pytest.mark.parametrize("encoding, channel, words", [
    ("LATIN1", "größe", ["schön", "x" * 7998 + "é"]),
    ("EUC_JP", "日本", ["東京", "plain", "カ" * 3000, "ｶﾅ"]),
    ("WIN1251", "привет", ["мир", "№ 1"]),
    ("EUC_KR", "한국", ["서울"]),
])
def test_database_in_another_encoding(server, database_in, connect, encoding, channel, words):
    """Guards: a database in another encoding stores notifications in it, and converts them for the client."""
    dbname = database_in(encoding)
    listener, sender = connect(server, dbname), connect(server, dbname)
    listener.execute(f'LISTEN "{channel}"')
    notify(sender, channel, *words)
    sender.execute(f"NOTIFY \"{channel}\", '{words[0]}'")
    assert hear(listener, len(words) + 1) == [*words, words[0]]
    if has_herald(server):
        assert sender.execute("SELECT channel FROM herald.channels").fetchall() == [(channel,)]


def test_length_counts_in_the_servers_encoding(server, database_in, connect):
    """Guards: the limit of 7999 bytes applies to the server's encoding, not to the client's."""
    euc, utf8 = connect(server, database_in("EUC_JP")), connect(server)
    for connection, bytes_each in ((euc, 2), (utf8, 3)):
        most = 7999 // bytes_each
        connection.execute("LISTEN c")
        notify(connection, "c", "日" * most)
        assert hear(connection, 1) == ["日" * most]
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="payload string too long"):
            notify(connection, "c", "日" * (most + 1))


@pytest.mark.usefixtures("ends_at_once")
def test_database_without_encoding(server, database_in, connect, wire):
    """Guards: a database in SQL_ASCII passes bytes on unchanged; they must be valid in the encoding that the client has
    asked for, or its connection ends."""
    dbname = database_in("SQL_ASCII")
    raw, utf8, latin1 = (wire(server, dbname, client_encoding=encoding)
                         for encoding in ("SQL_ASCII", "UTF8", "LATIN1"))
    sender = connect(server, dbname, client_encoding="SQL_ASCII")
    for client in (raw, utf8, latin1):
        client.query("LISTEN c")
    notify(sender, "c", "日本")
    for client in (raw, utf8, latin1):
        assert payloads([client.receive()]) == ["日本"]
    sender.execute("SELECT pg_notify('c', convert_from('\\xff'::bytea, 'SQL_ASCII'))")
    for client in (raw, latin1):
        kind, body = client.receive()
        assert kind == "A" and body[4:] == b"c\0\xff\0"
    assert fatal(utf8.until_ready()) == 'invalid byte sequence for encoding "UTF8": 0xff'


@pytest.mark.usefixtures("ends_at_once")
@pytest.mark.parametrize("when", ["idle", "at the end of its transaction", "after its own commit"])
def test_when_the_conversion_fails(server, connect, wire, when):
    """Guards: a notification that cannot be converted ends the connection, whenever it is delivered; if it is delivered
    after the session's own commit, the commit stands; other sessions are not affected."""
    client, utf8, sender = wire(server, client_encoding="LATIN1"), connect(server), connect(server)
    utf8.execute("LISTEN c")
    client.query("LISTEN c")
    if when == "idle":
        notify(sender, "c", "日本")
        messages = client.until_ready()
        assert kinds(messages) == "E"
    elif when == "at the end of its transaction":
        client.query("BEGIN; SELECT 1")
        notify(sender, "c", "日本")
        messages = client.query("COMMIT")
        assert kinds(messages) == "CE"
    else:
        messages = client.query("DO $$ BEGIN PERFORM pg_notify('c', chr(26085) || chr(26412)); END $$")
        assert kinds(messages) == "CE"
    assert fatal(messages).endswith('has no equivalent in encoding "LATIN1"')
    assert hear(utf8, 1) == ["日本"]
    notify(sender, "c", "next")
    assert hear(utf8, 1) == ["next"]


@pytest.mark.usefixtures("ends_at_once")
def test_channel_that_cannot_be_converted(server, connect, wire):
    """Guards: a channel name that cannot be converted ends the connection, as a payload does, of its listeners only."""
    client, other, sender = wire(server, client_encoding="LATIN1"), wire(server, client_encoding="LATIN1"), \
        connect(server)
    client.query("DO $$ BEGIN EXECUTE 'LISTEN ' || chr(26085); END $$; LISTEN c")
    other.query("LISTEN c")
    notify(sender, "日", "x")
    notify(sender, "c", "end")
    assert fatal(client.until_ready()).endswith('has no equivalent in encoding "LATIN1"')
    assert payloads([other.receive()]) == ["end"]


def test_encoding_changed_midway(server, connect):
    """Guards: SET client_encoding applies to everything delivered after it."""
    listener, sender = connect(server), connect(server)
    listener.execute("LISTEN c")
    for encoding in ("latin1", "utf8", "latin1", "utf8"):
        listener.execute(f"SET client_encoding = {encoding}")
        notify(sender, "c", f"é {encoding}")
        assert hear(listener, 1) == [f"é {encoding}"]
