"""Follows the steps of docs/removing.md unchanged, while an application runs; it loses no notification."""

import os
import re
import subprocess
import threading
import time

import psycopg
import pytest

from harness.cluster import Cluster
from harness.prefix import TOP
from support import one, until
from test_operations_doc import blocks, herald_is_gone, run

PAGE = TOP / "docs/removing.md"
QUICK_START = re.compile(r"In `postgresql.conf`.*?```\n(.*?)^```", re.MULTILINE | re.DOTALL)
EDIT = re.compile(r"^```sh\n(conf=.*?)^```", re.MULTILINE | re.DOTALL)
AS_WHO_MAY = 'sudo() { if [ "$1" = -u ]; then shift 2; fi; "$@"; }\n'
RESTARTS = re.compile(r"^ALTER SYSTEM RESET shared_preload_libraries", re.MULTILINE)
WHILE_IT_RUNS_S = 0.5

EVENTS = """
    CREATE TABLE event (id bigint GENERATED ALWAYS AS IDENTITY);
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_notify('event', NEW.id::text); RETURN NEW; END $$;
    CREATE TRIGGER tell AFTER INSERT ON event FOR EACH ROW EXECUTE FUNCTION tell();
    CREATE ROLE app;
    ALTER ROLE app SET work_mem = '5MB';
    ALTER ROLE app SET herald_cache.memory = '1MB';
    ALTER ROLE ALL SET herald.enabled = on;
    ALTER ROLE app IN DATABASE postgres SET herald.enabled = on;
"""


class Application:
    """Inserts rows whose trigger notifies; receives a notification for each, or reads the rows when it connects."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.heard: list[int] = []
        self.read: list[int] = []  # the rows read when it connected
        self.connected = 0
        self.done = threading.Event()
        self.problems: list[Exception] = []
        self.threads = [threading.Thread(target=self.again, args=(part,)) for part in (self.sends, self.hears)]
        for thread in self.threads:
            thread.start()

    def again(self, part) -> None:
        """Runs `part` with a new connection whenever the last one has ended."""
        while not self.done.is_set():
            try:
                with psycopg.connect(host=str(self.cluster.socket_folder), port=self.cluster.port, user="postgres",
                                     autocommit=True) as connection:
                    part(connection)
            except psycopg.OperationalError:
                time.sleep(0.02)
            except Exception as problem:  # pylint: disable=broad-exception-caught
                self.problems.append(problem)
                return

    def sends(self, connection: psycopg.Connection) -> None:
        """Inserts one row after the other."""
        while not self.done.is_set():
            connection.execute("INSERT INTO event DEFAULT VALUES")
            time.sleep(0.001)

    def hears(self, connection: psycopg.Connection) -> None:
        """Executes LISTEN before it reads the table, so that no row is missed in between."""
        connection.execute("LISTEN event")
        self.read += [event for event, in connection.execute("SELECT id FROM event")]
        self.connected += 1
        while not self.done.is_set():
            self.heard += [int(notification.payload) for notification in connection.notifies(timeout=0.1)]

    def end(self) -> None:
        """Stops both threads."""
        self.done.set()
        for thread in self.threads:
            thread.join(60)
        assert not self.problems, self.problems


def edit(cluster: Cluster) -> None:
    """Runs the page's commands that edit postgresql.conf, as a user who needs no sudo."""
    commands = AS_WHO_MAY + EDIT.search(PAGE.read_text(encoding="utf-8"))[1]
    programs = f"{cluster.installation.bindir}:{os.environ['PATH']}"
    subprocess.run(["bash", "-euc", commands], check=True, env=cluster.environment() | {"PATH": programs})


@pytest.mark.parametrize("way", ["ALTER SYSTEM", "postgresql.conf"])
def test_nothing_is_lost(way):
    """Guards: whichever way pg_herald was set up, until the restart a notification arrives for each row, on one
    connection; then the application reads the rows that it has missed, and receives new ones; nothing of pg_herald is
    left."""
    with Cluster(settings={"fsync": False, "autovacuum": False}) as cluster:
        if way == "ALTER SYSTEM":
            cluster.psql("ALTER SYSTEM SET shared_preload_libraries = pg_herald, pg_herald_cache")
        else:
            with open(cluster.data / "postgresql.conf", "a", encoding="utf-8") as settings:
                settings.write(QUICK_START.search((TOP / "README.md").read_text(encoding="utf-8"))[1])
                settings.write("herald.retain_size = 1MB\n")
        cluster.restart()
        cluster.psql("ALTER SYSTEM SET herald.max_queue_size = '1GB';" + EVENTS)
        cluster.psql("CREATE EXTENSION pg_herald")
        if way == "ALTER SYSTEM":
            cluster.psql("CREATE EXTENSION pg_herald_cache")
        application = Application(cluster)
        until(lambda: len(application.heard) > 100, "it runs")
        counted = int(cluster.psql("SELECT delivered FROM herald.stats"))
        assert counted > 0
        for block in blocks(PAGE):
            if RESTARTS.search(block["sql"]):
                heard, (first, last) = set(application.heard), (application.heard[0], application.heard[-1])
                missing = set(range(first, last)) - heard - set(application.read)
                until(lambda: missing <= set(application.heard), "what is on its way arrives")
                assert application.connected == 1
                assert cluster.psql("SELECT to_regnamespace('herald') IS NULL") == "t"
            run(cluster, block)
            if RESTARTS.search(block["sql"]):
                edit(cluster)
                cluster.restart()
                until(lambda: application.connected == 2, "the application is back")
            before = len(application.heard)
            time.sleep(WHILE_IT_RUNS_S)
            until(lambda: len(application.heard) > before + 20, "the application goes on")
        application.done.wait(WHILE_IT_RUNS_S)
        with psycopg.connect(host=str(cluster.socket_folder), port=cluster.port, user="postgres") as watcher:
            sent = {event for event, in watcher.execute("SELECT id FROM event")}
            until(lambda: sent <= set(application.heard) | set(application.read), "all have been heard of, or read")
            assert one(watcher, "SELECT count(*) FROM pg_listening_channels()") == 0
        application.end()
        assert len(application.heard) == len(set(application.heard)), "heard twice"
        assert herald_is_gone(cluster)
        assert cluster.psql("SELECT setconfig FROM pg_db_role_setting") == "{work_mem=5MB}"
        assert "herald" not in (cluster.data / "postgresql.conf").read_text(encoding="utf-8")
        assert not cluster.damage(), cluster.damage()
