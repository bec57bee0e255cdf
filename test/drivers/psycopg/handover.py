"""A client of a session pool must not inherit its predecessor's channels. See ../README.md.

PGHOST and PGPORT name a pooler whose clients share one connection to the server. DIRECT_HOST and
DIRECT_PORT name the server, to which notifications are sent.
"""

import json
import os
import sys

import psycopg

ROUNDS = 50
NOTIFICATIONS = 20  # to the predecessor's channel, while the successor is connected
DEADLINE_S = 60


def connect(**options: str) -> psycopg.Connection:
    """A connection with the parameters of the environment, or of the options."""
    return psycopg.connect(autocommit=True, **options)


def first_client(sender: psycopg.Connection) -> int:
    """Listens, receives, and disconnects without UNLISTEN; returns the PID of its server process."""
    with connect() as connection:
        (pid,), = connection.execute("SELECT pg_backend_pid()").fetchall()
        connection.execute("LISTEN events")
        sender.execute("NOTIFY events, 'for the first client'")
        heard = [notify.payload for notify in connection.notifies(timeout=DEADLINE_S, stop_after=1)]
        if heard != ["for the first client"]:
            sys.exit(f"handover: the first client heard {heard}")
    return pid


def second_client(sender: psycopg.Connection, predecessor: int) -> None:
    """Uses the same server process, and must receive only notifications on its own channel."""
    with connect() as connection:
        heard = []
        connection.add_notify_handler(heard.append)
        (pid,), = connection.execute("SELECT pg_backend_pid()").fetchall()
        if pid != predecessor:
            sys.exit(f"handover: the second client got server process {pid} instead of {predecessor}")
        channels = connection.execute("SELECT pg_listening_channels()").fetchall()
        for _ in range(NOTIFICATIONS):
            sender.execute("NOTIFY events, 'for nobody'")
        connection.execute("LISTEN own")
        connection.execute("NOTIFY own")
        # A session's own notification arrives with the result of NOTIFY, after all that were sent before.
        if channels or [(notify.channel, notify.pid) for notify in heard] != [("own", pid)]:
            sys.exit(f"handover: the second client began with the channels {channels}"
                     f" and heard {[notify.channel for notify in heard]}")


def main() -> None:
    with connect(host=os.environ["DIRECT_HOST"], port=os.environ["DIRECT_PORT"], dbname="postgres") as sender:
        for _ in range(ROUNDS):
            second_client(sender, first_client(sender))
    print(json.dumps({"driver": "handover", "version": psycopg.__version__, "heard": 2 * ROUNDS,
                      "steps": ["handover"]}))


if __name__ == "__main__":
    try:
        main()
    except psycopg.Error as problem:
        sys.exit(f"handover: {problem}")
